//! Requests as bytes.

use super::*;
use crate::feed::{FeedItem, FeedKind, FeedPosition, Outcome};
use crate::operation::{OutcomeKind, SubmitState, Waiting};
use admission_rules::{
    Admission, ChangeRequest, Config, DependencyRequest, RequirementRequest, SpreadRequest,
};
use ledger::{Decider, Draft};
use prost::Message as _;
use schemas::ToProst;
use schemas::v1::{self, request};
use schemas::v1::{outcome::Result as Reply, submitted::State as Stands, tenant_event::Kind};
use vocab::{
    AllocationNo, AllocationSpec, CellNo, EncodedSpecs, EndCause, Event, EventNo, GpuShare,
    GpuShares, LeaseNo, Lsn, Millis, PreemptionCause, RunExit, RunExitReason, RunUsage,
    WaitingReason,
};
use wire::Open;

fn inbox(payload: Vec<u8>) -> InboxMessage {
    InboxMessage {
        seq: 1,
        sender: Token::new("team-a").unwrap(),
        reply_to: None,
        trace: None,
        by: None,
        reserved_header: false,
        payload: payload.into(),
    }
}

fn encoded(verb: request::Verb) -> Vec<u8> {
    let request = v1::Request {
        operation_id: "op".into(),
        verb: Some(verb),
    };
    request.encode_to_vec()
}

fn command(payload: Vec<u8>) -> Command {
    let mut read = Vec::new();
    commands(&inbox(payload), &mut read);
    read.remove(0)
}

fn read(verb: request::Verb) -> Verb {
    command(encoded(verb)).verb.unwrap()
}

/// What becomes of a request whose verb has number `field` and these bytes.
fn refused(field: u32, verb: &[u8]) -> Rule {
    let mut payload = vec![0x0a, 2, b'o', b'p'];
    prost::encoding::bytes::encode(field, &verb.to_vec(), &mut payload);
    command(payload).verb.unwrap_err().rule
}

#[test]
fn a_submit_is_read_as_it_was_written() {
    let requirement = v1::Requirement {
        label: "zone".into(),
        operator: 77,
        values: vec!["z1".into()],
    };
    let written = v1::Submit {
        queue: "research".into(),
        priority_class: "high".into(),
        extended: vec![v1::ExtendedRequest {
            name: "fpga".into(),
            amount: -1,
        }],
        rules: Some(v1::PlacementRules {
            selector: vec![requirement],
            spread: vec![v1::Spread {
                topology_key: "zone".into(),
                max_skew: 3,
            }],
            numa: -7,
            ..Default::default()
        }),
        gang: Some(v1::GangRequest {
            name: "g".into(),
            size: -2,
            min: 1,
            uniform_label: "rack".into(),
        }),
        depends_on: vec![v1::DependencyRequest {
            allocation_id: "x".into(),
            success: true,
            operation_id: "o".into(),
        }],
        retries: -3,
        never_requeue: true,
        run_time_ms: -4,
        ttl_ms: -5,
        time_limit_ms: -6,
        ..Default::default()
    };
    let Verb::Submit(request) = read(request::Verb::Submit(written.clone())) else {
        panic!("another verb");
    };
    let tried = read(request::Verb::TrySubmit(written));
    assert_eq!(tried, Verb::TrySubmit(request.clone()));
    assert_eq!(
        (request.queue.as_str(), request.priority_class.as_str()),
        ("research", "high")
    );
    assert_eq!(request.extended, [("fpga".into(), -1)]);
    let rules = request.rules.unwrap();
    let selector = RequirementRequest {
        label: "zone".into(),
        operator: Open::Unknown(77),
        values: vec!["z1".into()],
    };
    let spread = SpreadRequest {
        topology_key: "zone".into(),
        max_skew: 3,
    };
    assert_eq!(
        (rules.selector, rules.numa),
        (vec![selector], Open::Unknown(-7))
    );
    assert_eq!(rules.spread, [spread]);
    let gang = request.gang.unwrap();
    assert_eq!((gang.size, gang.min), (-2, 1));
    let dependency = DependencyRequest {
        allocation_id: "x".into(),
        success: true,
        operation_id: "o".into(),
    };
    assert_eq!(request.depends_on, [dependency]);
    assert_eq!(
        (request.retries, request.never_requeue, request.run_time_ms),
        (-3, true, -4)
    );
    assert_eq!((request.ttl_ms, request.time_limit_ms), (-5, -6));
}

