//! One word for each event.

use super::*;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationReprioritised, AllocationRequested,
    AllocationRequeued, AllocationStarted, AllocationWaiting, BudgetSet, LeaseExpired,
    LimitsInForce, NodeRegistered, QuotaDenied, QuotaReclaimed, QuotaReleased, QuotaReserved,
    QuotaSet, QuotaWaiting, RateSet, ResourceAsked, ResourceDecided, TenantSet,
};
use vocab::{
    AdminChange, AllocationSpec, Budget, EndCause, Event, GpuRequest, LeaseNo, ModelGrant,
    NodeCapacity, Operation, Period, PlacementPolicy, QuotaFlags, Refusal, ResourceAnswer,
    ResourceAsk, ResourceKey, Rule, TenantSettings, WaitingReason,
};

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn operation(tenant: &str) -> Operation {
    Operation {
        tenant: token(tenant),
        operation_id: Some(token("op")),
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    }
}

/// What follows `name=` among the words.
fn option<T: std::str::FromStr>(words: &[&str], name: &str) -> Option<T> {
    let mut words = words.iter();
    let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
    value.parse().ok()
}

fn spec(account: &Account, words: &[&str]) -> AllocationSpec {
    let amount = |name| option::<u64>(words, name).unwrap_or(0);
    let model: Option<String> = option(words, "model");
    let gpu = option::<u16>(words, "gpu").map(|count| GpuRequest {
        count,
        milli: 1000,
        models: model.iter().map(|model| token(model)).collect(),
    });
    let extended = ["fpga", "storage"].map(|name| (token(name), amount(name)));
    AllocationSpec {
        gpu,
        priority: option(words, "priority").unwrap_or(0),
        extended: extended.into_iter().filter(|(_, n)| *n > 0).collect(),
        team: account.team.clone(),
        namespace: account.namespace.clone(),
        ..AllocationSpec::plain(token("j"), amount("cpu"), amount("memory"))
    }
}

fn limits(words: &[&str]) -> Option<Limits> {
    let hard = words.first()?.parse().ok()?;
    let burst = option(words, "burst");
    Some(Limits {
        hard,
        soft: option(words, "soft"),
        burst,
        burst_ms: burst.map_or(0, |_: u64| 60_000),
        borrow: option(words, "borrow"),
        lend: option(words, "lend"),
    })
}

fn admin(change: AdminChange, words: &[&str]) -> Event {
    change
        .applied(operation("_operator"), option(words, "v").unwrap_or(1))
        .into()
}

fn setting(verb: &str, words: &[&str]) -> Option<Event> {
    let account = || Account::parse(words[0]).unwrap();
    let change = match verb {
        "limit" => AdminChange::Quota(QuotaSet {
            account: account(),
            resource: QuotaResource::parse(words[1]).unwrap(),
            limits: limits(&words[2..]),
            validity: Validity {
                from: option(words, "from").map(Millis),
                until: option(words, "until").map(Millis),
            },
        }),
        "tenant" => AdminChange::Tenant(TenantSet {
            tenant: token(words[0]),
            closed: false,
            teams: Vec::new(),
            settings: TenantSettings {
                cohort: option::<String>(words, "cohort").map(|name| token(&name)),
                preemptible: !words.contains(&"never"),
                ..TenantSettings::default()
            },
        }),
        "budget" => AdminChange::Budget(BudgetSet {
            account: account(),
            of: BudgetOf::parse(words[1]).unwrap(),
            budget: words[2].parse().ok().map(|amount| Budget {
                amount,
                period: Period::parse(words[3]).unwrap(),
            }),
        }),
        "rate" => AdminChange::Rate(RateSet {
            resource: ResourceKey::parse(words[0]).unwrap(),
            micro_per_unit_hour: words[1].parse().unwrap(),
            effective_from: Millis(option(words, "from").unwrap_or(0)),
            scope: vocab::RateScope::default(),
            withdrawn: false,
        }),
        _ => return None,
    };
    Some(admin(change, words))
}

