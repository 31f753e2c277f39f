//! Repairs a ledger that lost its end. Nothing is done but exactly what a person has approved.

use crate::{
    Failure,
    checks::others,
    context::Context,
    print::{bytes, say},
};
use admission::publish::JetStreamFeed;
use chassis::Config;
use clap::Args;
use ledger_nats::{Copy, CopyFound, Findings, Found, Way, jetstream::JetStreamBus, survey, verify};
use std::path::PathBuf;
use vocab::{Lsn, subjects::Subjects};

#[derive(Args)]
pub struct Repair {
    /// The configuration of the operator of the bus, as for `cell init`.
    #[arg(long)]
    config: PathBuf,
    /// A copy of the ledger to compare with, made by `apportion ledger copy`.
    #[arg(long, conflicts_with = "restore")]
    copy: Option<PathBuf>,
    /// Append what the ledger lacks from this copy.
    #[arg(long, conflicts_with = "adopt_shorter")]
    restore: Option<PathBuf>,
    /// Take the ledger as it stands, and make all that was made of it anew.
    #[arg(long)]
    adopt_shorter: bool,
    /// The digest of the plan that was printed.
    #[arg(long)]
    approve: Option<String>,
}

impl Repair {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let operator = self.operator_of_the_bus().await?;
        let bus = context.ledger().await?;
        let dir = self.restore.as_ref().or(self.copy.as_ref());
        let copy = dir.map(|dir| Copy::read(dir)).transpose()?;
        let findings = find(context, &bus, &operator, copy.as_ref()).await?;
        bytes(findings.to_string().as_bytes())?;
        if findings.found() == Found::Sound {
            say!("The ledger holds what everybody has read of it: there is nothing to repair.");
            return Ok(());
        }
        let way = match (&self.restore, self.adopt_shorter) {
            (Some(_), _) => Way::Restore,
            (None, true) => Way::Adopt,
            (None, false) => return offer(&findings, dir),
        };
        findings.can(way)?;
        say!("{}", plan(&findings, way));
        let digest = findings.approval(way).to_string();
        match self.approve {
            None => {
                say!("Nothing was done. To do this and nothing else: --approve {digest}");
                return Ok(());
            }
            Some(approved) if approved != digest => {
                return Err(format!(
                    "what was approved is not this plan, whose digest is {digest}; nothing was done"
                )
                .into());
            }
            Some(_) => {}
        }
        let leaders = context.databases()?.leaders().await;
        if !leaders.is_empty() {
            let who = leaders.join(", ");
            return Err(format!("{who} leads: end the services first; nothing was done").into());
        }
        match (way, copy) {
            (Way::Restore, Some(copy)) => restore(&operator, &copy, findings.survey.end()).await?,
            _ => {
                let id = operator.adopt().await?;
                say!(
                    "It is the ledger {} now. Tables, feeds and the bill are made anew of it by the services.",
                    id.0
                );
            }
        }
        // What is mended is mended, whoever is away now.
        let id = bus_id(&bus).await.map_err(Failure::afterwards)?;
        let verified = verify(&bus, &others(context, id).await.witnesses).await;
        match verified {
            Ok(verified) => say!(
                "through lsn {}: every link holds, and {} witnesses agree",
                verified.last.0,
                verified.witnesses
            ),
            Err(error) => say!("Not all is mended: {error}. Run it again."),
        }
        Ok(())
    }

    async fn operator_of_the_bus(&self) -> Result<JetStreamBus, Failure> {
        let config: Config<()> = Config::load(&self.config)?;
        let client = config
            .nats
            .options()?
            .name("apportion repair")
            .connect(&config.nats.url)
            .await?;
        Ok(JetStreamBus::open(client, Subjects::new(&config.cell.name)).await?)
    }
}

async fn bus_id(bus: &JetStreamBus) -> Result<ledger::LedgerId, Failure> {
    Ok(ledger::Bus::ledger_id(bus).await?)
}

/// Asks everybody.
async fn find(
    context: &Context,
    bus: &JetStreamBus,
    operator: &JetStreamBus,
    copy: Option<&Copy>,
) -> Result<Findings, Failure> {
    let survey = survey(bus).await?;
    let mut others = others(context, survey.ledger).await;
    others
        .witnesses
        .extend(ledger::Bus::witnesses(bus, survey.ledger).await?);
    match admission::publish::witness(&JetStreamFeed::new(operator), survey.ledger).await {
        Ok(feed) => others.witnesses.extend(feed),
        Err(error) => others
            .silent
            .push(format!("the feed could not be asked: {error}")),
    }
    let mut notes = others.silent;
    notes.extend(beyond(context, survey.end()).await);
    let cell = context.cell_no()?;
    let copy = copy
        .map(|copy| CopyFound::of(copy, &survey, cell))
        .transpose()?;
    Ok(Findings {
        survey,
        witnesses: others.witnesses,
        notes,
        copy,
    })
}

/// What tables hold that the ledger lacks, by name where they know it. Tables that cannot be asked have been named.
async fn beyond(context: &Context, end: Lsn) -> Vec<String> {
    let mut notes = Vec::new();
    let allocations = async {
        let pool = context.warm_state("scheduler").await?;
        Ok::<_, Failure>(scheduler::store::changed_behind(&pool, end).await?)
    };
    if let Ok(changed) = allocations.await
        && !changed.is_empty()
    {
        notes.push(format!(
            "{} allocations changed beyond the end, by the tables of scheduler:",
            changed.len()
        ));
        notes.extend(changed.iter().take(20).map(|line| format!("  {line}")));
    }
    if let Ok(usage) = context.usage().await
        && let Ok(runs) = usage.runs_behind(end).await
        && runs > 0
    {
        notes.push(format!("{runs} runs are billed that ended beyond the end"));
    }
    notes
}

fn plan(findings: &Findings, way: Way) -> String {
    let end = findings.survey.end().0;
    match (way, &findings.copy) {
        (Way::Restore, Some(copy)) => format!(
            "Plan: append the records {} to {} from the copy, as they stood before. Who has read beyond lsn {} disagrees \
             even then, and only --adopt-shorter helps.",
            end + 1,
            copy.end.0,
            copy.end.0
        ),
        _ => format!(
            "Plan: take the ledger as it ends at lsn {end}, under a new id. Snapshots of before are passed over; the tables in \
             Postgres, the feeds, and use and bill in ClickHouse are emptied and made anew of it by the services as they \
             start. What stood beyond the end is gone: tenants that were told of it have to ask again."
        ),
    }
}

fn offer(findings: &Findings, dir: Option<&PathBuf>) -> Result<(), Failure> {
    say!("Nothing was done. What can be:");
    match (findings.can(Way::Restore), dir) {
        (Ok(()), Some(dir)) => say!("  repair --restore {}", dir.display()),
        (Ok(()), None) => {}
        (Err(why), _) => say!("  not --restore: {why}"),
    }
    match findings.can(Way::Adopt) {
        Ok(()) => say!("  repair --adopt-shorter"),
        Err(why) => say!("  not --adopt-shorter: {why}"),
    }
    Err("the ledger is not what was read of it".into())
}

/// The server takes each record only at the position that it had.
async fn restore(operator: &JetStreamBus, copy: &Copy, end: Lsn) -> Result<(), Failure> {
    let mut records = Vec::new();
    copy.each(Lsn(end.0 + 1), |record, _| records.push(record.clone()))?;
    for record in &records {
        let appended = operator.append_again(record).await;
        appended.map_err(|error| format!("lsn {}: {error}; run it again", record.lsn.0))?;
    }
    say!("{} records are back.", records.len());
    Ok(())
}