#[test]
fn a_change_is_read_as_it_was_written() {
    let written = v1::SetScheduling {
        fair_share_preemption: Some(false),
        backoff_ms: Some(0),
        expected_version: Some(0),
        ..Default::default()
    };
    let Verb::Admin(ChangeRequest::SetScheduling(policy)) =
        read(request::Verb::SetScheduling(written))
    else {
        panic!("another change");
    };
    assert_eq!(policy.expected_version, Some(0));
    assert_eq!(policy.fair_share_preemption, Some(false));
    assert_eq!(policy.backoff_ms, Some(0));
    assert_eq!(policy.backoff_ms_max, None);
    let back = v1::SetReservation {
        reservation: "demo".into(),
        ..Default::default()
    };
    let expected = ChangeRequest::SetReservation {
        reservation: "demo".into(),
        wanted: None,
        expected_version: None,
    };
    let read = read(request::Verb::SetReservation(back));
    assert_eq!(read, Verb::Admin(expected));
}

#[test]
fn what_is_not_known_is_refused_as_a_whole() {
    // Field 99 of the verb, then of what is inside it.
    let unknown = [0x98, 0x06, 1];
    let inside = |field: u8| [vec![field << 3 | 2, 3], unknown.to_vec()].concat();
    let rules = {
        let inner = inside(12);
        [vec![0x62], vec![inner.len() as u8], inner].concat()
    };
    for (verb, bytes) in [
        (10, unknown.to_vec()),
        (10, inside(11)),
        (10, inside(12)),
        (10, inside(13)),
        (10, inside(14)),
        (10, rules),
        (33, unknown.to_vec()),
        (33, inside(4)),
        (34, unknown.to_vec()),
        (35, unknown.to_vec()),
        (36, unknown.to_vec()),
        (37, unknown.to_vec()),
        (37, inside(2)),
    ] {
        assert_eq!(
            refused(verb, &bytes),
            Rule::UnknownField,
            "{verb} {bytes:?}"
        );
    }
    assert_eq!(refused(60, &[]), Rule::UnknownVerb);
    assert_eq!(refused(10, &[0xff]), Rule::MalformedMessage);
}

#[test]
fn what_is_missing_is_refused_by_name() {
    let check = |payload: &[u8], id: Option<&str>, expected: (Rule, &str)| {
        let command = command(payload.to_vec());
        let refusal = command.verb.expect_err("it is refused");
        assert_eq!((refusal.rule, refusal.subject.as_str()), expected);
        let found = command.operation.operation_id;
        assert_eq!(found.as_ref().map(Token::as_str), id);
    };
    let op = [0x0a, 2, b'o', b'p'];
    let unknown = Rule::UnknownVerb;
    check(&op, Some("op"), (unknown, "verb"));
    // Neither an allocation nor a job set; then a batch in a batch.
    let no_target = [&op[..], &[0x72, 0]].concat();
    check(&no_target, Some("op"), (unknown, "target"));
    let batch = [&op[..], &[0x62, 0]].concat();
    let batch = [
        &[0x62, batch.len() as u8 + 2, 0x0a, batch.len() as u8],
        &*batch,
    ]
    .concat();
    check(&batch, Some("op"), (unknown, "verb"));
    let malformed = Rule::MalformedMessage;
    let not_utf8 = [&op[..], &[0x52, 3, 0x0a, 1, 0xff]].concat();
    check(&not_utf8, None, (malformed, "payload"));
    let twice = [&op[..], &[0x52, 2, 0x6a, 0], &[0x52, 0]].concat();
    check(&twice, None, (malformed, "payload"));
    check(&[0xff], None, (malformed, "payload"));
}

