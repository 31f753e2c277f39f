//! Job sets, and how many of their allocations stand where.

use crate::{
    Failure, amount,
    context::{Context, Whose},
    explain::object,
    list::State,
    print::{Output, Page, Sheet, column, moment, number, plain, valued, wide},
};
use clap::Args;
use client::{JobSetView, JobSetsQuery};
use serde_json::Value;

#[derive(Args)]
pub struct JobSets {
    #[command(flatten)]
    whose: Whose,
    /// Only those with a name that begins so.
    #[arg(long)]
    name_prefix: Option<String>,
    /// Only what is or was in this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Only those with an allocation in this state, of several in any of them.
    #[arg(long = "state", value_enum)]
    states: Vec<State>,
    /// How many at the most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Go on behind this one, as the last line of a list that was cut says.
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Job sets of a page, at the most.
const PAGE_MAX: u32 = 1000;

impl JobSets {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let of_all = context.tenant_of(self.whose.tenant.as_deref()).is_none();
        let client = context.asker(self.whose.tenant.as_deref()).await?;
        let states = self.states.iter().map(|state| state.standing().into());
        let mut query = JobSetsQuery {
            name_prefix: self.name_prefix.unwrap_or_default(),
            queue: self.queue.unwrap_or_default(),
            states: states.collect(),
            after: self.after.unwrap_or_default(),
            ..JobSetsQuery::default()
        };
        let mut found: Vec<JobSetView> = Vec::new();
        loop {
            query.limit = (self.limit - found.len() as u32).min(PAGE_MAX);
            let page = client.job_sets(&query).await?;
            found.extend(page.job_sets);
            query.after = page.next;
            if query.after.is_empty() || found.len() as u32 >= self.limit {
                break;
            }
        }
        let next = Some(query.after.as_str()).filter(|next| !next.is_empty());
        let sheet = sheet(&found, of_all, context.clock().now_ms());
        let job_sets: Value = found.iter().map(json).collect();
        let value = object([("job_sets", job_sets), ("next", next.into())]);
        let page = Page::new(value).sheet_or(sheet, "no job sets");
        let page = match next {
            Some(next) => page.text(format!("there may be more: --after '{next}'")),
            None => page,
        };
        page.print(self.output)
    }
}

fn sheet(found: &[JobSetView], of_all: bool, now_ms: i64) -> Sheet {
    let row = |one: &JobSetView| {
        let age = now_ms - one.last_change_ms;
        vec![
            plain(&one.job_set),
            plain(&one.tenant),
            plain(&one.queue),
            number(one.requested),
            number(one.waiting),
            number(one.placed),
            number(one.started),
            number(one.stopping),
            number(one.finished),
            number(one.failed),
            number(one.cancelled),
            number(one.denied),
            valued(amount::age(age), age),
            moment(one.first_requested_ms),
            moment(one.last_change_ms),
        ]
    };
    let columns = vec![
        column("job_set", "job set"),
        // A tenant knows whose they are.
        match of_all {
            true => column("tenant", "tenant"),
            false => wide("tenant", "tenant"),
        },
        column("queue", "queue"),
        column("requested", "requested"),
        column("waiting", "waiting"),
        wide("placed", "placed"),
        column("started", "started"),
        wide("stopping", "stopping"),
        column("finished", "finished"),
        column("failed", "failed"),
        wide("cancelled", "cancelled"),
        wide("denied", "denied"),
        column("changed_age_ms", "changed"),
        wide("first_requested_ms", "first requested"),
        wide("last_change_ms", "last change"),
    ];
    Sheet::new(columns, 3, found.iter().map(row).collect())
}

fn json(one: &JobSetView) -> Value {
    object([
        ("tenant", one.tenant.as_str().into()),
        ("job_set", one.job_set.as_str().into()),
        ("queue", one.queue.as_str().into()),
        ("requested", one.requested.into()),
        ("waiting", one.waiting.into()),
        ("placed", one.placed.into()),
        ("started", one.started.into()),
        ("stopping", one.stopping.into()),
        ("finished", one.finished.into()),
        ("failed", one.failed.into()),
        ("cancelled", one.cancelled.into()),
        ("denied", one.denied.into()),
        ("first_requested_ms", one.first_requested_ms.into()),
        ("last_change_ms", one.last_change_ms.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_row() {
        let one = JobSetView {
            tenant: "t".to_owned(),
            job_set: "j".to_owned(),
            queue: "q".to_owned(),
            waiting: 3,
            failed: 1,
            last_change_ms: 1_700_000_000_000,
            ..JobSetView::default()
        };
        let sheet = sheet(std::slice::from_ref(&one), false, 1_700_000_060_000);
        let texts: Vec<&str> = sheet.rows[0].iter().map(|it| it.text.as_str()).collect();
        assert_eq!(texts.len(), sheet.columns.len());
        assert_eq!(texts[..5], ["j", "t", "q", "0", "3"]);
        assert_eq!(texts[12], "1m0s");
        // Programs have the same by either way.
        let (records, json) = (sheet.records(), json(&one));
        for field in ["tenant", "waiting", "failed", "last_change_ms"] {
            assert_eq!(records[0][field], json[field], "{field}");
        }
    }
}
