//! The queues, and what tenants lost to others.

use crate::{
    Failure, amount,
    context::{Context, Whose},
    explain::{object, percent},
    pages::pages,
    print::{
        Cell, Output, Page, Sheet, allocation, column, counted, moment, named, number, plain,
        quantity, valued, wide,
    },
};
use clap::Args;
use client::{Client, PreemptionsQuery, QueryError, QueueView, QueuesQuery, WaitingCount};
use scheduler::{query::of_preemption, store::PreemptionEvent};
use serde_json::Value;
use vocab::{PlacementPolicy, QueueOrder, ResourceKind, WaitingReason};

#[derive(Args)]
pub struct Queues {
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    output: Output,
}

/// Queues of a page, at the most.
const PAGE_MAX: u32 = 1000;

/// Returns the queues that the asker may submit to, for an operator all, and the ledger position that they are of.
pub async fn all(client: &Client) -> Result<(Vec<QueueView>, u64), QueryError> {
    let limit = PAGE_MAX;
    pages(async |after, at_lsn| {
        let query = QueuesQuery {
            at_lsn,
            limit,
            after,
        };
        let page = client.queues(&query).await?;
        Ok((page.queues, page.next, page.lsn))
    })
    .await
}

impl Queues {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.asker(self.whose.tenant.as_deref()).await?;
        let (queues, lsn) = all(&client).await?;
        let value = queues.iter().map(queue_json).collect();
        let now_ms = context.clock().now_ms();
        Page::list(value, lsn)
            .sheet_or(sheet(&queues, now_ms), "no queues")
            .print(self.output)
    }
}

pub fn sheet(queues: &[QueueView], now_ms: i64) -> Sheet {
    let row = |one: &QueueView| {
        let weight = one.weight_milli;
        let share = |part: Option<u32>| match part {
            Some(ppm) => valued(percent(ppm), ppm),
            None => named(""),
        };
        let oldest = match one.oldest_ms {
            0 => named(""),
            oldest => valued(amount::age(now_ms - oldest), now_ms - oldest),
        };
        let waiting: u64 = one.waiting.iter().map(|waits| waits.allocations).sum();
        vec![
            plain(&one.queue),
            named(&one.parent),
            plain(order(one).name()),
            named(&one.tenants.join(" ")),
            counted(format!("{}.{:03}", weight / 1000, weight % 1000), weight),
            number(one.held),
            number(waiting),
            oldest,
            named(&reasons(one)),
            quantity(ResourceKind::Cpu, one.held_cpu_milli),
            quantity(ResourceKind::Memory, one.held_memory_bytes),
            quantity(ResourceKind::Gpu, one.held_gpu_milli),
            share(one.share_ppm),
            share(one.fair_share_ppm),
        ]
    };
    let columns = vec![
        column("queue", "queue"),
        column("parent", "parent").rank(9),
        wide("order", "order"),
        wide("tenants", "tenants"),
        column("weight_milli", "weight").rank(6),
        column("held", "held"),
        column("waiting", "waiting"),
        column("oldest_age_ms", "oldest"),
        wide("reasons", "waiting for"),
        column("cpu_milli", "cpu").rank(7),
        column("memory_bytes", "memory").rank(8),
        column("gpu_milli", "gpu").rank(7),
        column("share_ppm", "share"),
        column("fair_share_ppm", "fair"),
    ];
    Sheet::new(columns, 4, queues.iter().map(row).collect())
}

fn order(one: &QueueView) -> QueueOrder {
    QueueOrder::from_number(one.order).unwrap_or_default()
}

fn reason(waits: &WaitingCount) -> &'static str {
    WaitingReason::from_number(waits.reason).map_or("not tried yet", WaitingReason::name)
}

/// How many wait for what, the most of them first.
fn reasons(one: &QueueView) -> String {
    let mut waiting: Vec<&WaitingCount> = one.waiting.iter().collect();
    waiting.sort_by_key(|waits| std::cmp::Reverse(waits.allocations));
    let waiting = waiting.into_iter();
    let texts = waiting.map(|waits| format!("{} {}", reason(waits), waits.allocations));
    texts.collect::<Vec<_>>().join(", ")
}

