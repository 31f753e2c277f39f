//! Breaks things, and mends them again. Processes are signalled by the launcher alone, which knows whose they are.

use super::{
    agents::Agents,
    flood::{FloodError, flood},
    plan::{BUS, Fault, Kind, SERVERS, SERVICES, Supported},
    scene::Scene,
};
use chassis::stack::Stack;
use replay::{
    drive::{FaultError, command, gauge},
    fleet::{Conflict, FleetError},
};
use serde::Deserialize;
use std::{collections::BTreeMap, fs, io, path::PathBuf, sync::Arc, time::Duration};
use tokio::{io::AsyncReadExt, net::TcpStream, sync::Mutex};
use vocab::Token;

/// A process may be starting still when it is its turn, and a server may not come up at the first try.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(90);
/// How exactly the moment is known at which the bus is back.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug, thiserror::Error)]
pub enum BreakError {
    #[error(transparent)]
    Control(#[from] FaultError),
    #[error("the clock of {service}: {source}")]
    Clock {
        service: &'static str,
        source: io::Error,
    },
    #[error(transparent)]
    Agents(#[from] FleetError),
    #[error(transparent)]
    Flood(#[from] FloodError),
    #[error("the stack's file: {0}")]
    Stack(#[from] io::Error),
    #[error("the stack's file: {0}")]
    Json(#[from] serde_json::Error),
}

/// What of the stack's file nobody else reads.
#[derive(Default, Deserialize)]
struct File {
    breakable: Option<Breakable>,
}

#[derive(Clone, Default, Deserialize)]
pub struct Breakable {
    /// By service: the file that says how many nanoseconds its wall clock is ahead.
    clocks: BTreeMap<String, PathBuf>,
    /// Servers whose data lies on a file system of its own, which the launcher can fill.
    #[serde(default)]
    disks: Vec<String>,
}

impl Breakable {
    pub fn read(stack_file: &std::path::Path) -> Result<Self, BreakError> {
        let file: File = serde_json::from_str(&fs::read_to_string(stack_file)?)?;
        Ok(file.breakable.unwrap_or_default())
    }

    pub fn supported(&self) -> Supported {
        let all = SERVICES.iter();
        let has_disk = |server: &&str| self.disks.iter().any(|name| name == server);
        let disks = SERVERS.into_iter().filter(has_disk);
        Supported {
            clocks: all.clone().all(|name| self.clocks.contains_key(*name)),
            disks: Vec::from_iter(disks),
        }
    }
}

pub struct Breaker {
    scene: Arc<Scene>,
    stack: Stack,
    control: PathBuf,
    breakable: Breakable,
    agents: Mutex<Agents>,
    flooder: Token,
}

/// When it was broken, and when nothing was any more.
pub struct Performed {
    pub injected: Duration,
    pub healed: Duration,
    /// Where the bus was away: when it took connections again.
    pub back: Option<Duration>,
}

impl Breaker {
    pub fn new(
        scene: Arc<Scene>,
        stack: Stack,
        breakable: Breakable,
        agents: Agents,
        flooder: Token,
    ) -> Result<Self, BreakError> {
        let control = stack.control.clone().ok_or(FaultError::NoControl)?;
        Ok(Self {
            scene,
            stack,
            control,
            breakable,
            agents: Mutex::new(agents),
            flooder,
        })
    }

    pub async fn perform(&self, no: usize, fault: &Fault) -> Result<Performed, BreakError> {
        let length = tokio::time::sleep(fault.length());
        let back = match fault.kind {
            Kind::Kill(BUS) | Kind::Restart(BUS) => Some(tokio::spawn(back(
                self.scene.clone(),
                self.stack.nats.url.clone(),
            ))),
            _ => None,
        };
        let injected = match fault.kind {
            Kind::Kill(process) => self.tell("kill", &self.leader(process).await).await?,
            Kind::Pause(process) => {
                let process = self.leader(process).await;
                let injected = self.tell("pause", &process).await?;
                length.await;
                self.tell("resume", &process).await?;
                injected
            }
            Kind::Restart(process) => {
                let process = self.leader(process).await;
                let injected = self.tell("stop", &process).await?;
                length.await;
                self.tell("start", &process).await?;
                injected
            }
            Kind::KillTwo => {
                let mut injected = self.scene.now();
                for (at, process) in fault.services.iter().enumerate() {
                    let killed = self.tell("kill", &self.leader(process).await).await?;
                    injected = if at == 0 { killed } else { injected };
                }
                injected
            }
            Kind::ClockStep => {
                let injected = self.scene.now();
                self.set_clocks(fault.services, fault.clock_ahead_ms)?;
                length.await;
                self.set_clocks(fault.services, 0)?;
                injected
            }
            Kind::DiskFull(server) => {
                let injected = self.tell("fill", server).await?;
                length.await;
                self.tell("free", server).await?;
                injected
            }
            Kind::Flood(kind) => {
                let injected = self.scene.now();
                let flood_of = (kind, no, fault.length());
                flood(&self.scene, &self.stack, &self.flooder, flood_of).await?;
                injected
            }
            Kind::SilentAgent => {
                let injected = self.scene.now();
                self.agents.lock().await.silence(true);
                length.await;
                self.agents.lock().await.silence(false);
                injected
            }
            Kind::RestartedAgent => {
                let injected = self.scene.now();
                self.agents.lock().await.restart().await?;
                injected
            }
        };
        let healed = self.scene.now();
        let back = match back {
            Some(back) => back.await.ok(),
            None => None,
        };
        Ok(Performed {
            injected,
            healed,
            back,
        })
    }

    /// Of a service with replicas, the process that leads; of anything else, the only one.
    async fn leader(&self, process: &str) -> String {
        let services = self.stack.services.iter();
        let replicas = services.filter(|(name, _)| {
            let number = name.strip_prefix(process).and_then(|n| n.strip_prefix('-'));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        });
        for (name, service) in replicas {
            if gauge(service.http, "apportion_leading").await == Some(1) {
                return name.clone();
            }
        }
        process.to_owned()
    }

    /// One command to the launcher, until it is done; and when it was given then.
    async fn tell(&self, verb: &str, process: &str) -> Result<Duration, BreakError> {
        let since = self.scene.now();
        loop {
            let given = self.scene.now();
            match command(&self.control, format!("{verb} {process}")).await {
                Ok(()) => return Ok(given),
                Err(FaultError::Refused { .. }) if self.scene.now() - since < RETRY_MAX => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn set_clocks(&self, services: &[&'static str], ahead_ms: i64) -> Result<(), BreakError> {
        for service in services {
            let written = match self.breakable.clocks.get(*service) {
                Some(file) => set_clock(file, ahead_ms),
                None => Err(io::ErrorKind::NotFound.into()),
            };
            written.map_err(|source| BreakError::Clock { service, source })?;
        }
        Ok(())
    }

    pub async fn conflicts(&self) -> Vec<Conflict> {
        self.agents.lock().await.conflicts()
    }
}

/// When the bus takes connections again, once it has not.
async fn back(scene: Arc<Scene>, url: String) -> Duration {
    let address = url.rsplit('/').next().unwrap_or_default().to_owned();
    let mut away = false;
    loop {
        let taken = takes_connections(&address).await;
        away |= !taken;
        if away && taken {
            return scene.now();
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// A server says who it is before anything else.
async fn takes_connections(address: &str) -> bool {
    let Ok(mut connection) = TcpStream::connect(address).await else {
        return false;
    };
    let mut said = [0; 4];
    connection.read_exact(&mut said).await.is_ok()
}

/// In place and in one write: the service has the file's page in its memory.
fn set_clock(file: &std::path::Path, ahead_ms: i64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let ahead_ns = ahead_ms.saturating_mul(1_000_000);
    let file = fs::OpenOptions::new().write(true).open(file)?;
    file.write_all_at(&ahead_ns.to_ne_bytes(), 0)
}
