//! One allocation as its tenant sees it: where it stands, and what it asked for beside what it used and costs.

use super::{hours, in_currency};
use crate::{
    Failure, amount,
    context::{Context, Whose},
    follow::{exit_code, signal},
    get, list, look,
    print::{
        Cell, Fields, Output, Page, Sheet, bound, column, counted, exactly, moment,
        moment_or_never, named, number, plain, quantity, valued,
    },
    submit::{document, how, words},
};
use clap::Args;
use client::{AllocationView, Attempt, QueryError, UsagePage, UsageQuery};
use schemas::v1::{EndCause, RunUsage};
use serde_json::{Value, json};
use vocab::{Millis, ResourceKind};

#[derive(Args)]
pub struct Describe {
    #[command(flatten)]
    whose: Whose,
    /// Its id or name, or the beginning of one.
    allocation_id: String,
    #[command(flatten)]
    output: Output,
}

impl Describe {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.asker_of_one(self.whose.tenant.as_deref()).await?;
        let whole = get::whole(&client, &self.allocation_id).await?;
        let view = whole.view.ok_or(QueryError::Empty)?;
        // An operator asks about a tenant, and is none.
        let tenant = context.tenant_name(self.whose.tenant.as_deref())?;
        let request = whole.asked.map(|asked| document(&asked, tenant.as_str()));
        let query = UsageQuery {
            allocation_id: view.allocation_id.clone(),
            at_lsn: view.lsn,
            ..UsageQuery::default()
        };
        let cost = client.usage(&query).await;
        let mut value = as_json(&view, &cost);
        value["operation_id"] = whole.operation_id.as_str().into();
        value["attempts"] = whole.attempts.iter().map(attempt_json).collect();
        value["request"] = request.clone().into();
        let charged = match &cost {
            Ok(page) => format!("charged up to {}", amount::moment(Millis(page.through_ms))),
            Err(error) => format!("what it costs is not known now: {error}"),
        };
        let operation = named(&whole.operation_id);
        let page = Page::new(value)
            .fields(fields(&view).add("operation_id", "operation", operation))
            .sheet(attempts(&view, &whole.attempts))
            .sheet(resources(&view, cost.as_ref().ok()))
            .text(charged);
        let page = match &request {
            Some(request) => page.document(ASKED_FOR, request)?,
            None => page,
        };
        page.print(self.output)
    }
}

/// Above the request.
const ASKED_FOR: &str =
    "asked for, as a document of submit --file; submit --again asks for the same:";

/// The places that it has had. With one alone all of it stands above.
fn attempts(view: &AllocationView, all: &[Attempt]) -> Sheet {
    // It was queued again after each but the one that it has, or had last; of very many the first are forgotten.
    let has_place = u32::from(!view.node.is_empty());
    let first = (view.attempts + has_place + 1).saturating_sub(all.len() as u32);
    let row = |(no, one): (u32, &Attempt)| {
        let cause = match one.cause() {
            EndCause::Unspecified => named(""),
            cause => exactly(how(cause, one.exit), words(cause)),
        };
        vec![
            number(no),
            exactly(look::place(&one.node, &one.gpus), &one.node),
            moment(one.placed_ms),
            moment_or_never(one.started_ms),
            moment_or_never(one.ended_ms),
            cause,
        ]
    };
    let columns = vec![
        column("attempt", "attempt"),
        column("node", "place"),
        column("placed_ms", "placed"),
        column("started_ms", "started"),
        column("ended_ms", "ended"),
        column("end_cause", "by"),
    ];
    let rows = match all {
        [] | [_] => Vec::new(),
        all => (first..).zip(all).map(row).collect(),
    };
    let width = columns.len();
    Sheet::new(columns, width, rows)
}

fn attempt_json(one: &Attempt) -> Value {
    let ms = |ms: i64| Some(ms).filter(|ms| *ms != 0);
    let cause = Some(one.cause()).filter(|cause| *cause != EndCause::Unspecified);
    let gpus = one.gpus.iter();
    let gpus = gpus.map(|share| json!({ "device": share.device, "milli": share.milli }));
    json!({
        "node": one.node,
        "gpus": gpus.collect::<Vec<_>>(),
        "placed_ms": one.placed_ms,
        "started_ms": ms(one.started_ms),
        "ended_ms": ms(one.ended_ms),
        "end_cause": cause.map(words),
        "exit_code": exit_code(one.exit),
        "signal": signal(one.exit),
    })
}

