//! Decisions as tables: what stands on the ledger, then what the scheduler adds to it.

use super::*;
use vocab::{
    AllocationSpec, EndCause, GpuRequest, Lsn, NodeCapacity, Operation, Refusal, Rule, RunState,
};

struct Table {
    state: Scheduler,
    next: u64,
    now: i64,
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

impl Table {
    fn new() -> Self {
        Self {
            state: Scheduler::default(),
            next: 1,
            now: 0,
        }
    }

    fn at(&self, no: u64) -> At {
        At {
            lsn: Lsn(0),
            index: 0,
            no: EventNo(no),
            now: Millis(self.now),
        }
    }

    fn observe(&mut self, no: u64, event: Event) {
        let at = self.at(no);
        self.state.observe(&at, &event).unwrap();
    }

    fn node(&mut self, name: &str, cores: u64, gpus: u16) {
        self.node_again(name, 1, cores, gpus);
    }

    fn node_again(&mut self, name: &str, incarnation: u64, cores: u64, gpus: u16) {
        let capacity = NodeCapacity {
            cpu_milli: cores * 1000,
            memory_bytes: 1 << 40,
            gpus,
            gpu_model: (gpus > 0).then(|| token("T4")),
        };
        let event = Event::NodeRegistered {
            node: token(name),
            incarnation,
            capacity,
        };
        self.observe(0, event);
    }

    fn lose(&mut self, name: &str) {
        let event = Event::NodeLost {
            node: token(name),
            incarnation: 1,
            last_seen: Millis(0),
        };
        self.observe(0, event);
    }

    /// Requested as number `no`, not granted by quota yet.
    fn request(&mut self, no: u64, priority: i32, cores: u64, gpu: Option<(u16, u16)>) {
        let spec = AllocationSpec {
            job_set: token("default"),
            name: None,
            priority,
            cpu_milli: cores * 1000,
            memory_bytes: 1 << 30,
            gpu: gpu.map(|(count, milli)| GpuRequest {
                count,
                milli,
                models: Vec::new(),
            }),
        };
        self.observe(
            no,
            Event::AllocationRequested {
                operation: operation(),
                spec,
            },
        );
    }

    fn grant(&mut self, no: u64) {
        let allocation = AllocationNo(no);
        self.observe(0, Event::QuotaReserved { allocation });
    }

    fn submit(&mut self, no: u64, priority: i32, cores: u64, gpu: Option<(u16, u16)>) {
        self.request(no, priority, cores, gpu);
        self.grant(no);
    }

    fn cancel(&mut self, request: u64, no: u64) {
        let event = Event::CancelRequested {
            operation: operation(),
            allocation: AllocationNo(no),
        };
        self.observe(request, event);
    }

    fn report(&mut self, no: u64, node: &str, state: RunState) {
        let event = Event::RunReported {
            allocation: AllocationNo(no),
            node: token(node),
            state,
            at: Millis(self.now),
        };
        self.observe(0, event);
    }

