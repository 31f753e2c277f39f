//! A cell's streams, made once by the operator of the bus.

use crate::Failure;
use chassis::Config;
use clap::Subcommand;
use ledger::cell::Chosen;
use schemas::subjects::Subjects;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum CellCommand {
    /// Create the streams that are missing. Run twice it changes nothing.
    Init {
        /// The configuration of the operator of the bus: the tables [cell] and [nats].
        #[arg(long)]
        config: PathBuf,
        /// Copies of every stream on the NATS cluster.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
        replicas: u8,
        /// How long a slot of reservations is, in milliseconds of the cell's clock; 0: requests say which slot they are of.
        /// It stays so for the life of the cell.
        #[arg(long, default_value_t = Chosen::default().slot_ms)]
        slot_ms: u64,
    },
}

pub async fn run(command: CellCommand) -> Result<(), Failure> {
    let CellCommand::Init {
        config,
        replicas,
        slot_ms,
    } = command;
    let chosen = Chosen {
        replicas: replicas.into(),
        slot_ms,
    };
    let config: Config<()> = Config::load(&config)?;
    let client = config
        .nats
        .options()?
        .name("apportion cell init")
        .connect(&config.nats.url)
        .await?;
    let jetstream = async_nats::jetstream::new(client);
    let subjects = Subjects::new(&config.cell.name);
    ledger::cell::init(&jetstream, &subjects, chosen).await?;
    println!("cell {}: streams are there", config.cell.name);
    Ok(())
}
