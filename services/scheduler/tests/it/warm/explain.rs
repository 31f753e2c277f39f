//! Why an allocation stands where it stands, now and before.

use super::*;
use chassis::{
    Clock,
    query::{Asked, Verb},
};
use ledger::Projection;
use ledger_nats::Questions;
use scheduler::project::{ANOTHER_TENANTS, Entry, Outcome, Over, Position, Said, WarmProjection};
use scheduler::query::{self, ExplainQueries};
use schemas::v1::{self, AllocationView, ExplainQuery, ExplainReply};
use vocab::fact::{
    AllocationEnded, AllocationNominated, AllocationPlaced, AllocationPreempted,
    AllocationRequested, AllocationRequeued, AllocationStopping, AllocationWaiting,
    PendingGroupExplained, QuotaReserved, QuotaWaiting,
};
use vocab::{
    At, Candidate, Dependency, Event, EventNo, Filter, Operation, PlacementPolicy, ResourceKind,
};

/// A ledger of one event per frame, each a second after the one before, and the tables behind it.
pub(super) struct Cell {
    pool: PgPool,
    projection: WarmProjection,
    lsn: u64,
}

const T0_MS: i64 = 1_700_000_000_000;
/// When somebody asks.
const LATER: Millis = Millis(T0_MS + 3_600_000);

impl Cell {
    pub(super) async fn new(scratch: &Scratch) -> Self {
        Self {
            pool: scratch.pool(),
            projection: WarmProjection::default(),
            lsn: 0,
        }
    }

    pub(super) async fn say(&mut self, event: Event) {
        self.say_after(1000, event).await;
    }

    /// The frame's clock counts from the last frame.
    async fn say_after(&mut self, ms: i64, event: Event) {
        self.lsn += 1;
        let at = At {
            lsn: Lsn(self.lsn),
            index: 2,
            no: EventNo(self.lsn),
            now: Millis(T0_MS + (self.lsn as i64 - 1) * 1000 + ms),
        };
        let mut changes = Vec::new();
        self.projection
            .project_event(&at, &event, &mut changes)
            .unwrap();
        self.projection.end_batch(&mut changes);
        let batch = Batch {
            ledger: LEDGER,
            after: Lsn(self.lsn - 1),
            to: Lsn(self.lsn),
            digest: None,
            changes,
        };
        let mut sink = store::sink(self.pool.clone(), CELL);
        sink.resume(LEDGER).await.unwrap();
        sink.apply(&batch).await.unwrap();
    }

    async fn request(&mut self, tenant: &str) -> AllocationNo {
        let allocation = self.only_request(tenant).await;
        let flags = vocab::QuotaFlags::default();
        self.say(Event::QuotaReserved(QuotaReserved {
            allocation,
            flags,
            models: None,
        }))
        .await;
        allocation
    }

    /// The request's position is its number here.
    pub(super) async fn only_request(&mut self, tenant: &str) -> AllocationNo {
        self.request_after(tenant, &[]).await
    }

    /// The request is to start after these.
    async fn request_after(&mut self, tenant: &str, others: &[AllocationNo]) -> AllocationNo {
        let operation = Operation {
            tenant: token(tenant),
            operation_id: None,
            digest: [0; 16],
            reply_to: None,
            trace: None,
            by: None,
        };
        let mut spec = AllocationSpec::plain(token("j"), 4000, 1 << 30);
        spec.queue = Some(token("shared"));
        let others = others.iter().map(|allocation| Dependency {
            allocation: *allocation,
            success: true,
        });
        spec.depends_on = others.collect();
        self.say(Event::AllocationRequested(AllocationRequested {
            operation,
            spec,
        }))
        .await;
        AllocationNo(self.lsn)
    }

    async fn wait(&mut self, allocation: AllocationNo, pending_group: u64) {
        let waiting = Event::AllocationWaiting(AllocationWaiting {
            allocation,
            reason: WaitingReason::NoRoomNow,
            pending_group: Some(PendingGroupNo(pending_group)),
        });
        self.say(waiting).await;
    }

    async fn pending_group(&mut self, pending_group: u64, head: AllocationNo, cpu: u32) {
        self.say(said_of_pending_group(pending_group, head, cpu).into())
            .await;
    }

    async fn place(&mut self, allocation: AllocationNo) {
        self.say(placed(allocation).into()).await;
    }

