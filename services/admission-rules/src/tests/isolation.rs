//! What one tenant asks, however much, and with whatever slots, changes nothing for the others: random histories, each
//! run a second time without one of its tenants.

use super::*;
use ledger::memory::Seeded;

const HISTORIES: u64 = 20_000;
const STEPS: u64 = 24;
/// The operators' tenant is nobody's neighbour: nobody may keep them from setting things.
const WHO: [&str; 3] = ["a", "b", "_operator"];

#[derive(Debug, Clone)]
enum Step {
    Ask {
        who: usize,
        id: u64,
        verb: Wish,
    },
    /// One of the tenant's allocations is over.
    Over {
        who: usize,
        which: usize,
        denied: bool,
    },
    Passes(i64),
}

#[derive(Debug, Clone)]
enum Wish {
    Submit,
    /// After one of one's own allocations, or of the other's.
    After(bool, usize),
    Member,
    Cancel(bool, usize),
    /// So many slots after the latest of the tenant, or before it.
    Create(i64),
    LastSlot,
    Class,
    Unreadable,
}

struct Rows {
    config: Config,
    rate_milli: i64,
    steps: Vec<Step>,
}

fn generate(seed: u64) -> Rows {
    let mut random = Seeded::new(seed);
    let r = &mut random;
    let config = Config {
        cell: CellNo(1),
        operation_window_ms: 10 + r.below(100) as i64,
        operations_max: 1 + r.below(5),
        allocations_max: 1 + r.below(4),
        room: shares(0),
        slot_ms: r.below(2) * 10,
        window_slots: r.below(8),
    };
    let rate_milli = r.below(2) as i64 * 100_000;
    let steps = (0..STEPS).map(|_| step(r)).collect();
    Rows {
        config,
        rate_milli,
        steps,
    }
}

fn step(r: &mut Seeded) -> Step {
    let who = r.below(3) as usize;
    let which = r.below(4) as usize;
    match r.below(12) {
        0 => Step::Passes(r.below(60) as i64),
        1 => Step::Over {
            who,
            which,
            denied: r.chance(300),
        },
        _ if who == 2 => Step::Ask {
            who,
            id: r.below(6),
            verb: Wish::Class,
        },
        _ => Step::Ask {
            who,
            id: r.below(12),
            verb: match r.below(10) {
                0..3 => Wish::Submit,
                3 => Wish::After(r.chance(300), which),
                4 => Wish::Member,
                5 => Wish::Cancel(r.chance(300), which),
                6 => Wish::Unreadable,
                7 if r.chance(50) => Wish::LastSlot,
                _ => Wish::Create(r.below(5) as i64 - 1),
            },
        },
    }
}

