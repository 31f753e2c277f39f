use super::*;
use std::fmt::Write;
use vocab::fact::{
    AllocationEnded, AllocationNominated, AllocationPlaced, AllocationPreempted,
    AllocationReprioritised, AllocationRequested, AllocationRequeued, AllocationStarted,
    AllocationStopping, AllocationWaiting, LeaseExpired, PendingGroupExplained, QueueSet,
    QuotaDenied, QuotaReclaimed, QuotaReleased, QuotaReserved, QuotaWaiting, ReservationDecided,
    ReservationSet, ResourceAsked, ResourceDecided, TenantSet,
};
use vocab::{
    AdminChange, AdvanceReservation, AllocationSpec, EndCause, Event, EventNo, Filter, LeaseNo,
    Lsn, Millis, Operation, PendingGroupNo, PlacementPolicy, PreemptionCause, QueueSettings,
    QuotaFlags, Refusal, ResourceAnswer, ResourceAsk, ResourceKind, Rule, WaitingReason,
};

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn operation() -> Operation {
    Operation {
        tenant: token("t"),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    }
}

fn admin(change: AdminChange, version: u64) -> Event {
    change.applied(operation(), version).into()
}

fn reservation(wanted: bool, version: u64) -> Event {
    let terms = AdvanceReservation {
        queue: token("q"),
        from: Millis(10),
        until: Millis(20),
        nodes: 1,
        selector: Vec::new(),
    };
    let change = AdminChange::Reservation(ReservationSet {
        reservation: token("r"),
        wanted: wanted.then_some(terms),
    });
    admin(change, version)
}

fn decided(version: u64, nodes: &[&str]) -> Event {
    Event::ReservationDecided(ReservationDecided {
        reservation: token("r"),
        version,
        nodes: nodes.iter().map(|node| token(node)).collect(),
    })
}