    async fn preempt(&mut self, allocation: AllocationNo, by: Option<AllocationNo>) -> Millis {
        let preempted = preempted(allocation, by);
        let grace_until = preempted.grace_until;
        self.say(preempted.into()).await;
        self.say(Event::AllocationStopping(AllocationStopping {
            allocation,
            time_limit: false,
        }))
        .await;
        grace_until
    }

    async fn explain(&self, allocation: AllocationNo, as_of: Option<u64>) -> store::Explanation {
        let id = allocation.id(CELL);
        let found = store::explain(&self.pool, &token("t"), id, as_of.map(Lsn), LATER).await;
        let found = found.unwrap().expect("the tenant's own");
        let reply = self.answer(allocation, as_of).await;
        let mut told = query::explanation(&reply, &token("t")).expect("the contract's");
        // On the bus a view is of the position that the read model is at, and not of its last change.
        told.allocation.lsn = found.allocation.lsn;
        // The answer about the allocation itself says these.
        assert_eq!(told.allocation.past, []);
        told.allocation.past = found.allocation.past.clone();
        assert_eq!(told, found, "the same on the bus");
        found
    }

    /// The answer on the bus to the tenant `t`.
    async fn answer(&self, allocation: AllocationNo, as_of: Option<u64>) -> ExplainReply {
        let asked = Asked {
            tenant: token("t"),
            applied: Lsn(self.lsn),
            query: ExplainQuery {
                allocation_id: allocation.id(CELL).to_string(),
                as_of_lsn: as_of.unwrap_or(0),
                at_lsn: 0,
            },
        };
        let queries = ExplainQueries {
            pool: self.pool.clone(),
            clock: Clock::manual(LATER.0).0,
            // No process decides.
            questions: Questions::new().0,
        };
        let reply = queries.answer(asked).await;
        reply.expect("the tenant's own")
    }

    async fn preemptions(&self, tenant: &str) -> Vec<store::PreemptionEvent> {
        let last = Position {
            lsn: Lsn(u64::MAX),
            index: 0,
        };
        let tenant = token(tenant);
        store::preemptions(&self.pool, Some(&tenant), last, 10)
            .await
            .unwrap()
    }
}

fn kinds(entries: &[Entry]) -> Vec<(u64, &'static str)> {
    let of = |entry: &Entry| (entry.position.lsn.0, entry.kind());
    entries.iter().map(of).collect()
}

/// Of the frame at this position, unless it comes later.
fn moment(lsn: Lsn) -> Millis {
    Millis(T0_MS + lsn.0 as i64 * 1000)
}

fn placed(allocation: AllocationNo) -> AllocationPlaced {
    let candidate = |node, score| Candidate {
        node: token(node),
        score,
    };
    AllocationPlaced {
        allocation,
        node: token("n1"),
        incarnation: 1,
        gpus: Default::default(),
        zones: 3,
        policy: PlacementPolicy::Fgd,
        candidates: vec![candidate("n1", 900), candidate("n2", u32::MAX)].into(),
    }
}

fn preempted(allocation: AllocationNo, by: Option<AllocationNo>) -> AllocationPreempted {
    AllocationPreempted {
        allocation,
        cause: PreemptionCause::Priority,
        by,
        grace_until: Millis(T0_MS + 3_600_000),
    }
}

fn said_of_pending_group(
    pending_group: u64,
    head: AllocationNo,
    cpu: u32,
) -> PendingGroupExplained {
    PendingGroupExplained {
        pending_group: PendingGroupNo(pending_group),
        queue: token("shared"),
        reason: WaitingReason::NoRoomNow,
        head,
        counts: vec![(Filter::NotReady, 1), (Filter::Cpu, cpu), (Filter::Gpu, 3)],
        shortfall: vec![(ResourceKind::Cpu, 2000), (ResourceKind::Memory, 1 << 40)],
        share_ppm: 10_000,
        fair_share_ppm: 500_000,
    }
}

/// The nodes that lacked cores when the pending group was explained.
fn short_of_cpu(explanation: &store::Explanation) -> Option<u32> {
    match explanation.pending_group.as_ref()?.said() {
        Said::PendingGroupExplained(pending_group) => (pending_group.counts)
            .iter()
            .find(|(filter, _)| *filter == Filter::Cpu)
            .map(|(_, n)| *n),
        _ => None,
    }
}