    /// One round of decisions, in words.
    fn check(&mut self, expected: &[&str]) {
        self.now += 1;
        let mut draft = Draft::new(Millis(self.now), EventNo(self.next));
        self.state.decide(&(), &mut draft);
        self.next = draft.next_no().0;
        let found: Vec<String> = draft.events().map(words).collect();
        assert_eq!(found, expected);
        // A second look decides nothing new.
        let mut again = Draft::new(Millis(self.now), EventNo(self.next));
        self.state.decide(&(), &mut again);
        assert!(again.is_empty(), "{:?}", again.events().collect::<Vec<_>>());
    }
}

fn operation() -> Operation {
    Operation {
        tenant: token("t"),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
    }
}

fn words(event: &Event) -> String {
    match event {
        Event::AllocationPlaced {
            allocation,
            node,
            gpus,
            ..
        } => gpus
            .iter()
            .fold(format!("{} on {node}", allocation.0), |text, share| {
                format!("{text} {}:{}", share.device, share.milli)
            }),
        Event::AllocationWaiting { allocation, reason } => {
            format!("{} waits {}", allocation.0, reason.name())
        }
        Event::AllocationStarted { allocation, .. } => format!("{} started", allocation.0),
        Event::AllocationStopping { allocation } => format!("{} stopping", allocation.0),
        Event::AllocationEnded {
            allocation, cause, ..
        } => format!("{} ended {}", allocation.0, cause.name()),
        Event::CancelDecided {
            request, verdict, ..
        } => format!("cancel {} {verdict:?}", request.0),
        other => format!("{other:?}"),
    }
}

#[test]
fn by_priority_then_by_arrival_and_the_large_do_not_block_the_small() {
    let mut t = Table::new();
    t.node("n", 4, 0);
    t.submit(1, 0, 2, None);
    t.submit(2, 5, 8, None);
    t.submit(3, 5, 3, None);
    t.submit(4, 5, 1, None);
    t.check(&[
        "2 waits larger_than_any_node",
        "3 on n",
        "4 on n",
        "1 waits no_room_now",
    ]);
}

#[test]
fn nothing_is_placed_before_quota_has_granted_it() {
    let mut t = Table::new();
    t.node("n", 4, 0);
    t.request(1, 0, 1, None);
    t.check(&[]);
    t.grant(1);
    t.check(&["1 on n"]);
    t.request(2, 0, 1, None);
    let refusal = Refusal::new(Rule::QuotaExceeded, "cpu");
    t.observe(
        0,
        Event::QuotaDenied {
            allocation: AllocationNo(2),
            refusal,
        },
    );
    t.check(&[]);
    assert_eq!(t.state.live().len(), 1);
}

#[test]
fn what_ends_makes_room_in_the_same_frame() {
    let mut t = Table::new();
    t.node("n", 4, 1);
    t.submit(1, 0, 4, Some((1, 600)));
    t.check(&["1 on n 0:600"]);
    t.submit(2, 0, 4, Some((1, 600)));
    t.check(&["2 waits no_room_now"]);
    t.report(1, "n", RunState::Started);
    t.report(1, "n", RunState::Finished);
    t.check(&["1 started", "1 ended finished", "2 on n 0:600"]);
}

#[test]
fn a_cancel_finds_its_allocation_wherever_it_stands() {
    let mut t = Table::new();
    t.node("n", 4, 0);
    t.request(1, 0, 1, None);
    t.cancel(10, 1);
    t.check(&["1 ended cancelled", "cancel 10 WasLive"]);
    // Quota's answer comes too late to matter.
    t.grant(1);
    t.check(&[]);
    t.submit(2, 0, 1, None);
    t.check(&["2 on n"]);
    t.cancel(11, 2);
    t.cancel(12, 2);
    t.check(&["2 stopping", "cancel 11 WasLive", "cancel 12 WasLive"]);
    t.report(2, "n", RunState::Finished);
    t.cancel(13, 2);
    t.check(&["2 ended cancelled", "cancel 13 HadEnded"]);
}

#[test]
fn a_lost_node_ends_what_it_held_and_comes_back_empty() {
    let mut t = Table::new();
    t.node("n", 4, 0);
    t.submit(1, 0, 3, None);
    t.check(&["1 on n"]);
    t.lose("n");
    t.submit(2, 0, 3, None);
    t.check(&["1 ended node_lost", "2 waits no_node_ready"]);
    // A late word from the old life changes nothing.
    t.report(1, "n", RunState::Finished);
    t.check(&[]);
    t.node_again("n", 2, 4, 0);
    t.check(&["2 on n"]);
    assert_eq!(t.state.nodes()[&token("n")].cpu_milli_free, 1000);
}

#[test]
fn a_node_that_restarts_at_once_gets_nothing_back_from_its_former_life() {
    let mut t = Table::new();
    t.node("n", 4, 0);
    t.submit(1, 0, 3, None);
    t.check(&["1 on n"]);
    t.lose("n");
    t.node_again("n", 2, 4, 0);
    t.submit(2, 0, 4, None);
    t.check(&["1 ended node_lost", "2 on n"]);
    assert_eq!(t.state.nodes()[&token("n")].cpu_milli_free, 0);
}

#[test]
fn a_rejected_run_ends() {
    let mut t = Table::new();
    t.node("n", 4, 0);
    t.submit(1, 0, 3, None);
    t.check(&["1 on n"]);
    t.report(1, "n", RunState::Rejected);
    t.check(&["1 ended rejected_by_node"]);
}

#[test]
fn an_event_that_does_not_fit_is_refused_and_changes_nothing() {
    let mut t = Table::new();
    t.node("n", 4, 1);
    t.submit(1, 0, 3, None);
    t.check(&["1 on n"]);
    let before = t.state.clone();
    let placed = |allocation, gpus: Vec<vocab::GpuShare>| Event::AllocationPlaced {
        allocation: AllocationNo(allocation),
        node: token("n"),
        incarnation: 1,
        gpus,
    };
    let ended = Event::AllocationEnded {
        allocation: AllocationNo(9),
        cause: EndCause::Finished,
        at: Millis(0),
    };
    for event in [placed(1, Vec::new()), placed(9, Vec::new()), ended] {
        let at = t.at(0);
        assert!(t.state.evolve(&at, &event).is_err(), "{event:?}");
        assert_eq!(t.state, before);
    }
}

#[test]
fn a_state_survives_its_snapshot() {
    let mut t = Table::new();
    t.node("n", 4, 1);
    t.submit(1, 0, 3, Some((1, 300)));
    t.submit(2, 7, 3, Some((1, 1000)));
    t.check(&["2 on n 0:1000", "1 waits no_room_now"]);
    let chain = ledger::Chain::default();
    let snapshot = ledger::Snapshot::of(Scheduler::STATE_VERSION, chain, &t.state);
    let restored: Scheduler = snapshot.state(Scheduler::STATE_VERSION).unwrap();
    assert_eq!(restored, t.state);
    assert_eq!(ledger::state_digest(&restored), snapshot.digest());
}