fn queue_json(one: &QueueView) -> Value {
    let text = |text: &str| Some(text).filter(|text| !text.is_empty()).into();
    let ms = |ms: i64| Some(ms).filter(|ms| *ms != 0).into();
    let share = one.share_ppm.map(|share_ppm| {
        object([
            ("share_ppm", share_ppm.into()),
            ("fair_share_ppm", one.fair_share_ppm.into()),
            ("at_ms", one.share_at_ms.into()),
        ])
    });
    let held = object([
        ("allocations", one.held.into()),
        ("cpu_milli", one.held_cpu_milli.into()),
        ("memory_bytes", one.held_memory_bytes.into()),
        ("gpu_milli", one.held_gpu_milli.into()),
    ]);
    let waiting = one.waiting.iter().map(|waits| {
        object([
            ("reason", reason(waits).into()),
            ("allocations", waits.allocations.into()),
        ])
    });
    let limits = one.limits.iter();
    let placement = one.placement.and_then(PlacementPolicy::from_number);
    object([
        ("queue", one.queue.as_str().into()),
        ("parent", text(&one.parent)),
        ("weight_milli", one.weight_milli.into()),
        (
            "limits",
            limits
                .map(|limit| (limit.resource.as_str(), limit.amount))
                .collect(),
        ),
        ("tenants", one.tenants.clone().into()),
        ("order", order(one).name().into()),
        ("placement", placement.map(|policy| policy.name()).into()),
        (
            "version",
            Some(one.version).filter(|version| *version > 0).into(),
        ),
        ("held", held),
        ("waiting", waiting.collect()),
        ("oldest_ms", ms(one.oldest_ms)),
        ("share", share.into()),
    ])
}

#[derive(Args)]
pub struct Preemptions {
    #[command(flatten)]
    whose: Whose,
    /// How many at the most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    #[command(flatten)]
    output: Output,
}

impl Preemptions {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.asker(self.whose.tenant.as_deref()).await?;
        let query = PreemptionsQuery {
            limit: self.limit,
            ..PreemptionsQuery::default()
        };
        let page = client.preemptions(&query).await?;
        let events = page.preemptions.iter().map(of_preemption);
        let unreadable = "the cell says something of preemptions that this version does not know";
        let events: Option<Vec<PreemptionEvent>> = events.collect();
        let events = events.ok_or(unreadable)?;
        let value = events.iter().map(preemption_json).collect();
        let none = "nothing was preempted";
        Page::list(value, page.lsn)
            .sheet_or(preempted(&events), none)
            .print(self.output)
    }
}

pub fn preempted(events: &[PreemptionEvent]) -> Sheet {
    let row = |one: &PreemptionEvent| {
        let by = one.by.map_or(String::new(), |by| by.to_string());
        let over = one.over.as_ref();
        let by_priority = one.by_priority.map_or_else(|| named(""), number);
        vec![
            number(one.position.lsn.0),
            moment(one.at.0),
            allocation(&one.victim.to_string()),
            plain(&one.tenant),
            plain(&one.node),
            plain(&one.queue),
            plain(one.cause.name()),
            allocation(&by),
            number(one.priority),
            by_priority,
            plain(over.map_or("stopping", |over| over.outcome.name())),
            over.map_or_else(|| named(""), |over| moment(over.at.0)),
            over.map_or_else(|| named(""), |over| yes_or_no(over.requeued)),
            named(&freed(one)),
            moment(one.grace_until.0),
        ]
    };
    let columns = vec![
        column("lsn", "lsn"),
        column("at_ms", "at"),
        column("allocation_id", "allocation"),
        wide("tenant", "tenant"),
        column("node", "node"),
        column("queue", "queue").rank(5),
        column("cause", "cause"),
        column("by", "for").rank(3),
        column("priority", "priority").rank(4),
        column("by_priority", "for priority").rank(7),
        column("outcome", "outcome").rank(6),
        column("stopped_at_ms", "stopped").rank(9),
        column("requeued", "queued again").rank(7),
        column("freed", "freed").rank(8),
        wide("grace_until_ms", "to be gone by"),
    ];
    let all = columns.len();
    Sheet::new(columns, all, events.iter().map(row).collect())
}

