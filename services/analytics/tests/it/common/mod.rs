//! A database of its own for each test, and a ledger to fill it from.

use analytics::{
    domain::{Change, Usage},
    store::Store,
};
use clickhouse::Client;
use ledger::{Batch, Digest, LedgerId, Projection};
use std::{
    error::Error,
    sync::atomic::{AtomicU32, Ordering},
};
use testkit::Servers;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationRequested, AllocationRequeued, AllocationStarted,
    BudgetSet, NodeRegistered, PeriodClosed, QuotaDenied, RateSet,
};
use vocab::{
    Account, AdminChange, AllocationNo, AllocationSpec, At, Budget, BudgetOf, CellNo, EndCause,
    Event, EventNo, GpuRequest, Lsn, Millis, Month, NodeCapacity, Operation, Period,
    PlacementPolicy, RateScope, Refusal, ResourceKey, Rule, Token,
};

pub type Outcome = Result<(), Box<dyn Error>>;

pub const CELL: CellNo = CellNo(3);
pub const LEDGER: LedgerId = LedgerId(77);

static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A fresh database on the test stack's ClickHouse.
pub struct Database {
    pub client: Client,
    pub name: String,
}

impl Database {
    pub async fn create() -> Result<Self, Box<dyn Error>> {
        let server = Servers::read().clickhouse();
        let name = format!(
            "analytics_{}_{}",
            std::process::id(),
            DATABASES.fetch_add(1, Ordering::Relaxed)
        );
        server
            .query(&format!("CREATE DATABASE {name}"))
            .execute()
            .await?;
        Ok(Self {
            client: server.with_database(&name),
            name,
        })
    }

    /// With its tables.
    pub async fn store() -> Result<(Self, Store), Box<dyn Error>> {
        let database = Self::create().await?;
        let store = Store::new(database.client.clone(), &database.name, CELL);
        assert_eq!(store.ensure().await?, [], "fresh");
        Ok((database, store))
    }

    pub async fn execute(&self, sql: &str) -> Outcome {
        Ok(self.client.query(sql).execute().await?)
    }

    pub async fn count(&self, table: &str) -> Result<u64, Box<dyn Error>> {
        let query = self.client.query(&format!("SELECT count() FROM {table}"));
        Ok(query.fetch_one().await?)
    }

    pub async fn drop(self) -> Outcome {
        self.execute(&format!("DROP DATABASE {}", self.name)).await
    }
}

pub fn token(text: &str) -> Token {
    Token::new(text).expect("a token")
}

/// A ledger in the making, one event per frame, and the fold of it.
#[derive(Default)]
pub struct Journal {
    usage: Usage,
    lsn: u64,
    after: u64,
    pub changes: Vec<Change>,
    pub events: Vec<(At, Event)>,
}

pub fn operation(tenant: &str) -> Operation {
    Operation {
        tenant: token(tenant),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    }
}

impl Journal {
    pub fn write(&mut self, now: i64, no: u64, event: Event) {
        self.lsn += 1;
        let at = At {
            lsn: Lsn(self.lsn),
            index: 0,
            no: EventNo(no),
            now: Millis(now),
        };
        self.usage
            .project_event(&at, &event, &mut self.changes)
            .expect("the test writes legal events");
        self.events.push((at, event));
    }

    pub fn node(&mut self, now: i64, node: &str, model: Option<&str>) {
        let capacity = NodeCapacity {
            cpu_milli: 64_000,
            memory_bytes: 256 << 30,
            gpus: if model.is_some() { 8 } else { 0 },
            gpu_model: model.map(token),
            ..NodeCapacity::default()
        };
        let node = token(node);
        let incarnation = 1;
        let event = Event::NodeRegistered(NodeRegistered {
            node,
            incarnation,
            boot: incarnation,
            capacity,
        });
        self.write(now, 0, event);
    }

    pub fn rate(&mut self, resource: &str, micro: u64, from: i64, version: u64) {
        self.scoped_rate(resource, RateScope::default(), micro, from, version);
    }

    pub fn scoped_rate(
        &mut self,
        resource: &str,
        scope: RateScope,
        micro: u64,
        from: i64,
        version: u64,
    ) {
        let change = AdminChange::Rate(RateSet {
            resource: ResourceKey::parse(resource).expect("a resource"),
            micro_per_unit_hour: micro,
            effective_from: Millis(from),
            scope,
            withdrawn: false,
        });
        let operation = operation("_operator");
        let event = change.applied(operation, version).into();
        self.write(0, 0, event);
    }

