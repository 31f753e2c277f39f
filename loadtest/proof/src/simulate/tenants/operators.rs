//! What operators set: tenants, limits at all levels, budgets, classes and policies.

use super::{Crowd, GIB, OPERATOR, wishes};
use ledger::memory::Seeded;
use schemas::v1::{
    OnExceed, Period, ReclaimFrom, SetBudget, SetQuota, SetRate, SetTenant, request::Verb,
};

/// What is set before anything else, last first; some cells go without policies. Tenants are set in each of them: without
/// classes that are not there, and without teams, which cells of the first level refuse.
pub fn setup(names: &[String], crowd: Crowd, random: &mut Seeded) -> Vec<Verb> {
    let policies = wishes::policies(crowd, random);
    let has_classes = policies
        .iter()
        .any(|verb| matches!(verb, Verb::SetPriorityClass(_)));
    let mut setup = Vec::new();
    if crowd != Crowd::Alike && random.chance(600) {
        setup.extend(wishes::queues(names, random));
    }
    // Cohorts, and who waits, in some of the cells.
    let plain = random.chance(300);
    // So tight that they borrow from each other, and want it back.
    let together = !plain && random.chance(400);
    for tenant in names {
        if crowd != Crowd::None {
            setup.extend(ample(tenant));
            continue;
        }
        if together {
            setup.extend(tight(tenant, random));
            continue;
        }
        for resource in ["cpu", "memory", "gpu"] {
            setup.push(hard_limit(tenant, resource, random));
        }
        if !plain {
            setup.push(limits(tenant, 0, random));
        }
        let usual = SetTenant {
            tenant: tenant.clone(),
            ..SetTenant::default()
        };
        setup.push(Verb::SetTenant(SetTenant {
            expected_version: random.chance(500).then_some(0),
            ..if plain {
                usual
            } else {
                treated(tenant, random)
            }
        }));
    }
    for verb in &mut setup {
        if let Verb::SetTenant(set) = verb {
            set.teams.clear();
            if !has_classes {
                set.priority_classes.clear();
            }
        }
    }
    setup.extend(policies);
    setup
}

/// So much that the nodes are full first.
fn ample(tenant: &str) -> Vec<Verb> {
    let limit = |resource: &str, limit| {
        Verb::SetQuota(SetQuota {
            tenant: tenant.to_owned(),
            resource: resource.to_owned(),
            limit,
            ..SetQuota::default()
        })
    };
    let usual = Verb::SetTenant(SetTenant {
        tenant: tenant.to_owned(),
        ..SetTenant::default()
    });
    vec![
        limit("cpu", 1_000_000),
        limit("memory", 1000 * GIB),
        limit("gpu", 1_000_000),
        usual,
    ]
}

/// In one cohort, with little of its own.
fn tight(tenant: &str, random: &mut Seeded) -> Vec<Verb> {
    let limit = |resource: &str, limit| {
        Verb::SetQuota(SetQuota {
            tenant: tenant.to_owned(),
            resource: resource.to_owned(),
            limit,
            ..SetQuota::default()
        })
    };
    let treated = SetTenant {
        cohort: "c1".to_owned(),
        preemptible: None,
        priority_max: None,
        ..treated(tenant, random)
    };
    let cpu = 4000 * (1 + random.below(3)) as i64;
    vec![
        limit("cpu", cpu),
        limit("memory", 64 * GIB),
        limit("gpu", 8000),
        Verb::SetTenant(SetTenant {
            reclaim: random.below(2) as i32,
            rate_milli: Some(0),
            allocations_max: 0,
            expected_version: None,
            ..treated
        }),
    ]
}

/// What an operator changes meanwhile.
pub fn change(tenant: &str, now_ms: i64, random: &mut Seeded) -> Verb {
    // Sometimes of nobody's.
    let tenant = if random.chance(20) {
        OPERATOR.trim_start_matches('_')
    } else {
        tenant
    };
    match random.below(20) {
        0..=4 => hard_limit(tenant, any_kind(random), random),
        5..=10 => limits(tenant, now_ms, random),
        11..=12 => Verb::SetTenant(SetTenant {
            closed: random.chance(150),
            ..treated(tenant, random)
        }),
        13..=14 => budget(tenant, random),
        15 => rate(tenant, now_ms, random),
        _ => wishes::change(tenant, random),
    }
}

fn any_kind(random: &mut Seeded) -> &'static str {
    ["cpu", "memory", "gpu"][random.below(3) as usize]
}

fn amount(resource: &str, random: &mut Seeded) -> i64 {
    match resource {
        "cpu" => 4000 * (1 + random.below(16)) as i64,
        "memory" => 4 * GIB * (1 + random.below(16)) as i64,
        "pods" => 1 + random.below(6) as i64,
        "leases" => random.below(4) as i64,
        "storage" | "extended:fpga" => 2 + random.below(4) as i64,
        _ => 500 * (2 + random.below(24)) as i64,
    }
}

/// A tenant's, and nothing but a hard limit.
pub fn hard_limit(tenant: &str, resource: &str, random: &mut Seeded) -> Verb {
    Verb::SetQuota(SetQuota {
        tenant: tenant.to_owned(),
        resource: resource.to_owned(),
        limit: amount(resource, random),
        expected_version: random.chance(300).then(|| random.below(3)),
        ..SetQuota::default()
    })
}

