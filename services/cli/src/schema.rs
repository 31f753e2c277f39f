//! The contract, for programs in other languages, and the tables that the services write.

use crate::{
    Failure,
    context::Chosen,
    print::{NO_POSITION, Output, Page, Sheet, column, named, plain},
};
use admission::{AdmissionService, store::AdmissionTables};
use analytics::{AnalyticsService, store::Store};
use chassis::{
    Config, PostgresConfig, Service,
    warm::{WarmError, WarmState, schema},
};
use clap::{Args, Subcommand};
use node_heartbeat::{NodeHeartbeatService, store::NodeTables};
use quota::{QuotaService, store::QuotaTables};
use scheduler::{SchedulerService, store::SchedulerTables};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
};
use table::Drift;
use vocab::CellNo;

#[derive(Subcommand)]
pub enum SchemaCommand {
    /// Write the messages as an encoded FileDescriptorSet, so that no protoc is needed to speak them.
    Descriptors {
        /// The file to write.
        #[arg(long)]
        out: PathBuf,
    },
    /// Make the tables of the services that are missing, and say what else is not as it is to be.
    Ensure(Tables),
    /// Say how the tables of the services differ from what this version wants; nothing is changed.
    Diff(Tables),
}

#[derive(Args)]
pub struct Tables {
    /// Directory with one configuration per service, named <service>.toml; without it, the running stack's.
    #[arg(long)]
    config_dir: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl SchemaCommand {
    pub async fn run(self, chosen: &Chosen) -> Result<(), Failure> {
        match self {
            Self::Descriptors { out } => fs::write(&out, schemas::FILE_DESCRIPTOR_SET)
                .map_err(|error| format!("{}: {error}", out.display()).into()),
            Self::Ensure(tables) => report(
                &all(&tables.dir(chosen)?, Way::Ensure).await?,
                tables.output,
            ),
            Self::Diff(tables) => {
                report(&all(&tables.dir(chosen)?, Way::Diff).await?, tables.output)
            }
        }
    }
}

impl Tables {
    fn dir(&self, chosen: &Chosen) -> Result<PathBuf, Failure> {
        Ok(match &self.config_dir {
            Some(dir) => dir.clone(),
            None => {
                let context = chosen.open()?;
                context.databases()?.state_dir.join("config")
            }
        })
    }
}

#[derive(Clone, Copy)]
enum Way {
    Ensure,
    Diff,
}

/// What is to be said of a service's tables.
struct Found {
    service: &'static str,
    drift: Drift,
}

async fn all(dir: &Path, way: Way) -> Result<Vec<Found>, Failure> {
    let mut found = of::<AdmissionService, AdmissionTables>(dir, way).await?;
    found.extend(of::<QuotaService, QuotaTables>(dir, way).await?);
    found.extend(of::<SchedulerService, SchedulerTables>(dir, way).await?);
    found.extend(of::<NodeHeartbeatService, NodeTables>(dir, way).await?);
    found.extend(of_usage(dir, way).await?);
    Ok(found)
}

async fn of<S: Service, T: WarmState>(dir: &Path, way: Way) -> Result<Vec<Found>, Failure> {
    let missing = || format!("{}: its configuration has no table [postgres]", S::NAME);
    let config = load::<S>(dir)?.postgres.ok_or_else(missing)?;
    found::<S>(drifts::<T>(&config, way).await)
}

async fn of_usage(dir: &Path, way: Way) -> Result<Vec<Found>, Failure> {
    let store = usage(dir)?;
    found::<AnalyticsService>(match way {
        Way::Ensure => store.ensure().await,
        Way::Diff => store.diff().await,
    })
}

fn found<S: Service>(drifts: Result<Vec<Drift>, impl Display>) -> Result<Vec<Found>, Failure> {
    let drifts = drifts.map_err(|error| format!("{}: {error}", S::NAME))?;
    let service = S::NAME;
    let found = drifts.into_iter().map(|drift| Found { service, drift });
    Ok(found.collect())
}

async fn drifts<T: WarmState>(config: &PostgresConfig, way: Way) -> Result<Vec<Drift>, WarmError> {
    let mut connection = PgConnection::connect_with(&config.options()?).await?;
    let drifts = match way {
        Way::Ensure => schema::ensure(&mut connection, T::DDL).await?,
        Way::Diff => schema::diff(&mut connection, T::DDL).await?,
    };
    connection.close().await?;
    Ok(drifts)
}

fn usage(dir: &Path) -> Result<Store, Failure> {
    let config = load::<AnalyticsService>(dir)?;
    let cell = CellNo(config.cell.number);
    let table = config.clickhouse;
    let table = table.ok_or("analytics: its configuration has no table [clickhouse]")?;
    let client = chassis::tls::clickhouse(&table.url, table.ca_file.as_deref())?
        .with_user(&table.user)
        .with_password(table.password.reveal());
    Ok(Store::new(client, &table.database, cell))
}

fn load<S: Service>(dir: &Path) -> Result<Config<S::Settings>, Failure> {
    Ok(Config::load(&dir.join(format!("{}.toml", S::NAME)))?)
}

/// Fails when anything differs, for who looks at the exit code alone.
fn report(found: &[Found], output: Output) -> Result<(), Failure> {
    let page = Page::list(found.iter().map(object).collect(), NO_POSITION);
    let page = match found.is_empty() {
        true => page.text("The tables are as this version wants them."),
        false => page.lines(
            found
                .iter()
                .map(|Found { service, drift }| format!("{service}: {drift}")),
        ),
    };
    page.rows(sheet(found)).print(output)?;
    match found.len() {
        0 => Ok(()),
        count => Err(format!("the tables differ in {count} places").into()),
    }
}

fn sheet(found: &[Found]) -> Sheet {
    let row = |Found { service, drift }: &Found| {
        let or_none = |text: &Option<String>| named(text.as_deref().unwrap_or_default());
        vec![
            plain(service),
            plain(&drift.subject.table),
            plain(drift.subject.what.name()),
            plain(&drift.subject.name),
            plain(drift.kind()),
            or_none(&drift.expected),
            or_none(&drift.found),
        ]
    };
    let columns = vec![
        column("service", "service"),
        column("table", "table"),
        column("what", "what"),
        column("name", "name"),
        column("kind", "kind"),
        column("expected", "expected"),
        column("found", "found"),
    ];
    let all = columns.len();
    Sheet::new(columns, all, found.iter().map(row).collect())
}

fn object(Found { service, drift }: &Found) -> Value {
    json!({
        "service": service,
        "table": drift.subject.table,
        "what": drift.subject.what.name(),
        "name": drift.subject.name,
        "kind": drift.kind(),
        "expected": drift.expected,
        "found": drift.found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::{Subject, What};

    #[test]
    fn a_difference_is_an_object() {
        let subject = Subject {
            table: "nodes".into(),
            what: What::Type,
            name: "boot".into(),
        };
        let drift = Drift {
            subject,
            expected: Some("numeric(20,0)".into()),
            found: None,
        };
        let expected = json!({
            "service": "quota", "table": "nodes", "what": "type", "name": "boot", "kind": "missing",
            "expected": "numeric(20,0)", "found": null,
        });
        let service = "quota";
        assert_eq!(object(&Found { service, drift }), expected);
    }
}