fn resource(verb: &str, no: u64, words: &[&str]) -> Option<Event> {
    let ask = |ask| {
        Event::ResourceAsked(ResourceAsked {
            operation: operation(words[1]),
            slot: 0,
            by_requests: false,
            ask,
        })
    };
    let lease = || LeaseNo(words[2].parse().unwrap());
    let holder = || token("h");
    Some(match verb {
        "acquire" => ask(ResourceAsk::Acquire {
            resources: vec![token("r")],
            holder: holder(),
            ttl_slots: 1,
        }),
        "release" => ask(ResourceAsk::Release {
            lease: lease(),
            holder: holder(),
            fencing_token: 1,
        }),
        "reclaim" => ask(ResourceAsk::Reclaim { lease: lease() }),
        "answer" => Event::ResourceDecided(ResourceDecided {
            request: EventNo(words[1].parse().unwrap()),
            answer: match words[2] {
                "granted" => ResourceAnswer::Granted { deadline: 1 },
                "released" => ResourceAnswer::Released {
                    fencing_token: 2,
                    retire_after: 9,
                },
                "reclaimed" => ResourceAnswer::Reclaimed { retire_after: 9 },
                _ => ResourceAnswer::Refused(Refusal::new(Rule::ResourceBusy, "")),
            },
        }),
        "expired" => Event::LeaseExpired(LeaseExpired {
            tenant: token(words[1]),
            lease: LeaseNo(no),
            slot: 1,
            fencing_token: 2,
            retire_after: 9,
        }),
        _ => return None,
    })
}

fn life(verb: &str, (no, now): (u64, Millis), words: &[&str]) -> Event {
    let allocation = AllocationNo(no);
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<i64>().ok());
    let at = number(1).map_or(now, Millis);
    match verb {
        "reserved" => Event::QuotaReserved(QuotaReserved {
            allocation,
            flags: QuotaFlags::default(),
            models: words.get(1).map(|models| {
                let counts_on = models.split('+').map(token).collect();
                let except = Vec::new();
                Box::new(ModelGrant { counts_on, except })
            }),
        }),
        "denied" => Event::QuotaDenied(QuotaDenied {
            allocation,
            refusal: Refusal::new(Rule::QuotaExceeded, "gpu"),
        }),
        "waits" => Event::QuotaWaiting(QuotaWaiting {
            allocation,
            refusal: Refusal::over(
                Rule::QuotaExceeded,
                "t gpu",
                8000,
                number(1).unwrap() as u64,
            ),
        }),
        "reclaimed" => Event::QuotaReclaimed(QuotaReclaimed {
            allocation,
            by: number(1).map(|by| AllocationNo(by as u64)),
        }),
        "released" => Event::QuotaReleased(QuotaReleased { allocation }),
        "off" => Event::AllocationWaiting(AllocationWaiting {
            allocation,
            reason: WaitingReason::Quota,
            pending_group: None,
        }),
        "started" => Event::AllocationStarted(AllocationStarted { allocation, at }),
        "requeued" => Event::AllocationRequeued(AllocationRequeued {
            allocation,
            cause: EndCause::NodeLost,
            at,
            not_before: Millis(0),
            exit: None,
        }),
        "ended" => Event::AllocationEnded(AllocationEnded {
            allocation,
            cause: EndCause::Finished,
            at,
            exit: None,
        }),
        "priority" => Event::AllocationReprioritised(AllocationReprioritised {
            allocation,
            priority: number(1).unwrap() as i32,
        }),
        "placed" => Event::AllocationPlaced(AllocationPlaced {
            allocation,
            node: token(words[1]),
            incarnation: 1,
            gpus: Default::default(),
            zones: 0,
            policy: PlacementPolicy::default(),
            candidates: Default::default(),
        }),
        other => panic!("{other}"),
    }
}

/// The event's own number, where it has a meaning, and the event.
pub fn event(step: &str, now: Millis) -> (u64, Event) {
    let words: Vec<_> = step.split_whitespace().collect();
    let (verb, words) = words.split_first().unwrap();
    let no = words.first().and_then(|word| word.parse().ok());
    let no = no.unwrap_or(0);
    let event = match *verb {
        "ask" => {
            let account = Account::parse(words[1]).unwrap();
            Event::AllocationRequested(AllocationRequested {
                operation: operation(account.tenant.as_str()),
                spec: spec(&account, &words[2..]),
            })
        }
        "in-force" => Event::LimitsInForce(LimitsInForce {
            account: Account::parse(words[0]).unwrap(),
            resource: QuotaResource::parse(words[1]).unwrap(),
            limits: limits(&words[2..]),
        }),
        "node" => Event::NodeRegistered(NodeRegistered {
            node: token(words[0]),
            incarnation: 1,
            boot: 1,
            capacity: NodeCapacity {
                gpu_model: words.get(1).map(|model| token(model)),
                ..NodeCapacity::default()
            },
        }),
        // It is read, and changes nothing.
        "tick" => Event::NodeRegistered(NodeRegistered {
            node: token("another"),
            incarnation: 1,
            boot: 1,
            capacity: NodeCapacity::default(),
        }),
        verb => setting(verb, words)
            .or_else(|| resource(verb, no, words))
            .unwrap_or_else(|| life(verb, (no, now), words)),
    };
    (no, event)
}
