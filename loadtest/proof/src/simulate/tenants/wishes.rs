//! What tenants ask for, and the policies that operators set.

use super::{Crowd, GIB, operators::below, pick};
use ledger::memory::Seeded;
use schemas::v1::{
    ExtendedRequest, GangRequest, GroupTerm, Label, LimitRequest, NodeApprovalRequest,
    NodeCapacity, NumaPolicy, Operator, PlacementRules, QueueOrder, Requirement, SetCordon,
    SetNode, SetPriorityClass, SetQueue, SetScheduling, SetTaints, Spread, Submit, Taint,
    Toleration, request::Verb,
};

/// The classes that are set at first, or not at all.
const CLASSES: [&str; 4] = ["low", "middle", "high", "unheard-of"];

fn class(random: &mut Seeded) -> &'static str {
    match random.below(100) {
        0..=29 => CLASSES[0],
        30..=39 => CLASSES[1],
        40..=54 => CLASSES[2],
        55..=56 => CLASSES[3],
        _ => "",
    }
}

fn set_class(name: &str, random: &mut Seeded) -> SetPriorityClass {
    let value = match name {
        "low" => -10,
        "middle" => 5,
        _ => 10,
    };
    SetPriorityClass {
        priority_class: name.to_owned(),
        value,
        preemptible: name == "low" || random.chance(500),
        preempts: name != "low",
        grace_ms: random.below(500) as i64,
        ..SetPriorityClass::default()
    }
}

fn set_scheduling(random: &mut Seeded) -> Verb {
    Verb::SetScheduling(SetScheduling {
        placement: random.below(5) as i32,
        fair_share_preemption: Some(random.chance(600)),
        preemptions_per_minute: Some(match random.below(4) {
            0 => random.below(8) as i64,
            1 => 30,
            _ => 100_000,
        }),
        aging_ms: random.below(2) as i64 * random.below(500) as i64,
        half_life_ms: random.below(2) as i64 * random.below(5000) as i64,
        backfill: random.chance(300),
        backoff_ms: Some(random.below(100) as i64),
        backoff_ms_max: Some(100 + random.below(500) as i64),
        ..SetScheduling::default()
    })
}

/// What is set before anything else; some cells without a crowd go without.
pub fn policies(crowd: Crowd, random: &mut Seeded) -> Vec<Verb> {
    let mut set = Vec::new();
    if crowd == Crowd::Alike {
        set.push(Verb::SetScheduling(SetScheduling {
            fair_share_preemption: Some(true),
            preemptions_per_minute: Some(100_000),
            ..SetScheduling::default()
        }));
        set.push(Verb::SetPriorityClass(set_class(CLASSES[0], random)));
    } else if crowd == Crowd::Mixed || random.chance(800) {
        set.push(set_scheduling(random));
        let classes = CLASSES[..3].iter();
        set.extend(classes.map(|name| Verb::SetPriorityClass(set_class(name, random))));
    }
    set
}

/// Of a queue: some, or none.
fn queue_limits(random: &mut Seeded) -> Vec<LimitRequest> {
    let mut limits = Vec::new();
    for (resource, unit, most) in [("cpu", 2000, 10), ("memory", 4 * GIB, 10), ("gpu", 1000, 8)] {
        if random.chance(250) {
            limits.push(LimitRequest {
                resource: resource.to_owned(),
                amount: unit * (1 + random.below(most)) as i64,
            });
        }
    }
    limits
}

/// Each tenant's own, some below one that they have in common; last first.
pub fn queues(names: &[String], random: &mut Seeded) -> Vec<Verb> {
    const COMMON: &str = "pool";
    let mut set = Vec::new();
    for tenant in names {
        if random.chance(300) {
            continue;
        }
        set.push(Verb::SetQueue(SetQueue {
            queue: tenant.clone(),
            parent: ["", COMMON, COMMON][random.below(3) as usize].to_owned(),
            weight_milli: Some(500 * (1 + random.below(6)) as i64),
            limits: queue_limits(random),
            ..SetQueue::default()
        }));
    }
    set.push(Verb::SetQueue(SetQueue {
        queue: COMMON.to_owned(),
        limits: queue_limits(random),
        ..SetQueue::default()
    }));
    set
}

/// What an operator changes meanwhile.
pub fn change(tenant: &str, random: &mut Seeded) -> Verb {
    match random.below(10) {
        0 if random.chance(500) => set_node(random),
        0 if random.chance(600) => set_taints(random),
        0..=4 => {
            let cordoned = random.chance(400);
            let drain = cordoned && random.chance(400);
            Verb::SetCordon(SetCordon {
                node: format!("node-{}", random.below(6)),
                cordoned,
                drain,
                at_once: match drain {
                    true => random.below(3) as u32,
                    false => 0,
                },
                expected_version: None,
            })
        }
        5 | 6 => Verb::SetQueue(SetQueue {
            queue: tenant.to_owned(),
            weight_milli: Some(500 * (1 + random.below(4)) as i64),
            limits: queue_limits(random),
            order: QueueOrder::try_from(random.below(3) as i32)
                .unwrap_or_default()
                .into(),
            expected_version: random.chance(300).then(|| random.below(2)),
            closed: random.chance(100),
            ..SetQueue::default()
        }),
        7 => {
            let name = CLASSES[random.below(3) as usize];
            Verb::SetPriorityClass(SetPriorityClass {
                closed: random.chance(200),
                ..set_class(name, random)
            })
        }
        _ => set_scheduling(random),
    }
}

