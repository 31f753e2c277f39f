//! A cell's streams, made once by the operator of the bus, and its feature level, which that operator raises.

use crate::{
    Failure,
    explain::object,
    print::{Output, Page, Sheet, column, number, plain, say},
};
use async_nats::Client;
use chassis::Config;
use clap::{Args, Subcommand};
use identity::SERVICES;
use ledger::Bus;
use ledger_nats::{
    cell::Chosen,
    jetstream::{JetStreamBus, Program},
};
use std::path::PathBuf;
use vocab::{Level, subjects::Subjects};

#[derive(Subcommand)]
pub enum CellCommand {
    /// Create the streams that are missing. Run twice it changes nothing.
    Init(Init),
    /// Show the cell's feature level, and the processes that read its ledger with what they know.
    Level(Show),
    /// Let newer facts be written, if every process that reads the ledger knows them. It cannot be taken back.
    Raise(Raise),
}

#[derive(Args)]
pub struct Init {
    /// The configuration of the operator of the bus: the tables [cell] and [nats].
    #[arg(long)]
    config: PathBuf,
    /// Copies of every stream on the NATS cluster.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// How long a slot of leases is, in milliseconds of the cell's clock; 0: requests say which slot they are of.
    /// It stays so for the life of the cell.
    #[arg(long, default_value_t = Chosen::default().slot_ms)]
    slot_ms: u64,
    /// The cell's feature level, if services of an older version are to work in it.
    #[arg(long, default_value_t = Level::KNOWN)]
    level: Level,
}

#[derive(Args)]
pub struct Look {
    /// The configuration of the operator of the bus, as for `cell init`.
    #[arg(long)]
    config: PathBuf,
}

#[derive(Args)]
pub struct Show {
    #[command(flatten)]
    look: Look,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub struct Raise {
    #[command(flatten)]
    look: Look,
    /// The level; without it, the newest that this program knows.
    #[arg(long, default_value_t = Level::KNOWN)]
    to: Level,
}

pub async fn run(command: CellCommand) -> Result<(), Failure> {
    match command {
        CellCommand::Init(init) => init.run().await,
        CellCommand::Level(show) => show.run().await,
        CellCommand::Raise(raise) => raise.run().await,
    }
}

async fn connect(config: &Config<()>, name: &str) -> Result<Client, Failure> {
    let options = config.nats.options()?.name(name);
    Ok(options.connect(&config.nats.url).await?)
}

impl Init {
    async fn run(self) -> Result<(), Failure> {
        let chosen = Chosen {
            replicas: self.replicas.into(),
            slot_ms: self.slot_ms,
            level: self.level,
        };
        let config: Config<()> = Config::load(&self.config)?;
        let client = connect(&config, "apportion cell init").await?;
        let jetstream = async_nats::jetstream::new(client);
        let subjects = Subjects::new(&config.cell.name);
        ledger_nats::cell::init(&jetstream, &subjects, chosen).await?;
        say!("cell {}: streams are there", config.cell.name);
        Ok(())
    }
}

/// How a cell stands.
struct Standing {
    cell: String,
    bus: JetStreamBus,
    level: Level,
    programs: Vec<Program>,
}

impl Look {
    async fn look(&self) -> Result<Standing, Failure> {
        let config: Config<()> = Config::load(&self.config)?;
        let client = connect(&config, "apportion cell").await?;
        let bus = JetStreamBus::open(client, Subjects::new(&config.cell.name)).await?;
        let level = ledger_nats::cell::level(&bus.ledger_config().await?)?;
        Ok(Standing {
            cell: config.cell.name,
            programs: bus.programs().await?,
            bus,
            level,
        })
    }
}

impl Show {
    async fn run(&self) -> Result<(), Failure> {
        let Standing {
            cell,
            level,
            programs,
            ..
        } = self.look.look().await?;
        let rows = programs.iter().map(|program| {
            vec![
                number(program.level.0),
                plain(&program.version),
                plain(&program.instance),
                plain(program.services.join(", ")),
            ]
        });
        let columns = vec![
            column("level", "knows"),
            column("version", "version"),
            column("instance", "process"),
            column("services", "services"),
        ];
        let all = columns.len();
        let sheet = Sheet::new(columns, all, rows.collect());
        let value = object([
            ("cell", cell.clone().into()),
            ("level", level.0.into()),
            ("programs", sheet.records()),
        ]);
        Page::new(value)
            .text(format!("cell {cell}: feature level {level}"))
            .sheet(sheet)
            .print(self.output)
    }
}

impl Raise {
    async fn run(self) -> Result<(), Failure> {
        let stands = self.look.look().await?;
        may_raise(stands.level, self.to, &stands.programs)?;
        stands.bus.raise(self.to).await?;
        say!("cell {}: feature level {}", stands.cell, stands.bus.level());
        Ok(())
    }
}

/// Why a cell's level stays as it is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Stays {
    #[error("the cell is at feature level {0} already, and a level is never lowered")]
    NotHigher(Level),
    #[error(
        "nobody who reads the ledger is {}: start it in the new version first, so that it can be seen", .0.join(", ")
    )]
    Absent(Vec<&'static str>),
    /// What has ended is listed for as long as its consumer is.
    #[error(
        "feature level {to} is not known to {}: replace it first, or try again half a minute after it has ended", .older.join(", ")
    )]
    Older { to: Level, older: Vec<String> },
}

