//! Quantities and names of a submit.

use super::*;
use smol_str::SmolStr;
use std::sync::Arc;
use vocab::{Operator, Work};
use wire::Open;

#[test]
fn every_broken_quantity_and_name_is_named() {
    let t = Table::new();
    t.broken(|r| r.cpu_milli = 0, "quantity_zero cpu_milli");
    t.broken(|r| r.cpu_milli = -1, "quantity_negative cpu_milli");
    t.broken(|r| r.cpu_milli = i64::MIN, "quantity_negative cpu_milli");
    t.broken(|r| r.cpu_milli = i64::MAX, "quantity_too_large cpu_milli");
    t.broken(|r| r.memory_bytes = 0, "quantity_zero memory_bytes");
    t.broken(
        |r| r.memory_bytes = (1 << 50) + 1,
        "quantity_too_large memory_bytes",
    );
    t.broken(|r| r.gpu_count = -1, "quantity_negative gpu_count");
    t.broken(|r| r.gpu_count = 17, "quantity_too_large gpu_count");
    t.broken(|r| r.gpu_milli = 5, "quantity_zero gpu_count");
    t.broken(
        |r| (r.gpu_count, r.gpu_milli) = (2, 500),
        "gpu_share_invalid gpu_milli",
    );
    t.broken(
        |r| (r.gpu_count, r.gpu_milli) = (1, 1001),
        "gpu_share_invalid gpu_milli",
    );
    t.broken(
        |r| (r.gpu_count, r.gpu_milli) = (1, -5),
        "quantity_negative gpu_milli",
    );
    t.broken(
        |r| (r.gpu_count, r.gpu_models) = (1, vec!["T4".into(); 17]),
        "too_many_elements gpu_models",
    );
    t.broken(
        |r| (r.gpu_count, r.gpu_models) = (1, vec!["T 4".into()]),
        "name_invalid gpu_models",
    );
    t.broken(|r| r.priority = i32::MIN, "priority_out_of_range priority");
    for name in ["nul\0", "a.b", "*", ">", "раураl"] {
        t.broken(|r| r.name = name.into(), "name_invalid name");
        t.broken(|r| r.job_set = name.into(), "name_invalid job_set");
    }
    t.broken(|r| r.name = "x".repeat(300).into(), "name_invalid name");
    let max = t.spec(|r| {
        r.cpu_milli = AllocationSpec::CPU_MILLI_MAX as i64;
        r.memory_bytes = AllocationSpec::MEMORY_BYTES_MAX as i64;
        r.gpu_count = 16;
        r.gpu_models = vec!["B".into(), "A".into(), "B".into()];
    });
    let whole = t.spec(|r| (r.gpu_count, r.gpu_milli) = (2, 1000));
    assert_eq!(whole.unwrap().gpu.map(|gpu| gpu.milli), Some(1000));
    let half = t.spec(|r| (r.gpu_count, r.gpu_milli) = (1, 500));
    assert_eq!(half.unwrap().gpu.map(|gpu| gpu.milli), Some(500));
    let gpu = max.unwrap().gpu.unwrap();
    assert_eq!((gpu.count, gpu.milli), (16, 1000));
    assert_eq!(gpu.models, [token("A"), token("B")]);
}

#[test]
fn extended_resources_stand_in_order_and_once() {
    let t = Table::new();
    let extended = |pairs: &[(&str, i64)]| -> Vec<(SmolStr, i64)> {
        pairs.iter().map(|&(name, n)| (name.into(), n)).collect()
    };
    let spec = t.spec(|r| r.extended = extended(&[("b", 1), ("a", 1 << 40)]));
    assert_eq!(
        spec.unwrap().extended,
        [(token("a"), 1 << 40), (token("b"), 1)]
    );
    for (pairs, expected) in [
        (&[("a", 1), ("a", 2)][..], "name_repeated extended"),
        (&[("a.b", 1)], "name_invalid extended"),
        (&[("a", 0)], "quantity_zero extended"),
        (&[("a", -1)], "quantity_negative extended"),
        (&[("a", (1 << 40) + 1)], "quantity_too_large extended"),
        (&[("a", 1); 9], "too_many_elements extended"),
    ] {
        t.broken(|r| r.extended = extended(pairs), expected);
    }
}

