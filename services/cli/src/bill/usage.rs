//! What was used, and what it costs, by whatever it is told apart by.

use super::{month, used};
use crate::{
    Failure, amount,
    context::Context,
    names,
    print::{Cell, Column, Output, Page, Sheet, column, exactly, moment, named, plain},
};
use analytics::store::{Dimension, UseLine, Wanted, When};
use clap::{Args, ValueEnum};
use client::{Client, UsageBy, UsageQuery};
use serde_json::json;
use vocab::{AllocationId, Millis, Month};

#[derive(Args)]
pub struct Usage {
    /// As this tenant may ask itself, by the bus; without it as the context's, and of all tenants, as finance reads it, where
    /// that is the operator's.
    #[arg(long)]
    tenant: Option<String>,
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
    /// cpu, memory, gpu or gpu:<model>.
    #[arg(long)]
    resource: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
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
    fn both(self) -> (UsageBy, Dimension) {
        match self {
            Self::Hour => (UsageBy::Hour, Dimension::Hour),
            Self::Day => (UsageBy::Day, Dimension::Day),
            Self::Team => (UsageBy::Team, Dimension::Team),
            Self::Namespace => (UsageBy::Namespace, Dimension::Namespace),
            Self::Queue => (UsageBy::Queue, Dimension::Queue),
            Self::JobSet => (UsageBy::JobSet, Dimension::JobSet),
            Self::PriorityClass => (UsageBy::PriorityClass, Dimension::PriorityClass),
            Self::Cluster => (UsageBy::Cluster, Dimension::Cluster),
            Self::Pool => (UsageBy::Pool, Dimension::Pool),
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

    fn of(self, line: &UseLine) -> Cell {
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
struct Found {
    lines: Vec<UseLine>,
    through: Millis,
    currency: String,
}

impl Usage {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let now = Millis(context.clock().now_ms());
        let (output, by) = (self.output, self.by.clone());
        let tenant = context.tenant_of(self.tenant.as_deref());
        let of_all = tenant.is_none();
        let client = match &tenant {
            Some(tenant) => Some(context.tenant(Some(tenant)).await?),
            None => None,
        };
        let allocation = match (&self.allocation, &client) {
            (None, _) => None,
            (Some(name), Some(client)) => Some(names::id(client, name).await?),
            (Some(id), None) => Some(amount::allocation(id).map_err(Failure::usage)?),
        };
        let wanted = self.wanted(now, allocation);
        let found = match &client {
            Some(client) => own(client, &self.by, &wanted).await?,
            None => all(context, wanted).await?,
        };
        let through = amount::moment(found.through);
        Page::new(as_json(&found))
            .sheet_or(sheet(&found, &by, of_all), "nothing was used")
            .text(format!("up to {through}"))
            .print(output)
    }

    fn wanted(&self, now: Millis, allocation: Option<AllocationId>) -> Wanted {
        let past =
            |past: Option<amount::Past>, or: Millis| past.map_or(or, |past| Millis(past.ms(now.0)));
        let (from, until) = match self.month {
            Some(month) => (month.begin(), month.end()),
            None => (
                past(self.since, Month::of(now).begin()),
                past(self.until, Month::LAST.end()),
            ),
        };
        let when = match allocation {
            Some(id) => When::Allocation(id.0),
            None => When::Hours { from, until },
        };
        Wanted {
            when,
            by: self.by.iter().map(|by| by.both().1).collect(),
            team: self.team.clone(),
            namespace: self.namespace.clone(),
            queue: self.queue.clone(),
            job_set: self.job_set.clone(),
            priority_class: self.priority_class.clone(),
            resource: self.resource.clone(),
            limit: PAGE_MAX,
            skip: 0,
        }
    }
}

/// By the bus.
async fn own(client: &Client, by: &[By], wanted: &Wanted) -> Result<Found, Failure> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (from_ms, until_ms, allocation_id) = match wanted.when {
        When::Hours { from, until } => (from.0, until.0, String::new()),
        When::Allocation(id) => (0, 0, id.to_string()),
    };
    let mut query = UsageQuery {
        from_ms,
        until_ms,
        allocation_id,
        by: by.iter().map(|by| by.both().0.into()).collect(),
        team: text(&wanted.team),
        namespace: text(&wanted.namespace),
        queue: text(&wanted.queue),
        job_set: text(&wanted.job_set),
        priority_class: text(&wanted.priority_class),
        resource: text(&wanted.resource),
        limit: PAGE_MAX,
        skip: 0,
        at_lsn: 0,
    };
    let mut lines = Vec::new();
    loop {
        let page = client.usage(&query).await?;
        lines.extend(page.lines.into_iter().map(|line| UseLine {
            begins_ms: line.begins_ms,
            tenant: String::new(),
            team: line.team,
            namespace: line.namespace,
            queue: line.queue,
            job_set: line.job_set,
            priority_class: line.priority_class,
            cluster: line.cluster,
            pool: line.pool,
            resource: line.resource,
            quantity: line.quantity.parse().unwrap_or_default(),
            amount_micro: line.amount_micro.into(),
        }));
        query.skip = page.next;
        if page.next == 0 {
            let (through, currency) = (Millis(page.through_ms), page.currency);
            return Ok(Found {
                lines,
                through,
                currency,
            });
        }
    }
}

/// As finance reads it.
async fn all(context: &Context, mut wanted: Wanted) -> Result<Found, Failure> {
    let store = context.usage()?;
    let known = store.known().await?;
    let mut lines = Vec::new();
    loop {
        let mut page = store.usage(&known, None, &wanted).await?;
        let more = page.len() > wanted.limit as usize;
        page.truncate(wanted.limit as usize);
        lines.append(&mut page);
        if !more {
            break;
        }
        wanted.skip += wanted.limit;
    }
    Ok(Found {
        lines,
        through: known.through,
        currency: store.currency().await?,
    })
}

fn sheet(found: &Found, by: &[By], of_all: bool) -> Sheet {
    let tenant = of_all.then(|| column("tenant", "tenant"));
    let by_columns = by.iter().map(|by| by.column());
    let mut columns: Vec<Column> = tenant.into_iter().chain(by_columns).collect();
    let numbers = columns.len() + 1;
    columns.extend([
        column("resource", "resource"),
        column("quantity", "used"),
        column("amount_micro", "amount"),
    ]);
    let row = |line: &UseLine| {
        let tenant = of_all.then(|| plain(&line.tenant));
        let amount = format!("{} {}", amount::money(line.amount_micro), found.currency);
        let numbers = [
            plain(&line.resource),
            used(&line.resource, line.quantity),
            exactly(amount, line.amount_micro),
        ];
        let by = by.iter().map(|by| by.of(line));
        tenant.into_iter().chain(by).chain(numbers).collect()
    };
    Sheet::new(columns, numbers, found.lines.iter().map(row).collect())
}

/// Quantities are texts: they may be above what a number of JSON holds exactly.
fn as_json(found: &Found) -> serde_json::Value {
    let lines = found.lines.iter().map(|line| {
        json!({
            "begins_ms": line.begins_ms,
            "tenant": line.tenant,
            "team": line.team,
            "namespace": line.namespace,
            "queue": line.queue,
            "job_set": line.job_set,
            "priority_class": line.priority_class,
            "cluster": line.cluster,
            "pool": line.pool,
            "resource": line.resource,
            "quantity": line.quantity.to_string(),
            "amount_micro": line.amount_micro.to_string(),
        })
    });
    json!({
        "lines": lines.collect::<Vec<_>>(),
        "through_ms": found.through.0,
        "currency": found.currency,
    })
}
