//! The whole projection, from frames on a bus to rows, killed again and again.

use crate::common::{CELL, Database, Journal, Outcome};
use analytics::{
    domain::Usage,
    store::{ClickHouseSink, Store},
};
use chassis::Clock;
use ledger::{
    Bus, Digest,
    memory::{Faults, MemoryBus, Seeded},
};
use ledger_nats::{NoObserver, Projector};
use prost::Message;
use schemas::v1;
use std::{collections::BTreeMap, error::Error, time::Duration};
use vocab::{At, Event, HOUR_MS, Lsn, Period, Writer};

/// Real time after which a test that hangs is given up; no assertion depends on it.
const GIVEN_UP: Duration = Duration::from_secs(120);

/// Appends frames as the writers would.
struct Pen {
    bus: MemoryBus,
    heads: BTreeMap<Writer, (v1::Frame, Lsn, Digest)>,
    end: Lsn,
}

impl Pen {
    fn new(bus: &MemoryBus) -> Self {
        Self {
            bus: bus.clone(),
            heads: BTreeMap::new(),
            end: Lsn(0),
        }
    }

    async fn write(&mut self, at: &At, event: &Event) -> Outcome {
        let writer = event.writer();
        let head = self.heads.get(&writer);
        let frame = v1::Frame {
            epoch: 1,
            frame_no: head.map_or(1, |(frame, ..)| frame.frame_no + 1),
            through_lsn: 0,
            through_inbox: 0,
            ahead: Vec::new(),
            now_ms: at.now.0,
            prev_lsn: head.map_or(0, |(_, lsn, _)| lsn.0),
            prev_digest: head.map_or(vec![], |(_, _, digest)| digest.0.to_vec()),
            first_event_no: head.map_or(1, |(frame, ..)| frame.first_event_no + 1),
            events: vec![v1::Event::decode(&wire::Message::encode_to_vec(event)[..])?],
            leader: vec![0; 16],
            ..v1::Frame::default()
        };
        let bytes = frame.encode_to_vec();
        let digest = Digest::of(&bytes);
        let expected = head.map_or(Lsn(0), |(_, lsn, _)| *lsn);
        let lsn = self
            .bus
            .append(writer, expected, Lsn(0), bytes.into())
            .await?;
        self.end = lsn;
        self.heads.insert(writer, (frame, lsn, digest));
        Ok(())
    }
}

/// Runs of one hour and one millisecond each, on one node; admission's events are a rate, the requests in order, and a budget.
fn events(runs: u64) -> Vec<(At, Event)> {
    let mut journal = Journal::default();
    journal.rate("cpu", 1000, 0, 1);
    journal.node(0, "n1", Some("V100"));
    for run in 1..=runs {
        let at = run as i64 * 1000;
        let tenant = ["t1", "t2"][run as usize % 2];
        journal.start(run + 1, tenant, "n1", (10, 10, 1), at);
    }
    for run in 1..=runs {
        journal.end(run + 1, run as i64 * 1000 + HOUR_MS + 1);
    }
    let now = runs as i64 * 1000 + HOUR_MS + 2;
    journal.refuse(runs + 2, "t1", (1000, 1, 0), now);
    journal.budget(now, "t1", "money", Some((9, Period::Month)), 1);
    journal.events
}

/// One life of the service. Dropping it is a kill between any two of its steps.
async fn life(
    bus: &MemoryBus,
    store: &Store,
) -> Result<std::convert::Infallible, ledger_nats::ProjectorError> {
    let sink = ClickHouseSink::new(store.clone(), "EUR", Default::default(), |_| {});
    let projector: Projector<Usage, _, _, _> =
        Projector::new(bus.clone(), Clock::real(), sink, Box::new(NoObserver));
    projector.run().await
}

async fn through(store: &Store, end: Lsn) -> Result<bool, Box<dyn Error>> {
    Ok(store.through().await? >= end)
}