/// What the tenant was told, in the order of its requests; numbers are those of its own requests.
fn run(rows: &Rows, without: Option<usize>) -> Vec<Vec<String>> {
    let mut t = Table::new();
    t.config = rows.config;
    for tenant in ["a", "b"] {
        t.config.operations_max = 1000;
        let request = TenantRequest {
            tenant: tenant.into(),
            rate_milli: Some(rows.rate_milli),
            rate_burst: 5,
            ..TenantRequest::default()
        };
        let version = if tenant == "a" { 2 } else { 1 };
        t.set(
            ChangeRequest::SetTenant(request),
            &format!("applied {version}"),
        );
    }
    t.config = rows.config;
    let mut told = vec![Vec::new(); WHO.len()];
    // By tenant: the events that took its requests up, its allocations, and its latest slot.
    let mut numbers: Vec<Vec<(u64, usize)>> = vec![Vec::new(); WHO.len()];
    let mut own: Vec<Vec<u64>> = vec![Vec::new(); WHO.len()];
    let mut slots = [0u64; 3];
    for step in &rows.steps {
        match step {
            Step::Passes(ms) => t.now += ms,
            Step::Over { who, .. } | Step::Ask { who, .. } if without == Some(*who) => {}
            Step::Over { who, which, denied } => {
                let Some(no) = own[*who].get(*which).copied() else {
                    continue;
                };
                match denied {
                    true => t.denied(no),
                    false => t.ended(no),
                }
            }
            Step::Ask { who, id, verb } => {
                let find = |foreign: bool, which: usize| {
                    let of = if foreign { 1 - who } else { *who };
                    // Another's is as good as none.
                    let no = own[of].get(which).copied().unwrap_or(1_000_000);
                    super::id(no)
                };
                let slot = |slot: u64| (rows.config.slot_ms == 0).then_some(slot);
                let create = |slot| {
                    Verb::Resource(ResourceRequest::CreateResource {
                        resource: "r".into(),
                        slot,
                    })
                };
                let submit = |request| Ok(Verb::Submit(request));
                let verb = match verb {
                    Wish::Submit => Ok(plain()),
                    Wish::After(foreign, which) => submit(SubmitRequest {
                        depends_on: vec![DependencyRequest {
                            allocation_id: find(*foreign, *which),
                            success: true,
                            ..DependencyRequest::default()
                        }],
                        ..super::submit()
                    }),
                    Wish::Member => submit(SubmitRequest {
                        gang: Some(GangRequest {
                            name: "g".into(),
                            size: 3,
                            ..GangRequest::default()
                        }),
                        ..super::submit()
                    }),
                    Wish::Cancel(foreign, which) => Ok(cancel(&find(*foreign, *which))),
                    Wish::Create(by) => {
                        let at = slots[*who].saturating_add_signed(*by);
                        slots[*who] = slots[*who].max(at);
                        Ok(create(slot(at)))
                    }
                    Wish::LastSlot => Ok(create(slot(u64::MAX))),
                    Wish::Class => Ok(admin(ChangeRequest::SetPriorityClass(ClassRequest {
                        class: "c".into(),
                        ..ClassRequest::default()
                    }))),
                    Wish::Unreadable => Err(Refusal::new(Rule::UnknownField, "payload")),
                };
                let answer = t.ask(WHO[*who], &format!("o{id}"), *id as u8 % 5, verb);
                let answer = answer.split(", ").filter(|it| !it.contains("forgotten"));
                let answer = answer.map(|word| in_own_numbers(word, &numbers[*who]));
                let answer: Vec<_> = answer.collect();
                let last = t.next - 1;
                if answer.contains(&"requested".to_owned()) {
                    own[*who].push(last);
                }
                numbers[*who].push((last, told[*who].len()));
                told[*who].push(answer.join(", "));
            }
        }
    }
    told
}

/// `repeated 17` and `cancel 17` name the request that event 17 took up.
fn in_own_numbers(word: &str, numbers: &[(u64, usize)]) -> String {
    let Some((verb, no)) = word.split_once(' ') else {
        return word.to_owned();
    };
    let named = no.parse::<u64>().ok();
    let found = named.and_then(|named| numbers.iter().find(|(no, _)| *no == named));
    match found {
        Some((_, request)) if matches!(verb, "repeated" | "cancel") => {
            format!("{verb} request {request}")
        }
        _ => word.to_owned(),
    }
}

#[test]
fn what_one_tenant_asks_changes_nothing_for_the_others() {
    let mut refused = 0;
    for seed in 0..HISTORIES {
        let rows = generate(seed);
        let all = run(&rows, None);
        for absent in [0, 1] {
            let others = run(&rows, Some(absent));
            for who in (0..WHO.len()).filter(|who| *who != absent) {
                let without = WHO[absent];
                let of = WHO[who];
                assert_eq!(
                    all[who], others[who],
                    "seed {seed}: {of} is told something else without {without}: {:?}",
                    rows.steps
                );
            }
        }
        let full = |told: &String| told.contains("_table_full");
        refused += all.iter().flatten().filter(|told| full(told)).count() as u64;
        assert!(!all[2].iter().any(full), "seed {seed}: the operators wait");
    }
    // The tables were full often enough to say something.
    assert!(refused > HISTORIES, "{refused}");
}