/// A fact, about allocation 1 where it is about one.
fn event(step: &str) -> Event {
    let allocation = AllocationNo(1);
    let waiting = |reason, pending_group: Option<u64>| {
        Event::AllocationWaiting(AllocationWaiting {
            allocation,
            reason,
            pending_group: pending_group.map(PendingGroupNo),
        })
    };
    let ended = |cause| {
        Event::AllocationEnded(AllocationEnded {
            allocation,
            cause,
            at: Millis(200),
            exit: None,
        })
    };
    let requeued = |cause, not_before| {
        Event::AllocationRequeued(AllocationRequeued {
            allocation,
            cause,
            at: Millis(150),
            not_before: Millis(not_before),
            exit: None,
        })
    };
    let asked = |ask| {
        Event::ResourceAsked(ResourceAsked {
            operation: operation(),
            slot: 3,
            by_requests: true,
            ask,
        })
    };
    // All requests of these tests have this number.
    let request = EventNo(1);
    let decided_of = |answer| Event::ResourceDecided(ResourceDecided { request, answer });
    match step {
        "requested" => Event::AllocationRequested(AllocationRequested {
            operation: operation(),
            spec: AllocationSpec::plain(token("j"), 7, 8),
        }),
        "reserved" => Event::QuotaReserved(QuotaReserved {
            allocation,
            flags: QuotaFlags::default(),
            models: None,
        }),
        "reserved by a loan" => Event::QuotaReserved(QuotaReserved {
            allocation,
            flags: QuotaFlags::SOFT.with(QuotaFlags::BORROWED),
            models: None,
        }),
        "waits for quota" => Event::QuotaWaiting(QuotaWaiting {
            allocation,
            refusal: Refusal::over(Rule::QuotaExceeded, "t cpu", 5, 7),
        }),
        "taken back" => Event::QuotaReclaimed(QuotaReclaimed {
            allocation,
            by: Some(AllocationNo(9)),
        }),
        "without quota" => waiting(WaitingReason::Quota, None),
        "reprioritised" => Event::AllocationReprioritised(AllocationReprioritised {
            allocation,
            priority: -4,
        }),
        "create" => asked(ResourceAsk::Create {
            resource: token("a"),
        }),
        "created" => decided_of(ResourceAnswer::Created),
        "acquire" => asked(ResourceAsk::Acquire {
            resources: vec![token("a")],
            holder: token("ann"),
            ttl_slots: 2,
        }),
        "granted it" => decided_of(ResourceAnswer::Granted { deadline: 5 }),
        "release" => asked(ResourceAsk::Release {
            lease: LeaseNo(1),
            holder: token("ann"),
            fencing_token: 1,
        }),
        "given back" => decided_of(ResourceAnswer::Released {
            fencing_token: 2,
            retire_after: 9,
        }),
        "refused it" => decided_of(ResourceAnswer::Refused(Refusal::new(
            Rule::AlreadyExists,
            "resource",
        ))),
        "expired" => Event::LeaseExpired(LeaseExpired {
            tenant: token("t"),
            lease: LeaseNo(1),
            slot: 5,
            fencing_token: 2,
            retire_after: 9,
        }),
        "denied" => Event::QuotaDenied(QuotaDenied {
            allocation,
            refusal: Refusal::new(Rule::QuotaExceeded, "cpu"),
        }),
        "waiting" => waiting(WaitingReason::NoRoomNow, Some(4)),
        "depends" => waiting(WaitingReason::Dependency, None),
        "pauses" => waiting(WaitingReason::Backoff, None),
        "back" => waiting(WaitingReason::FairShare, None),
        "still nominated" => waiting(WaitingReason::Nominated, None),
        "nominated" => Event::AllocationNominated(AllocationNominated {
            allocation,
            node: token("n"),
            incarnation: 1,
        }),
        "placed" => Event::AllocationPlaced(AllocationPlaced {
            allocation,
            node: token("n"),
            incarnation: 1,
            gpus: Default::default(),
            zones: 0,
            policy: PlacementPolicy::Default,
            candidates: Default::default(),
        }),
        "started" => Event::AllocationStarted(AllocationStarted {
            allocation,
            at: Millis(100),
        }),
        "preempted" => Event::AllocationPreempted(AllocationPreempted {
            allocation,
            cause: PreemptionCause::FairShare,
            by: Some(AllocationNo(9)),
            grace_until: Millis(99),
        }),
        "stopping" => Event::AllocationStopping(AllocationStopping {
            allocation,
            time_limit: false,
        }),
        "requeued" => requeued(EndCause::Preempted, 0),
        "lost" => requeued(EndCause::NodeLost, 0),
        "failed" => requeued(EndCause::Failed, 1000),
        "ended" => ended(EndCause::Finished),
        "cancelled" => ended(EndCause::Cancelled),
        "released" => Event::QuotaReleased(QuotaReleased { allocation }),
        "explained" => Event::PendingGroupExplained(PendingGroupExplained {
            pending_group: PendingGroupNo(4),
            queue: token("q"),
            reason: WaitingReason::NoRoomNow,
            head: allocation,
            counts: vec![(Filter::Cpu, 731)],
            shortfall: vec![(ResourceKind::Cpu, 2000)],
            share_ppm: 1,
            fair_share_ppm: 2,
        }),
        "queue" => admin(
            AdminChange::Queue(QueueSet {
                queue: token("q"),
                closed: false,
                settings: QueueSettings::default(),
            }),
            3,
        ),
        "tenant" => admin(
            AdminChange::Tenant(TenantSet {
                tenant: token("t"),
                closed: false,
                teams: Vec::new(),
                settings: vocab::TenantSettings::default(),
            }),
            1,
        ),
        "asked" => reservation(true, 1),
        "asked anew" => reservation(true, 2),
        "withdrawn" => reservation(false, 2),
        "granted" => decided(1, &["n"]),
        "refused" => decided(1, &[]),
        "refused anew" => decided(2, &[]),
        other => panic!("{other}"),
    }
}