#[test]
fn labels_stand_in_order_and_once() {
    let t = Table::new();
    let labels = |pairs: &[(&str, &str)]| -> Vec<(SmolStr, SmolStr)> {
        let pairs = pairs.iter();
        pairs
            .map(|&(name, value)| (name.into(), value.into()))
            .collect()
    };
    let spec = t.spec(|r| r.labels = labels(&[("model", "bert"), ("grant", "7")]));
    let expected = [
        (token("grant"), token("7")),
        (token("model"), token("bert")),
    ];
    assert_eq!(spec.unwrap().labels, expected);
    for (pairs, expected) in [
        (&[("a", "1"), ("a", "2")][..], "name_repeated labels"),
        (&[("a.b", "1")], "name_invalid labels"),
        (&[("a", "")], "name_invalid labels"),
        (&[("a", "1"); 17], "too_many_elements labels"),
    ] {
        t.broken(|r| r.labels = labels(pairs), expected);
    }
}

#[test]
fn what_is_run_is_refused_where_no_system_takes_it() {
    let t = Table::new();
    let work = |set: fn(&mut Work)| {
        let mut work = Work {
            command: "/bin/true".into(),
            ..Work::default()
        };
        set(&mut work);
        Some(Arc::new(work))
    };
    let named = |names: &[&str]| -> Vec<(String, String)> {
        let names = names.iter();
        names.map(|name| (name.to_string(), "1".into())).collect()
    };
    assert_eq!(t.spec(|_| ()).unwrap().work, None);
    let spec = t.spec(|r| {
        r.work = work(|work| {
            work.env = vec![("B".into(), "2".into()), ("A".into(), String::new())];
            work.payload = vec![0; Work::PAYLOAD_BYTES_MAX].into();
        });
    });
    let kept = spec.unwrap().work.unwrap();
    assert_eq!(kept.env[0], ("A".into(), String::new()));
    assert_eq!(kept.payload.len(), Work::PAYLOAD_BYTES_MAX);
    let image = t.spec(|r| {
        r.work = work(|work| (work.command, work.image) = (String::new(), "a/b:1".into()));
    });
    let image = image.unwrap();
    assert_eq!(image.work.unwrap().image, "a/b:1");
    // Only nodes whose agents can run it will do.
    let selector = |spec: &AllocationSpec| -> Vec<String> {
        let rules = spec.rules.as_deref();
        let all = rules.into_iter().flat_map(|rules| &rules.selector);
        all.map(|one| format!("{} {:?} {:?}", one.label, one.operator, one.values))
            .collect()
    };
    assert_eq!(
        image
            .rules
            .as_deref()
            .map(|rules| rules.selector[0].values.clone()),
        Some(vec![token("plugin")])
    );
    let there = t.spec(|r| {
        r.work = work(|_| ());
        r.rules = Some(Box::new(PlacementRequest {
            selector: vec![RequirementRequest {
                label: "zone".into(),
                operator: Open::Known(Operator::Exists),
                values: Vec::new(),
            }],
            ..PlacementRequest::default()
        }));
    });
    let expected = ["_commands Exists []", "zone Exists []"];
    assert_eq!(selector(&there.unwrap()), expected);
    assert!(t.spec(|_| ()).unwrap().rules.is_none());
    let check = |set: fn(&mut Work), expected: &str| t.broken(|r| r.work = work(set), expected);
    check(|w| w.command.clear(), "work_invalid work.command");
    check(|w| w.command = "a\0b".into(), "work_invalid work.command");
    check(
        |w| w.command = "x".repeat(4097),
        "payload_too_large work.command",
    );
    check(|w| w.args = vec!["\0".into()], "work_invalid work.args");
    check(
        |w| w.args = vec![String::new(); 1025],
        "too_many_elements work.args",
    );
    check(
        |w| w.working_dir = "here".into(),
        "work_invalid work.working_dir",
    );
    check(
        |w| w.payload = vec![0; 32_769].into(),
        "payload_too_large work.payload",
    );
    check(
        |w| w.args = vec!["x".repeat(49_144)],
        "payload_too_large work",
    );
    check(
        |w| w.env = vec![("A".into(), "\0".into())],
        "work_invalid work.env",
    );
    for bad in ["", "1A", "A-B", "A=", "ä", "APPORTION_X"] {
        t.broken(
            |r| {
                r.work = Some(Arc::new(Work {
                    command: "a".into(),
                    env: named(&[bad]),
                    ..Work::default()
                }));
            },
            "name_invalid work.env",
        );
    }
    t.broken(
        |r| {
            r.work = Some(Arc::new(Work {
                command: "a".into(),
                env: named(&["A", "A", "B"]),
                ..Work::default()
            }));
        },
        "name_repeated work.env",
    );
    t.broken(
        |r| {
            r.work = Some(Arc::new(Work {
                command: "a".into(),
                env: named(&["A", "B", "A"]),
                ..Work::default()
            }));
        },
        "name_repeated work.env",
    );
    // The agent says it to an element of an array; otherwise it is whoever's.
    let indexed = |r: &mut SubmitRequest| {
        r.work = Some(Arc::new(Work {
            command: "a".into(),
            env: named(&["APPORTION_ARRAY_INDEX"]),
            ..Work::default()
        }));
    };
    assert!(t.spec(indexed).is_ok());
    let element = |r: &mut SubmitRequest| {
        indexed(r);
        r.array_index = Some(0);
    };
    t.broken(element, "name_invalid work.env");
}