    /// Of a whole tenant.
    pub fn budget(
        &mut self,
        now: i64,
        tenant: &str,
        of: &str,
        budget: Option<(u64, Period)>,
        version: u64,
    ) {
        let change = AdminChange::Budget(BudgetSet {
            account: Account {
                tenant: token(tenant),
                team: None,
                namespace: None,
            },
            of: BudgetOf::parse(of).expect("what it is of"),
            budget: budget.map(|(amount, period)| Budget { amount, period }),
        });
        let set = change.applied(operation("_operator"), version);
        self.write(now, 0, set.into());
    }

    /// Makes the bill of a month final.
    pub fn close(&mut self, now: i64, month: Month, version: u64) {
        let change = AdminChange::Period(PeriodClosed { month });
        let closed = change.applied(operation("_operator"), version);
        self.write(now, 0, closed.into());
    }

    /// Asks for `(cpu_milli, memory_bytes, gpu_milli)` and gets it at once.
    pub fn start(
        &mut self,
        allocation: u64,
        tenant: &str,
        node: &str,
        amounts: (u64, u64, u16),
        at: i64,
    ) {
        self.request(allocation, tenant, amounts, at);
        self.start_again(allocation, node, at);
    }

    /// Asks for it and never gets it.
    pub fn refuse(&mut self, allocation: u64, tenant: &str, amounts: (u64, u64, u16), at: i64) {
        self.request(allocation, tenant, amounts, at);
        let denied = Event::QuotaDenied(QuotaDenied {
            allocation: AllocationNo(allocation),
            refusal: Refusal::new(Rule::QuotaNeverFits, format!("{tenant} cpu")),
        });
        self.write(at, 0, denied);
    }

    /// Asks for it.
    pub fn request(
        &mut self,
        allocation: u64,
        tenant: &str,
        (cpu_milli, memory_bytes, gpu_milli): (u64, u64, u16),
        at: i64,
    ) {
        let gpu = (gpu_milli > 0).then(|| GpuRequest {
            count: 1,
            milli: gpu_milli,
            models: vec![],
        });
        let spec = AllocationSpec {
            name: Some(token(&format!("run-{allocation}"))),
            gpu,
            ..AllocationSpec::plain(token("jobs"), cpu_milli, memory_bytes)
        };
        let operation = operation(tenant);
        let requested = Event::AllocationRequested(AllocationRequested { operation, spec });
        self.write(at, allocation, requested);
    }

    /// What waits runs, at once.
    pub fn start_again(&mut self, allocation: u64, node: &str, at: i64) {
        let allocation = AllocationNo(allocation);
        let placed = Event::AllocationPlaced(AllocationPlaced {
            allocation,
            node: token(node),
            incarnation: 1,
            gpus: Default::default(),
            zones: 0,
            policy: PlacementPolicy::Default,
            candidates: Default::default(),
        });
        self.write(at, 0, placed);
        let at = Millis(at);
        self.write(
            at.0,
            0,
            Event::AllocationStarted(AllocationStarted { allocation, at }),
        );
    }

    pub fn requeue(&mut self, allocation: u64, at: i64) {
        let requeued = Event::AllocationRequeued(AllocationRequeued {
            allocation: AllocationNo(allocation),
            cause: EndCause::Preempted,
            at: Millis(at),
            not_before: Millis(at),
            exit: None,
        });
        self.write(at, 0, requeued);
    }

    pub fn end(&mut self, allocation: u64, at: i64) {
        let ended = Event::AllocationEnded(AllocationEnded {
            allocation: AllocationNo(allocation),
            cause: EndCause::Finished,
            at: Millis(at),
            exit: None,
        });
        self.write(at, 0, ended);
    }

    /// Everything since the last batch.
    pub fn batch(&mut self) -> Batch<Change> {
        let after = std::mem::replace(&mut self.after, self.lsn);
        self.usage.end_batch(&mut self.changes);
        Batch {
            ledger: LEDGER,
            after: Lsn(after),
            to: Lsn(self.lsn),
            digest: Some(DIGEST),
            changes: std::mem::take(&mut self.changes),
        }
    }
}

/// Of whatever stands at the end of a batch.
pub const DIGEST: Digest = Digest([3; 32]);

/// The same batch again, as a restart makes it.
pub fn again(batch: &Batch<Change>) -> Batch<Change> {
    Batch {
        ledger: batch.ledger,
        after: batch.after,
        to: batch.to,
        digest: batch.digest,
        changes: batch.changes.clone(),
    }
}