#[tokio::test]
async fn killed_again_and_again_every_run_is_billed_once() -> Outcome {
    let (database, store) = Database::store().await?;
    let bus = MemoryBus::new(1, Faults::default());
    let mut pen = Pen::new(&bus);
    let runs = 400;
    let events = events(runs);
    let mut random = Seeded::new(7);
    let (mut written, mut lives) = (0, 0u64);
    loop {
        let next = (written + random.below(90) as usize).min(events.len());
        for (at, event) in &events[written..next] {
            pen.write(at, event).await?;
        }
        written = next;
        if written == events.len() && through(&store, pen.end).await? {
            break;
        }
        // Ever longer lives, so that a slow machine comes to the end too.
        let length = Duration::from_millis(random.below(40 + 4 * lives));
        let killed = tokio::time::timeout(length, life(&bus, &store)).await;
        assert!(killed.is_err(), "it never ends by itself: {killed:?}");
        lives += 1;
    }
    assert!(lives > 10, "{lives} lives");
    assert_eq!(database.count("allocation_intervals").await?, runs);
    let ms: i64 = database
        .client
        .query("SELECT sum(ms) FROM usage_hourly WHERE resource = 'gpu:V100'")
        .fetch_one()
        .await?;
    assert_eq!(ms, runs as i64 * (HOUR_MS + 1));
    let conservation = store.conservation().await?;
    assert_eq!(conservation.through, pen.end);
    assert_eq!(
        conservation.conservation_error_ms(),
        0,
        "{:?}",
        conservation.imbalances
    );
    assert_eq!(store.cell(), CELL);
    database.drop().await
}

/// Everything that does not depend on where the batches were cut.
async fn content(database: &Database) -> Result<String, Box<dyn Error>> {
    let mut content = String::new();
    for what in [
        "* EXCEPT whole FROM allocation_intervals",
        "* FROM node_segments",
        "* FROM node_capacities",
        "* FROM rates",
        "* FROM budgets",
        "* FROM quota_denials",
        "* FROM running_usage",
        "* FROM cluster_hourly",
        "* FROM reconciliation",
        "* FROM chargeback_hourly",
        "max(to_lsn) FROM ledger_ranges WHERE state = 'applied'",
        "* FROM conservation WHERE error != 0",
    ] {
        let query = format!("SELECT {what} ORDER BY ALL");
        let mut rows = database.client.query(&query).fetch_bytes("TabSeparated")?;
        let rows = rows.collect().await?;
        content = content + what + "\n" + std::str::from_utf8(&rows)?;
    }
    Ok(content)
}

/// What a power cut may take: the server acknowledges rows that are on no disk yet.
#[tokio::test]
async fn a_lost_part_of_any_table_is_noticed_and_made_again() -> Outcome {
    let (database, store) = Database::store().await?;
    let bus = MemoryBus::new(1, Faults::default());
    let mut pen = Pen::new(&bus);
    let events = events(40);
    let (first, second) = events.split_at(events.len() * 3 / 4);
    let mut expected = String::new();
    for events in [first, second] {
        for (at, event) in events {
            pen.write(at, event).await?;
        }
        let filled = async {
            while !through(&store, pen.end).await? {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            content(&database).await
        };
        expected = tokio::select! {
            ended = life(&bus, &store) => return Err(format!("{ended:?}").into()),
            content = filled => content?,
        };
    }
    assert_eq!(store.conservation().await?.conservation_error_ms(), 0);
    for table in [
        "ledger_ranges",
        "allocation_intervals",
        "node_transfers",
        "node_capacities",
        "rates",
        "budgets",
        "quota_denials",
        "usage_hourly",
        "capacity_hourly",
    ] {
        let newest: String = database
            .client
            .query(
                "SELECT name FROM system.parts WHERE database = ? AND table = ? AND active
                 ORDER BY max_block_number DESC LIMIT 1",
            )
            .bind(&database.name)
            .bind(table)
            .fetch_one()
            .await?;
        database
            .execute(&format!("ALTER TABLE {table} DROP PART '{newest}'"))
            .await?;
        assert_ne!(content(&database).await?, expected, "{table}");
        let made_again = async {
            // Views are empty, and tables missing rows, until the end.
            while content(&database).await? != expected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Outcome::Ok(())
        };
        tokio::select! {
            ended = life(&bus, &store) => return Err(format!("{ended:?}").into()),
            made = tokio::time::timeout(GIVEN_UP, made_again) => made.map_err(|_| table)??,
        }
    }
    database.drop().await
}
