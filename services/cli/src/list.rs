//! What allocations a tenant has, as the tenant itself may ask by the bus.

use crate::{
    Failure, amount,
    explain::object,
    stack,
    submit::{waits, words},
};
use chassis::stack::Stack;
use clap::{Args, ValueEnum};
use client::{AllocationStanding, AllocationView, AllocationsQuery};
use comfy_table::{Table, presets};
use sqlx::types::JsonValue;
use vocab::{QuotaResource, ResourceKind};

#[derive(Args)]
pub struct List {
    #[arg(long)]
    tenant: String,
    /// Only what is in this state, of several in any of them; without, all that is not over.
    #[arg(long = "state", value_enum)]
    states: Vec<State>,
    /// What is over, too.
    #[arg(long, conflicts_with = "states")]
    all: bool,
    #[arg(long)]
    queue: Option<String>,
    #[arg(long)]
    job_set: Option<String>,
    #[arg(long)]
    team: Option<String>,
    #[arg(long)]
    namespace: Option<String>,
    /// What is on this node, or was on it last.
    #[arg(long)]
    node: Option<String>,
    #[arg(long)]
    gang: Option<String>,
    /// What has a name that begins so.
    #[arg(long)]
    name_prefix: Option<String>,
    /// Requested then or later: 2026-01-31T08:00:00Z, or so long ago as in 2h.
    #[arg(long, value_parser = amount::past)]
    since: Option<amount::Past>,
    /// Requested before, in the same form.
    #[arg(long, value_parser = amount::past)]
    until: Option<amount::Past>,
    /// How many at the most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Go on behind this one, as the last line of a list that was cut says.
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    /// Accepted; it may wait for quota.
    Requested,
    /// For a node.
    Waiting,
    Placed,
    Started,
    Stopping,
    Ended,
}

impl State {
    fn standing(self) -> AllocationStanding {
        match self {
            Self::Requested => AllocationStanding::Requested,
            Self::Waiting => AllocationStanding::Waiting,
            Self::Placed => AllocationStanding::Placed,
            Self::Started => AllocationStanding::Started,
            Self::Stopping => AllocationStanding::Stopping,
            Self::Ended => AllocationStanding::Ended,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    /// A table with more columns.
    Wide,
    Json,
}

/// Allocations of a page, at the most.
const PAGE_MAX: u32 = 1000;

impl List {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let client = stack::tenant(stack, &self.tenant).await?;
        let now_ms = stack.clock().now_ms();
        let (limit, output) = (self.limit, self.output);
        let mut query = self.query(now_ms);
        let mut found: Vec<AllocationView> = Vec::new();
        loop {
            query.limit = (limit - found.len() as u32).min(PAGE_MAX);
            let page = client.allocations(&query).await?;
            found.extend(page.allocations);
            query.after = page.next;
            if query.after.is_empty() || found.len() as u32 >= limit {
                break;
            }
        }
        if output == Output::Json {
            let allocations: JsonValue = found.iter().map(json).collect();
            let next = Some(query.after.as_str()).filter(|next| !next.is_empty());
            let page = object([("allocations", allocations), ("next", next.into())]);
            println!("{page:#}");
            return Ok(());
        }
        if found.is_empty() {
            println!("none");
        } else {
            println!("{}", table(&found, output == Output::Wide, now_ms));
        }
        if !query.after.is_empty() {
            println!("there may be more: --after {}", query.after);
        }
        Ok(())
    }

    fn query(self, now_ms: i64) -> AllocationsQuery {
        let mut states: Vec<i32> = self
            .states
            .iter()
            .map(|state| state.standing().into())
            .collect();
        if self.all {
            let all = State::value_variants().iter();
            states.extend(all.map(|state| i32::from(state.standing())));
        }
        let ms = |past: Option<amount::Past>| past.map_or(0, |past| past.ms(now_ms));
        AllocationsQuery {
            states,
            queue: self.queue.unwrap_or_default(),
            job_set: self.job_set.unwrap_or_default(),
            team: self.team.unwrap_or_default(),
            namespace: self.namespace.unwrap_or_default(),
            node: self.node.unwrap_or_default(),
            gang: self.gang.unwrap_or_default(),
            name_prefix: self.name_prefix.unwrap_or_default(),
            since_ms: ms(self.since),
            until_ms: ms(self.until),
            after: self.after.unwrap_or_default(),
            ..AllocationsQuery::default()
        }
    }
}

fn table(found: &[AllocationView], wide: bool, now_ms: i64) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let mut head = vec![
        "allocation",
        "name",
        "job set",
        "state",
        "queue",
        "cores",
        "memory GiB",
        "GPUs",
        "node",
        "age",
    ];
    if wide {
        head.extend([
            "team",
            "namespace",
            "gang",
            "priority",
            "attempts",
            "requested",
            "started",
        ]);
    }
    table.set_header(head);
    for one in found {
        let named = |text: &str| match text {
            "" => "-".to_owned(),
            text => text.to_owned(),
        };
        let mut row = vec![
            one.allocation_id.clone(),
            named(&one.name),
            one.job_set.clone(),
            state(one),
            one.queue.clone(),
            plain(ResourceKind::Cpu, one.cpu_milli),
            plain(ResourceKind::Memory, one.memory_bytes),
            plain(ResourceKind::Gpu, one.gpu_count * one.gpu_milli),
            named(&one.node),
            amount::age(now_ms - one.requested_ms),
        ];
        if wide {
            row.extend([
                named(&one.team),
                named(&one.namespace),
                named(&one.gang),
                one.priority.to_string(),
                one.attempts.to_string(),
                amount::moment_or_dash(one.requested_ms),
                amount::moment_or_dash(started_ms(one)),
            ]);
        }
        table.add_row(row);
    }
    table.trim_fmt()
}

