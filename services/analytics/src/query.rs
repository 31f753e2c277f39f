//! What a tenant may ask of its use and its bill: its own only. Operators ask of everybody's.

use crate::{
    Settings,
    domain::Known,
    store::{Dimension, InvoiceLine, Store, StoreError, UseLine, Wanted, When},
};
use chassis::{
    Clock, Context, Stopwatch,
    query::{Asked, Mark, Trouble, Verb, cut, page_limit},
};
use schemas::v1::{BillLine, BillQuery, BillReply, UsageBy, UsageLine, UsagePage, UsageQuery};
use std::{sync::Arc, time::Duration};
use tokio::sync::{Mutex, Semaphore};
use vocab::{AllocationId, HOUR_MS, Lsn, Millis, Month, ResourceKey, Rule, Token};

/// Lines of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 100;
const BILL_PAGE: u32 = 1000;

/// The verb `usage`.
pub struct UsageQueries(pub Desk);

/// The verb `bill`.
pub struct BillQueries(pub Desk);

/// The server lets a user have 32 statements at once, and the projection needs some of them.
const ANSWERS_AT_ONCE: usize = 8;

/// How old a look at prices and time may be.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So much may the clocks of two machines differ.
const CLOCKS_DIFFER_MS: i64 = 10_000;

/// What both need.
#[derive(Clone)]
pub struct Desk {
    store: Store,
    mark: Mark,
    clock: Clock,
    currency: String,
    turns: Arc<Semaphore>,
    /// One looks, for all who ask meanwhile.
    looked: Arc<Mutex<Option<Arc<Looked>>>>,
}

/// What a look at prices and time has found.
struct Looked {
    /// The tables were there, or further.
    applied: Lsn,
    since: Stopwatch,
    known: Known,
}

impl Looked {
    /// Whether it does for who wants to see `wanted`. The rows are read later. They may be of more use and of fewer runs, and
    /// no harm is done; but a run must not be both in its hours and beside them, so that no hour may have ended since.
    fn does(&self, wanted: Lsn, now: Millis) -> bool {
        let hour_ends = self.known.accrued_to.0.saturating_add(HOUR_MS);
        wanted <= self.applied
            && self.since.elapsed() < LOOK_EVERY
            && now.0.saturating_add(CLOCKS_DIFFER_MS) < hour_ends
    }
}

impl Desk {
    pub fn new(store: Store, mark: Mark, ctx: &Context<Settings>) -> Self {
        Self {
            store,
            mark,
            clock: ctx.clock.clone(),
            currency: ctx.settings.currency.as_str().to_owned(),
            turns: Arc::new(Semaphore::new(ANSWERS_AT_ONCE)),
            looked: Arc::default(),
        }
    }