fn state(row: &AllocationRow) -> String {
    let mut text = row.state.stage().name().to_owned();
    if let Some(refusal) = row.state.refusal() {
        write!(text, " {}", refusal.rule.name()).unwrap();
    }
    if row.spec.common().priority != 0 {
        write!(text, " at {}", row.spec.common().priority).unwrap();
    }
    if let AllocationState::Queued {
        reason,
        pending_group,
        since,
        not_before,
    } = &row.state
    {
        if let Some(reason) = reason {
            write!(text, " {}", reason.name()).unwrap();
        }
        if let Some(pending_group) = pending_group {
            write!(text, " pending_group {}", pending_group.0).unwrap();
        }
        write!(text, " since {}", since.0).unwrap();
        if let Some(until) = not_before {
            write!(text, " until {}", until.0).unwrap();
        }
    }
    if let Some(place) = row.state.place() {
        write!(text, " placed {}", place.placed_at.0).unwrap();
        if let Some(at) = place.started_at {
            write!(text, " started {}", at.0).unwrap();
        }
    }
    if let Some(preemption) = row.state.preemption() {
        write!(text, " preempted {}", preemption.position.lsn.0).unwrap();
    }
    if row.quota_flags != QuotaFlags::default() {
        write!(text, " flags {}", row.quota_flags.0).unwrap();
    }
    if let Some(cause) = row.last_cause {
        write!(text, " again {} {}", row.attempts, cause.name()).unwrap();
    }
    text
}

fn changes(projection: &mut WarmProjection, steps: &str) -> Result<Vec<Change>, IllegalEvent> {
    let mut out = Vec::new();
    for (i, step) in steps.split(", ").enumerate() {
        let at = At {
            lsn: Lsn(i as u64 + 1),
            index: 0,
            no: EventNo(1),
            now: Millis(i as i64 + 1),
        };
        let mut facts = Vec::new();
        projection.project_event(&at, &event(step), &mut facts)?;
        projection.end_batch(&mut out);
        out.append(&mut facts);
    }
    Ok(out)
}

/// Steps, one millisecond apart; then the state and the step that led to it.
fn check_since(steps: &str, expected: &str) {
    let found = changes(&mut WarmProjection::default(), steps).unwrap();
    let row = found.iter().rev().find_map(|change| match change {
        Change::Allocation(written) => Some(&written.row),
        _ => None,
    });
    let row = row.expect("all steps are of one allocation");
    let found = format!("{} since {}", row.state.stage().name(), row.since.0);
    assert_eq!(found, expected, "{steps}");
}

/// Steps, one millisecond apart; then the allocation's last row, and whether it is still held.
fn check(steps: &str, expected: &str) {
    let mut projection = WarmProjection::default();
    let found = match changes(&mut projection, steps) {
        Err(error) => format!("illegal when {}", error.state),
        Ok(changes) => {
            let rows = changes.iter().rev().find_map(|change| match change {
                Change::Allocation(written) => Some(state(&written.row)),
                Change::Preemption(_)
                | Change::Entry(_)
                | Change::Setting(_)
                | Change::Node(_)
                | Change::NodeGone(_)
                | Change::Resource(_)
                | Change::Held(_)
                | Change::Space(_)
                | Change::Count(_) => None,
            });
            let live = if projection.live.is_empty() {
                ""
            } else {
                ", live"
            };
            rows.unwrap_or_default() + live
        }
    };
    assert_eq!(found, expected, "{steps}");
}

/// What the rows of a batch make of all counts.
fn count(counts: &mut BTreeMap<CountKey, Count>, changes: &[Change]) {
    for change in changes {
        if let Change::Count(row) = change {
            let before = match row.count.allocations {
                0 => counts.remove(&row.key),
                _ => counts.insert(row.key.clone(), row.count),
            };
            assert_ne!(before.unwrap_or_default(), row.count, "nothing has changed");
        }
    }
}

