//! Pages of a tenant's feed: tenants have no access to the streams themselves.

use crate::publish::Part;
use async_nats::jetstream::{
    consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull},
    stream::{LastRawMessageErrorKind, Stream},
};
use chassis::query::{Asked, PAGE_BYTES_MAX, Trouble, Verb, page_limit};
use futures::StreamExt;
use ledger_nats::jetstream::JetStreamBus;
use prost::Message;
use schemas::v1::{FeedPage, FeedQuery, TenantEvent, TenantEvents};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use vocab::{Lsn, Rule, Token};

const PAGE_MAX: u32 = 1000;
/// Messages that are fetched at once: a message has up to 256 KiB.
const FETCH_MAX: usize = 16;
/// A consumer that a page was read with and that could not be deleted goes by itself.
const CONSUMER_TTL: Duration = Duration::from_secs(30);

/// Messages whose places are remembered.
const PLACES_MAX: usize = 16_384;

/// The verb `feed`.
pub struct FeedQueries {
    bus: JetStreamBus,
    places: Mutex<Places>,
}

/// Where messages stand that were looked at: a search looks at the same ones again and again, and each has up to 256 KiB.
#[derive(Debug, Default)]
struct Places {
    /// Of the stream that was made at this moment. Its messages do not change.
    created_ns: i128,
    parts: BTreeMap<u64, Part>,
}

impl Places {
    fn find(&self, created_ns: i128, sequence: u64) -> Option<Part> {
        let same = self.created_ns == created_ns;
        same.then(|| self.parts.get(&sequence).copied()).flatten()
    }

    fn keep(&mut self, created_ns: i128, sequence: u64, part: Part) {
        if self.created_ns != created_ns || self.parts.len() >= PLACES_MAX {
            *self = Self {
                created_ns,
                parts: BTreeMap::new(),
            };
        }
        self.parts.insert(sequence, part);
    }
}

/// Place in a tenant's feed.
type Position = (u64, u32);

fn position(event: &TenantEvent) -> Position {
    (event.lsn, event.index)
}

impl Verb for FeedQueries {
    const NAME: &'static str = "feed";
    type Query = FeedQuery;
    type Reply = FeedPage;

    fn position(query: &FeedQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<FeedQuery>) -> Result<FeedPage, Trouble> {
        let Asked { tenant, query, .. } = asked;
        let limit = limit(&query)?;
        let job_set = job_set(&query)?;
        let subjects = self.bus.subjects();
        let stream = self
            .bus
            .context()
            .get_stream(subjects.event_stream())
            .await?;
        let mut page = Page::after((query.after_lsn, query.after_index), limit);
        if let Some(bounds) = self.find(&stream, Lsn(query.after_lsn)).await? {
            let subject = subjects.event(tenant.as_str(), job_set);
            read(&stream, bounds, subject, &mut page).await?;
        }
        Ok(page.done())
    }
}

fn limit(query: &FeedQuery) -> Result<usize, Trouble> {
    page_limit(query.limit, PAGE_MAX, PAGE_MAX).map(|limit| limit as usize)
}

fn job_set(query: &FeedQuery) -> Result<&str, Trouble> {
    match query.job_set.as_str() {
        "" => Ok("*"),
        name if Token::new(name).is_ok() => Ok(name),
        _ => Err(Trouble::refused(Rule::NameInvalid, "job_set")),
    }
}

/// What of the stream is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    first_sequence: u64,
    last_sequence: u64,
    /// Of a batch that is not complete nothing is told: what is missing may go before what is there.
    through: Lsn,
}

impl FeedQueries {
    pub fn new(bus: JetStreamBus) -> Self {
        Self {
            bus,
            places: Mutex::default(),
        }
    }

