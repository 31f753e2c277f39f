//! The flags of other commands, read as those commands read them.

use super::*;

fn verb(line: &str) -> Verb {
    let request = parse(line).asked.request(&Standing::default(), 0);
    request.unwrap().unwrap().verb
}

#[test]
fn every_flag_of_a_submit_reaches_the_request() {
    let plain = v1::Submit {
        cpu_milli: 1000,
        memory_bytes: 1 << 30,
        ..v1::Submit::default()
    };
    let begin = "submit --tenant t --cpu 1 --memory 1GiB";
    assert_eq!(verb(begin), Verb::Submit(plain.clone()));
    let found = verb(&format!(
        "{begin} --gpus 1 --gpu-milli 500 --gpu-model T4 --extended fpga=2 --queue q --priority 7 \
         --priority-class c --job-set s --name n --after x --after-success y --retries 3 \
         --never-requeue --run-time 10m --gang g --gang-size 8 --gang-min 6 --gang-uniform rack \
         --node-label zone=z1 --prefer-node-label disk=ssd --label grant=7 --tolerate any --group w --affinity w:rack --anti-affinity v --spread rack:2 \
         --numa single --count 8"
    ));
    let dependency = |allocation_id: &str, success| v1::DependencyRequest {
        allocation_id: allocation_id.into(),
        success,
        operation_id: String::new(),
    };
    let term = |group: &str, domain: &str| v1::GroupTerm {
        group: group.into(),
        topology_key: domain.into(),
    };
    let expected = v1::Submit {
        gpu_count: 1,
        gpu_milli: 500,
        gpu_models: vec!["T4".into()],
        extended: vec![v1::ExtendedRequest {
            name: "fpga".into(),
            amount: 2,
        }],
        queue: "q".into(),
        priority: 7,
        priority_class: "c".into(),
        job_set: "s".into(),
        name: "n".into(),
        depends_on: vec![dependency("x", false), dependency("y", true)],
        retries: 3,
        never_requeue: true,
        run_time_ms: 600_000,
        gang: Some(v1::GangRequest {
            name: "g".into(),
            size: 8,
            min: 6,
            uniform_label: "rack".into(),
        }),
        rules: Some(v1::PlacementRules {
            selector: vec![submit::requirement("zone=z1").unwrap()],
            tolerations: vec![v1::Toleration::default()],
            group: "w".into(),
            affinity: vec![term("w", "rack")],
            anti_affinity: vec![term("v", "")],
            spread: vec![v1::Spread {
                topology_key: "rack".into(),
                max_skew: 2,
            }],
            numa: v1::NumaPolicy::Single.into(),
            preferred: vec![submit::requirement("disk=ssd").unwrap()],
        }),
        labels: vec![v1::Label {
            name: "grant".into(),
            value: "7".into(),
        }],
        ..plain
    };
    assert_eq!(found, Verb::Submit(expected));
}

#[test]
fn every_flag_of_an_operator_reaches_the_request() {
    let queue = verb(
        "queue-set q --parent p --weight 2 --limit cpu=4 --tenant a --order sjf --placement fgd --closed \
         --expected-version 5",
    );
    let expected = v1::SetQueue {
        queue: "q".into(),
        parent: "p".into(),
        weight_milli: Some(2000),
        limits: vec![v1::LimitRequest {
            resource: "cpu".into(),
            amount: 4000,
        }],
        tenants: vec!["a".into()],
        order: 1,
        placement: Some(4),
        closed: true,
        expected_version: Some(5),
    };
    assert_eq!(queue, Verb::SetQueue(expected));
    let class = verb(
        "priority-class c -5 --preemptible --preempts --grace 30s --placement spread --closed",
    );
    let expected = v1::SetPriorityClass {
        priority_class: "c".into(),
        value: -5,
        preemptible: true,
        preempts: true,
        grace_ms: 30_000,
        placement: Some(2),
        closed: true,
        expected_version: Some(0),
    };
    assert_eq!(class, Verb::SetPriorityClass(expected));
    let policy = verb(
        "policy --placement fgd --half-life 1s --fair-share-preemption false --protected 500m \
         --preemptions-per-minute 7 --aging 2s --backfill --backoff 3s --backoff-max 4s",
    );
    let expected = v1::SetScheduling {
        placement: 4,
        half_life_ms: 1000,
        fair_share_preemption: Some(false),
        protected_milli: 500,
        preemptions_per_minute: Some(7),
        aging_ms: 2000,
        backfill: true,
        backoff_ms: Some(3000),
        backoff_ms_max: Some(4000),
        expected_version: Some(0),
    };
    assert_eq!(policy, Verb::SetScheduling(expected));
}

#[test]
fn nodes_are_cordoned_and_reserved_as_they_are_for_good() {
    for (line, cordoned) in [
        ("cordon n --expected-version 1", true),
        ("uncordon n", false),
    ] {
        let expected = v1::SetCordon {
            node: "n".into(),
            cordoned,
            expected_version: cordoned.then_some(1),
            ..v1::SetCordon::default()
        };
        assert_eq!(verb(line), Verb::SetCordon(expected));
    }
    let wanted = v1::ReservationRequest {
        queue: "q".into(),
        from_ms: 1000,
        until_ms: 2000,
        nodes: 3,
        selector: vec![submit::requirement("!old").unwrap()],
    };
    let reserve = "reserve r --queue q --from 1970-01-01T00:00:01Z --until 1970-01-01T00:00:02Z \
                   --nodes 3 --node-label !old";
    for (line, wanted) in [(reserve, Some(wanted)), ("unreserve r", None)] {
        let expected = v1::SetReservation {
            reservation: "r".into(),
            wanted,
            expected_version: None,
        };
        assert_eq!(verb(line), Verb::SetReservation(expected));
    }
}