/// The slot is not part of what was asked; everything else is.
#[test]
fn the_same_request_in_another_slot_has_the_same_digest() {
    let digest = |resource: &str, slot| {
        let verb = request::Verb::CreateResource(v1::CreateResource {
            resource: resource.into(),
            slot,
        });
        let command = command(encoded(verb));
        let Ok(Verb::Resource(mut asked)) = command.verb else {
            panic!("another verb");
        };
        assert_eq!(*asked.slot(), slot);
        command.operation.digest
    };
    assert_eq!(digest("r", Some(1)), digest("r", Some(2)));
    assert_eq!(digest("r", Some(1)), digest("r", None));
    assert_ne!(digest("r", Some(1)), digest("s", Some(1)));
}

fn array(submit: v1::Submit, indexes: &[(u32, u32, u32)]) -> request::Verb {
    let range = |&(first, last, step): &(u32, u32, u32)| v1::IndexRange { first, last, step };
    request::Verb::SubmitArray(v1::SubmitArray {
        submit: Some(submit),
        indexes: indexes.iter().map(range).collect(),
    })
}

/// As they would have been sent one by one.
fn one_by_one(submit: &v1::Submit, indexes: impl Iterator<Item = u32>) -> Vec<Command> {
    let mut read = Vec::new();
    for index in indexes {
        let name = match submit.name.as_str() {
            "" => String::new(),
            name => format!("{name}-{index}"),
        };
        let request = v1::Request {
            operation_id: format!("op-{index}"),
            verb: Some(request::Verb::Submit(v1::Submit {
                name,
                array_index: Some(index),
                ..submit.clone()
            })),
        };
        commands(&inbox(request.encode_to_vec()), &mut read);
    }
    read
}

#[test]
fn an_array_is_as_many_submits() {
    use ledger::memory::Seeded;
    for seed in 0..300 {
        let mut random = Seeded::new(seed);
        let submit = v1::Submit {
            name: ["", "sweep"][random.below(2) as usize].into(),
            cpu_milli: random.below(3) as i64 - 1,
            work: (random.below(2) == 0).then(|| v1::Work {
                command: "sh".into(),
                args: vec!["-c".into(), "true".into()],
                ..v1::Work::default()
            }),
            ..v1::Submit::default()
        };
        let mut next = 0;
        let ranges: Vec<(u32, u32, u32)> = (0..=random.below(3))
            .map(|_| {
                let (first, step) = (next + random.below(5) as u32, 1 + random.below(4) as u32);
                let last = first + random.below(40) as u32;
                next = last + 1;
                (first, last, step)
            })
            .collect();
        let indexes = ranges.iter();
        let indexes =
            indexes.flat_map(|&(first, last, step)| (first..=last).step_by(step as usize));
        let expected = one_by_one(&submit, indexes);
        let mut read = Vec::new();
        commands(&inbox(encoded(array(submit, &ranges))), &mut read);
        assert_eq!(read, expected, "{ranges:?}");
    }
}

#[test]
fn what_is_no_array_is_one_operation() {
    let check = |payload: Vec<u8>, expected: &str| {
        let mut read = Vec::new();
        commands(&inbox(payload), &mut read);
        let [command] = read.as_slice() else {
            panic!("{read:?}");
        };
        let refusal = command.verb.as_ref().expect_err("it is refused");
        let found = format!("{} {}", refusal.rule.name(), refusal.subject);
        assert_eq!(found, expected);
        let id = command.operation.operation_id.as_ref();
        assert_eq!(id.map(Token::as_str), Some("op"));
    };
    let none = encoded(array(v1::Submit::default(), &[]));
    check(none, "quantity_zero indexes");
    let twice = encoded(array(v1::Submit::default(), &[(0, 1, 1), (1, 1, 1)]));
    check(twice, "name_repeated indexes");
    let mut unknown = encoded(array(v1::Submit::default(), &[(0, 1, 1)]));
    prost::encoding::uint32::encode(99, &1, &mut unknown);
    check(unknown, "unknown_field field 99");
    // In a batch it has no verb, as a batch has none there.
    let inner = encoded(array(v1::Submit::default(), &[(0, 1, 1)]));
    let mut requests = Vec::new();
    prost::encoding::bytes::encode(1, &inner, &mut requests);
    let mut batch = Vec::new();
    prost::encoding::bytes::encode(12, &requests, &mut batch);
    let command = command(batch);
    assert!(matches!(command.verb, Ok(Verb::SubmitArray(_))));
    let events = decided(vec![command]);
    let Event::OperationRefused(refused) = &events[1] else {
        panic!("{events:?}");
    };
    assert_eq!(refused.refusal, Refusal::new(Rule::UnknownVerb, "verb"));
}

