//! What is read: warm state, usage, the ledger itself.

use crate::{
    Failure,
    context::{Context, Whose},
    explain::object,
    list, names,
    operate::{conditions, standing},
    print::{
        Fields, Output, Page, Sheet, column, exactly, moment, moment_or_never, named, number,
        plain, quantity, wide,
    },
    submit::{how, waits, words},
};
use clap::Args;
use client::{AllocationView, Client, QueryError};
use ledger::{Bus, Copy, LedgerId, Witness, jetstream::JetStreamBus};
use scheduler::store::NodeUse;
use schemas::v1;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use vocab::{Lsn, ResourceKind, Rule, Token};

/// How often and how far apart the read model is looked at before something counts as not there.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// The read model follows the ledger at a small distance: what was asked for a moment ago is looked for again.
pub async fn look_again<T, E: Into<Failure>>(
    mut look: impl AsyncFnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, Failure> {
    for _ in 0..LOOKS {
        if let Some(found) = look().await.map_err(Into::into)? {
            return Ok(Some(found));
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    Ok(None)
}

/// A node and the shares of its devices.
pub fn place(node: &str, gpus: &[v1::GpuShare]) -> String {
    let shares = gpus
        .iter()
        .map(|share| format!(" gpu{}:{}", share.device, share.milli));
    format!("on {node}{}", shares.collect::<String>())
}

#[derive(Args)]
pub struct Get {
    #[command(flatten)]
    whose: Whose,
    /// Its id or name, or the beginning of one.
    allocation_id: String,
    #[command(flatten)]
    output: Output,
}

impl Get {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.tenant(self.whose.tenant.as_deref()).await?;
        let view = allocation(&client, &self.allocation_id).await?;
        Page::new(list::json(&view))
            .fields(fields(&view))
            .print(self.output)
    }
}

/// An allocation of the asker's, by its id or name.
pub async fn allocation(client: &Client, name: &str) -> Result<AllocationView, Failure> {
    let id = names::allocation(client, name).await?;
    of_allocation(async || client.allocation(&*id, 0).await).await
}

/// What the cell says of an allocation that its read model may not have yet.
pub async fn of_allocation<T>(
    mut ask: impl AsyncFnMut() -> Result<T, QueryError>,
) -> Result<T, Failure> {
    let mut refused = None;
    let found = look_again::<_, Failure>(async || match ask().await {
        Err(error) if error.rule() == Some(Rule::AllocationNotFound) => {
            refused = Some(error);
            Ok(None)
        }
        found => Ok(Some(found?)),
    })
    .await?;
    match (found, refused) {
        (Some(found), _) => Ok(found),
        (None, Some(refused)) => Err(refused.into()),
        (None, None) => Err("the cell was not asked".into()),
    }
}

fn fields(view: &AllocationView) -> Fields {
    let ended = view.ended.as_ref();
    let how = ended.map(|ended| how(ended.cause(), ended.exit));
    let waiting = view.waiting.as_ref().map(waits);
    let gpus = view.gpus.iter();
    let gpus: Vec<_> = gpus
        .map(|share| format!("{}:{}", share.device, share.milli))
        .collect();
    Fields::default()
        .add("allocation_id", "allocation", plain(&view.allocation_id))
        .add("name", "name", named(&view.name))
        .add("job_set", "job set", plain(&view.job_set))
        .add("state", "state", plain(words(view.state())))
        .add("waits", "why", named(&waiting.unwrap_or_default()))
        .add("end_cause", "ended by", named(&how.unwrap_or_default()))
        .add("node", "node", named(&view.node))
        .add("gpus", "gpus", named(&gpus.join(" ")))
        .add(
            "requested_ms",
            "requested",
            moment_or_never(view.requested_ms),
        )
        .add("placed_ms", "placed", moment_or_never(view.placed_ms))
        .add(
            "started_ms",
            "started",
            moment_or_never(list::started_ms(view)),
        )
        .add(
            "ended_ms",
            "ended",
            moment_or_never(ended.map_or(0, |ended| ended.ended_ms)),
        )
        .add("lsn", "as of lsn", number(view.lsn))
}

#[derive(Args)]
pub struct Queue {
    /// Without it, the context's.
    tenant: Option<String>,
    #[arg(long, default_value_t = 50)]
    limit: u32,
    #[command(flatten)]
    output: Output,
}

impl Queue {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let pool = context.warm_state("scheduler").await?;
        let tenant = context.tenant_name(self.tenant.as_deref())?;
        let queue = scheduler::store::queue(&pool, &tenant, self.limit).await?;
        let rows = queue.iter().map(|one| {
            let reason = one.waiting_reason.map_or("not tried yet", |r| r.name());
            vec![
                number(one.position),
                plain(one.id),
                number(one.priority),
                plain(reason),
                moment(one.since.0),
            ]
        });
        let columns = vec![
            column("position", "place"),
            column("allocation_id", "allocation"),
            column("priority", "priority"),
            column("reason", "waits for"),
            column("since_ms", "since"),
        ];
        let all = columns.len();
        Page::of(Sheet::new(columns, all, rows.collect()), "nothing waits").print(self.output)
    }
}

#[derive(Args)]
pub struct Nodes {
    #[command(flatten)]
    output: Output,
}

impl Nodes {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let pool = context.warm_state("node_heartbeat").await?;
        let nodes = node_heartbeat::store::nodes(&pool).await?;
        let conditions = conditions(&pool).await?;
        let pool = context.warm_state("scheduler").await?;
        let used = scheduler::store::nodes(&pool).await?;
        let mut ready = 0;
        let rows = nodes.iter().map(|row| {
            ready += usize::from(row.state.name() == "ready");
            let capacity = &row.capacity;
            let of_none = NodeUse::default();
            let used = used.get(row.node.as_str()).unwrap_or(&of_none);
            let of_node = conditions.get(&row.node).map_or(&[][..], Vec::as_slice);
            let model = capacity.gpu_model.as_ref().map_or("", Token::as_str);
            vec![
                plain(&row.node),
                plain(row.state.name()),
                named(&standing(used, of_node)),
                named(model),
                moment(row.since.0),
                quantity(ResourceKind::Cpu, capacity.cpu_milli),
                quantity(ResourceKind::Cpu, used.cpu_milli),
                quantity(ResourceKind::Memory, capacity.memory_bytes),
                quantity(ResourceKind::Memory, used.memory_bytes),
                number(capacity.gpus),
                quantity(ResourceKind::Gpu, used.gpu_milli),
                number(used.allocations),
            ]
        });
        let rows = rows.collect();
        let columns = vec![
            column("node", "node"),
            column("state", "state"),
            column("standing", "standing"),
            column("gpu_model", "gpu model"),
            wide("since_ms", "since"),
            column("cpu_milli", "cpu"),
            wide("used_cpu_milli", "used"),
            column("memory_bytes", "memory"),
            wide("used_memory_bytes", "used"),
            column("gpus", "gpus"),
            wide("used_gpu_milli", "used"),
            column("allocations", "allocations"),
        ];
        Page::of(Sheet::new(columns, 5, rows), "no nodes")
            .text(format!("{} nodes, {ready} ready", nodes.len()))
            .print(self.output)
    }
}

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
        let usage = context.usage()?;
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
            let error = exactly(format!("{} {unit}", it.error), it.error);
            vec![plain(&it.kind), plain(&it.resource), error]
        });
        let columns = vec![
            column("kind", "sum"),
            column("resource", "resource"),
            column("error", "error"),
        ];
        let sheet = Sheet::new(columns, 2, rows.collect());
        let summary = format!(
            "{} sums checked through lsn {}: {} wrong, error {error} ms",
            found.imbalances.len(),
            found.through.0,
            wrong.len()
        );
        let value = object([
            ("wrong", sheet.records()),
            ("checked", found.imbalances.len().into()),
            ("through_lsn", found.through.0.into()),
            ("error_ms", error.to_string().into()),
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
        let verified = ledger::verify(&bus, &others.witnesses).await?;
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
    let survey = ledger::survey(bus).await?;
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
    let asked = async { Ok::<_, Failure>(context.usage()?.witness(ledger).await?) };
    others.hear("the bill", asked.await);
    others
}
