//! Job sets, and how many of their allocations stand where.

use crate::{
    Failure, amount,
    bill::{in_currency, usage},
    context::{Context, Whose},
    explain::object,
    list::State,
    print::{
        Output, Page, Sheet, column, counted, exact_number, moment, number, plain, valued, wide,
    },
};
use clap::Args;
use client::{Client, JobSetView, JobSetsQuery, UsageBy, UsageQuery};
use serde_json::Value;
use std::collections::BTreeMap;
use vocab::{HOUR_MS, Millis};

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
    #[arg(long = "state", value_enum, value_delimiter = ',')]
    states: Vec<State>,
    /// What each has cost since its first request, too; that is asked of the bill, which takes longer.
    #[arg(long)]
    cost: bool,
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
/// So many are asked for one by one.
const FEW: usize = 10;

impl JobSets {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let of_all = context.tenant_of(self.whose.tenant.as_deref()).is_none();
        let client = context.asker(self.whose.tenant.as_deref()).await?;
        let is_wanted = |one: &JobSetView| {
            self.states.is_empty() || self.states.iter().any(|state| count(one, *state) > 0)
        };
        let mut query = JobSetsQuery {
            name_prefix: self.name_prefix.unwrap_or_default(),
            queue: self.queue.unwrap_or_default(),
            states: State::numbers(&self.states),
            after: self.after.unwrap_or_default(),
            ..JobSetsQuery::default()
        };
        let (mut found, mut lsn) = (Vec::<JobSetView>::new(), u64::MAX);
        loop {
            query.limit = (self.limit - found.len() as u32).min(PAGE_MAX);
            let page = client.job_sets(&query).await?;
            found.extend(page.job_sets.into_iter().filter(is_wanted));
            (query.after, lsn) = (page.next, lsn.min(page.lsn));
            if query.after.is_empty() || found.len() as u32 >= self.limit {
                break;
            }
        }
        let next = Some(query.after.as_str()).filter(|next| !next.is_empty());
        let costs = match self.cost {
            true => Some(Costs::of(&client, &found).await?),
            false => None,
        };
        let sheet = sheet(&found, costs.as_ref(), of_all, context.clock().now_ms());
        let job_sets: Value = (found.iter())
            .map(|one| json(one, costs.as_ref()))
            .collect();
        let lsn = costs.as_ref().map_or(lsn, |costs| lsn.min(costs.lsn));
        let charged = costs.as_ref().map(|costs| {
            let through = amount::moment(costs.through);
            format!("charged up to {through}")
        });
        let page = Page::list(job_sets, lsn)
            .with("currency", costs.as_ref().map(|it| &*it.currency))
            .with("charged_through_ms", costs.as_ref().map(|it| it.through.0))
            .with("next", next)
            .sheet_or(sheet, "no job sets")
            .lines(charged);
        let page = match next {
            Some(next) => page.text(format!("there may be more: --after '{next}'")),
            None => page,
        };
        page.print(self.output)
    }
}

/// Returns the number of its allocations in a state.
fn count(one: &JobSetView, state: State) -> u64 {
    match state {
        State::Requested => one.requested,
        State::Waiting => one.waiting,
        State::Placed => one.placed,
        State::Started => one.started,
        State::Stopping => one.stopping,
        State::Ended => one.finished + one.failed + one.cancelled + one.denied,
        State::Finished => one.finished,
        State::Failed => one.failed,
        State::Cancelled => one.cancelled,
        State::Denied => one.denied,
    }
}

/// What job sets cost, by tenant, name and queue.
#[derive(Default)]
pub struct Costs {
    micro: BTreeMap<[String; 3], i128>,
    currency: String,
    through: Millis,
    /// Position of the ledger that all answers include.
    lsn: u64,
}

