//! Whether all adds up, and whether everybody has read the same.

use crate::{
    Failure,
    context::Context,
    explain::object,
    print::{Output, Page, Sheet, column, counted, exact_number, number, plain},
};
use clap::Args;
use ledger::{Bus, LedgerId, Witness};
use ledger_nats::{Copy, jetstream::JetStreamBus};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use vocab::Lsn;

/// How often tables that may be a batch apart are compared again.
const COMPARISONS: u32 = 100;
const BETWEEN_COMPARISONS: Duration = Duration::from_millis(200);

#[derive(Args)]
pub struct Conservation {
    #[command(flatten)]
    output: Output,
}

impl Conservation {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let usage = context.usage().await?;
        let mut found = usage.conservation().await?;
        for _ in 1..COMPARISONS {
            if found.at_rest || found.conservation_error_ms() == 0 {
                break;
            }
            tokio::time::sleep(BETWEEN_COMPARISONS).await;
            found = usage.conservation().await?;
        }
        let error = found.conservation_error_ms();
        let wrong: Vec<_> = found.imbalances.iter().filter(|it| it.error > 0).collect();
        let rows = wrong.iter().map(|it| {
            let unit = if it.kind == "rows" { "rows" } else { "unit-ms" };
            let error = counted(format!("{} {unit}", it.error), it.error);
            vec![plain(&it.kind), plain(&it.resource), error]
        });
        let columns = vec![
            column("kind", "sum"),
            column("resource", "resource"),
            column("error", "error"),
        ];
        let sheet = Sheet::new(columns, 2, rows.collect());
        let (sums, through) = (found.imbalances.len(), found.through.0);
        let summary = match wrong.len() {
            0 => format!("all {sums} sums are right through lsn {through}"),
            wrong => format!(
                "{wrong} of {sums} sums are wrong through lsn {through}, by {error} ms of some resource in all"
            ),
        };
        let value = object([
            ("wrong", sheet.records()),
            ("checked", found.imbalances.len().into()),
            ("through_lsn", found.through.0.into()),
            ("error_ms", exact_number(error)),
        ]);
        Page::new(value)
            .sheet(sheet)
            .text(summary)
            .print(self.output)?;
        match (error, found.at_rest) {
            (0, _) => Ok(()),
            (_, true) => Err("time is missing or billed twice".into()),
            (_, false) => Err(
                "analytics was amid a batch at each look, so that the tables may be a batch apart: ask again".into(),
            ),
        }
    }
}

#[derive(Args)]
pub struct Verify {
    /// A copy of the ledger to compare with, made by `apportion ledger copy`.
    #[arg(long)]
    copy: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Verify {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let bus = context.ledger().await?;
        let others = others(context, bus.ledger_id().await?).await;
        let verified = ledger_nats::verify(&bus, &others.witnesses).await?;
        let summary = format!(
            "{} frames, {} events, {} bytes, through lsn {}: every link holds, {} snapshots hold the same, and {} witnesses agree",
            verified.frames,
            verified.events,
            verified.bytes,
            verified.last.0,
            verified.snapshots,
            verified.witnesses
        );
        let rows = verified.heads.iter().map(|(writer, head)| {
            vec![
                plain(writer.name()),
                plain(head.digest),
                number(head.frame_no),
                number(head.epoch),
            ]
        });
        let columns = vec![
            column("writer", "writer"),
            column("digest", "digest"),
            column("frame_no", "frame"),
            column("epoch", "epoch"),
        ];
        let heads = Sheet::new(columns, 2, rows.collect());
        let value = object([
            ("frames", verified.frames.into()),
            ("events", verified.events.into()),
            ("bytes", verified.bytes.into()),
            ("through_lsn", verified.last.0.into()),
            ("snapshots", verified.snapshots.into()),
            ("witnesses", verified.witnesses.into()),
            ("heads", heads.records()),
            ("silent", others.silent.clone().into()),
        ]);
        let page = Page::new(value).text(summary).sheet(heads);
        let page = page.lines(others.silent);
        let Some(dir) = &self.copy else {
            return page.print(self.output);
        };
        let compared = compare(&bus, dir).await;
        let page = match &compared {
            Ok(lsn) => page.text(format!("the copy holds the same through lsn {}", lsn.0)),
            Err(_) => page,
        };
        page.print(self.output)?;
        compared.map(drop)
    }
}

/// Record by record.
async fn compare(bus: &JetStreamBus, dir: &Path) -> Result<Lsn, Failure> {
    let copy = Copy::read(dir)?;
    let survey = ledger_nats::survey(bus).await?;
    if let Some(lsn) = survey.parts_from(copy.digests()) {
        return Err(format!("ledger and copy part at lsn {}", lsn.0).into());
    }
    let (ledger, copy) = (survey.end(), copy.end());
    if copy > ledger {
        return Err(format!(
            "the copy ends at lsn {}, the ledger at {}",
            copy.0, ledger.0
        )
        .into());
    }
    Ok(copy)
}

/// Who has read the ledger and keeps what was made of it elsewhere.
#[derive(Default)]
pub struct Others {
    pub witnesses: Vec<Witness>,
    /// Who could not be asked, and why.
    pub silent: Vec<String>,
}

impl Others {
    fn hear<E: std::fmt::Display>(&mut self, who: &str, said: Result<Option<Witness>, E>) {
        match said {
            Ok(witness) => self.witnesses.extend(witness),
            Err(error) => self
                .silent
                .push(format!("{who} could not be asked: {error}")),
        }
    }
}

/// The services' tables in Postgres, and the bill in ClickHouse.
pub async fn others(context: &Context, ledger: LedgerId) -> Others {
    let mut others = Others::default();
    for schema in ["admission", "quota", "scheduler", "node_heartbeat"] {
        let asked = async {
            let pool = context.warm_state(schema).await?;
            Ok::<_, Failure>(chassis::warm::witness(&pool, schema, ledger).await?)
        };
        others.hear(&format!("the tables of {schema}"), asked.await);
    }
    let asked = async { Ok::<_, Failure>(context.usage().await?.witness(ledger).await?) };
    others.hear("the bill", asked.await);
    others
}
