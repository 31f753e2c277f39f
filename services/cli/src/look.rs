//! What is read: warm state, usage, the ledger itself.

use crate::{
    Failure, amount,
    operate::{conditions, standing},
    stack,
    submit::exited,
};
use chassis::stack::Stack;
use clap::Args;
use ledger::{Bus, Copy, LedgerId, Witness, jetstream::JetStreamBus};
use scheduler::store::NodeUse;
use schemas::v1;
use std::{path::PathBuf, time::Duration};
use vocab::{AllocationId, Millis, Token};
use wire::Message as _;

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
    #[arg(long)]
    tenant: String,
    allocation_id: String,
}

impl Get {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let pool = stack::warm_state(stack, "scheduler").await?;
        let tenant = Token::new(&self.tenant)?;
        let id = AllocationId::parse(&self.allocation_id).ok_or("an allocation id is a UUID")?;
        let found = look_again(async || scheduler::store::allocation(&pool, &tenant, id).await)
            .await?
            .ok_or_else(|| format!("{tenant} has no allocation {id}"))?;
        let moment = |at: Option<Millis>| at.map_or("-".into(), amount::moment);
        println!("allocation  {id}");
        println!("name        {}", found.name.as_deref().unwrap_or("-"));
        println!("job set     {}", found.job_set);
        println!("state       {}", found.state);
        if let Some(reason) = found.waiting_reason {
            println!("waits       {}", reason.name());
        }
        if let Some(cause) = found.end_cause {
            let exit = exited(found.exit.map(|exit| exit.to_prost()));
            println!("ended by    {}{exit}", cause.name());
        }
        println!("node        {}", found.node.as_deref().unwrap_or("-"));
        for share in &found.gpus {
            println!("gpu         {} ({} of 1000)", share.device, share.milli);
        }
        println!("requested   {}", amount::moment(found.requested_at));
        println!("placed      {}", moment(found.placed_at));
        println!("started     {}", moment(found.started_at));
        println!("ended       {}", moment(found.ended_at));
        println!("as of lsn   {}", found.lsn.0);
        Ok(())
    }
}

#[derive(Args)]
pub struct Queue {
    tenant: String,
    #[arg(long, default_value_t = 50)]
    limit: u32,
}

impl Queue {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let pool = stack::warm_state(stack, "scheduler").await?;
        let tenant = Token::new(&self.tenant)?;
        for one in scheduler::store::queue(&pool, &tenant, self.limit).await? {
            let reason = one.waiting_reason.map_or("not tried yet", |r| r.name());
            println!(
                "{:>6} {} priority {} {reason} since {}",
                one.position,
                one.id,
                one.priority,
                amount::moment(one.since)
            );
        }
        Ok(())
    }
}

pub async fn nodes(stack: &Stack) -> Result<(), Failure> {
    let pool = stack::warm_state(stack, "node_heartbeat").await?;
    let nodes = node_heartbeat::store::nodes(&pool).await?;
    let conditions = conditions(&pool).await?;
    let pool = stack::warm_state(stack, "scheduler").await?;
    let used = scheduler::store::nodes(&pool).await?;
    let mut ready = 0;
    for row in &nodes {
        let is_ready = row.state.name() == "ready";
        ready += usize::from(is_ready);
        let capacity = &row.capacity;
        let used = used.get(row.node.as_str());
        println!(
            "{:<24} {:<7} {:>16} {:>16} {:>3} {:<12} {:>5} {}",
            row.node.as_str(),
            row.state.name(),
            amount::human(vocab::ResourceKind::Cpu, capacity.cpu_milli),
            amount::human(vocab::ResourceKind::Memory, capacity.memory_bytes),
            capacity.gpus,
            capacity.gpu_model.as_ref().map_or("-", Token::as_str),
            used.map_or(0, |used| used.allocations),
            standing(
                used.unwrap_or(&NodeUse::default()),
                conditions.get(&row.node).map_or(&[], Vec::as_slice)
            ),
        );
    }
    println!("{} nodes, {ready} ready", nodes.len());
    Ok(())
}

/// How often tables that may be a batch apart are compared again.
const COMPARISONS: u32 = 100;
const BETWEEN_COMPARISONS: Duration = Duration::from_millis(200);

pub async fn conservation(stack: &Stack) -> Result<(), Failure> {
    let usage = stack::usage(stack)?;
    let mut found = usage.conservation().await?;
    for _ in 1..COMPARISONS {
        if found.at_rest || found.conservation_error_ms() == 0 {
            break;
        }
        tokio::time::sleep(BETWEEN_COMPARISONS).await;
        found = usage.conservation().await?;
    }
    let wrong = || found.imbalances.iter().filter(|it| it.error > 0);
    for it in wrong() {
        let unit = if it.kind == "rows" { "rows" } else { "unit-ms" };
        println!("{} {}: {} {unit}", it.kind, it.resource, it.error);
    }
    let error = found.conservation_error_ms();
    println!(
        "{} sums checked through lsn {}: {} wrong, error {error} ms",
        found.imbalances.len(),
        found.through.0,
        wrong().count()
    );
    match (error, found.at_rest) {
        (0, _) => Ok(()),
        (_, true) => Err("time is missing or billed twice".into()),
        (_, false) => Err(
            "analytics was amid a batch at each look, so that the tables may be a batch apart: ask again".into(),
        ),
    }
}

#[derive(Args)]
pub struct Verify {
    /// A copy of the ledger to compare with, made by `apportion ledger copy`.
    #[arg(long)]
    copy: Option<PathBuf>,
}

impl Verify {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let bus = stack::ledger(stack).await?;
        let others = others(stack, bus.ledger_id().await?).await;
        let verified = ledger::verify(&bus, &others.witnesses).await?;
        println!(
            "{} frames, {} events, {} bytes, through lsn {}: every link holds, {} snapshots hold the same, and {} witnesses agree",
            verified.frames,
            verified.events,
            verified.bytes,
            verified.last.0,
            verified.snapshots,
            verified.witnesses
        );
        for (writer, head) in verified.heads {
            println!(
                "{:<15} frame {:>8} epoch {:>4} {}",
                writer.name(),
                head.frame_no,
                head.epoch,
                head.digest
            );
        }
        for silent in others.silent {
            println!("{silent}");
        }
        match self.copy {
            Some(dir) => compare(&bus, &Copy::read(&dir)?).await,
            None => Ok(()),
        }
    }
}

/// Record by record.
async fn compare(bus: &JetStreamBus, copy: &Copy) -> Result<(), Failure> {
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
    println!("the copy holds the same through lsn {}", copy.0);
    Ok(())
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
pub async fn others(stack: &Stack, ledger: LedgerId) -> Others {
    let mut others = Others::default();
    for schema in ["admission", "quota", "scheduler", "node_heartbeat"] {
        let asked = async {
            let pool = stack::warm_state(stack, schema).await?;
            Ok::<_, Failure>(chassis::warm::witness(&pool, schema, ledger).await?)
        };
        others.hear(&format!("the tables of {schema}"), asked.await);
    }
    let asked = async { Ok::<_, Failure>(stack::usage(stack)?.witness(ledger).await?) };
    others.hear("the bill", asked.await);
    others
}