fn may_raise(level: Level, to: Level, programs: &[Program]) -> Result<(), Stays> {
    if to <= level {
        return Err(Stays::NotHigher(level));
    }
    let runs = |service: &&str| {
        let mut services = programs.iter().flat_map(|program| &program.services);
        services.any(|one| one == service)
    };
    let absent: Vec<_> = SERVICES.into_iter().filter(|name| !runs(name)).collect();
    if !absent.is_empty() {
        return Err(Stays::Absent(absent));
    }
    let older = programs.iter().filter(|program| program.level < to);
    let older: Vec<_> = older
        .map(|program| {
            let (services, level) = (program.services.join(", "), program.level);
            format!("{services} ({}, knows {level})", program.instance)
        })
        .collect();
    match older.is_empty() {
        true => Ok(()),
        false => Err(Stays::Older { to, older }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(services: &str, level: u32) -> Program {
        Program {
            services: services.split(' ').map(str::to_owned).collect(),
            instance: format!("host/{level}"),
            version: "1.0.0".to_owned(),
            level: Level(level),
        }
    }

    #[test]
    fn a_level_is_raised_once_all_five_are_there_and_everybody_knows_it() {
        let check = |to, programs: &[Program], expected: &str| {
            let said = may_raise(Level(1), Level(to), programs);
            let said = said.map_or_else(|stays| stays.to_string(), |()| "raised".to_owned());
            assert_eq!(said, expected);
        };
        let all = "admission quota scheduler node-heartbeat analytics";
        let apart: Vec<_> = all.split(' ').map(|name| program(name, 2)).collect();
        check(2, &[program(all, 2)], "raised");
        check(2, &apart, "raised");
        let already = "the cell is at feature level 1 already, and a level is never lowered";
        check(1, &apart, already);
        check(0, &apart, already);
        check(
            2,
            &apart[1..4],
            "nobody who reads the ledger is admission, analytics: start it in the new version first, so that it can be seen",
        );
        let with_old = [apart, vec![program("quota", 1)]].concat();
        check(
            2,
            &with_old,
            "feature level 2 is not known to quota (host/1, knows 1): replace it first, or try again half a minute after it \
             has ended",
        );
        check(
            3,
            &[program(all, 2)],
            "feature level 3 is not known to admission, quota, scheduler, node-heartbeat, analytics (host/2, knows 2): \
             replace it first, or try again half a minute after it has ended",
        );
    }
}
