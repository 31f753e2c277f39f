//! Named resources in their tables, folded from a ledger, and what a look finds.

use super::*;
use ledger::Projection;
use scheduler::project::WarmProjection;
use scheduler_rules::{Bounds, Config, Scheduler};
use store::{Looked, NamedResource};
use vocab::fact::{ResourceAsked, TenantSet};
use vocab::{
    At, Event, EventNo, LeaseNo, LeaseState, Operation, ResourceAsk, Slot, TenantSettings,
};

const LAST: Slot = u64::MAX - 100;

/// A ledger on which admission and the scheduler take turns, and the tables behind it.
struct Cell {
    pool: PgPool,
    state: Scheduler,
    projection: WarmProjection,
    asked: u64,
    own: EventNo,
    lsn: u64,
}

fn config() -> Config {
    Config {
        leases: Bounds {
            history_slots: 4,
            ..Bounds::default()
        },
        slot_ms: 0,
    }
}

fn operation(tenant: &str) -> Operation {
    Operation {
        tenant: token(tenant),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    }
}

impl Cell {
    fn new(scratch: &Scratch) -> Self {
        Self {
            pool: scratch.pool(),
            state: Scheduler::default(),
            projection: WarmProjection::default(),
            asked: 0,
            own: EventNo(1),
            lsn: 0,
        }
    }

    fn at(&self, no: EventNo, index: u32) -> At {
        At {
            lsn: Lsn(self.lsn),
            index,
            no,
            now: Millis(1_700_000_000_000),
        }
    }

    /// All that is asked goes into the tables in one batch, with what is decided. The number that is decided first.
    async fn ask(&mut self, tenant: &str, slot: Slot, asks: &[ResourceAsk]) -> LeaseNo {
        use ledger::{Decider, Draft};
        let mut changes = Vec::new();
        for ask in asks {
            self.lsn += 1;
            self.asked += 1;
            let event = Event::ResourceAsked(ResourceAsked {
                operation: operation(tenant),
                slot,
                by_requests: true,
                ask: ask.clone(),
            });
            let at = self.at(EventNo(self.asked), 0);
            self.state.observe_event(&at, &event).unwrap();
            self.projection
                .project_event(&at, &event, &mut changes)
                .unwrap();
            self.projection.end_batch(&mut changes);
        }
        self.lsn += 1;
        let first = self.own;
        let mut draft = Draft::new(Millis(1_700_000_000_000), first);
        self.state.decide(&config(), &mut draft);
        assert_eq!(draft.poison(), None);
        for (event, index) in draft.events().zip(0..) {
            let at = self.at(EventNo(first.0 + u64::from(index)), index);
            self.projection
                .project_event(&at, event, &mut changes)
                .unwrap();
            self.projection.end_batch(&mut changes);
        }
        self.own = draft.next_no();
        let mut sink = store::sink(self.pool.clone(), CELL);
        let after = sink.resume(LEDGER).await.unwrap().through;
        let batch = Batch {
            ledger: LEDGER,
            after,
            to: Lsn(self.lsn),
            digest: None,
            changes,
        };
        sink.apply(&batch).await.unwrap();
        LeaseNo::of(first)
    }

    async fn look(&self, tenant: &str, no: LeaseNo, slot: Slot) -> String {
        let found = store::named_lease(&self.pool, &token(tenant), no, slot).await;
        match found.unwrap() {
            (_, Looked::Retired) => "retired".into(),
            (_, Looked::NotFound) => "not found".into(),
            (seen, Looked::Found(found)) => {
                let through = found
                    .retire_after
                    .map_or(String::new(), |at| format!(" through {at}"));
                format!(
                    "{} by {} fencing_token {} until {}{through}: {} at {seen}",
                    found.state.name(),
                    found.holder,
                    found.fencing_token,
                    found.deadline,
                    found.resources.join(" "),
                )
            }
        }
    }

    async fn resource(&self, name: &str) -> Option<NamedResource> {
        let found = store::named_resource(&self.pool, &token("t"), &token(name)).await;
        found.unwrap()
    }
}

fn create(name: &str) -> ResourceAsk {
    ResourceAsk::Create {
        resource: token(name),
    }
}

fn acquire(names: &[&str], ttl_slots: u64) -> ResourceAsk {
    ResourceAsk::Acquire {
        resources: names.iter().map(|name| token(name)).collect(),
        holder: token("ann"),
        ttl_slots,
    }
}

fn release(lease: LeaseNo) -> ResourceAsk {
    ResourceAsk::Release {
        lease,
        holder: token("ann"),
        fencing_token: 1,
    }
}