/// The counts by a look at all that is live.
fn counted(projection: &WarmProjection) -> BTreeMap<CountKey, Count> {
    let mut counts: BTreeMap<CountKey, Count> = BTreeMap::new();
    for (_, Live { row, .. }) in projection.live.iter() {
        let (what, node) = match &row.state {
            AllocationState::Queued {
                reason,
                pending_group,
                ..
            } => {
                let waiting = Counted::Waiting {
                    pending_group: *pending_group,
                    reason: *reason,
                };
                (Some(waiting), None)
            }
            AllocationState::Nominated { .. } => {
                let waiting = Counted::Waiting {
                    pending_group: None,
                    reason: Some(WaitingReason::Nominated),
                };
                (Some(waiting), None)
            }
            AllocationState::Requested {
                refusal: Some(refusal),
            } => {
                let waiting = Counted::Waiting {
                    pending_group: None,
                    reason: Some(refusal.waiting_reason()),
                };
                (Some(waiting), None)
            }
            AllocationState::Held { place, stop } => {
                let held = match stop {
                    None | Some(Stop::ForGood) => Some(Counted::Held),
                    Some(Stop::Preempted { .. }) => None,
                };
                (held, Some((place.node.clone(), stop.is_some())))
            }
            _ => continue,
        };
        let queue = token("t");
        let queue = what.map(|what| CountKey::Queue { queue, what });
        let node = node.map(|(node, stopping)| CountKey::Node { node, stopping });
        for key in queue.into_iter().chain(node) {
            let count = counts.entry(key).or_default();
            count.allocations += 1;
            for (sum, kind) in count.amounts.iter_mut().zip(ResourceKind::ALL) {
                *sum += u128::from(row.spec.common().amount(kind));
            }
        }
    }
    counts
}

/// Batches of steps, with ` + ` between those of one batch; then what each writes of the allocation. What is counted
/// follows what is live, whether the projection goes on from a snapshot or not.
fn check_batches(batches: &str, expected: &str) {
    for restored in [false, true] {
        check_batches_of(batches, expected, restored);
    }
}

fn check_batches_of(batches: &str, expected: &str, restored: bool) {
    let mut projection = WarmProjection::default();
    let mut counts = BTreeMap::new();
    let (mut words, mut lsn) = (Vec::new(), 0);
    for batch in batches.split(", ") {
        if restored {
            let snapshot = postcard::to_stdvec(&projection).unwrap();
            projection = postcard::from_bytes(&snapshot).unwrap();
        }
        let mut out = Vec::new();
        for step in batch.split(" + ") {
            lsn += 1;
            let at = At {
                lsn: Lsn(lsn),
                index: 0,
                no: EventNo(1),
                now: Millis(lsn as i64),
            };
            projection
                .project_event(&at, &event(step), &mut out)
                .unwrap();
        }
        projection.end_batch(&mut out);
        count(&mut counts, &out);
        assert_eq!(counts, counted(&projection), "{batch} of {batches}");
        for change in out {
            if let Change::Allocation(written) = change {
                let mut text = written.row.state.stage().name().to_owned();
                for (flag, word) in [
                    (written.is_first(), " first"),
                    (written.waited(), " waited"),
                ] {
                    text += if flag { word } else { "" };
                }
                let told = Entries::read(&written.told.concat()).unwrap();
                words.extend(
                    [text]
                        .into_iter()
                        .chain(told.iter().map(|it| it.kind().into())),
                );
            }
        }
    }
    assert_eq!(words.join(", "), expected, "{batches}");
}

#[test]
fn a_batch_writes_a_row_once_and_says_whether_it_was_in_the_queue() {
    check_batches(
        "requested + reserved + placed + ended",
        "ended first, allocation_placed, allocation_ended",
    );
    check_batches(
        "requested, reserved, placed, ended",
        "requested first, queued, placed waited, allocation_placed, ended, allocation_ended",
    );
    check_batches(
        "requested + reserved, placed + ended",
        "queued first, ended waited, allocation_placed, allocation_ended",
    );
    check_batches(
        "requested + reserved, nominated, placed",
        "queued first, nominated waited, placed waited, allocation_placed",
    );
}

#[test]
fn a_queue_counts_what_waits_and_what_it_holds_and_a_node_what_is_on_it() {
    check_batches(
        "requested, waits for quota, reserved, waiting, placed + started, preempted, requeued, depends, nominated, placed, ended",
        "requested first, requested, queued waited, queued waited, running waited, allocation_placed, stopping, queued, \
         queued waited, nominated waited, placed waited, ended, allocation_ended",
    );
}