#[test]
fn restarts_and_run_times_have_their_ranges() {
    let t = Table::new();
    t.broken(|r| r.retries = -1, "quantity_negative retries");
    t.broken(|r| r.retries = 17, "quantity_too_large retries");
    t.broken(|r| r.run_time_ms = -1, "quantity_negative run_time_ms");
    let year = AllocationSpec::RUN_TIME_MS_MAX as i64;
    t.broken(
        |r| r.run_time_ms = year + 1,
        "quantity_too_large run_time_ms",
    );
    t.broken(|r| r.ttl_ms = -1, "quantity_negative ttl_ms");
    t.broken(|r| r.ttl_ms = year + 1, "quantity_too_large ttl_ms");
    t.broken(|r| r.time_limit_ms = -1, "quantity_negative time_limit_ms");
    t.broken(
        |r| r.time_limit_ms = year + 1,
        "quantity_too_large time_limit_ms",
    );
    let spec = t.spec(|r| (r.ttl_ms, r.time_limit_ms) = (5, year)).unwrap();
    let bounds = vocab::TimeBounds {
        ttl_ms: 5,
        time_limit_ms: AllocationSpec::RUN_TIME_MS_MAX,
    };
    assert_eq!(spec.bounds, bounds);
    let spec = t.spec(|r| (r.retries, r.never_requeue, r.run_time_ms) = (16, true, year));
    let spec = spec.unwrap();
    assert_eq!((spec.restart.retries, spec.restart.never), (16, true));
    assert_eq!(spec.run_time_ms, AllocationSpec::RUN_TIME_MS_MAX);
    let plain = AllocationSpec::plain(token("default"), 1000, 1 << 30);
    assert_eq!(t.spec(|_| {}).unwrap(), plain);
}