impl Costs {
    async fn of(client: &Client, found: &[JobSetView]) -> Result<Self, Failure> {
        let query = |since_ms: i64, job_set: &str, queue: &str| UsageQuery {
            from_ms: since_ms - since_ms.rem_euclid(HOUR_MS),
            by: vec![UsageBy::JobSet.into(), UsageBy::Queue.into()],
            job_set: job_set.to_owned(),
            queue: queue.to_owned(),
            ..UsageQuery::default()
        };
        // Those of several tenants may have one name.
        let mut named: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for one in found {
            let first = one.first_requested_ms;
            let since = named.entry((&one.job_set, &one.queue)).or_insert(first);
            *since = first.min(*since);
        }
        let queries: Vec<UsageQuery> = match named.values().min() {
            // Of a few no other's lines are read.
            Some(first) if named.len() > FEW => vec![query(*first, "", "")],
            _ => (named.iter())
                .map(|((job_set, queue), since)| query(*since, job_set, queue))
                .collect(),
        };
        let mut costs = Self {
            lsn: u64::MAX,
            ..Self::default()
        };
        for query in queries {
            let usage = usage::ask(client, query).await?;
            for line in usage.lines {
                // One for each resource.
                let key = [line.tenant, line.job_set, line.queue];
                *costs.micro.entry(key).or_default() += i128::from(line.amount_micro);
            }
            (costs.currency, costs.through) = (usage.currency, usage.through);
            costs.lsn = costs.lsn.min(usage.lsn);
        }
        Ok(costs)
    }

    /// Millionths of the currency; of what never ran 0.
    fn micro(&self, one: &JobSetView) -> i128 {
        let key = [&one.tenant, &one.job_set, &one.queue].map(String::clone);
        self.micro.get(&key).copied().unwrap_or(0)
    }
}

pub fn sheet(found: &[JobSetView], costs: Option<&Costs>, of_all: bool, now_ms: i64) -> Sheet {
    let row = |one: &JobSetView| {
        let age = now_ms - one.last_change_ms;
        let cost = costs.map(|costs| {
            let (micro, currency) = (costs.micro(one), &costs.currency);
            counted(format!("{} {currency}", amount::money(micro)), micro)
        });
        let row = vec![
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
        ];
        row.into_iter().chain(cost).collect()
    };
    let mut columns = vec![
        column("job_set", "job set"),
        // A tenant knows whose they are.
        match of_all {
            true => column("tenant", "tenant"),
            false => wide("tenant", "tenant"),
        },
        column("queue", "queue").rank(7),
        column("requested", "requested"),
        column("waiting", "waiting"),
        wide("placed", "placed"),
        column("started", "started"),
        wide("stopping", "stopping"),
        column("finished", "finished"),
        column("failed", "failed"),
        column("cancelled", "cancelled"),
        column("denied", "denied").rank(9),
        column("changed_age_ms", "changed").rank(8),
        wide("first_requested_ms", "first requested"),
        wide("last_change_ms", "last change"),
    ];
    columns.extend(costs.map(|_| column("amount_micro", "cost")));
    let sheet = Sheet::new(columns, 3, found.iter().map(row).collect());
    match costs {
        Some(costs) => in_currency(sheet, &costs.currency),
        None => sheet,
    }
}

fn json(one: &JobSetView, costs: Option<&Costs>) -> Value {
    let cost = costs.map(|costs| exact_number(costs.micro(one)));
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
        ("amount_micro", cost.into()),
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
        let costs = Costs {
            micro: [(["t", "j", "q"].map(str::to_owned), 1_500_000)].into(),
            currency: "EUR".to_owned(),
            through: Millis(0),
            lsn: 0,
        };
        let all = std::slice::from_ref(&one);
        let with_costs = super::sheet(all, Some(&costs), false, 0);
        let texts = with_costs.rows[0].iter().map(|cell| cell.text.as_str());
        let texts: Vec<_> = texts.rev().take(2).collect();
        assert_eq!(texts, ["EUR", "1.500000 EUR"]);
        let sheet = sheet(all, None, false, 1_700_000_060_000);
        let texts: Vec<&str> = sheet.rows[0].iter().map(|it| it.text.as_str()).collect();
        assert_eq!(texts.len(), sheet.columns.len());
        assert_eq!(texts[..5], ["j", "t", "q", "0", "3"]);
        assert_eq!(texts[12], "1m0s");
        // Programs have the same by either way.
        let (records, json) = (sheet.records(), json(&one, None));
        for field in ["tenant", "waiting", "failed", "last_change_ms"] {
            assert_eq!(records[0][field], json[field], "{field}");
        }
    }
}
