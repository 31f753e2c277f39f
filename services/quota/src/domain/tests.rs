//! Decisions as tables: what stands on the ledger, then what quota adds to it.

use super::*;
use vocab::{EndCause, EventNo, GpuRequest, Lsn, Operation};

struct Table {
    state: Quota,
    next: u64,
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn operation(tenant: &str) -> Operation {
    Operation {
        tenant: token(tenant),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
    }
}

fn words(event: &Event) -> String {
    match event {
        Event::QuotaReserved { allocation } => format!("{} reserved", allocation.0),
        Event::QuotaDenied {
            allocation,
            refusal,
        } => format!("{} {refusal}", allocation.0),
        Event::QuotaReleased { allocation } => format!("{} released", allocation.0),
        other => format!("{other:?}"),
    }
}

impl Table {
    fn new() -> Self {
        Self {
            state: Quota::default(),
            next: 1,
        }
    }

    fn observe(&mut self, no: u64, event: Event) {
        let at = At {
            lsn: Lsn(0),
            index: 0,
            no: EventNo(no),
            now: Millis(0),
        };
        self.state.observe(&at, &event).unwrap();
    }

    fn limit(&mut self, tenant: &str, resource: ResourceKind, limit: u64) {
        let change = AdminChange::Quota {
            tenant: token(tenant),
            resource,
            limit,
        };
        let event = Event::AdminApplied {
            operation: operation("_operator"),
            change,
            version: 1,
        };
        self.observe(0, event);
    }

    fn limits(&mut self, tenant: &str, cores: u64, gpus: u64) {
        self.limit(tenant, ResourceKind::Cpu, cores * 1000);
        self.limit(tenant, ResourceKind::Memory, 1 << 40);
        self.limit(tenant, ResourceKind::Gpu, gpus * 1000);
    }

    fn request(&mut self, no: u64, tenant: &str, cores: u64, gpu_milli: u16) {
        let spec = AllocationSpec {
            gpu: (gpu_milli > 0).then(|| GpuRequest {
                count: 1,
                milli: gpu_milli,
                models: Vec::new(),
            }),
            ..AllocationSpec::plain(token("default"), cores * 1000, 1 << 30)
        };
        let operation = operation(tenant);
        self.observe(no, Event::AllocationRequested { operation, spec });
    }

    fn start(&mut self, no: u64) {
        let (allocation, at) = (AllocationNo(no), Millis(0));
        self.observe(0, Event::AllocationStarted { allocation, at });
    }

    fn requeue(&mut self, no: u64) {
        let event = Event::AllocationRequeued {
            allocation: AllocationNo(no),
            cause: EndCause::NodeLost,
            at: Millis(0),
            not_before: Millis(0),
        };
        self.observe(0, event);
    }

    fn end(&mut self, no: u64) {
        let event = Event::AllocationEnded {
            allocation: AllocationNo(no),
            cause: EndCause::Finished,
            at: Millis(0),
        };
        self.observe(0, event);
    }

    fn check(&mut self, expected: &[&str]) {
        let mut draft = Draft::new(Millis(0), EventNo(self.next));
        self.state.decide(&(), &mut draft);
        self.next = draft.next_no().0;
        let found: Vec<String> = draft.events().map(words).collect();
        assert_eq!(found, expected);
    }

    fn check_account(&self, tenant: &str, kind: ResourceKind, reserved: u64, used: u64) {
        let account = self.state.account(&token(tenant), kind);
        assert_eq!((account.reserved, account.used), (reserved, used));
    }
}

#[test]
fn up_to_the_limit_and_not_beyond() {
    let mut t = Table::new();
    t.limits("a", 4, 1);
    t.request(1, "a", 3, 500);
    t.request(2, "a", 2, 0);
    t.request(3, "a", 1, 500);
    t.request(4, "a", 0, 1);
    t.check(&[
        "1 reserved",
        "2 quota exceeded: cpu (limit 4000, actual 5000)",
        "3 reserved",
        "4 quota exceeded: gpu (limit 1000, actual 1001)",
    ]);
    t.check_account("a", ResourceKind::Cpu, 4000, 0);
}

#[test]
fn without_a_limit_nothing_is_granted() {
    let mut t = Table::new();
    t.limits("a", 4, 1);
    t.request(1, "b", 1, 0);
    t.check(&["1 quota exceeded: cpu (limit 0, actual 1000)"]);
}

#[test]
fn reserved_becomes_used_and_goes_back_once() {
    let mut t = Table::new();
    t.limits("a", 4, 1);
    t.request(1, "a", 4, 0);
    t.check(&["1 reserved"]);
    t.start(1);
    t.check_account("a", ResourceKind::Cpu, 0, 4000);
    t.request(2, "a", 1, 0);
    t.check(&["2 quota exceeded: cpu (limit 4000, actual 5000)"]);
    t.end(1);
    t.end(1);
    t.request(3, "a", 4, 0);
    t.check(&["1 released", "3 reserved"]);
    t.check_account("a", ResourceKind::Cpu, 4000, 0);
}

#[test]
fn what_waits_again_stays_reserved() {
    let mut t = Table::new();
    t.limits("a", 4, 1);
    t.request(1, "a", 4, 500);
    t.check(&["1 reserved"]);
    // Before its start, and again: nothing was used.
    t.requeue(1);
    t.check_account("a", ResourceKind::Cpu, 4000, 0);
    for _ in 0..2 {
        t.start(1);
        t.check_account("a", ResourceKind::Gpu, 0, 500);
        t.requeue(1);
        t.check_account("a", ResourceKind::Cpu, 4000, 0);
        t.check_account("a", ResourceKind::Gpu, 500, 0);
    }
    t.request(2, "a", 1, 0);
    t.check(&["2 quota exceeded: cpu (limit 4000, actual 5000)"]);
    t.end(1);
    t.check(&["1 released"]);
    t.check_account("a", ResourceKind::Cpu, 0, 0);
    t.check_account("a", ResourceKind::Gpu, 0, 0);
}

#[test]
fn what_ends_undecided_never_held_anything() {
    let mut t = Table::new();
    t.limits("a", 4, 1);
    t.request(1, "a", 4, 0);
    t.end(1);
    t.check(&[]);
    t.check_account("a", ResourceKind::Cpu, 0, 0);
}

#[test]
fn a_limit_below_use_takes_nothing_away_and_grants_nothing_new() {
    let mut t = Table::new();
    t.limits("a", 4, 1);
    t.request(1, "a", 4, 0);
    t.check(&["1 reserved"]);
    t.limit("a", ResourceKind::Cpu, 1000);
    t.request(2, "a", 1, 0);
    t.check(&["2 quota exceeded: cpu (limit 1000, actual 5000)"]);
    t.end(1);
    t.request(3, "a", 1, 0);
    t.check(&["1 released", "3 reserved"]);
}

#[test]
fn a_state_survives_its_snapshot() {
    let mut t = Table::new();
    t.limits("a", 4, 1);
    t.request(1, "a", 4, 500);
    t.check(&["1 reserved"]);
    t.request(2, "a", 4, 500);
    let chain = ledger::Chain::default();
    let snapshot = ledger::Snapshot::of(Quota::STATE_VERSION, chain, &t.state);
    let restored: Quota = snapshot.state(Quota::STATE_VERSION).unwrap();
    assert_eq!(restored, t.state);
}