/// What comes of these, behind that there is the tenant.
fn decided(asked: Vec<Command>) -> Vec<Event> {
    let set = v1::SetTenant {
        tenant: "team-a".into(),
        rate_milli: Some(0),
        ..v1::SetTenant::default()
    };
    let operator = InboxMessage {
        sender: Token::new(vocab::subjects::OPERATOR).unwrap(),
        ..inbox(encoded(request::Verb::SetTenant(set)))
    };
    let mut all = Vec::new();
    commands(&operator, &mut all);
    all.extend(asked);
    let (mut state, config) = (Admission::default(), Config::default());
    let mut draft = Draft::new(Millis(1), EventNo(1));
    for command in all {
        state.handle(command, &config, &mut draft);
    }
    draft.events().cloned().collect()
}

/// On the ledger the elements of an array share what they ask for: each has its own digest of 16 bytes, what it asks for is a
/// few words.
#[test]
fn an_element_of_an_array_is_few_bytes_of_a_frame() {
    let check = |args: Vec<String>, most: usize| {
        let submit = v1::Submit {
            name: "sweep".into(),
            job_set: "study".into(),
            cpu_milli: 1000,
            memory_bytes: 1 << 30,
            work: Some(v1::Work {
                command: "sh".into(),
                args,
                ..v1::Work::default()
            }),
            ..v1::Submit::default()
        };
        let bytes = |last: u32| {
            let mut read = Vec::new();
            let array = encoded(array(submit.clone(), &[(0, last, 1)]));
            commands(&inbox(array), &mut read);
            let events = decided(read);
            assert!(matches!(&events[1], Event::AllocationRequested(_)));
            assert_eq!(events.len(), last as usize + 2);
            let mut columns = wire::Columns::default();
            events[1..].iter().for_each(|event| columns.push(event));
            let mut bytes = Vec::new();
            columns.append_field(13, &mut bytes);
            bytes.len()
        };
        let (one, all) = (bytes(0), bytes(999));
        let each = (all - one) / 999;
        assert!(
            each <= most,
            "{each} bytes each: {all} for all, {one} for one"
        );
    };
    let script: String = (0..128).map(|line| format!("step {line:09}\n")).collect();
    assert_eq!(script.len(), 1920);
    check(vec!["-c".into(), script], 30);
    check(vec!["./run".into()], 30);
}

/// A batch is opened before its requests are read.
#[test]
fn requests_are_those_of_the_contract() {
    let differences = wire::differences(Request::DESCRIPTOR, schemas::FILE_DESCRIPTOR_SET);
    let batch = "Request: `Batch batch = 12 in verb` only in the schema";
    assert_eq!(differences, Ok(vec![batch.to_owned()]));
}