fn plain(kind: ResourceKind, amount: i64) -> String {
    amount::plain(&QuotaResource::of(kind), u128::from(amount.unsigned_abs()))
}

/// Of the run that is under way, or was the last.
fn started_ms(one: &AllocationView) -> i64 {
    match &one.ended {
        Some(ended) => ended.started_ms,
        None => one.started_ms,
    }
}

/// Where it stands, and why.
fn state(one: &AllocationView) -> String {
    let standing = words(one.state());
    match (&one.ended, &one.waiting) {
        (Some(ended), _) => format!("{standing}: {}", words(ended.cause())),
        // Denied by quota, which is an end as well.
        (None, Some(waiting)) if one.state() == AllocationStanding::Ended => {
            format!("denied: {}", waiting.explanation)
        }
        (None, Some(waiting)) => waits(waiting),
        (None, None) => standing,
    }
}

/// As programs read it.
pub fn json(one: &AllocationView) -> JsonValue {
    let text = |text: &str| Some(text).filter(|text| !text.is_empty()).into();
    let ms = |ms: i64| Some(ms).filter(|ms| *ms != 0).into();
    let reason = one.waiting.as_ref().map(|waiting| words(waiting.reason()));
    let ended = one.ended.as_ref();
    object([
        ("allocation_id", one.allocation_id.as_str().into()),
        ("name", text(&one.name)),
        ("job_set", one.job_set.as_str().into()),
        ("state", words(one.state()).into()),
        ("waiting_reason", reason.into()),
        (
            "explanation",
            one.waiting
                .as_ref()
                .map_or(JsonValue::Null, |waiting| text(&waiting.explanation)),
        ),
        ("end_cause", ended.map(|ended| words(ended.cause())).into()),
        ("queue", one.queue.as_str().into()),
        ("team", text(&one.team)),
        ("namespace", text(&one.namespace)),
        ("gang", text(&one.gang)),
        ("priority", one.priority.into()),
        ("priority_class", text(&one.priority_class)),
        ("cpu_milli", one.cpu_milli.into()),
        ("memory_bytes", one.memory_bytes.into()),
        ("gpu_count", one.gpu_count.into()),
        ("gpu_milli", one.gpu_milli.into()),
        ("node", text(&one.node)),
        ("attempts", one.attempts.into()),
        ("requested_ms", one.requested_ms.into()),
        ("placed_ms", ms(one.placed_ms)),
        ("started_ms", ms(started_ms(one))),
        ("ended_ms", ended.map(|ended| ended.ended_ms).into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::v1::{EndCause, Ended, Waiting, WaitingReason};

    fn view() -> AllocationView {
        AllocationView {
            allocation_id: "00000000-0000-0001-0000-000000000007".to_owned(),
            job_set: "default".to_owned(),
            queue: "team-a".to_owned(),
            state: AllocationStanding::Requested.into(),
            cpu_milli: 1500,
            memory_bytes: 3 << 29,
            requested_ms: 1_700_000_000_000,
            ..AllocationView::default()
        }
    }

    #[test]
    fn a_state_says_why() {
        let check = |change: fn(&mut AllocationView), expected: &str| {
            let mut one = view();
            change(&mut one);
            assert_eq!(state(&one), expected);
        };
        check(|_| {}, "requested");
        check(
            |one| {
                one.state = AllocationStanding::Waiting.into();
                one.waiting = Some(Waiting {
                    reason: WaitingReason::NoRoomNow.into(),
                    ..Waiting::default()
                });
            },
            "waits: no room now",
        );
        let denied = |one: &mut AllocationView| {
            one.state = AllocationStanding::Ended.into();
            one.waiting = Some(Waiting {
                explanation: "quota_exceeded: cpu".to_owned(),
                ..Waiting::default()
            });
        };
        check(denied, "denied: quota_exceeded: cpu");
        check(
            |one| {
                one.state = AllocationStanding::Ended.into();
                one.ended = Some(Ended {
                    cause: EndCause::NodeLost.into(),
                    ..Ended::default()
                });
            },
            "ended: node lost",
        );
    }

    #[test]
    fn a_table_has_a_line_for_each() {
        let mut other = view();
        other.name = "train-1".to_owned();
        (other.gpu_count, other.gpu_milli) = (2, 500);
        let now_ms = 1_700_000_000_000 + 3_660_000;
        let text = table(&[view(), other], false, now_ms);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let [head, first, second] = lines[..] else {
            panic!("{text}");
        };
        let words = |line: &str| -> Vec<String> {
            let cells = line.split("  ").map(str::trim);
            cells
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(words(head).len(), 10, "{text}");
        assert_eq!(
            words(first)[1..],
            [
                "-",
                "default",
                "requested",
                "team-a",
                "1.500",
                "1.500",
                "0.000",
                "-",
                "1h1m"
            ]
        );
        assert_eq!(words(second)[1], "train-1");
        assert_eq!(words(second)[7], "1.000");
        assert_eq!(
            words(table(&[view()], true, now_ms).lines().next().unwrap_or("")).len(),
            17
        );
    }
}