    /// Prices and time for who wants to see at least `wanted`.
    async fn look(&self, wanted: Lsn) -> Result<Arc<Looked>, StoreError> {
        let mut last = self.looked.lock().await;
        let now = Millis(self.clock.now_ms());
        if let Some(looked) = last.as_ref().filter(|it| it.does(wanted, now)) {
            return Ok(looked.clone());
        }
        let (applied, since) = (self.mark.applied(), Stopwatch::start());
        let known = self.store.known().await?;
        let looked = Arc::new(Looked {
            applied,
            since,
            known,
        });
        *last = Some(looked.clone());
        Ok(looked)
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
        let wanted = wanted(asked.query.clone(), desk.this_month())?;
        let _turn = desk.turns.acquire().await?;
        let looked = desk.look(Self::position(&asked.query)).await?;
        let known = &looked.known;
        let mut lines = (desk.store).usage(known, asked.whose(), &wanted).await?;
        let more = cut(&mut lines, wanted.limit);
        Ok(UsagePage {
            lines: lines
                .into_iter()
                .map(|of| line(of, asked.whose()))
                .collect(),
            refusal: None,
            next: if more {
                skip.saturating_add(wanted.limit)
            } else {
                0
            },
            lsn: looked.applied.0,
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
        text => {
            let key = ResourceKey::parse(text);
            Some(key.ok_or_else(|| Trouble::refused(Rule::ResourceUnknown, "resource"))?)
        }
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

/// `whose`: of lines that are all of one tenant.
fn line(line: UseLine, whose: Option<&Token>) -> UsageLine {
    UsageLine {
        tenant: whose.map_or(line.tenant, Token::to_string),
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
        let limit = page_limit(asked.query.limit, BILL_PAGE, PAGE_MAX)?;
        let after = match asked.query.after.as_str() {
            "" => None,
            text => {
                let place = Place::read(text);
                Some(place.ok_or_else(|| Trouble::refused(Rule::SettingInvalid, "after"))?)
            }
        };
        let _turn = desk.turns.acquire().await?;
        let looked = desk.look(Self::position(&asked.query)).await?;
        let known = &looked.known;
        let lines = (desk.store).bill(known, asked.whose(), month).await?;
        let total = lines.iter().map(|line| line.amount_micro).sum();
        let (lines, next) = page(lines, after, limit);
        Ok(BillReply {
            lines: lines.into_iter().map(bill_line).collect(),
            refusal: None,
            month: month.0,
            closed: known.is_closed(month),
            total_micro: micro(total),
            currency: desk.currency.clone(),
            through_ms: known.through.0,
            lsn: looked.applied.0,
            next,
        })
    }
}

fn bill_line(line: InvoiceLine) -> BillLine {
    BillLine {
        team: line.team,
        resource: line.resource,
        micro_per_unit_hour: line.micro_per_unit_hour,
        quantity: line.quantity.to_string(),
        amount_micro: micro(line.amount_micro),
        correction: line.is_correction,
        unrated: !line.has_rate,
        tenant: line.tenant,
    }
}

/// Which line of a bill, in the order of the lines. A line that comes to an open month between two pages moves none of the
/// others, so that nothing is told twice.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    tenant: String,
    team: String,
    resource: String,
    micro_per_unit_hour: u64,
    has_rate: bool,
    is_correction: bool,
}

impl Place {
    fn of(line: &InvoiceLine) -> Self {
        Self {
            tenant: line.tenant.clone(),
            team: line.team.clone(),
            resource: line.resource.clone(),
            micro_per_unit_hour: line.micro_per_unit_hour,
            has_rate: line.has_rate,
            is_correction: line.is_correction,
        }
    }

    fn text(&self) -> String {
        let (rate, correction) = (u8::from(self.has_rate), u8::from(self.is_correction));
        format!(
            "{} {} {} {} {rate} {correction}",
            self.tenant, self.team, self.resource, self.micro_per_unit_hour
        )
    }

    /// As [`Self::text`] has written it.
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let mut part = || parts.next();
        let flag = |text: &str| match text {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        let place = Self {
            tenant: part()?.to_owned(),
            team: part()?.to_owned(),
            resource: part()?.to_owned(),
            micro_per_unit_hour: part()?.parse().ok()?,
            has_rate: flag(part()?)?,
            is_correction: flag(part()?)?,
        };
        parts.next().is_none().then_some(place)
    }
}

/// So many lines behind a place, and where the next page goes on; empty: there is none.
fn page(lines: Vec<InvoiceLine>, after: Option<Place>, limit: u32) -> (Vec<InvoiceLine>, String) {
    let behind = |line: &InvoiceLine| after.as_ref().is_none_or(|it| Place::of(line) > *it);
    let mut found: Vec<_> = lines.into_iter().filter(behind).collect();
    let more = cut(&mut found, limit);
    let last = found.last().filter(|_| more);
    let next = last.map_or_else(String::new, |line| Place::of(line).text());
    (found, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words such as `t team gpu:T4 100`; `t - cpu -100`: of no team, a correction; `t - cpu 0`: without a rate.
    fn invoice_line(words: &str) -> InvoiceLine {
        let words: Vec<&str> = words.split(' ').collect();
        let price: i64 = words[3].parse().unwrap();
        InvoiceLine {
            tenant: words[0].to_owned(),
            team: words[1].replace('-', ""),
            resource: words[2].to_owned(),
            micro_per_unit_hour: price.unsigned_abs(),
            has_rate: price != 0,
            is_correction: price < 0,
            quantity: 1,
            amount_micro: 1,
        }
    }

    #[test]
    fn pages_of_a_bill_are_the_bill_even_if_lines_come_between_them() {
        let lines = [
            "a - cpu 0",
            "a - cpu 100",
            "a - cpu -100",
            "a - gpu:T4 7",
            "a x cpu 100",
            "b - cpu 20",
            "b y memory 5",
        ]
        .map(invoice_line);
        assert!(lines.is_sorted_by_key(Place::of));
        for limit in 1..9 {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let mut now = lines.to_vec();
                if after.is_some() {
                    now.insert(0, invoice_line("A - cpu 1"));
                    now.sort_by_key(Place::of);
                }
                let (lines, next) = page(now, after, limit);
                assert!(lines.len() <= limit as usize);
                found.extend(lines);
                if next.is_empty() {
                    break;
                }
                after = Some(Place::read(&next).unwrap());
            }
            assert_eq!(found, lines, "{limit}");
        }
    }

    #[test]
    fn a_page_goes_on_only_where_one_ended() {
        let check = |text: &str, is_place: bool| {
            let found = Place::read(text).map(|place| place.text());
            assert_eq!(found.as_deref(), is_place.then_some(text));
        };
        for place in ["t  cpu 0 0 0", "t team gpu:T4 31611 1 1"] {
            check(place, true);
        }
        for other in [
            "t",
            "t cpu 1 1 1",
            "t  cpu x 1 1",
            "t  cpu 1 1 2",
            "t  cpu 1 1 1 1",
        ] {
            check(other, false);
        }
    }

    #[test]
    fn a_look_does_until_an_hour_may_have_ended_or_more_is_to_be_seen() {
        let accrued_to = Millis(7 * HOUR_MS);
        let looked = Looked {
            applied: Lsn(40),
            since: Stopwatch::start(),
            known: Known {
                accrued_to,
                ..Known::default()
            },
        };
        let check = |wanted, minutes: i64, expected| {
            let now = Millis(accrued_to.0 + minutes * 60_000);
            assert_eq!(
                looked.does(Lsn(wanted), now),
                expected,
                "{wanted} {minutes}"
            );
        };
        check(0, 1, true);
        check(40, 59, true);
        check(41, 1, false);
        check(40, 60, false);
        check(40, 90, false);
    }
}
