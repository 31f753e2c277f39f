//! What was used, and what it costs, by whatever it is told apart by.

use super::{in_currency, month, quantity, used};
use crate::{
    Failure, amount,
    context::{Context, Whose},
    names,
    print::{
        Cell, Column, Output, Page, Sheet, column, counted, exact_number, moment, named, plain,
    },
};
use clap::{Args, ValueEnum};
use client::{Client, UsageBy, UsageLine, UsageQuery};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use vocab::{Millis, Month};

#[derive(Args)]
pub struct Usage {
    #[command(flatten)]
    whose: Whose,
    /// What lines are told apart by, beside the resource; may be repeated.
    #[arg(long = "by", value_enum)]
    by: Vec<By>,
    /// The hours of this month, 2026-11; without it and without --since, of this month.
    #[arg(long, value_parser = month, conflicts_with_all = ["since", "until"])]
    month: Option<Month>,
    /// Hours that begin then or later: 2026-01-31T08:00:00Z, or so long ago as in 2h.
    #[arg(long, value_parser = amount::past)]
    since: Option<amount::Past>,
    /// Hours that begin before, in the same form.
    #[arg(long, value_parser = amount::past)]
    until: Option<amount::Past>,
    /// Only the runs of this allocation, whenever they were: its id; or of a tenant its name, or the beginning of one.
    #[arg(long, conflicts_with_all = ["month", "since", "until", "by"])]
    allocation: Option<String>,
    /// Only use of this team.
    #[arg(long)]
    team: Option<String>,
    /// Only use of this namespace.
    #[arg(long)]
    namespace: Option<String>,
    /// Only use by what was in this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Only use by this job set.
    #[arg(long)]
    job_set: Option<String>,
    /// Only use by this priority class.
    #[arg(long)]
    priority_class: Option<String>,
    /// Only use of this resource: cpu, memory, gpu (all models) or gpu:<model>.
    #[arg(long)]
    resource: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    Hour,
    Day,
    Team,
    Namespace,
    Queue,
    JobSet,
    PriorityClass,
    Cluster,
    Pool,
}

/// Lines of one question.
const PAGE_MAX: u32 = 1000;

impl By {
    fn asked(self) -> UsageBy {
        match self {
            Self::Hour => UsageBy::Hour,
            Self::Day => UsageBy::Day,
            Self::Team => UsageBy::Team,
            Self::Namespace => UsageBy::Namespace,
            Self::Queue => UsageBy::Queue,
            Self::JobSet => UsageBy::JobSet,
            Self::PriorityClass => UsageBy::PriorityClass,
            Self::Cluster => UsageBy::Cluster,
            Self::Pool => UsageBy::Pool,
        }
    }

    fn column(self) -> Column {
        match self {
            Self::Hour => column("begins_ms", "hour"),
            Self::Day => column("begins_ms", "day"),
            Self::Team => column("team", "team"),
            Self::Namespace => column("namespace", "namespace"),
            Self::Queue => column("queue", "queue"),
            Self::JobSet => column("job_set", "job set"),
            Self::PriorityClass => column("priority_class", "priority class"),
            Self::Cluster => column("cluster", "cluster"),
            Self::Pool => column("pool", "pool"),
        }
    }

    fn of(self, line: &UsageLine) -> Cell {
        match self {
            Self::Hour | Self::Day => moment(line.begins_ms),
            Self::Team => named(&line.team),
            Self::Namespace => named(&line.namespace),
            Self::Queue => named(&line.queue),
            Self::JobSet => named(&line.job_set),
            Self::PriorityClass => named(&line.priority_class),
            Self::Cluster => named(&line.cluster),
            Self::Pool => named(&line.pool),
        }
    }
}

/// Lines, and the moment up to which what runs is in them.
pub struct Found {
    pub lines: Vec<UsageLine>,
    pub through: Millis,
    pub currency: String,
    /// Position of the ledger that all pages include.
    pub lsn: u64,
}

/// Lines of a resource.
#[derive(Debug, Default)]
struct Total {
    lines: u64,
    quantity: i128,
    amount_micro: i128,
}