fn yes_or_no(is: bool) -> Cell {
    valued(if is { "yes" } else { "no" }.to_owned(), is)
}

fn freed(one: &PreemptionEvent) -> String {
    let amounts = [
        (ResourceKind::Cpu, one.cpu_milli),
        (ResourceKind::Memory, one.memory_bytes),
        (ResourceKind::Gpu, one.gpu_milli),
    ];
    let amounts = amounts
        .into_iter()
        .filter_map(|(kind, amount)| Some((kind, amount?)));
    let amounts = amounts.filter(|(_, amount)| *amount > 0);
    let amounts: Vec<_> = amounts
        .map(|(kind, amount)| amount::human(kind, amount))
        .collect();
    amounts.join(", ")
}

fn preemption_json(one: &PreemptionEvent) -> Value {
    object([
        ("lsn", one.position.lsn.0.into()),
        ("index", one.position.index.into()),
        ("allocation_id", one.victim.to_string().into()),
        ("tenant", one.tenant.clone().into()),
        ("queue", one.queue.clone().into()),
        ("node", one.node.clone().into()),
        ("cause", one.cause.name().into()),
        ("by", one.by.map(|by| by.to_string()).into()),
        ("priority", one.priority.into()),
        ("by_priority", one.by_priority.into()),
        ("at_ms", one.at.0.into()),
        ("grace_until_ms", one.grace_until.0.into()),
        (
            "outcome",
            one.over
                .map_or("stopping", |over| over.outcome.name())
                .into(),
        ),
        ("stopped_at_ms", one.over.map(|over| over.at.0).into()),
        ("requeued", one.over.map(|over| over.requeued).into()),
        ("freed_cpu_milli", one.cpu_milli.into()),
        ("freed_memory_bytes", one.memory_bytes.into()),
        ("freed_gpu_milli", one.gpu_milli.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::project::{Outcome, Over, Position};
    use vocab::{AllocationNo, CellNo, Lsn, Millis, PreemptionCause};

    #[test]
    fn a_preemption_is_a_row() {
        let mut one = PreemptionEvent {
            position: Position {
                lsn: Lsn(7),
                index: 0,
            },
            victim: AllocationNo(1).id(CellNo(3)),
            tenant: "t".into(),
            queue: "q".into(),
            node: "n1".into(),
            cause: PreemptionCause::FairShare,
            by: None,
            priority: 5,
            by_priority: Some(100),
            at: Millis(0),
            grace_until: Millis(30_000),
            over: None,
            cpu_milli: None,
            memory_bytes: None,
            gpu_milli: None,
        };
        let texts = |one: &PreemptionEvent| -> Vec<String> {
            let row = &preempted(std::slice::from_ref(one)).rows[0];
            row.iter().map(|cell| cell.text.clone()).collect()
        };
        let begin = [
            "7",
            "1970-01-01T00:00:00Z",
            "00000000-0000-0003-0000-000000000001",
            "t",
            "n1",
            "q",
            "fair_share",
            "-",
            "5",
            "100",
        ];
        let grace = "1970-01-01T00:00:30Z";
        let check = |one: &PreemptionEvent, rest: [&str; 5]| {
            assert_eq!(texts(one), [&begin[..], &rest].concat());
        };
        check(&one, ["stopping", "-", "-", "-", grace]);
        one.over = Some(Over {
            outcome: Outcome::Stopped,
            at: Millis(9000),
            requeued: true,
        });
        (one.cpu_milli, one.memory_bytes, one.gpu_milli) = (Some(4000), Some(1 << 30), Some(0));
        let at = "1970-01-01T00:00:09Z";
        check(
            &one,
            ["stopped", at, "yes", "4.000 cores, 1.000 GiB", grace],
        );
        assert_eq!(preemption_json(&one)["outcome"], "stopped");
    }
}
