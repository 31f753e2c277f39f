//! One allocation as its tenant sees it: where it stands, and what it asked for beside what it used and costs.

use super::{hours, table};
use crate::{
    Failure, amount, look, stack,
    submit::{how, waits, words},
};
use chassis::stack::Stack;
use clap::{Args, ValueEnum};
use client::{AllocationView, QueryError, UsagePage, UsageQuery};
use schemas::v1::RunUsage;
use serde_json::{Value, json};
use vocab::{AllocationId, Millis, ResourceKind};

#[derive(Args)]
pub struct Describe {
    #[arg(long)]
    tenant: String,
    #[arg(value_parser = amount::allocation)]
    allocation_id: AllocationId,
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

impl Describe {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let client = stack::tenant(stack, &self.tenant).await?;
        let view = client.allocation(self.allocation_id.to_string(), 0).await?;
        let query = UsageQuery {
            allocation_id: view.allocation_id.clone(),
            at_lsn: view.lsn,
            ..UsageQuery::default()
        };
        let cost = client.usage(&query).await;
        match self.output {
            Output::Table => print(&view, &cost),
            Output::Json => println!("{:#}", as_json(&view, &cost)),
        }
        Ok(())
    }
}

fn print(view: &AllocationView, cost: &Result<UsagePage, QueryError>) {
    let named = |text: &str| match text {
        "" => "-".to_owned(),
        text => text.to_owned(),
    };
    let state = match (&view.ended, &view.waiting) {
        (Some(ended), _) => format!("ended: {}", how(ended.cause(), ended.exit)),
        (None, Some(waiting)) => waits(waiting),
        (None, None) => words(view.state()),
    };
    let (started_ms, ended_ms) = match &view.ended {
        Some(ended) => (ended.started_ms, ended.ended_ms),
        None => (view.started_ms, 0),
    };
    let place = match &*view.node {
        "" => "-".to_owned(),
        node => look::place(node, &view.gpus),
    };
    println!("allocation   {}", view.allocation_id);
    println!("name         {}", named(&view.name));
    println!("job set      {}", view.job_set);
    println!("queue        {}", view.queue);
    println!("team         {}", named(&view.team));
    println!("state        {state}");
    println!("place        {place}");
    println!("queued again {} times", view.attempts);
    println!("requested    {}", amount::moment_or_dash(view.requested_ms));
    println!("placed       {}", amount::moment_or_dash(view.placed_ms));
    println!("started      {}", amount::moment_or_dash(started_ms));
    println!("ended        {}", amount::moment_or_dash(ended_ms));
    println!();
    let head = ["resource", "asked for", "used", "charged for", "cost"];
    let rows = asked(view)
        .into_iter()
        .map(|(kind, asked)| row(kind, asked, view, cost.as_ref().ok()));
    println!("{}", table(&head, rows.collect(), head.len()));
    match cost {
        Ok(page) => println!("charged up to {}", amount::moment(Millis(page.through_ms))),
        Err(error) => println!("what it costs is not known now: {error}"),
    }
}

/// What it has of each kind; of none nothing.
fn asked(view: &AllocationView) -> Vec<(ResourceKind, i64)> {
    let all = [
        (ResourceKind::Cpu, view.cpu_milli),
        (ResourceKind::Memory, view.memory_bytes),
        (ResourceKind::Gpu, view.gpu_count * view.gpu_milli),
    ];
    all.into_iter().filter(|(_, amount)| *amount > 0).collect()
}

/// Of the last run, as its agent has measured it.
fn measured(view: &AllocationView) -> Option<RunUsage> {
    view.ended?.exit?.usage
}

fn row(
    kind: ResourceKind,
    asked: i64,
    view: &AllocationView,
    cost: Option<&UsagePage>,
) -> Vec<String> {
    let used = measured(view).and_then(|usage| match kind {
        ResourceKind::Cpu => Some(format!("{} CPU seconds", seconds(usage.cpu_us))),
        ResourceKind::Memory => {
            let peak = amount::human(ResourceKind::Memory, usage.memory_peak_bytes);
            Some(format!("{peak} at the most"))
        }
        ResourceKind::Gpu => None,
    });
    let lines = cost.into_iter().flat_map(|page| {
        let of_kind = move |line: &&client::UsageLine| super::kind(&line.resource) == Some(kind);
        page.lines.iter().filter(of_kind)
    });
    let (mut charged, mut micro, mut currency) = (Vec::new(), 0, "");
    for line in lines {
        charged.push(hours(
            &line.resource,
            line.quantity.parse().unwrap_or_default(),
        ));
        micro += i128::from(line.amount_micro);
        currency = cost.map_or("", |page| &*page.currency);
    }
    let money = match charged.is_empty() {
        true => "-".to_owned(),
        false => format!("{} {currency}", amount::money(micro)),
    };
    let or_dash = |text: String| match text.is_empty() {
        true => "-".to_owned(),
        false => text,
    };
    vec![
        kind.name().to_owned(),
        amount::human(kind, asked.unsigned_abs()),
        or_dash(used.unwrap_or_default()),
        or_dash(charged.join(", ")),
        money,
    ]
}

/// To the millisecond.
fn seconds(us: u64) -> String {
    format!("{}.{:03}", us / 1_000_000, us % 1_000_000 / 1000)
}

fn as_json(view: &AllocationView, cost: &Result<UsagePage, QueryError>) -> Value {
    let used = measured(view).map(|usage| {
        json!({
            "cpu_us": usage.cpu_us,
            "memory_peak_bytes": usage.memory_peak_bytes,
            "log_bytes": usage.log_bytes,
        })
    });
    let lines = cost.as_ref().ok().map(|page| {
        let lines = page.lines.iter().map(|line| {
            json!({
                "resource": line.resource,
                "quantity": line.quantity,
                "amount_micro": line.amount_micro.to_string(),
            })
        });
        json!({
            "lines": lines.collect::<Vec<_>>(),
            "currency": page.currency,
            "through_ms": page.through_ms,
        })
    });
    json!({
        "allocation": crate::list::json(view),
        "used": used,
        "cost": lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::UsageLine;
    use schemas::v1::{Ended, RunExit};

    #[test]
    fn use_and_cost_stand_beside_what_was_asked_for() {
        let view = AllocationView {
            cpu_milli: 1000,
            memory_bytes: 64 << 20,
            ended: Some(Ended {
                exit: Some(RunExit {
                    usage: Some(RunUsage {
                        cpu_us: 12_345,
                        memory_peak_bytes: 32 << 20,
                        log_bytes: 3,
                    }),
                    ..RunExit::default()
                }),
                ..Ended::default()
            }),
            ..AllocationView::default()
        };
        let line = |resource: &str, quantity: &str| UsageLine {
            resource: resource.to_owned(),
            quantity: quantity.to_owned(),
            amount_micro: 1_500_000,
            ..UsageLine::default()
        };
        let page = UsagePage {
            lines: vec![line("cpu", "3600000000")],
            currency: "EUR".to_owned(),
            ..UsagePage::default()
        };
        let rows: Vec<_> = asked(&view)
            .into_iter()
            .map(|(kind, asked)| row(kind, asked, &view, Some(&page)).join(" | "))
            .collect();
        assert_eq!(
            rows,
            [
                "cpu | 1.000 cores | 0.012 CPU seconds | 1.000000 core-hours | 1.500000 EUR",
                "memory | 0.062 GiB | 0.031 GiB at the most | - | -",
            ]
        );
    }
}