#[tokio::test]
async fn what_was_said_can_be_read_as_of_an_earlier_position() {
    let scratch = ready("explain").await;
    let mut cell = Cell::new(&scratch).await;
    let first = cell.request("t").await; // 1, 2
    let second = cell.request("t").await; // 3, 4
    cell.pending_group(7, first, 731).await; // 5
    cell.wait(first, 7).await; // 6
    cell.wait(second, 7).await; // 7
    cell.pending_group(7, first, 700).await; // 8
    cell.pending_group(8, first, 1).await; // 9
    cell.place(first).await; // 10

    let now = cell.explain(second, None).await;
    assert_eq!(kinds(&now.history), [(7, "allocation_waiting")]);
    assert_eq!(short_of_cpu(&now), Some(700));
    assert_eq!(now.through, Lsn(10));
    let place = now.place.expect("it waits");
    assert_eq!((place.position, place.in_queue), (1, 1));
    assert_eq!((place.position_in_line, place.in_line), (Some(1), Some(1)));
    assert_eq!((place.ahead, place.start), (store::Ahead::default(), None));
    let pending_group = now.pending_group.expect("its pending_group was explained");
    let said = said_of_pending_group(7, first, 700);
    let position = pending_group.position;
    assert_eq!(
        Some(pending_group),
        Entry::new(position, Millis(T0_MS + 8000), said)
    );

    let before = cell.explain(second, Some(7)).await;
    assert_eq!((short_of_cpu(&before), before.place), (Some(731), None));
    let first_now = cell.explain(first, None).await;
    assert_eq!(
        kinds(&first_now.history),
        [(6, "allocation_waiting"), (10, "allocation_placed")]
    );
    assert_eq!((first_now.pending_group, first_now.place), (None, None));
    let first_then = cell.explain(first, Some(9)).await;
    assert_eq!(kinds(&first_then.history), [(6, "allocation_waiting")]);
    assert_eq!(short_of_cpu(&first_then), Some(700));
    let too_early = cell.explain(first, Some(5)).await;
    assert_eq!(
        (too_early.history, too_early.pending_group),
        (Vec::new(), None)
    );

    let queue = store::queue(&cell.pool, &token("t"), 10).await.unwrap();
    assert_eq!(queue[0].waiting_reason, Some(WaitingReason::NoRoomNow));
    scratch.close().await;
}

#[tokio::test]
async fn every_fact_is_read_as_it_was_written() {
    let scratch = ready("facts").await;
    let mut cell = Cell::new(&scratch).await;
    let one = cell.request("t").await; // 1, 2
    let at = Millis(T0_MS);
    let facts: [Event; 6] = [
        AllocationNominated {
            allocation: one,
            node: token("n1"),
            incarnation: 1,
        }
        .into(),
        placed(one).into(),
        preempted(one, Some(one)).into(),
        AllocationRequeued {
            allocation: one,
            cause: EndCause::Failed,
            at,
            not_before: Millis(T0_MS + 60_000),
            exit: None,
        }
        .into(),
        placed(one).into(),
        AllocationEnded {
            allocation: one,
            cause: EndCause::DependencyFailed,
            at: moment(Lsn(100)),
            exit: None,
        }
        .into(),
    ];
    for fact in &facts {
        cell.say(fact.clone()).await;
    }
    let history = cell.explain(one, None).await.history;
    let expected = (3..).zip(facts).map(|(lsn, fact)| {
        let (lsn, index) = (Lsn(lsn), 2);
        Entry::new(Position { lsn, index }, moment(lsn), fact).unwrap()
    });
    assert_eq!(history, expected.collect::<Vec<_>>());
    scratch.close().await;
}

#[tokio::test]
async fn a_preemption_says_what_it_freed_and_names_no_other_tenants_allocation() {
    let scratch = ready("preempted").await;
    let mut cell = Cell::new(&scratch).await;
    let victim = cell.request("t").await;
    let other = cell.request("other").await;
    cell.pending_group(7, other, 5).await;
    cell.place(victim).await;
    let grace_until = cell.preempt(victim, Some(other)).await;
    let found = cell.preemptions("t").await;
    assert_eq!(
        (found.len(), found[0].over, found[0].cpu_milli),
        (1, None, None)
    );
    assert_eq!((found[0].by, found[0].grace_until), (None, grace_until));
    assert!(cell.preemptions("other").await.is_empty());

    let stopped = Millis(T0_MS + 1);
    let requeued = Event::AllocationRequeued(AllocationRequeued {
        allocation: victim,
        cause: EndCause::Preempted,
        at: stopped,
        not_before: stopped,
        exit: None,
    });
    cell.say(requeued).await;
    let found = cell.preemptions("t").await;
    let over = Over {
        outcome: Outcome::Stopped,
        at: stopped,
        requeued: true,
    };
    assert_eq!((found.len(), found[0].over), (1, Some(over)));
    let freed = (
        found[0].cpu_milli,
        found[0].memory_bytes,
        found[0].gpu_milli,
    );
    assert_eq!(freed, (Some(4000), Some(1 << 30), Some(0)));

    cell.wait(victim, 7).await;
    let explanation = cell.explain(victim, None).await;
    let preempted = |entry: &Entry| match entry.said() {
        Said::AllocationPreempted(fact) => Some(fact.by),
        _ => None,
    };
    let found = explanation.history.iter().find_map(preempted);
    assert_eq!(found, Some(None));
    let head = explanation
        .pending_group
        .and_then(|pending_group| pending_group.names());
    assert_eq!(head, Some(ANOTHER_TENANTS));
    let theirs = store::explain(&cell.pool, &token("t"), other.id(CELL), None, LATER).await;
    assert_eq!(theirs.unwrap(), None);
    scratch.close().await;
}