#[test]
fn what_has_to_end_first_is_ones_own_and_known() {
    let mut t = Table::new().roomy();
    t.admin("b", set_tenant("b"), "applied 1");
    for operation in ["x", "y"] {
        t.check(operation, 1, plain(), "requested");
    }
    t.ended(3);
    assert_eq!(t.ask("b", "z", 1, Ok(plain())), "requested");
    let unknown = "dependency_unknown depends_on";
    for (wanted, expected) in [
        (
            vec![("nonsense".into(), true)],
            "allocation_id_invalid depends_on",
        ),
        (vec![(id(5), true)], unknown),
        (vec![(id(6), true)], unknown),
        (
            vec![(AllocationNo(3).id(CellNo(2)).to_string(), true)],
            unknown,
        ),
        (vec![(id(3), true); 17], "too_many_elements depends_on"),
    ] {
        t.broken(|r| r.depends_on = after(&wanted), expected);
    }
    let by_operation = |operation: &str, allocation_id: String| {
        vec![DependencyRequest {
            allocation_id,
            success: true,
            operation_id: operation.into(),
        }]
    };
    for (wanted, expected) in [
        // Another tenant's, none at all, and one that asked for no allocation.
        (by_operation("z", String::new()), unknown),
        (by_operation("nobody", String::new()), unknown),
        (by_operation("tenant", String::new()), unknown),
        (by_operation("x", id(3)), "allocation_id_invalid depends_on"),
    ] {
        t.broken(|r| r.depends_on = wanted, expected);
    }
    let spec = t.spec(|r| r.depends_on = by_operation("x", String::new()));
    let on = spec.unwrap().depends_on;
    assert_eq!(on.len(), 1);
    assert_eq!((on[0].allocation.0, on[0].success), (3, true));
    let wanted = [(id(4), false), (id(3), true), (id(3), false)];
    let spec = t.spec(|r| r.depends_on = after(&wanted)).unwrap();
    let found: Vec<_> = spec
        .depends_on
        .iter()
        .map(|one| (one.allocation.0, one.success))
        .collect();
    assert_eq!(found, [(3, true), (4, false)]);
}

/// A trial, and behind it the same for real; then both are undone.
#[track_caller]
fn tried(t: &mut Table, tenant: &str, request: SubmitRequest, expected: &str) {
    let (before, next) = (t.state.clone(), t.next);
    let told = t.ask(tenant, "tried", 1, Ok(Verb::TrySubmit(request.clone())));
    assert_eq!(told, format!("unrecorded {expected}"));
    assert_eq!((&t.state, t.next), (&before, next));
    let real = t.ask(tenant, "tried", 2, Ok(Verb::Submit(request)));
    let real = real.trim_start_matches("unrecorded ");
    let accepted = if expected == "passes" {
        "requested"
    } else {
        expected
    };
    assert_eq!(real, accepted);
    (t.state, t.next) = (before, next);
}

#[test]
fn a_trial_says_what_becomes_of_a_submit_and_leaves_nothing() {
    let mut t = Table::new();
    let t = &mut t;
    tried(t, "a", submit(), "passes");
    let with = |change: fn(&mut SubmitRequest)| {
        let mut request = submit();
        change(&mut request);
        request
    };
    let negative = with(|it| it.cpu_milli = -1);
    tried(t, "a", negative, "quantity_negative cpu_milli");
    let elsewhere = with(|it| it.queue = "elsewhere".into());
    tried(t, "a", elsewhere, "queue_unknown queue");
    tried(t, "nobody", submit(), "tenant_unknown tenant");
    tried(t, "_operator", submit(), "unknown_verb verb");
    let bounded = with(|it| it.ttl_ms = 1);
    tried(t, "a", bounded.clone(), "passes");
    t.level = vocab::Level(vocab::Level::TIME_BOUNDS.0 - 1);
    tried(t, "a", bounded, "not_supported feature level");
    t.level = vocab::Level::KNOWN;
    for id in ["1", "2", "3", "4"] {
        t.check(id, 1, plain(), "requested");
    }
    tried(t, "a", submit(), "allocation_table_full allocations");
    let known = Verb::TrySubmit(submit());
    let conflict = "unrecorded operation_conflict operation_id";
    t.check("1", 2, known, conflict);
}

#[test]
fn bounds_of_time_are_of_a_later_level() {
    let mut t = Table::new();
    t.level = vocab::Level(vocab::Level::TIME_BOUNDS.0 - 1);
    let ttl = SubmitRequest {
        ttl_ms: 1,
        ..submit()
    };
    let limit = SubmitRequest {
        time_limit_ms: 1,
        ..submit()
    };
    let unsupported = "not_supported feature level";
    t.check("1", 1, Verb::Submit(ttl.clone()), unsupported);
    t.check("2", 1, Verb::Submit(limit), unsupported);
    t.level = vocab::Level::TIME_BOUNDS;
    t.check("3", 1, Verb::Submit(ttl), "requested");
}