#[test]
fn a_fact_is_told_as_the_entry_that_it_makes() {
    let at = At {
        lsn: Lsn(300),
        index: 2,
        no: EventNo(7),
        now: Millis(1_700_000_000_000),
    };
    let mut teller = Teller::default();
    for step in ["placed", "ended", "denied"] {
        let fact = event(step);
        let mut expected = Vec::new();
        let told = teller.tell(&at, &fact);
        let entry = Entry::new(Position::of(&at), at.now, fact).unwrap();
        wire::Message::append_field(&entry, 1, &mut expected);
        assert_eq!(told, expected, "{step}");
    }
}

/// A fact, with its reason.
fn said(entry: &Entry, lsn: Lsn) -> String {
    assert_eq!(entry.position.lsn, lsn);
    let reason = entry.said().reason();
    format!(
        "{}{}",
        entry.kind(),
        reason.map_or(String::new(), |reason| format!(" {reason}"))
    )
}

/// What the last step writes.
fn check_last(steps: &str, expected: &str) {
    let lsn = Lsn(steps.split(", ").count() as u64);
    let mut projection = WarmProjection::default();
    let before = steps.rsplit_once(", ").map_or(0, |(before, _)| {
        changes(&mut WarmProjection::default(), before)
            .unwrap()
            .len()
    });
    let changes = changes(&mut projection, steps).unwrap();
    let told = changes[before..].iter();
    let told = told.filter(|change| !matches!(change, Change::Count(_)));
    let found = told.map(|change| match change {
        Change::Allocation(written) => {
            let mut text = written.row.state.stage().name().to_owned();
            for entry in &Entries::read(&written.told.concat()).unwrap() {
                write!(text, ", told {}", said(entry, lsn)).unwrap();
            }
            text
        }
        Change::Preemption(row) => {
            let over = row.over.map_or("stopping".to_owned(), |over| {
                let again = if over.requeued { " again" } else { "" };
                format!("{} {}{again}", over.outcome.name(), over.at.0)
            });
            let preemption = &row.preemption;
            let position = preemption.position.lsn.0;
            format!(
                "preemption {position} {} {over} {:?}",
                preemption.cause.name(),
                row.amounts
            )
        }
        Change::Entry(entry) => format!("entry {}", said(entry, lsn)),
        Change::Resource(row) => {
            let holder = row
                .lease
                .map_or(String::new(), |no| format!(" of {}", no.0));
            format!("resource {} v{}{holder}", row.resource, row.version)
        }
        Change::Held(row) => {
            let (no, state, token) = (row.lease.0, row.state.name(), row.fencing_token);
            let through = row
                .retire_after
                .map_or(String::new(), |slot| format!(" through {slot}"));
            format!(
                "lease {no} {state} by {} token {token}{through}",
                row.holder
            )
        }
        Change::Space(row) => format!("{} at slot {}", row.tenant, row.slot),
        Change::Node(row) => format!("node {}", row.node),
        Change::NodeGone(node) => format!("no node {node}"),
        Change::Count(_) => panic!("left out before"),
        Change::Setting(row) => match &**row {
            SettingRow::TenantWeight {
                tenant,
                weight_milli,
                version,
                ..
            } => format!("weight {tenant} {weight_milli} {version}"),
            SettingRow::Reservation(row) => format!("reservation {}", row.state.name()),
            SettingRow::Queue { queue, version, .. } => {
                format!("queue {} {version}", queue.as_str())
            }
            other => panic!("{other:?}"),
        },
    });
    assert_eq!(found.collect::<Vec<_>>().join(", "), expected, "{steps}");
}

