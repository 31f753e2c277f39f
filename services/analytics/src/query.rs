//! What a tenant may ask of its use and its bill: its own only.

use crate::{
    Settings,
    store::{Dimension, Store, UseLine, Wanted, When},
};
use chassis::{
    Clock, Context,
    query::{Asked, Trouble, Verb, cut, page_limit},
};
use schemas::v1::{BillLine, BillQuery, BillReply, UsageBy, UsageLine, UsagePage, UsageQuery};
use std::sync::Arc;
use tokio::sync::Semaphore;
use vocab::{AllocationId, Lsn, Millis, Month, ResourceKey, Rule, Token};

/// Lines of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 100;

/// The verb `usage`.
pub struct UsageQueries(pub Desk);

/// The verb `bill`.
pub struct BillQueries(pub Desk);

/// The server lets a user have 32 statements at once, and the projection needs some of them.
const ANSWERS_AT_ONCE: usize = 8;

/// What both need.
#[derive(Clone)]
pub struct Desk {
    store: Store,
    clock: Clock,
    currency: String,
    turns: Arc<Semaphore>,
}

impl Desk {
    pub fn new(store: Store, ctx: &Context<Settings>) -> Self {
        Self {
            store,
            clock: ctx.clock.clone(),
            currency: ctx.settings.currency.as_str().to_owned(),
            turns: Arc::new(Semaphore::new(ANSWERS_AT_ONCE)),
        }
    }

    fn this_month(&self) -> Month {
        Month::of(Millis(self.clock.now_ms()))
    }
}

impl Verb for UsageQueries {
    const NAME: &'static str = "usage";
    type Query = UsageQuery;
    type Reply = UsagePage;

    fn position(query: &UsageQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<UsageQuery>) -> Result<UsagePage, Trouble> {
        let Self(desk) = self;
        let skip = asked.query.skip;
        let wanted = wanted(asked.query, desk.this_month())?;
        let _turn = desk.turns.acquire().await?;
        let known = desk.store.known().await?;
        let mut lines = (desk.store)
            .usage(&known, Some(&asked.tenant), &wanted)
            .await?;
        let more = cut(&mut lines, wanted.limit);
        Ok(UsagePage {
            lines: lines.into_iter().map(line).collect(),
            refusal: None,
            next: if more {
                skip.saturating_add(wanted.limit)
            } else {
                0
            },
            lsn: asked.applied.0,
            through_ms: known.through.0,
            currency: desk.currency.clone(),
        })
    }
}

fn wanted(query: UsageQuery, month: Month) -> Result<Wanted, Trouble> {
    let limit = page_limit(query.limit, PAGE, PAGE_MAX)?;
    let mut by = Vec::new();
    for asked in &query.by {
        let dimension = UsageBy::try_from(*asked).ok().and_then(dimension);
        match dimension.filter(|dimension| !by.contains(dimension)) {
            Some(dimension) => by.push(dimension),
            None => return Err(Trouble::refused(Rule::SettingInvalid, "by")),
        }
    }
    let name = |text: String, field| match text.as_str() {
        "" => Ok(None),
        name if Token::new(name).is_ok() => Ok(Some(text)),
        _ => Err(Trouble::refused(Rule::NameInvalid, field)),
    };
    let resource = match query.resource.as_str() {
        "" => None,
        text => match ResourceKey::parse(text) {
            Some(_) => Some(query.resource),
            None => return Err(Trouble::refused(Rule::ResourceUnknown, "resource")),
        },
    };
    let from = match query.from_ms {
        0 => month.begin(),
        from => Millis(from),
    };
    let until = match query.until_ms {
        0 => Month::LAST.end(),
        until => Millis(until),
    };
    if from >= until || from < Millis(0) || until > Month::LAST.end() {
        return Err(Trouble::refused(Rule::IntervalInvalid, "until_ms"));
    }
    let when = match query.allocation_id.as_str() {
        "" => When::Hours { from, until },
        _ if !by.is_empty() || query.from_ms != 0 || query.until_ms != 0 => {
            return Err(Trouble::refused(Rule::SettingInvalid, "allocation_id"));
        }
        text => match AllocationId::parse(text) {
            Some(id) => When::Allocation(id.0),
            None => return Err(Trouble::refused(Rule::NameInvalid, "allocation_id")),
        },
    };
    Ok(Wanted {
        when,
        by,
        team: name(query.team, "team")?,
        namespace: name(query.namespace, "namespace")?,
        queue: name(query.queue, "queue")?,
        job_set: name(query.job_set, "job_set")?,
        priority_class: name(query.priority_class, "priority_class")?,
        resource,
        limit,
        skip: query.skip,
    })
}

fn dimension(by: UsageBy) -> Option<Dimension> {
    Some(match by {
        UsageBy::Unspecified => return None,
        UsageBy::Hour => Dimension::Hour,
        UsageBy::Day => Dimension::Day,
        UsageBy::Team => Dimension::Team,
        UsageBy::Namespace => Dimension::Namespace,
        UsageBy::Queue => Dimension::Queue,
        UsageBy::JobSet => Dimension::JobSet,
        UsageBy::PriorityClass => Dimension::PriorityClass,
        UsageBy::Cluster => Dimension::Cluster,
        UsageBy::Pool => Dimension::Pool,
    })
}

/// As far as the contract's numbers reach.
fn micro(amount: i128) -> i64 {
    let nearest = if amount < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(amount).unwrap_or(nearest)
}

fn line(line: UseLine) -> UsageLine {
    UsageLine {
        resource: line.resource,
        begins_ms: line.begins_ms,
        team: line.team,
        namespace: line.namespace,
        queue: line.queue,
        job_set: line.job_set,
        priority_class: line.priority_class,
        cluster: line.cluster,
        pool: line.pool,
        quantity: line.quantity.to_string(),
        amount_micro: micro(line.amount_micro),
    }
}

impl Verb for BillQueries {
    const NAME: &'static str = "bill";
    type Query = BillQuery;
    type Reply = BillReply;

    fn position(query: &BillQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<BillQuery>) -> Result<BillReply, Trouble> {
        let Self(desk) = self;
        let month = match asked.query.month {
            0 => desk.this_month(),
            month => (Month(month).checked())
                .ok_or_else(|| Trouble::refused(Rule::SettingInvalid, "month"))?,
        };
        let _turn = desk.turns.acquire().await?;
        let known = desk.store.known().await?;
        let lines = (desk.store)
            .bill(&known, Some(&asked.tenant), month)
            .await?;
        let total = lines.iter().map(|line| line.amount_micro).sum();
        Ok(BillReply {
            lines: lines
                .into_iter()
                .map(|line| BillLine {
                    team: line.team,
                    resource: line.resource,
                    micro_per_unit_hour: line.micro_per_unit_hour,
                    quantity: line.quantity.to_string(),
                    amount_micro: micro(line.amount_micro),
                    correction: line.is_correction,
                    unrated: !line.has_rate,
                })
                .collect(),
            refusal: None,
            month: month.0,
            closed: known.is_closed(month),
            total_micro: micro(total),
            currency: desk.currency.clone(),
            through_ms: known.through.0,
            lsn: asked.applied.0,
        })
    }
}