#[tokio::test]
async fn an_explanation_has_all_that_the_allocation_starts_after() {
    let scratch = ready("dependencies").await;
    let mut cell = Cell::new(&scratch).await;
    let queued = cell.request("t").await;
    cell.pending_group(7, queued, 1).await;
    cell.wait(queued, 7).await;
    let placed = cell.request("t").await;
    cell.place(placed).await;
    let others = cell.request("other").await;
    let over = cell.request("t").await;
    let ended = |allocation| AllocationEnded {
        allocation,
        cause: EndCause::Cancelled,
        at: moment(Lsn(100)),
        exit: None,
    };
    cell.say(ended(over).into()).await;
    let on = [placed, over, others, queued];
    let after = cell.request_after("t", &on).await;
    let check = async |cell: &Cell, as_of, expected: &[(AllocationNo, v1::AllocationState)]| {
        let reply = cell.answer(after, as_of).await;
        let told = |view: &AllocationView| (view.allocation_id.clone(), view.state());
        let told: Vec<_> = reply.depends_on.iter().map(told).collect();
        let expected = expected.iter();
        let expected = expected.map(|(one, state)| (one.id(CELL).to_string(), *state));
        assert_eq!(told, expected.collect::<Vec<_>>());
        reply
    };
    // What it waits for was not decided yet.
    check(&cell, None, &[]).await;
    let waiting = |rule| QuotaWaiting {
        allocation: after,
        refusal: Refusal::new(rule, "depends_on"),
    };
    cell.say(waiting(Rule::DependencyPending).into()).await;
    let all = [
        (placed, v1::AllocationState::Placed),
        (over, v1::AllocationState::Ended),
        (queued, v1::AllocationState::Waiting),
    ];
    let reply = check(&cell, None, &all).await;
    assert!(reply.depends_on.iter().all(|view| view.lsn == cell.lsn));
    let why = reply.depends_on[2].waiting.as_ref();
    assert_eq!(
        why.map(|why| why.reason()),
        Some(v1::WaitingReason::NoRoomNow)
    );
    check(&cell, Some(cell.lsn), &[]).await;
    cell.say(waiting(Rule::QuotaExceeded).into()).await;
    check(&cell, None, &[]).await;
    let failed = AllocationEnded {
        cause: EndCause::DependencyFailed,
        ..ended(after)
    };
    cell.say(failed.into()).await;
    check(&cell, None, &all).await;
    scratch.close().await;
}

#[tokio::test]
async fn what_was_said_long_ago_is_forgotten() {
    let scratch = ready("forgotten").await;
    let mut cell = Cell::new(&scratch).await;
    let one = cell.request("t").await; // 1, 2
    cell.pending_group(7, one, 1).await; // 3
    cell.wait(one, 7).await; // 4
    cell.pending_group(7, one, 2).await; // 5
    assert_eq!(
        kinds(&cell.explain(one, None).await.history),
        [(4, "allocation_waiting")]
    );
    let counts = async |pool: &PgPool| -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM explanations");
        count.fetch_one(pool).await.unwrap()
    };
    assert_eq!(counts(&cell.pool).await, 3);
    let nominated = Event::AllocationNominated(AllocationNominated {
        allocation: one,
        node: token("n1"),
        incarnation: 1,
    });
    // All three are too old by now; two go for each that comes.
    cell.say_after(store::RETENTION_MS + 1000, nominated).await;
    assert_eq!(counts(&cell.pool).await, 2);
    scratch.close().await;
}