#[test]
fn an_allocation_lives_and_ends() {
    check("requested", "requested, live");
    check("requested, reserved", "queued since 2, live");
    check("requested, denied", "denied quota_exceeded");
    check(
        "requested, reserved, depends, waiting",
        "queued no_room_now pending_group 4 since 4, live",
    );
    check("requested, reserved, placed", "placed placed 3, live");
    check(
        "requested, reserved, placed, started",
        "running placed 3 started 100, live",
    );
    check(
        "requested, reserved, placed, started, stopping, cancelled, released",
        "ended placed 3 started 100",
    );
    check(
        "requested, reserved, placed, stopping, started",
        "stopping placed 3 started 100, live",
    );
    check("requested, reserved, placed, ended", "ended placed 3");
}

#[test]
fn a_nomination_ends_in_a_place_or_back_in_line() {
    check("requested, reserved, nominated", "nominated, live");
    check(
        "requested, reserved, nominated, still nominated",
        "nominated, live",
    );
    check(
        "requested, reserved, nominated, placed",
        "placed placed 4, live",
    );
    check(
        "requested, reserved, nominated, waiting",
        "queued no_room_now pending_group 4 since 4, live",
    );
    check("requested, reserved, nominated, cancelled", "ended");
}

#[test]
fn a_run_that_is_over_is_queued_again() {
    check(
        "requested, reserved, placed, started, lost",
        "queued since 5 again 1 node_lost, live",
    );
    check(
        "requested, reserved, placed, lost, placed, lost, placed",
        "placed placed 7 again 2 node_lost, live",
    );
    check(
        "requested, reserved, placed, failed",
        "queued backoff since 4 until 1000 again 1 failed, live",
    );
    check(
        "requested, reserved, placed, failed, pauses",
        "queued backoff since 5 until 1000 again 1 failed, live",
    );
    check(
        "requested, reserved, placed, failed, back",
        "queued fair_share since 5 again 1 failed, live",
    );
    check(
        "requested, reserved, placed, preempted, stopping, requeued, ended",
        "ended again 1 preempted",
    );
}

#[test]
fn a_row_says_since_when_its_state_has_this_name() {
    check_since("requested, waits for quota", "requested since 1");
    check_since("requested, reserved, waiting", "queued since 2");
    check_since(
        "requested, reserved, placed, started, reprioritised",
        "running since 4",
    );
    check_since(
        "requested, reserved, placed, preempted, stopping",
        "stopping since 4",
    );
    check_since(
        "requested, reserved, placed, started, lost",
        "queued since 5",
    );
    check_since(
        "requested, reserved, placed, started, ended",
        "ended since 5",
    );
}

#[test]
fn a_preemption_is_a_row_until_the_run_is_over() {
    let begun = "requested, reserved, placed, preempted";
    check(begun, "stopping placed 3 preempted 4, live");
    check_last(
        begun,
        "stopping, preemption 4 fair_share stopping [7, 8, 0], entry allocation_preempted fair_share",
    );
    let told = &format!("{begun}, stopping");
    check(told, "stopping placed 3 preempted 4, live");
    check_last(told, "stopping");
    check_last(
        &format!("{told}, requeued"),
        "queued, preemption 4 fair_share stopped 150 again [7, 8, 0], entry allocation_requeued preempted",
    );
    check_last(
        &format!("{told}, lost"),
        "queued, preemption 4 fair_share node_lost 150 again [7, 8, 0], entry allocation_requeued node_lost",
    );
    check_last(
        &format!("{told}, cancelled"),
        "preemption 4 fair_share stopped 200 [7, 8, 0], ended, told allocation_ended cancelled",
    );
}

#[test]
fn places_that_were_lost_stand_in_the_row_with_what_became_of_them() {
    let past = |steps: &str| {
        let found = changes(&mut WarmProjection::default(), steps).unwrap();
        let row = found.into_iter().rev().find_map(|change| match change {
            Change::Allocation(written) => Some(written.row),
            _ => None,
        });
        row.expect("all steps are of one allocation").past
    };
    let begun = "requested, reserved, placed";
    assert_eq!(past(begun), []);
    // The one that it has at its end is no past one.
    assert_eq!(past(&format!("{begun}, started, ended")), []);
    let attempt = |cause, placed_at, started_at: Option<i64>| Attempt {
        node: token("n"),
        gpus: Default::default(),
        placed_at: Millis(placed_at),
        started_at: started_at.map(Millis),
        ended_at: Millis(150),
        cause,
        exit: None,
    };
    let twice = format!("{begun}, started, failed, placed, preempted, stopping, requeued, placed");
    let expected = [
        attempt(EndCause::Failed, 3, Some(100)),
        attempt(EndCause::Preempted, 6, None),
    ];
    assert_eq!(past(&twice), expected);
    let again = ", lost, placed".repeat(AllocationRow::PAST_MAX + 8);
    let many = past(&format!("{begun}{again}"));
    // The first, at 3, and seven more are forgotten.
    assert_eq!(many.len(), AllocationRow::PAST_MAX);
    assert_eq!(many[0].placed_at, Millis(3 + 8 * 2));
}