#[tokio::test]
async fn leases_are_found_as_long_as_they_are_remembered() {
    let scratch = ready("named").await;
    let mut cell = Cell::new(&scratch);
    let none = LeaseNo(1);
    assert_eq!(cell.look("t", none, 0).await, "not found");
    let first = cell
        .ask("t", 1, &[create("a"), create("b"), create("c")])
        .await;
    assert_eq!(cell.look("t", first, 1).await, "not found");
    let both = cell.ask("t", 2, &[acquire(&["b", "a"], 9)]).await;
    assert_eq!(
        cell.look("t", both, 0).await,
        "granted by ann fencing_token 1 until 11: b a at 2"
    );
    assert_eq!(cell.look("u", both, 0).await, "not found");
    let held = NamedResource {
        version: 1,
        held: Some((both, LeaseState::Granted)),
    };
    assert_eq!(cell.resource("a").await, Some(held));
    assert_eq!(cell.resource("none").await, None);
    cell.ask("t", 3, &[release(both)]).await;
    let ended = "released by ann fencing_token 2 until 11 through 7: b a";
    assert_eq!(cell.look("t", both, 3).await, format!("{ended} at 3"));
    assert_eq!(cell.look("t", both, 7).await, format!("{ended} at 3"));
    // By the time that is asked for, though nothing has happened since.
    assert_eq!(cell.look("t", both, 8).await, "retired");
    assert_eq!(cell.look("t", LeaseNo(1), 8).await, "retired");
    assert_eq!(cell.look("t", LeaseNo(99), 8).await, "not found");
    let free = NamedResource {
        version: 2,
        held: None,
    };
    assert_eq!(cell.resource("b").await, Some(free));
    let later = cell.ask("t", 8, &[acquire(&["c"], 2)]).await;
    assert_eq!(cell.look("t", both, 0).await, "retired");
    assert_eq!(cell.look("t", LeaseNo(later.0 + 1), 0).await, "not found");
    cell.ask("t", 10, &[create("d")]).await;
    assert_eq!(
        cell.look("t", later, 0).await,
        "expired by ann fencing_token 2 until 10 through 14: c at 10"
    );
    scratch.close().await;
}

#[tokio::test]
async fn what_comes_and_goes_in_one_batch_leaves_its_trace() {
    let scratch = ready("named_batch").await;
    let mut cell = Cell::new(&scratch);
    cell.ask("t", 1, &[create("a")]).await;
    let next = LeaseNo(cell.own.0);
    let mut asks = Vec::new();
    for no in 0..40 {
        asks.push(acquire(&["a"], 9));
        asks.push(release(LeaseNo(next.0 + 2 * no)));
    }
    cell.ask("t", 2, &asks).await;
    assert_eq!(
        cell.resource("a").await,
        Some(NamedResource {
            version: 80,
            held: None
        })
    );
    // The last slots that there are.
    let last = cell.ask("t", LAST, &[acquire(&["a"], 16)]).await;
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM leases")
        .fetch_one(&cell.pool)
        .await
        .unwrap();
    assert_eq!(count, 1);
    assert_eq!(cell.look("t", next, 0).await, "retired");
    let until = LAST + 16;
    assert_eq!(
        cell.look("t", last, LAST).await,
        format!("granted by ann fencing_token 1 until {until}: a at {LAST}")
    );
    scratch.close().await;
}

#[tokio::test]
async fn the_weight_of_a_tenant_shows_where_its_queue_is_not_set() {
    let scratch = ready("named_weight").await;
    let pool = scratch.pool();
    let mut projection = WarmProjection::default();
    let mut changes = Vec::new();
    let settings = TenantSettings {
        weight_milli: 2500,
        ..TenantSettings::default()
    };
    let event = vocab::AdminChange::Tenant(TenantSet {
        tenant: token("t"),
        closed: false,
        teams: Vec::new(),
        settings,
    })
    .applied(operation("_operator"), 1)
    .into();
    let at = At {
        lsn: Lsn(1),
        index: 0,
        no: EventNo(1),
        now: Millis(1),
    };
    projection.project_event(&at, &event, &mut changes).unwrap();
    projection.end_batch(&mut changes);
    let mut sink = store::sink(pool.clone(), CELL);
    sink.resume(LEDGER).await.unwrap();
    let batch = Batch {
        ledger: LEDGER,
        after: Lsn(0),
        to: Lsn(1),
        digest: None,
        changes,
    };
    sink.apply(&batch).await.unwrap();
    let queues = store::queues(&pool, Some(&token("t")), "", 10)
        .await
        .unwrap()
        .found;
    let weights: Vec<_> = queues
        .iter()
        .map(|queue| {
            (
                queue.queue.as_str(),
                queue.settings.weight_milli,
                queue.version,
            )
        })
        .collect();
    assert_eq!(weights, [("t", 2500, None)]);
    scratch.close().await;
}
