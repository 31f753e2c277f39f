//! The queues, and what tenants lost to others.

use crate::{
    Failure, amount,
    explain::{object, percent},
    stack,
};
use chassis::stack::Stack;
use clap::Args;
use scheduler::store::{self, PreemptionEvent, QueueState};
use sqlx::types::JsonValue;
use vocab::{ResourceKind, Token};

#[derive(Args)]
pub struct Queues {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Queues {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let pool = stack::warm_state(stack, "scheduler").await?;
        let queues = store::queues(&pool).await?;
        if self.json {
            println!("{:#}", queues.iter().map(queue_json).collect::<JsonValue>());
            return Ok(());
        }
        println!(
            "{:<20} {:<16} {:>8} {:>8} {:>8} {:>16} {:>16} {:>14} {:>10} {:>10}",
            "queue", "parent", "weight", "held", "waiting", "cpu", "memory", "gpu", "share", "fair"
        );
        for one in &queues {
            let weight = one.settings.weight_milli;
            let held = &one.held;
            let share = one
                .share
                .map(|share| (share.share_ppm, share.fair_share_ppm));
            println!(
                "{:<20} {:<16} {:>8} {:>8} {:>8} {:>16} {:>16} {:>14} {:>10} {:>10}",
                one.queue,
                one.settings.parent.as_ref().map_or("-", Token::as_str),
                format!("{}.{:03}", weight / 1000, weight % 1000),
                held.allocations,
                one.waiting,
                amount::human(ResourceKind::Cpu, held.cpu_milli),
                amount::human(ResourceKind::Memory, held.memory_bytes),
                amount::human(ResourceKind::Gpu, held.gpu_milli),
                share.map_or("-".into(), |(share, _)| percent(share)),
                share.map_or("-".into(), |(_, fair)| percent(fair)),
            );
        }
        Ok(())
    }
}

fn queue_json(one: &QueueState) -> JsonValue {
    let settings = &one.settings;
    let share = one.share.map(|share| {
        object([
            ("share_ppm", share.share_ppm.into()),
            ("fair_share_ppm", share.fair_share_ppm.into()),
            ("at_ms", share.at.0.into()),
        ])
    });
    let held = object([
        ("allocations", one.held.allocations.into()),
        ("cpu_milli", one.held.cpu_milli.into()),
        ("memory_bytes", one.held.memory_bytes.into()),
        ("gpu_milli", one.held.gpu_milli.into()),
    ]);
    object([
        ("queue", one.queue.clone().into()),
        ("parent", settings.parent.as_ref().map(Token::as_str).into()),
        ("weight_milli", settings.weight_milli.into()),
        (
            "limits",
            settings
                .limits
                .iter()
                .map(|(kind, limit)| (kind.name(), *limit))
                .collect(),
        ),
        (
            "tenants",
            settings.tenants.iter().map(Token::as_str).collect(),
        ),
        ("order", settings.order.name().into()),
        (
            "placement",
            settings.placement.map(|policy| policy.name()).into(),
        ),
        ("version", one.version.into()),
        ("held", held),
        ("waiting", one.waiting.into()),
        ("share", share.into()),
    ])
}

#[derive(Args)]
pub struct Preemptions {
    #[arg(long)]
    tenant: String,
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Preemptions {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let pool = stack::warm_state(stack, "scheduler").await?;
        let events = store::preemptions(&pool, &Token::new(&self.tenant)?, self.limit).await?;
        if self.json {
            println!(
                "{:#}",
                events.iter().map(preemption_json).collect::<JsonValue>()
            );
            return Ok(());
        }
        for one in &events {
            println!("{}", preemption_line(one));
        }
        Ok(())
    }
}

fn preemption_line(one: &PreemptionEvent) -> String {
    let by = one.by.map_or(String::new(), |by| format!(" for {by}"));
    let outcome = match one.over {
        None => format!(
            "stopping, to be gone by {}",
            amount::moment(one.grace_until)
        ),
        Some(over) => {
            let again = if over.requeued {
                "queued again"
            } else {
                "not queued again"
            };
            let at = amount::moment(over.at);
            format!(
                "{} at {at}, {again}, freed {}",
                over.outcome.name(),
                freed(one)
            )
        }
    };
    format!(
        "{} {} {} from {} in {}, {}{by}: {outcome}",
        one.position.lsn.0,
        amount::moment(one.at),
        one.victim,
        one.node,
        one.queue,
        one.cause.name(),
    )
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

fn preemption_json(one: &PreemptionEvent) -> JsonValue {
    object([
        ("lsn", one.position.lsn.0.into()),
        ("index", one.position.index.into()),
        ("allocation_id", one.victim.to_string().into()),
        ("queue", one.queue.clone().into()),
        ("node", one.node.clone().into()),
        ("cause", one.cause.name().into()),
        ("by", one.by.map(|by| by.to_string()).into()),
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
    fn a_preemption_is_one_line() {
        let mut one = PreemptionEvent {
            position: Position {
                lsn: Lsn(7),
                index: 0,
            },
            victim: AllocationNo(1).id(CellNo(3)),
            queue: "q".into(),
            node: "n1".into(),
            cause: PreemptionCause::FairShare,
            by: None,
            at: Millis(0),
            grace_until: Millis(30_000),
            over: None,
            cpu_milli: None,
            memory_bytes: None,
            gpu_milli: None,
        };
        let begin =
            "7 1970-01-01T00:00:00Z 00000000-0000-0003-0000-000000000001 from n1 in q, fair_share:";
        let expected = format!("{begin} stopping, to be gone by 1970-01-01T00:00:30Z");
        assert_eq!(preemption_line(&one), expected);
        one.over = Some(Over {
            outcome: Outcome::Stopped,
            at: Millis(9000),
            requeued: true,
        });
        (one.cpu_milli, one.memory_bytes, one.gpu_milli) = (Some(4000), Some(1 << 30), Some(0));
        let expected = format!(
            "{begin} stopped at 1970-01-01T00:00:09Z, queued again, freed 4.000 cores, 1.000 GiB"
        );
        assert_eq!(preemption_line(&one), expected);
        assert_eq!(preemption_json(&one)["outcome"], "stopped");
    }
}
