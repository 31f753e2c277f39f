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
use serde_json::json;
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
        let through = amount::moment(found.through);
        Page::new(as_json(&found))
            .sheet_or(sheet(&found, &by, of_all), "nothing was used")
            .text(format!("up to {through}"))
            .print(output)
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
    let mut lines = Vec::new();
    loop {
        let page = client.usage(&query).await?;
        lines.extend(page.lines);
        query.skip = page.next;
        if page.next == 0 {
            let (through, currency) = (Millis(page.through_ms), page.currency);
            return Ok(Found {
                lines,
                through,
                currency,
            });
        }
        query.at_lsn = page.lsn;
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
        let micro = i128::from(line.amount_micro);
        let amount = format!("{} {}", amount::money(micro), found.currency);
        let numbers = [
            plain(&line.resource),
            used(&line.resource, quantity(&line.quantity)),
            counted(amount, micro),
        ];
        let by = by.iter().map(|by| by.of(line));
        tenant.into_iter().chain(by).chain(numbers).collect()
    };
    let rows = found.lines.iter().map(row).collect();
    in_currency(Sheet::new(columns, numbers, rows), &found.currency)
}

fn as_json(found: &Found) -> serde_json::Value {
    let text = |text: &str| named(text).value();
    let lines = found.lines.iter().map(|line| {
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
    json!({
        "items": lines.collect::<Vec<_>>(),
        "as_of": null,
        "through_ms": found.through.0,
        "currency": found.currency,
    })
}
