//! A copy of the ledger on another disk.

use crate::{
    Failure,
    context::Context,
    print::{note, say},
};
use clap::{Args, Subcommand};
use ledger_nats::{Copy, CopyError};
use std::{path::PathBuf, time::Duration};

/// Between two tries while the bus is away.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Subcommand)]
pub enum LedgerCommand {
    /// Copy the ledger to files, from where the copy ends.
    Copy(CopyTo),
}

#[derive(Args)]
pub struct CopyTo {
    /// The copy's directory, on a disk that does not fail together with the bus's.
    #[arg(long, alias = "to", value_name = "DIR")]
    out: PathBuf,
    /// Go on copying what comes.
    #[arg(long)]
    follow: bool,
}

impl CopyTo {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let mut copy = Copy::open(&self.out)?;
        loop {
            let bus = match context.ledger().await {
                Ok(bus) => bus,
                Err(error) if !self.follow => return Err(error),
                Err(_) => {
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            let outcome = copy.catch_up(&bus, false).await;
            let outcome = match outcome {
                Ok(()) => {
                    tell(&copy)?;
                    if !self.follow {
                        return Ok(());
                    }
                    copy.catch_up(&bus, true).await
                }
                failed => failed,
            };
            match outcome {
                Err(CopyError::Bus(error)) if !error.is_fatal() && self.follow => {
                    note!("apportion: {error}; tried again");
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => return Err(parted(&copy, &bus, error).await),
                Ok(()) => {}
            }
        }
    }
}

fn tell(copy: &Copy) -> Result<(), Failure> {
    let head = copy.digests().last();
    let head = head.map_or_else(|| "nothing".to_owned(), ToString::to_string);
    say!("copied through lsn {}, head {head}", copy.end().0);
    Ok(())
}

/// Says where ledger and copy part, if that is the matter.
async fn parted(
    copy: &Copy,
    bus: &ledger_nats::jetstream::JetStreamBus,
    error: CopyError,
) -> Failure {
    if let CopyError::Bus(ledger::BusError::Shortened { .. }) = &error
        && let Ok(survey) = ledger_nats::survey(bus).await
    {
        let place = match survey.parts_from(copy.digests()) {
            Some(lsn) => format!("they part at lsn {}", lsn.0),
            None => format!("the ledger lacks what is behind lsn {}", survey.end().0),
        };
        return format!("{error}: {place}; see `apportion repair`").into();
    }
    error.into()
}