fn fields(view: &AllocationView) -> Fields {
    let state = match &view.ended {
        Some(ended) => format!("ended: {}", how(ended.cause(), ended.exit)),
        None => list::told(view),
    };
    let place = match &*view.node {
        "" => named(""),
        node => exactly(look::place(node, &view.gpus), node),
    };
    let ended_ms = view.ended.as_ref().map_or(0, |ended| ended.ended_ms);
    Fields::default()
        .add("allocation_id", "allocation", plain(&view.allocation_id))
        .add("name", "name", named(&view.name))
        .add("job_set", "job set", plain(&view.job_set))
        .add("queue", "queue", plain(&view.queue))
        .add("account", "account", named(&account(view)))
        .add("priority", "priority", priority(view))
        .add("gang", "gang", named(&view.gang))
        .add("labels", "labels", named(&list::labels(view)))
        .add("state", "state", exactly(state, words(view.state())))
        .add("node", "place", place)
        .add("quota_flags", "quota", list::quota(view))
        .add("ttl_ms", "ttl", bound(view.ttl_ms))
        .add("time_limit_ms", "time limit", bound(view.time_limit_ms))
        .add("attempts", "queued again", number(view.attempts))
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
        .add("ended_ms", "ended", moment_or_never(ended_ms))
}

/// Below its tenant.
fn account(view: &AllocationView) -> String {
    match view.namespace.as_str() {
        "" => view.team.clone(),
        namespace => format!("{}/{namespace}", view.team),
    }
}

fn priority(view: &AllocationView) -> Cell {
    match view.priority_class.as_str() {
        "" => number(view.priority),
        class => valued(format!("{} ({class})", view.priority), view.priority),
    }
}

fn resources(view: &AllocationView, cost: Option<&UsagePage>) -> Sheet {
    let columns = vec![
        column("resource", "resource"),
        column("asked", "asked for"),
        column("limit", "may take"),
        column("used", "used"),
        column("charged", "charged for"),
        column("amount_micro", "cost"),
    ];
    let rows = asked(view).into_iter();
    let rows = rows.map(|(kind, asked)| row(kind, asked, view, cost));
    let all = columns.len();
    let currency = cost.map_or("", |page| &*page.currency);
    in_currency(Sheet::new(columns, all, rows.collect()), currency)
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
) -> Vec<Cell> {
    let used = measured(view).and_then(|usage| match kind {
        ResourceKind::Cpu => {
            let seconds = seconds(usage.cpu_us);
            Some(counted(format!("{seconds} CPU seconds"), usage.cpu_us))
        }
        ResourceKind::Memory => {
            let peak = amount::human(ResourceKind::Memory, usage.memory_peak_bytes);
            Some(counted(
                format!("{peak} at the most"),
                usage.memory_peak_bytes,
            ))
        }
        ResourceKind::Gpu => None,
    });
    let lines = cost.into_iter().flat_map(|page| {
        let of_kind = move |line: &&client::UsageLine| super::kind(&line.resource) == Some(kind);
        page.lines.iter().filter(of_kind)
    });
    let (mut charged, mut micro, mut currency) = (Vec::new(), 0, "");
    let mut billed_as = Vec::new();
    for line in lines {
        billed_as.push(line.resource.as_str());
        charged.push(hours(&line.resource, super::quantity(&line.quantity)));
        micro += i128::from(line.amount_micro);
        currency = cost.map_or("", |page| &*page.currency);
    }
    let money = match charged.is_empty() {
        true => named(""),
        false => counted(format!("{} {currency}", amount::money(micro)), micro),
    };
    // As the bill has it, with the model.
    billed_as.sort_unstable();
    billed_as.dedup();
    let resource = match billed_as.is_empty() {
        true => kind.name().to_owned(),
        false => billed_as.join(", "),
    };
    vec![
        plain(resource),
        quantity(kind, asked.unsigned_abs()),
        limit(kind, view),
        used.unwrap_or_else(|| named("")),
        named(&charged.join(", ")),
        money,
    ]
}

/// What it may take where there is some left, if that is more than it asked for.
fn limit(kind: ResourceKind, view: &AllocationView) -> Cell {
    let limit = match kind {
        ResourceKind::Cpu => view.cpu_milli_limit,
        ResourceKind::Memory => view.memory_bytes_limit,
        ResourceKind::Gpu => 0,
    };
    match limit {
        0 => valued("-".to_owned(), Value::Null),
        limit => quantity(kind, limit.unsigned_abs()),
    }
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
        "allocation": list::json(view),
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
            gpu_count: 1,
            gpu_milli: 500,
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
            lines: vec![line("cpu", "3600000000"), line("gpu:G2", "1800000000")],
            currency: "EUR".to_owned(),
            ..UsagePage::default()
        };
        let texts = |row: &Vec<Cell>| {
            let texts: Vec<_> = row.iter().map(|cell| cell.text.as_str()).collect();
            texts.join(" | ")
        };
        let sheet = resources(&view, Some(&page));
        let rows: Vec<_> = sheet.rows.iter().map(texts).collect();
        assert_eq!(
            rows,
            [
                "cpu | 1.000 cores | - | 0.012 CPU seconds | 1.000000 core-hours | 1.500000 EUR | EUR",
                "memory | 64 MiB | - | 32 MiB at the most | - | - | EUR",
                "gpu:G2 | 0.500 GPUs | - | - | 0.500000 GPU-hours | 1.500000 EUR | EUR",
            ]
        );
    }
}