#[test]
fn elements_of_an_array_are_of_a_later_level() {
    let mut t = Table::new();
    t.level = vocab::Level(vocab::Level::ARRAYS.0 - 1);
    let element = SubmitRequest {
        array_index: Some(0),
        ..submit()
    };
    let unsupported = "not_supported feature level";
    t.check("1", 1, Verb::Submit(element.clone()), unsupported);
    t.level = vocab::Level::ARRAYS;
    t.check("2", 1, Verb::Submit(element), "requested");
    let spec = t.spec(|r| r.array_index = Some(7)).unwrap();
    assert_eq!(spec.array_index, Some(7));
}

/// Of the rate and of the room, too.
#[test]
fn each_element_of_an_array_counts() {
    let array = ArrayRequest {
        submit: submit(),
        indexes: vec![IndexRange {
            first: 0,
            last: 9,
            step: 1,
        }],
    };
    let id = vocab::Token::new("a").unwrap();
    let elements = array.elements(&id).unwrap();
    let mut t = Table::new().roomy();
    let (bytes, mut expected) = (t.state.bytes_of(&token("a")), Vec::new());
    let rate = TenantRequest {
        tenant: "a".into(),
        rate_milli: Some(4000),
        ..TenantRequest::default()
    };
    t.set(ChangeRequest::SetTenant(rate), "applied 2");
    for (at, (id, submit)) in (0..).zip(elements) {
        expected.push(match at < 4 {
            true => "requested",
            false => "unrecorded rate_limited rate_milli",
        });
        t.check(id.as_str(), 1, Verb::Submit(submit), expected[at]);
    }
    let each = crate::room::LIVE;
    assert!(t.state.bytes_of(&token("a")) - bytes > 4 * each);
}

fn after(pairs: &[(String, bool)]) -> Vec<DependencyRequest> {
    let dependency = |(id, success): &(String, bool)| DependencyRequest {
        allocation_id: id.clone(),
        success: *success,
        ..DependencyRequest::default()
    };
    pairs.iter().map(dependency).collect()
}

/// What comes of a submit that starts after this one.
#[track_caller]
fn depends(t: &Table, on: u64, expected: &str) {
    let found = t.spec(|r| r.depends_on = after(&[(id(on), true)]));
    let found = found.map_or_else(|refusal| refusal.rule.name().into(), |_| "known".to_owned());
    assert_eq!(found, expected, "{on}");
}

#[test]
fn what_has_ended_is_known_for_a_window_after_its_end() {
    let mut t = Table::new();
    for operation in ["2", "3", "4", "5"] {
        t.check(operation, 1, plain(), "requested");
    }
    // Long after its submit was forgotten.
    t.tick(5 * WINDOW, &["forgotten 5"]);
    t.ended(4);
    t.now += 10;
    t.denied(2);
    t.ended(3);
    // Its first end is what counts.
    t.now += WINDOW - 10;
    t.ended(4);
    depends(&t, 4, "known");
    t.tick(6 * WINDOW + 1, &["forgotten 5 ended 1 denied 0"]);
    depends(&t, 4, "dependency_unknown");
    depends(&t, 2, "known");
    depends(&t, 3, "known");
    let ended = "allocation_ended allocation_id";
    t.check("c", 1, cancel(&id(3)), ended);
    t.tick(6 * WINDOW + 11, &["forgotten 5 ended 3 denied 2"]);
    depends(&t, 2, "dependency_unknown");
    depends(&t, 3, "dependency_unknown");
    let not_found = "allocation_not_found allocation_id";
    t.check("d", 1, cancel(&id(3)), not_found);
    depends(&t, 5, "known");
    t.tick(6 * WINDOW + 12, &[]);
}