#[test]
fn a_preemption_tells_both_priorities_as_they_were() {
    let mut projection = WarmProjection::default();
    let at = At {
        lsn: Lsn(1),
        index: 0,
        no: EventNo(9),
        now: Millis(1),
    };
    let mut other = event("requested");
    if let Event::AllocationRequested(fact) = &mut other {
        fact.spec.priority = 70;
    }
    projection
        .project_event(&at, &other, &mut Vec::new())
        .unwrap();
    let steps = "requested, reserved, placed, preempted, reprioritised, stopping, requeued";
    let found = changes(&mut projection, steps).unwrap();
    let told: Vec<_> = found
        .iter()
        .filter_map(|change| match change {
            Change::Preemption(row) => {
                let preemption = &row.preemption;
                Some((preemption.priority, preemption.by_priority))
            }
            _ => None,
        })
        .collect();
    assert_eq!(told, [(0, Some(70)), (0, Some(70))]);
}

#[test]
fn what_was_decided_is_an_entry() {
    check_last("requested, reserved", "queued");
    check_last(
        "requested, reserved, waiting",
        "queued, entry allocation_waiting no_room_now",
    );
    check_last(
        "requested, reserved, nominated",
        "nominated, entry allocation_nominated",
    );
    check_last(
        "requested, reserved, placed",
        "placed, told allocation_placed",
    );
    check_last("requested, reserved, placed, started", "running");
    check_last("requested, reserved, placed, stopping", "stopping");
    check_last(
        "requested, reserved, placed, ended",
        "ended, told allocation_ended finished",
    );
    check_last("requested, denied, ended", "");
    check_last("explained", "entry pending_group_explained no_room_now");
}

#[test]
fn quota_is_waited_for_and_may_be_taken_back() {
    check(
        "requested, waits for quota",
        "requested quota_exceeded, live",
    );
    check(
        "requested, waits for quota, reserved",
        "queued since 3, live",
    );
    check(
        "requested, waits for quota, denied",
        "denied quota_exceeded",
    );
    check("requested, waits for quota, cancelled", "ended");
    check(
        "requested, reserved, waiting, taken back",
        "queued no_room_now pending_group 4 since 3, live",
    );
    check(
        "requested, reserved, waiting, taken back, without quota",
        "requested, live",
    );
    check(
        "requested, reserved, nominated, taken back, without quota, waits for quota",
        "requested quota_exceeded, live",
    );
    check(
        "requested, reserved, placed, taken back, preempted, stopping, requeued, without quota, reserved",
        "queued since 9 again 1 preempted, live",
    );
    check(
        "requested, reserved by a loan",
        "queued since 2 flags 5, live",
    );
    check(
        "requested, reserved by a loan, taken back",
        "queued since 2, live",
    );
    check(
        "requested, reserved by a loan, without quota",
        "requested, live",
    );
    check("requested, reserved by a loan, cancelled", "ended flags 5");
    check_last(
        "requested, waits for quota",
        "requested, entry quota_waiting quota_exceeded",
    );
    check_last(
        "requested, denied",
        "denied, told quota_denied quota_exceeded",
    );
    check_last(
        "requested, reserved, placed, taken back",
        "placed, entry quota_reclaimed",
    );
    check_last(
        "requested, reserved, without quota",
        "requested, entry allocation_waiting quota",
    );
    // What has ended meanwhile is nobody's matter any more.
    check_last("requested, cancelled, taken back", "");
    check_last("requested, cancelled, waits for quota", "");
    check(
        "requested, reserved, placed, without quota",
        "illegal when placed",
    );
    // What counts by model gives its quota up by itself, before quota hears of it.
    check(
        "requested, reserved, placed, preempted, stopping, requeued, without quota, taken back, reserved",
        "queued since 9 again 1 preempted, live",
    );
    check(
        "requested, reserved, waits for quota",
        "illegal when queued",
    );
}