impl Usage {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let now = Millis(context.clock().now_ms());
        let (output, by) = (self.output, self.by.clone());
        let of_all = context.tenant_of(self.whose.tenant.as_deref()).is_none();
        let client = context.asker(self.whose.tenant.as_deref()).await?;
        let allocation_id = match &self.allocation {
            None => String::new(),
            // Whose it would be is not said.
            Some(id) if of_all => amount::allocation(id).map_err(Failure::usage)?.to_string(),
            Some(name) => names::allocation(&client, name).await?,
        };
        let found = ask(&client, self.query(now, allocation_id)).await?;
        found.page(&by, of_all).print(output)
    }

    fn query(self, now: Millis, allocation_id: String) -> UsageQuery {
        let past = |past: Option<amount::Past>| past.map_or(0, |past| past.ms(now.0));
        let (from_ms, until_ms) = match self.month {
            Some(month) => (month.begin().0, month.end().0),
            None => (past(self.since), past(self.until)),
        };
        UsageQuery {
            from_ms,
            until_ms,
            allocation_id,
            by: self.by.iter().map(|by| by.asked().into()).collect(),
            team: self.team.unwrap_or_default(),
            namespace: self.namespace.unwrap_or_default(),
            queue: self.queue.unwrap_or_default(),
            job_set: self.job_set.unwrap_or_default(),
            priority_class: self.priority_class.unwrap_or_default(),
            resource: self.resource.unwrap_or_default(),
            limit: PAGE_MAX,
            skip: 0,
            at_lsn: 0,
        }
    }
}

/// All lines, of as many pages as there are.
pub async fn ask(client: &Client, mut query: UsageQuery) -> Result<Found, Failure> {
    let (mut lines, mut lsn) = (Vec::new(), u64::MAX);
    loop {
        let page = client.usage(&query).await?;
        lines.extend(page.lines);
        lsn = lsn.min(page.lsn);
        query.skip = page.next;
        if page.next == 0 {
            return Ok(Found {
                lines,
                through: Millis(page.through_ms),
                currency: page.currency,
                lsn,
            });
        }
        query.at_lsn = page.lsn;
    }
}

impl Found {
    fn page(&self, by: &[By], of_all: bool) -> Page {
        let lines = sheet(self, by, of_all);
        let page = Page::list(self.items(), self.lsn)
            .with("totals", self.totals_json())
            .with("total_micro", exact_number(self.total_micro()))
            .with("through_ms", self.through.0)
            .with("currency", &*self.currency);
        let page = match self.lines.is_empty() {
            true => page.sheet_or(lines, "nothing was used"),
            false => page.table(self.with_totals(lines.clone())).rows(lines),
        };
        let through = amount::moment(self.through);
        page.text(format!("up to {through}"))
    }

    /// Returns the sum of each resource, by name.
    fn totals(&self) -> BTreeMap<&str, Total> {
        let mut totals: BTreeMap<&str, Total> = BTreeMap::new();
        for line in &self.lines {
            let total = totals.entry(&line.resource).or_default();
            total.lines += 1;
            total.quantity += quantity(&line.quantity);
            total.amount_micro += i128::from(line.amount_micro);
        }
        totals
    }

    fn total_micro(&self) -> i128 {
        let amounts = self.lines.iter().map(|line| i128::from(line.amount_micro));
        amounts.sum()
    }

    fn amount(&self, micro: i128) -> Cell {
        counted(format!("{} {}", amount::money(micro), self.currency), micro)
    }

    /// Adds the sum of each resource that has several lines, and the amount of all. Resources in the first column have one line
    /// each.
    fn with_totals(&self, mut sheet: Sheet) -> Sheet {
        let total = |resource: &str, used: Cell, micro: i128| {
            let mut cells = vec![plain(""); sheet.numbers - 1];
            let currency = plain(&self.currency);
            cells.extend([plain(resource), used, self.amount(micro), currency]);
            cells[0] = plain("total");
            cells
        };
        let totals = self.totals().into_iter();
        let totals = totals
            .filter(|(_, sum)| sum.lines > 1)
            .map(|(resource, sum)| total(resource, used(resource, sum.quantity), sum.amount_micro));
        let totals: Vec<_> = totals.collect();
        sheet.total = Some(total("", plain(""), self.total_micro()));
        sheet.rows.extend(totals);
        sheet
    }

    fn items(&self) -> Value {
        let text = |text: &str| named(text).value();
        let lines = self.lines.iter().map(|line| {
            json!({
                "begins_ms": line.begins_ms,
                "tenant": text(&line.tenant),
                "team": text(&line.team),
                "namespace": text(&line.namespace),
                "queue": text(&line.queue),
                "job_set": text(&line.job_set),
                "priority_class": text(&line.priority_class),
                "cluster": text(&line.cluster),
                "pool": text(&line.pool),
                "resource": line.resource,
                "quantity": exact_number(&line.quantity),
                "amount_micro": line.amount_micro,
            })
        });
        lines.collect()
    }

    fn totals_json(&self) -> Value {
        let totals = self.totals().into_iter().map(|(resource, sum)| {
            json!({
                "resource": resource,
                "quantity": exact_number(sum.quantity),
                "amount_micro": exact_number(sum.amount_micro),
            })
        });
        totals.collect()
    }
}