/// Of any account: with a soft limit, with a burst, planned, for a while, lent and borrowed, or none any more.
fn limits(tenant: &str, now_ms: i64, random: &mut Seeded) -> Verb {
    let resource = match random.below(10) {
        0..=4 => any_kind(random),
        5 => "gpu:t4",
        6 => "gpu:a100",
        7 => "pods",
        8 => "extended:fpga",
        _ => "leases",
    };
    let limit = amount(resource, random);
    let mut set = SetQuota {
        tenant: tenant.to_owned(),
        resource: resource.to_owned(),
        limit,
        ..SetQuota::default()
    };
    if resource == "leases" {
        set.unlimited = random.chance(200);
        set.limit = if set.unlimited { 0 } else { limit };
        return Verb::SetQuota(set);
    }
    (set.team, set.namespace) = below(random);
    if random.chance(300) {
        set.from_ms = random
            .chance(700)
            .then(|| now_ms + 1 + random.below(600) as i64);
        let from = set.from_ms.unwrap_or(now_ms);
        set.until_ms = random
            .chance(600)
            .then(|| from + 1 + random.below(800) as i64);
    }
    if random.chance(120) {
        (set.limit, set.unlimited) = (0, true);
        return Verb::SetQuota(set);
    }
    set.soft = random.chance(250).then_some(limit / 2);
    if random.chance(350) {
        set.burst = Some(limit + amount(resource, random));
        // Long enough for everybody to read everything in between.
        set.burst_ms = 200 + random.below(650) as i64;
    }
    if set.team.is_empty() {
        set.borrow = random.chance(300).then(|| amount(resource, random));
        set.lend = random.chance(300).then(|| amount(resource, random));
    }
    Verb::SetQuota(set)
}

/// A team and a namespace, or none of them.
pub fn below(random: &mut Seeded) -> (String, String) {
    let team = ["", "", "red", "blue"][random.below(4) as usize];
    let namespace = if team.is_empty() {
        ""
    } else {
        ["", "dev"][random.below(2) as usize]
    };
    (team.to_owned(), namespace.to_owned())
}

fn treated(tenant: &str, random: &mut Seeded) -> SetTenant {
    let some = |chance, random: &mut Seeded| random.chance(chance);
    let on_exceed = match random.below(2) {
        0 => OnExceed::Refuse,
        _ => OnExceed::Wait,
    };
    let reclaim = match random.below(4) {
        0 => ReclaimFrom::Never,
        1 => ReclaimFrom::LowerPriority,
        _ => ReclaimFrom::Any,
    };
    SetTenant {
        tenant: tenant.to_owned(),
        expected_version: some(100, random).then(|| random.below(3)),
        cohort: ["", "c1", "c1", "c2"][random.below(4) as usize].to_owned(),
        weight_milli: some(300, random).then(|| 500 * (1 + random.below(4)) as i64),
        preemptible: some(300, random).then(|| random.chance(500)),
        on_exceed: on_exceed.into(),
        reclaim: reclaim.into(),
        rate_milli: if some(200, random) {
            Some(1000 * (1 + random.below(8)) as i64)
        } else {
            some(500, random).then_some(0)
        },
        rate_burst: random.below(4) as i64,
        allocations_max: if some(100, random) {
            1 + random.below(6) as i64
        } else {
            0
        },
        priority_classes: match random.below(8) {
            0 => vec!["low".into(), "high".into()],
            _ => Vec::new(),
        },
        priority_max: some(150, random).then(|| random.below(3) as i32),
        default_cpu_milli: if some(300, random) { 1000 } else { 0 },
        default_memory_bytes: if some(300, random) { GIB } else { 0 },
        closed: false,
        teams: match random.below(8) {
            0 => vec!["red".into()],
            1 => vec!["red/prod".into(), "blue".into()],
            _ => Vec::new(),
        },
    }
}

/// So small that runs of seconds use it up.
fn budget(tenant: &str, random: &mut Seeded) -> Verb {
    let (team, namespace) = below(random);
    let period = match random.below(3) {
        0 => Period::Day,
        _ => Period::Hour,
    };
    let amount = random.chance(800).then(|| random.below(4) as i64);
    Verb::SetBudget(SetBudget {
        tenant: tenant.to_owned(),
        team,
        namespace,
        of: ["cpu", "gpu"][random.below(2) as usize].to_owned(),
        amount,
        period: amount.map_or(0, |_| period.into()),
        expected_version: random.chance(150).then(|| random.below(2)),
    })
}

/// Returns a change of a rate, now and then of the same resource and scope again: a price or a withdrawal, without a moment, from the
/// beginning, or from a moment to come or in the past.
fn rate(tenant: &str, now_ms: i64, random: &mut Seeded) -> Verb {
    let mut some = |name: &str| match random.chance(200) {
        true => name.to_owned(),
        false => String::new(),
    };
    let (tenant, pool, cluster) = (some(tenant), some("p1"), some("c1"));
    let withdrawn = random.chance(300);
    let price = random.below(1_000_000) as i64;
    let resource = any_kind(random).to_owned();
    let effective_from_ms = match random.below(10) {
        0..=4 => now_ms + 1 + random.below(2000) as i64,
        5 | 6 => now_ms - random.below(2000) as i64,
        _ => 0,
    };
    Verb::SetRate(SetRate {
        tenant,
        pool,
        cluster,
        resource,
        micro_per_unit_hour: if withdrawn { 0 } else { price },
        effective_from_ms,
        withdrawn,
        correction: effective_from_ms == 0 && !withdrawn && price % 2 == 0,
        ..SetRate::default()
    })
}