fn set_taints(random: &mut Seeded) -> Verb {
    let taint = |key: &str, effect| Taint {
        key: key.to_owned(),
        value: String::new(),
        effect,
    };
    let effect = random.below(3) as i32;
    let mut taints = vec![taint("maintenance", effect), taint("other", 1)];
    taints.truncate(random.below(3) as usize);
    Verb::SetTaints(SetTaints {
        node: format!("node-{}", random.below(6)),
        taints,
        expected_version: None,
    })
}

/// Forgets a node, or approves one as what most of them are.
fn set_node(random: &mut Seeded) -> Verb {
    let label = |name: &str, value: &str| Label {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let zone = ["z1", "z2"][random.below(2) as usize];
    let approved = NodeApprovalRequest {
        capacity: Some(NodeCapacity {
            cpu_milli: 2000 * (4 + random.below(8)),
            memory_bytes: 4 * GIB as u64 * (4 + random.below(8)),
            gpus: 8,
            gpu_model: ["", "t4", "a100"][random.below(3) as usize].to_owned(),
            labels: vec![label("disk", "ssd"), label("zone", zone)],
            ..NodeCapacity::default()
        }),
        token_digest: vec![7; 32],
        token_until_ms: if random.chance(100) { 1 } else { 1 << 45 },
    };
    Verb::SetNode(SetNode {
        node: format!("node-{}", random.below(6)),
        approved: random.chance(500).then_some(approved),
        expected_version: None,
    })
}

/// Some members more than one, in the order in which they are asked for from the last on.
pub fn gang(number: u64, submit: fn(&mut Seeded) -> Submit, random: &mut Seeded) -> Vec<Submit> {
    let size = 2 + random.below(3);
    let gang = GangRequest {
        // Now and then of a name that members of another one still have.
        name: format!("gang-{}", number / 2),
        size: size as i64,
        min: random.below(size + 1) as i64,
        uniform_label: match random.below(4) {
            0 => "zone".to_owned(),
            _ => String::new(),
        },
    };
    let missing = u64::from(random.chance(150));
    let alike = submit(random);
    let one = |_| Submit {
        gang: Some(gang.clone()),
        ..if random.chance(700) {
            alike.clone()
        } else {
            submit(random)
        }
    };
    (missing..size).map(one).collect()
}

fn rules(random: &mut Seeded) -> PlacementRules {
    let requirement = match random.below(6) {
        0 => Some(("zone", Operator::In, vec!["z1"])),
        1 => Some(("zone", Operator::In, vec!["z2", "z1"])),
        2 => Some(("zone", Operator::NotIn, vec!["z2"])),
        3 => Some(("disk", Operator::Exists, Vec::new())),
        4 => Some(("disk", Operator::Missing, Vec::new())),
        _ => None,
    };
    let selector = requirement.map(|(label, operator, values)| Requirement {
        label: label.to_owned(),
        operator: operator.into(),
        values: values.into_iter().map(str::to_owned).collect(),
    });
    let keys = ["", "maintenance", "other"].map(str::to_owned);
    let toleration = pick(&keys, random).filter(|_| random.chance(300)).cloned();
    PlacementRules {
        selector: selector.into_iter().collect(),
        tolerations: toleration
            .map(|key| Toleration {
                key,
                value: String::new(),
            })
            .into_iter()
            .collect(),
        numa: match random.below(4) {
            0 => NumaPolicy::Single.into(),
            1 => NumaPolicy::BestEffort.into(),
            _ => NumaPolicy::None.into(),
        },
        preferred: match random.below(8) {
            0 => vec![Requirement {
                label: "disk".to_owned(),
                operator: Operator::Exists.into(),
                values: Vec::new(),
            }],
            _ => Vec::new(),
        },
        ..others(random)
    }
}

/// A group of its own, and where it stands to groups.
fn others(random: &mut Seeded) -> PlacementRules {
    let name = |random: &mut Seeded| ["red", "green"][random.below(2) as usize].to_owned();
    let domain = |random: &mut Seeded| ["", "zone"][random.below(2) as usize].to_owned();
    let mut rules = PlacementRules::default();
    if random.chance(400) {
        return rules;
    }
    rules.group = name(random);
    let term = |random: &mut Seeded| GroupTerm {
        group: name(random),
        topology_key: domain(random),
    };
    match random.below(6) {
        0 | 1 => rules.anti_affinity.push(term(random)),
        2 => rules.affinity.push(term(random)),
        3 | 4 => rules.spread.push(Spread {
            topology_key: domain(random),
            max_skew: 1 + random.below(2) as u32,
        }),
        _ => {}
    }
    rules
}

/// What those ask for who differ in nothing but amounts: some want devices, some want cores.
pub fn one_alike(random: &mut Seeded) -> Submit {
    let devices = random.chance(400);
    Submit {
        priority_class: CLASSES[0].to_owned(),
        cpu_milli: match devices {
            true => 500,
            false => 1000 * [1, 2, 4, 7, 13][random.below(5) as usize],
        },
        memory_bytes: GIB,
        gpu_count: if devices {
            [1, 2, 4, 8][random.below(4) as usize]
        } else {
            0
        },
        ..Submit::default()
    }
}

/// What no node has, or hardly any, and mostly before everybody else.
pub fn impossible(random: &mut Seeded) -> Submit {
    let mut asked = submit(random);
    asked.priority_class = ["high", "middle", ""][random.below(3) as usize].to_owned();
    asked.priority = 0;
    asked.best_effort = false;
    match random.below(4) {
        0 => {
            let nowhere = Requirement {
                label: "zone".to_owned(),
                operator: Operator::In.into(),
                values: vec!["nowhere".to_owned()],
            };
            let rules = asked.rules.get_or_insert_default();
            rules.selector.push(nowhere);
        }
        1 => asked.gpu_models = vec!["unheard-of".to_owned()],
        2 => asked.cpu_milli = 17_000 + 1000 * random.below(8) as i64,
        // As many devices as the largest node has, in a cell that may have none.
        _ => (asked.gpu_count, asked.gpu_milli) = (8, 0),
    }
    if asked.gpu_count == 0 {
        asked.gpu_models.clear();
    }
    asked.cpu_milli_limit = 0;
    asked
}

/// A bound of time, mostly none.
fn bound(random: &mut Seeded) -> i64 {
    match random.chance(100) {
        true => 1 + random.below(6000) as i64,
        false => 0,
    }
}

/// What those ask for who come in a crowd: plain amounts, and mostly a class.
pub fn one_of_many(random: &mut Seeded) -> Submit {
    let class = match random.below(10) {
        0..=4 => CLASSES[0],
        5 | 6 => CLASSES[1],
        7 | 8 => CLASSES[2],
        _ => "",
    };
    let gpu_count = [0, 0, 0, 1, 2, 4][random.below(6) as usize];
    Submit {
        priority_class: class.to_owned(),
        priority: 0,
        cpu_milli: 1000 * [1, 2, 4, 8][random.below(4) as usize],
        memory_bytes: GIB * (1 + random.below(3)) as i64,
        gpu_count,
        rules: random.chance(300).then(|| PlacementRules {
            numa: NumaPolicy::None.into(),
            ..rules(random)
        }),
        never_requeue: random.chance(50),
        run_time_ms: random.below(2) as i64 * random.below(3000) as i64,
        ttl_ms: bound(random),
        time_limit_ms: bound(random),
        ..Submit::default()
    }
}

/// What one allocation may ask for.
pub fn submit(random: &mut Seeded) -> Submit {
    let class = class(random);
    let gpu_count = match random.below(10) {
        0..=3 => 0,
        4..=7 => 1,
        more => more as i64 - 6,
    };
    let gpu_milli = match random.below(3) {
        0 if gpu_count == 1 => 100 * (1 + random.below(10)) as i64,
        1 if gpu_count > 0 => 1000,
        _ => 0,
    };
    let gpu_models = match random.below(6) {
        0 if gpu_count > 0 => vec!["a100".to_owned()],
        1 if gpu_count > 0 => vec!["t4".to_owned(), "a100".to_owned()],
        _ => Vec::new(),
    };
    let (team, namespace) = below(random);
    let best_effort = random.chance(30);
    let named = |amount: i64, chance, random: &mut Seeded| match random.chance(chance) {
        _ if best_effort => 0,
        // Whoever names none gets the default, if there is one.
        true => 0,
        false => amount,
    };
    let cpu_milli = named(500 * (1 + random.below(12)) as i64, 60, random);
    let memory_bytes = named(GIB * (1 + random.below(8)) as i64, 60, random);
    Submit {
        job_set: match random.below(3) {
            0 => String::new(),
            other => format!("set-{other}"),
        },
        name: if random.chance(300) {
            "name".into()
        } else {
            String::new()
        },
        priority: if class.is_empty() {
            random.below(5) as i32 - 2
        } else {
            0
        },
        cpu_milli,
        memory_bytes,
        gpu_count,
        gpu_milli,
        gpu_models,
        priority_class: class.to_owned(),
        rules: random.chance(350).then(|| rules(random)),
        extended: random
            .chance(80)
            .then(|| ExtendedRequest {
                name: "fpga".to_owned(),
                amount: 1 + random.below(3) as i64,
            })
            .into_iter()
            .collect(),
        retries: random.below(3) as i64 * random.below(2) as i64,
        never_requeue: random.chance(150),
        run_time_ms: random.below(2) as i64 * random.below(3000) as i64,
        ttl_ms: bound(random),
        time_limit_ms: bound(random),
        team,
        namespace,
        cpu_milli_limit: if random.chance(100) { 10_000 } else { 0 },
        best_effort,
        ..Submit::default()
    }
}