pub fn sheet(found: &Found, by: &[By], of_all: bool) -> Sheet {
    let tenant = of_all.then(|| column("tenant", "tenant"));
    let by_columns = by.iter().map(|by| by.column());
    let mut columns: Vec<Column> = tenant.into_iter().chain(by_columns).collect();
    let numbers = columns.len() + 1;
    columns.extend([
        column("resource", "resource"),
        column("quantity", "used").rank(9),
        column("amount_micro", "amount"),
    ]);
    let row = |line: &UsageLine| {
        let tenant = of_all.then(|| plain(&line.tenant));
        let numbers = [
            plain(&line.resource),
            used(&line.resource, quantity(&line.quantity)),
            found.amount(line.amount_micro.into()),
        ];
        let by = by.iter().map(|by| by.of(line));
        tenant.into_iter().chain(by).chain(numbers).collect()
    };
    let rows = found.lines.iter().map(row).collect();
    in_currency(Sheet::new(columns, numbers, rows), &found.currency)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::Form;
    use proptest::{collection::vec, prelude::*};

    fn found(lines: &[(&str, &str, i64, i64)]) -> Found {
        let line = |&(team, resource, hours, micro): &(&str, &str, i64, i64)| UsageLine {
            team: team.to_owned(),
            resource: resource.to_owned(),
            quantity: (hours * 1000 * vocab::HOUR_MS).to_string(),
            amount_micro: micro,
            ..UsageLine::default()
        };
        Found {
            lines: lines.iter().map(line).collect(),
            through: Millis(1000),
            currency: "EUR".to_owned(),
            lsn: 7,
        }
    }

    #[test]
    fn each_resource_has_its_own_total() {
        let lines = [
            ("a", "cpu", 1, 1_000_000),
            ("a", "gpu:T4", 2, 2_000_000),
            ("b", "cpu", 3, 4_000_000),
        ];
        let found = found(&lines);
        let by_team = found.page(&[By::Team], false);
        let table = [
            "team   resource                 used        amount",
            "a      cpu       1.000000 core-hours  1.000000 EUR",
            "a      gpu:T4     2.000000 GPU-hours  2.000000 EUR",
            "b      cpu       3.000000 core-hours  4.000000 EUR",
            "total  cpu       4.000000 core-hours  5.000000 EUR",
            "total                                 7.000000 EUR",
            "up to 1970-01-01T00:00:01Z",
        ];
        let text = by_team.written(Form::Table).unwrap();
        assert_eq!(text.lines().collect::<Vec<_>>(), table);
        let csv = by_team.written(Form::Csv).unwrap();
        assert_eq!(csv.lines().count(), 1 + lines.len(), "{csv}");
        let json = by_team.written(Form::Json).unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            json["totals"],
            json!([
                {"resource": "cpu", "quantity": 14_400_000_000_u64, "amount_micro": 5_000_000},
                {"resource": "gpu:T4", "quantity": 7_200_000_000_u64, "amount_micro": 2_000_000},
            ])
        );
        assert_eq!(json["total_micro"], 7_000_000);
    }

    #[test]
    fn a_resource_with_one_line_needs_no_total() {
        let found = found(&[("", "cpu", 1, 1), ("", "memory", 0, 2)]);
        let text = found.page(&[], false).written(Form::Table).unwrap();
        let totals = text.lines().filter(|line| line.starts_with("total"));
        let totals: Vec<_> = totals
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .collect();
        assert_eq!(totals, [["total", "0.000003", "EUR"]]);
    }

    proptest! {
        /// The totals are the sums of the lines of each resource.
        #[test]
        fn totals_are_the_sums_of_their_lines(
            lines in vec((0..3usize, 0..4usize, -1000..1000i64, any::<i64>()), 0..20),
        ) {
            const TEAMS: [&str; 3] = ["", "a", "b"];
            const RESOURCES: [&str; 4] = ["cpu", "memory", "gpu:T4", "gpu:V100"];
            let lines = lines.iter().map(|&(team, resource, hours, micro)| {
                (TEAMS[team], RESOURCES[resource], hours, micro)
            });
            let lines: Vec<_> = lines.collect();
            let found = found(&lines);
            for resource in RESOURCES {
                let of_it = || lines.iter().filter(|line| line.1 == resource);
                let micro: i128 = of_it().map(|line| i128::from(line.3)).sum();
                let hours: i64 = of_it().map(|line| line.2).sum();
                let totals = found.totals();
                let total = totals.get(resource);
                prop_assert_eq!(total.is_some(), of_it().count() > 0);
                if let Some(total) = total {
                    prop_assert_eq!(total.amount_micro, micro);
                    prop_assert_eq!(total.quantity, i128::from(hours) * 3_600_000_000);
                }
            }
            let all: i128 = lines.iter().map(|line| i128::from(line.3)).sum();
            prop_assert_eq!(found.total_micro(), all);
        }
    }
}
