//! Things that go wrong on purpose at a given point of the replay.

use chassis::Stopwatch;
use chassis::stack::Stack;
use serde::Serialize;
use std::{fmt, io, path::Path, str::FromStr, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};

/// Longer than the launcher takes to start anything again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// `kill:quota@0.4` or `stop:postgres@0.3:10s`.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    pub what: What,
    pub process: String,
    /// The part of the pods that has been submitted by then.
    pub at: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// SIGKILL; the launcher starts it again by itself.
    Kill,
    /// Stopped, and started again after this long.
    Stop(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a fault is kill:PROCESS@FRACTION or stop:PROCESS@FRACTION:SECONDSs, as in stop:postgres@0.3:10s"
)]
pub struct BadFault;

impl FromStr for Fault {
    type Err = BadFault;

    fn from_str(text: &str) -> Result<Self, BadFault> {
        let (verb, rest) = text.split_once(':').ok_or(BadFault)?;
        let (process, rest) = rest.split_once('@').ok_or(BadFault)?;
        let (fraction, what) = match (verb, rest.split_once(':')) {
            ("kill", None) => (rest, What::Kill),
            ("stop", Some((fraction, length))) => {
                let seconds = length.strip_suffix('s').ok_or(BadFault)?;
                let seconds: f64 = seconds.parse().map_err(|_| BadFault)?;
                let length = Duration::try_from_secs_f64(seconds).map_err(|_| BadFault)?;
                (fraction, What::Stop(length))
            }
            _ => return Err(BadFault),
        };
        let at: f64 = fraction.parse().map_err(|_| BadFault)?;
        let named = !process.is_empty() && !process.contains(char::is_whitespace);
        if !named || !(0.0..=1.0).contains(&at) {
            return Err(BadFault);
        }
        Ok(Self {
            what,
            process: process.to_owned(),
            at,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Kill => write!(f, "kill -9 {}", self.process),
            What::Stop(length) => write!(f, "{} away for {} s", self.process, length.as_secs_f64()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    #[error("the stack has no control socket, so nothing can be made to fail")]
    NoControl,
    #[error("the launcher's control socket: {0}")]
    Io(#[from] io::Error),
    #[error("the launcher did not answer {command:?} within {} s", ANSWER_TIMEOUT.as_secs())]
    Silent { command: String },
    #[error("the launcher answers {command:?} with: {answer}")]
    Refused { command: String, answer: String },
}

/// What was done, and when, in real seconds since the replay began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FaultDone {
    pub what: String,
    pub at: f64,
    pub began_s: f64,
    pub ended_s: f64,
}

impl Fault {
    pub async fn execute(self, stack: &Stack, since: Stopwatch) -> Result<FaultDone, FaultError> {
        let control = stack.control.as_deref().ok_or(FaultError::NoControl)?;
        let began_s = since.elapsed().as_secs_f64();
        match self.what {
            What::Kill => command(control, format!("kill {}", self.process)).await?,
            What::Stop(length) => {
                command(control, format!("stop {}", self.process)).await?;
                tokio::time::sleep(length).await;
                command(control, format!("start {}", self.process)).await?;
            }
        }
        Ok(FaultDone {
            what: self.to_string(),
            at: self.at,
            began_s,
            ended_s: since.elapsed().as_secs_f64(),
        })
    }
}

/// One command to the launcher, such as `kill quota`.
pub async fn command(control: &Path, command: String) -> Result<(), FaultError> {
    let exchange = async {
        let mut stream = BufReader::new(UnixStream::connect(control).await?);
        stream.write_all(format!("{command}\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_line(&mut answer).await?;
        Ok::<String, io::Error>(answer.trim().to_owned())
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, exchange).await {
        Err(_) => Err(FaultError::Silent { command }),
        Ok(answer) => match answer? {
            answer if answer == "ok" => Ok(()),
            answer => Err(FaultError::Refused { command, answer }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_or_refused() {
        let fault = |text: &str| text.parse::<Fault>();
        let kill = fault("kill:node-heartbeat@0.4").expect("a fault");
        assert_eq!((kill.what, kill.at), (What::Kill, 0.4));
        assert_eq!(kill.process, "node-heartbeat");
        let stop = fault("stop:postgres@0.3:2.5s").expect("a fault");
        assert_eq!(stop.what, What::Stop(Duration::from_millis(2_500)));
        for bad in [
            "",
            "kill",
            "kill:quota",
            "kill:@0.4",
            "kill:quota@1.5",
            "kill:quota@x",
            "kill:quota@0.4:3s",
            "stop:quota@0.4",
            "stop:quota@0.4:3",
            "stop:quota@0.4:-3s",
            "burn:quota@0.4",
            "kill:a b@0.4",
            "kill:quota@NaN",
        ] {
            assert_eq!(fault(bad), Err(BadFault), "{bad}");
        }
    }
}