/// As prost would have written them: two versions of a projector must make the same message of the same event.
#[test]
fn what_is_told_is_written_as_the_contract_has_it() {
    const CELL: CellNo = CellNo(1);
    let token = |text: &str| Token::new(text).expect("a literal token");
    let id = |no| AllocationNo(no).id(CELL).to_string();
    let check = |kind: FeedKind, at_ms: i64, told: Kind| {
        let item = FeedItem {
            position: FeedPosition {
                lsn: Lsn(300),
                index: 2,
            },
            now: Millis(7),
            tenant: token("t"),
            job_set: token("j"),
            allocation: Some(AllocationNo(5)),
            name: Some(token("n")),
            kind,
            reply_to: Vec::new(),
            in_feed: true,
        };
        let expected = v1::TenantEvent {
            lsn: 300,
            index: 2,
            now_ms: 7,
            allocation_id: id(5),
            job_set: "j".into(),
            name: "n".into(),
            kind: Some(told),
            at_ms,
        };
        let mut bytes = Vec::new();
        wire::Row::behind(&mut bytes, |out| tenant_event(&item, CELL, out));
        let read = v1::TenantEvent::decode(bytes.as_slice());
        assert_eq!(read, Ok(expected.clone()));
        assert_eq!(bytes, expected.encode_to_vec(), "{expected:?}");
    };
    let spec = AllocationSpec {
        name: Some(token("n")),
        team: Some(token("team")),
        ..AllocationSpec::plain(token("j"), 500, 1 << 30)
    };
    let requested = FeedKind::Requested {
        spec: EncodedSpecs::default().of(&spec),
        qos: spec.qos(),
    };
    let spec = Some(ToProst::to_prost(&spec));
    check(
        requested,
        0,
        Kind::Requested(v1::Requested { qos: 1, spec }),
    );
    let share = GpuShare {
        device: 0,
        milli: 500,
    };
    let (node, gpus) = (token("node"), GpuShares::from_iter([share]));
    let placed = v1::Placed {
        node: "node".into(),
        gpus: vec![v1::GpuShare {
            device: 0,
            milli: 500,
        }],
    };
    let placement = (node.clone(), gpus.clone());
    check(
        FeedKind::Placed { node, gpus },
        0,
        Kind::Placed(placed.clone()),
    );
    let refusal = Refusal::over(Rule::QuotaExceeded, "gpu", 1, 2);
    let said: v1::Refusal = ToProst::to_prost(&refusal);
    let denied = v1::Denied {
        refusal: Some(said.clone()),
    };
    check(FeedKind::Denied(refusal.clone()), 0, Kind::Denied(denied));
    let why = Waiting::for_quota(&refusal);
    let waiting = v1::Waiting {
        reason: WaitingReason::Quota.number(),
        quota: Some(said.clone()),
        explanation: refusal.explanation(),
    };
    check(
        FeedKind::Waiting(why.clone()),
        0,
        Kind::Waiting(waiting.clone()),
    );
    check(
        FeedKind::PriorityChanged(-3),
        0,
        Kind::PriorityChanged(v1::PriorityChanged { priority: -3 }),
    );
    let (cause, at) = (EndCause::Failed, Millis(9));
    check(FeedKind::Started { at }, 9, Kind::Started(v1::Started {}));
    let time_limit = true;
    check(
        FeedKind::Stopping { time_limit },
        0,
        Kind::Stopping(v1::Stopping { time_limit }),
    );
    let started = Some(Millis(8));
    let exit = RunExit {
        code: 0,
        signal: 9,
        reason: Some(RunExitReason::Killed),
        usage: Some(RunUsage {
            cpu_us: 3,
            memory_peak_bytes: 4,
            log_bytes: 5,
        }),
    };
    let killed = v1::RunExit {
        code: 0,
        signal: 9,
        reason: v1::RunExitReason::Killed.into(),
        usage: Some(v1::RunUsage {
            cpu_us: 3,
            memory_peak_bytes: 4,
            log_bytes: 5,
        }),
    };
    for (exit, told) in [(None, None), (Some(exit), Some(killed))] {
        let ended = v1::Ended {
            cause: cause.number(),
            started_ms: 8,
            ended_ms: 9,
            exit: told,
        };
        let over = FeedKind::Ended {
            cause,
            started,
            at,
            exit,
        };
        check(over, 9, Kind::Ended(ended));
    }
    let grace_until = Millis(10);
    let preempted = v1::Preempted {
        cause: PreemptionCause::Quota.number(),
        grace_until_ms: 10,
    };
    let preemption = FeedKind::Preempted {
        cause: PreemptionCause::Quota,
        grace_until,
    };
    check(preemption, 0, Kind::Preempted(preempted));
    let requeued = v1::Requeued {
        cause: cause.number(),
        ended_ms: 9,
        not_before_ms: 10,
        exit: Some(killed),
    };
    let queued_again = FeedKind::Requeued {
        cause,
        at,
        not_before: grace_until,
        exit: Some(exit),
    };
    check(queued_again, 9, Kind::Requeued(requeued));
    let lease = LeaseNo::of(EventNo(6));
    let lease_id = lease.id(CELL).to_string();
    let expired = v1::Expired {
        lease_id: lease_id.clone(),
        fencing_token: 2,
    };
    let fencing_token = 2;
    let over = FeedKind::Expired {
        lease,
        fencing_token,
    };
    check(over, 0, Kind::Expired(expired));

    let answer = |kind: OutcomeKind, reply: Reply| {
        let outcome = Outcome {
            operation_id: Some(token("op")),
            lsn: Lsn(299),
            kind,
        };
        let told = v1::Outcome {
            operation_id: "op".into(),
            lsn: 299,
            result: Some(reply),
        };
        check(FeedKind::Outcome(outcome), 0, Kind::Outcome(told));
    };
    let submitted = |state: SubmitState, stands: Stands| {
        let allocation = AllocationNo(5);
        let reply = v1::Submitted {
            allocation_id: id(5),
            state: Some(stands),
        };
        answer(
            OutcomeKind::Submitted { allocation, state },
            Reply::Submitted(reply),
        );
    };
    let (node, gpus) = placement;
    submitted(SubmitState::Placed { node, gpus }, Stands::Placed(placed));
    submitted(SubmitState::Waiting(why), Stands::Waiting(waiting));
    submitted(
        SubmitState::Ended { cause, at },
        Stands::Ended(v1::Ended {
            cause: cause.number(),
            ended_ms: 9,
            ..v1::Ended::default()
        }),
    );
    let allocation = AllocationNo(5);
    let allocation_id = id(5);
    answer(
        OutcomeKind::Cancelled { allocation },
        Reply::Cancelled(v1::Cancelled { allocation_id }),
    );
    let allocations = 3;
    answer(
        OutcomeKind::JobSetCancelled { allocations },
        Reply::JobSetCancelled(v1::JobSetCancelled { allocations }),
    );
    answer(
        OutcomeKind::PrioritySet { allocations },
        Reply::PrioritySet(v1::PrioritySet { allocations }),
    );
    let version = 4;
    answer(
        OutcomeKind::Applied { version },
        Reply::Applied(v1::Applied { version }),
    );
    let created = v1::ResourceCreated { version: 0 };
    answer(
        OutcomeKind::ResourceCreated,
        Reply::ResourceCreated(created),
    );
    let granted = v1::LeaseGranted {
        lease_id,
        fencing_token: 1,
        deadline_slot: 11,
    };
    let deadline = 11;
    answer(
        OutcomeKind::Granted { lease, deadline },
        Reply::LeaseGranted(granted),
    );
    answer(OutcomeKind::Confirmed, Reply::Confirmed(v1::Confirmed {}));
    answer(
        OutcomeKind::Released { fencing_token },
        Reply::Released(v1::Released { fencing_token }),
    );
    answer(
        OutcomeKind::Revoked { fencing_token },
        Reply::Revoked(v1::Revoked { fencing_token }),
    );
    answer(OutcomeKind::Reclaimed, Reply::Reclaimed(v1::Reclaimed {}));
    let spec = AllocationSpec::plain(token("j"), 500, 1 << 30);
    let passes = v1::Passes {
        spec: Some(Box::new(spec.to_prost())),
    };
    answer(OutcomeKind::Passes(Box::new(spec)), Reply::Passes(passes));
    let refused = v1::Refused {
        explanation: refusal.explanation(),
        retryable: true,
        refusal: Some(said),
    };
    answer(OutcomeKind::Refused(refusal), Reply::Refused(refused));
}