#[test]
fn a_priority_is_changed_wherever_it_stands() {
    check("requested, reprioritised", "requested at -4, live");
    check(
        "requested, reserved, waiting, reprioritised",
        "queued at -4 no_room_now pending_group 4 since 3, live",
    );
    check(
        "requested, reserved, placed, reprioritised, started",
        "running at -4 placed 3 started 100, live",
    );
    check_last(
        "requested, reserved, reprioritised",
        "queued, entry allocation_reprioritised",
    );
    check_last("requested, denied, reprioritised", "");
}

#[test]
fn named_resources_are_rows() {
    check_last("create, created", "resource a v0, t at slot 3");
    check_last("create, refused it", "t at slot 3");
    let granted = "create, created, acquire, granted it";
    check_last(
        granted,
        "resource a v1 of 1, lease 1 granted by ann token 1, t at slot 3",
    );
    check_last(
        &format!("{granted}, release, given back"),
        "resource a v2, lease 1 released by ann token 2 through 9, t at slot 3",
    );
    check_last(
        &format!("{granted}, expired"),
        "resource a v2, lease 1 expired by ann token 2 through 9, t at slot 5",
    );
    check("created", "illegal when another request is next");
    check(
        &format!("{granted}, expired, expired"),
        "illegal when the lease has ended",
    );
}

#[test]
fn settings_are_rows() {
    check_last("queue", "queue q 3");
    check_last("tenant", "weight t 1000 1");
    check_last("asked", "reservation asked");
    check_last("asked, granted", "reservation granted");
    check_last("asked, refused", "reservation refused");
    check_last("asked, granted, refused", "reservation over");
    check_last("asked, granted, withdrawn", "reservation withdrawn");
    check_last("asked, granted, withdrawn, refused anew", "");
    check_last("asked, asked anew, granted", "");
    check_last("withdrawn", "");
    check_last("withdrawn, refused anew", "");
    check("granted", "illegal when no such reservation");
}

#[test]
fn quota_and_cancel_may_cross() {
    check("requested, cancelled", "ended");
    check("requested, cancelled, reserved, released", "ended");
    check("requested, cancelled, denied", "ended");
    check("requested, denied, cancelled", "denied quota_exceeded");
    check("requested, reserved, cancelled", "ended");
}

#[test]
fn what_cannot_be_is_refused() {
    check("placed", "illegal when not live");
    check("requested, placed", "illegal when requested");
    check("requested, waiting", "illegal when requested");
    check("requested, reserved, reserved", "illegal when queued");
    check("requested, reserved, started", "illegal when queued");
    check("requested, reserved, requeued", "illegal when queued");
    check("requested, reserved, preempted", "illegal when queued");
    check(
        "requested, reserved, nominated, nominated",
        "illegal when nominated",
    );
    check(
        "requested, reserved, nominated, started",
        "illegal when nominated",
    );
    check("requested, reserved, placed, placed", "illegal when placed");
    check(
        "requested, reserved, placed, waiting",
        "illegal when placed",
    );
    check(
        "requested, reserved, placed, nominated",
        "illegal when placed",
    );
    check(
        "requested, reserved, placed, started, started",
        "illegal when running",
    );
    check(
        "requested, reserved, placed, stopping, stopping",
        "illegal when stopping",
    );
    check(
        "requested, reserved, placed, stopping, preempted",
        "illegal when stopping",
    );
    check(
        "requested, reserved, placed, preempted, stopping, stopping",
        "illegal when stopping",
    );
    check("requested, ended, started", "illegal when not live");
}