    /// None when there is nothing behind `after`.
    async fn find(&self, stream: &Stream, after: Lsn) -> Result<Option<Bounds>, Trouble> {
        let state = &stream.cached_info().state;
        if state.messages == 0 {
            return Ok(None);
        }
        let last_sequence = state.last_sequence;
        let Some(last) = self.part(stream, last_sequence).await? else {
            return Ok(None);
        };
        let (mut low, mut high) = (state.first_sequence, last_sequence + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            // Batches grow with sequences. One that ends where the last page did may have more for this one.
            let part = self.part(stream, middle).await?;
            if part.is_some_and(|part| part.to >= after) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok((low <= last_sequence).then_some(Bounds {
            first_sequence: low,
            last_sequence,
            through: last.readable(),
        }))
    }

    /// None when the message is too old to be there.
    async fn part(&self, stream: &Stream, sequence: u64) -> Result<Option<Part>, Trouble> {
        let created_ns = stream.cached_info().created.unix_timestamp_nanos();
        // A map is never left half changed, so a poisoned lock is as good as any.
        let places = || self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let known = places().find(created_ns, sequence);
        if known.is_some() {
            return Ok(known);
        }
        match stream.get_raw_message(sequence).await {
            Ok(message) => {
                let part = Part::read(&message.headers);
                if let Some(part) = part {
                    places().keep(created_ns, sequence, part);
                }
                Ok(part)
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads whole batches into the page until it is full.
async fn read(
    stream: &Stream,
    bounds: Bounds,
    filter_subject: String,
    page: &mut Page,
) -> Result<(), Trouble> {
    let consumer = stream
        .create_consumer(pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: bounds.first_sequence,
            },
            ack_policy: AckPolicy::None,
            filter_subject,
            inactive_threshold: CONSUMER_TTL,
            memory_storage: true,
            num_replicas: 1,
            ..Default::default()
        })
        .await?;
    let read = fetch(&consumer, bounds, page).await;
    let name = &consumer.cached_info().name;
    if let Err(error) = stream.delete_consumer(name).await {
        tracing::debug!(%error, "consumer is left to its time-out");
    }
    read
}

async fn fetch(consumer: &PullConsumer, bounds: Bounds, page: &mut Page) -> Result<(), Trouble> {
    loop {
        let fetch = consumer.fetch().max_messages(FETCH_MAX);
        let mut messages = fetch.messages().await?;
        let mut fetched = 0;
        while let Some(message) = messages.next().await {
            let message = message?;
            fetched += 1;
            let part = message.headers.as_ref().and_then(Part::read);
            let part = part.filter(|part| part.to <= bounds.through);
            let Some(part) = part else {
                return Ok(());
            };
            let sequence = message.info()?.stream_sequence;
            page.take(part.to, TenantEvents::decode(message.payload.clone())?);
            if page.is_full() || sequence >= bounds.last_sequence {
                return Ok(());
            }
        }
        if fetched < FETCH_MAX {
            return Ok(());
        }
    }
}

/// Events in the order of their positions. The messages of a batch are of one job set each, so its events are put in
/// order when all of them are there.
struct Page {
    after: Position,
    limit: usize,
    events: Vec<TenantEvent>,
    bytes: usize,
    more: bool,
    /// The batch that is being read, and its events.
    batch: Lsn,
    unsorted: Vec<TenantEvent>,
}

impl Page {
    fn after(after: Position, limit: usize) -> Self {
        Self {
            after,
            limit,
            events: Vec::new(),
            bytes: 0,
            more: false,
            batch: Lsn(0),
            unsorted: Vec::new(),
        }
    }

    fn take(&mut self, batch: Lsn, message: TenantEvents) {
        if batch != self.batch {
            self.close_batch();
            self.batch = batch;
        }
        let new = message.events.into_iter();
        self.unsorted
            .extend(new.filter(|event| position(event) > self.after));
    }

    fn close_batch(&mut self) {
        let mut events = std::mem::take(&mut self.unsorted);
        events.sort_by_key(position);
        for event in events {
            let bytes = event.encoded_len();
            let room = self.events.is_empty() || self.bytes + bytes <= PAGE_BYTES_MAX;
            if self.more || !room || self.events.len() == self.limit {
                self.more = true;
                return;
            }
            self.bytes += bytes;
            self.events.push(event);
        }
    }

    /// Known when a batch is closed.
    fn is_full(&self) -> bool {
        self.more
    }

    fn done(mut self) -> FeedPage {
        self.close_batch();
        FeedPage {
            events: self.events,
            refusal: None,
            more: self.more,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(positions: &[u64]) -> TenantEvents {
        let event = |&lsn: &u64| TenantEvent {
            lsn,
            ..TenantEvent::default()
        };
        TenantEvents {
            events: positions.iter().map(event).collect(),
        }
    }

    /// Messages as (batch, positions); then the page.
    fn check(after: u64, limit: usize, messages: &[(u64, &[u64])], expected: &[u64], more: bool) {
        let mut page = Page::after((after, 0), limit);
        for (batch, positions) in messages {
            if !page.is_full() {
                page.take(Lsn(*batch), events(positions));
            }
        }
        let page = page.done();
        let found: Vec<u64> = page.events.iter().map(|event| event.lsn).collect();
        assert_eq!((&*found, page.more), (expected, more), "{after} {limit}");
    }

    #[test]
    fn places_are_of_one_stream_and_bounded() {
        let mut places = Places::default();
        let part = |to| Part {
            to: Lsn(to),
            ..Part::BEGINNING
        };
        places.keep(1, 7, part(3));
        assert_eq!(places.find(1, 7), Some(part(3)));
        assert_eq!((places.find(2, 7), places.find(1, 8)), (None, None));
        places.keep(2, 8, part(4));
        assert_eq!((places.find(1, 7), places.find(2, 7)), (None, None));
        for sequence in 0..3 * PLACES_MAX as u64 {
            places.keep(2, sequence, part(sequence));
            assert!(places.parts.len() <= PLACES_MAX);
            assert_eq!(places.find(2, sequence), Some(part(sequence)));
        }
    }

    #[test]
    fn a_page_is_in_order_across_job_sets_and_cut_anywhere() {
        let messages: [(u64, &[u64]); 4] = [(5, &[1, 4]), (5, &[2, 3, 5]), (9, &[7]), (9, &[6, 9])];
        check(0, 10, &messages, &[1, 2, 3, 4, 5, 6, 7, 9], false);
        check(0, 8, &messages, &[1, 2, 3, 4, 5, 6, 7, 9], false);
        check(0, 5, &messages, &[1, 2, 3, 4, 5], true);
        check(0, 3, &messages, &[1, 2, 3], true);
        check(3, 3, &messages, &[4, 5, 6], true);
        check(6, 10, &messages, &[7, 9], false);
        check(9, 10, &messages, &[], false);
    }
}
