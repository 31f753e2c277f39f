//! What stands on the ledger, in words:
//!
//! `limit a/x cpu 8 soft=6 burst=10/1000 borrow=2 lend=3 from=10 until=20`, `limit a cpu none`,
//! `tenant a cohort=c wait lower|never fixed`, `ask 1 a/x cpu=1 gpu=2:T4:V100 storage=3 fpga=1 prio=5 class=k gang=g/3 after=2:3`,
//! `place 1 n`, `start 1`, `requeue 1`, `off 1` (kept off by the scheduler), `lacks 1` (waits for fellows), `end 1`, `prio 1 5`, `node n T4 pool=p`,
//! `budget a cpu 100 hour`, `rate gpu:T4 3600000 0 tenant=a class=k pool=p cluster=c`. GPUs are whole ones.

use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationReprioritised, AllocationRequested,
    AllocationRequeued, AllocationStarted, AllocationWaiting, BudgetSet, NodeRegistered, QuotaSet,
    RateSet, TenantSet,
};
use vocab::{
    Account, AdminChange, AllocationNo, AllocationSpec, Budget, BudgetOf, Dependency, EndCause,
    Event, Gang, GpuRequest, Limits, Millis, NodeCapacity, OnExceed, Operation, Period,
    PlacementPolicy, QuotaResource, RateScope, ReclaimFrom, ResourceKey, TenantSettings, Token,
    Validity, WaitingReason,
};

pub fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

/// `name=token` among the words.
fn named(words: &[&str], name: &str) -> Option<Token> {
    let mut values = words.iter().filter_map(|word| word.split_once('='));
    let (_, value) = values.find(|(of, _)| *of == name)?;
    Some(token(value))
}

fn number(text: &str) -> u64 {
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is no number"))
}

pub fn operation(tenant: &Token) -> Operation {
    Operation {
        tenant: tenant.clone(),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    }
}

pub fn admin(change: AdminChange) -> Event {
    change.applied(operation(&token("_operator")), 1).into()
}

/// The event, and the number that it has if it is a request.
pub fn event(step: &str, now: Millis) -> (u64, Event) {
    let words: Vec<&str> = step.split_whitespace().collect();
    let no = words.get(1).and_then(|no| no.parse().ok()).unwrap_or(0);
    let allocation = AllocationNo(no);
    let event = match words[..] {
        ["limit", account, resource, ref rest @ ..] => limit(account, resource, rest),
        ["tenant", tenant, ref rest @ ..] => settings(tenant, rest),
        ["ask", _, account, ref rest @ ..] => ask(account, rest),
        ["budget", account, of, ref rest @ ..] => admin(AdminChange::Budget(BudgetSet {
            account: Account::parse(account).unwrap(),
            of: BudgetOf::parse(of).unwrap(),
            budget: match rest {
                ["none"] => None,
                [amount, period] => Some(Budget {
                    amount: number(amount),
                    period: Period::parse(period).unwrap(),
                }),
                other => panic!("{other:?}"),
            },
        })),
        ["rate", resource, rate, from, ref scope @ ..] => admin(AdminChange::Rate(RateSet {
            resource: ResourceKey::parse(resource).unwrap(),
            micro_per_unit_hour: if rate == "none" { 0 } else { number(rate) },
            effective_from: Millis(from.parse().unwrap()),
            scope: RateScope {
                tenant: named(scope, "tenant"),
                priority_class: named(scope, "class"),
                pool: named(scope, "pool"),
                cluster: named(scope, "cluster"),
            },
            withdrawn: rate == "none",
        })),
        ["node", node, model, ref labels @ ..] => Event::NodeRegistered(NodeRegistered {
            node: token(node),
            incarnation: 1,
            boot: 1,
            capacity: NodeCapacity {
                gpu_model: (model != "-").then(|| token(model)),
                labels: ["cluster", "pool"]
                    .into_iter()
                    .filter_map(|label| Some((token(label), named(labels, label)?)))
                    .collect(),
                ..NodeCapacity::default()
            },
        }),
        ["place", _, node] => Event::AllocationPlaced(AllocationPlaced {
            allocation,
            node: token(node),
            incarnation: 1,
            gpus: Default::default(),
            zones: 0,
            policy: PlacementPolicy::default(),
            candidates: Default::default(),
        }),
        ["start", _] => Event::AllocationStarted(AllocationStarted {
            allocation,
            at: now,
        }),
        ["requeue", _] => Event::AllocationRequeued(AllocationRequeued {
            allocation,
            cause: EndCause::Preempted,
            at: now,
            not_before: now,
            exit: None,
        }),
        ["off", _] => Event::AllocationWaiting(AllocationWaiting {
            allocation,
            reason: WaitingReason::Quota,
            pending_group: None,
        }),
        ["lacks", _] => Event::AllocationWaiting(AllocationWaiting {
            allocation,
            reason: WaitingReason::GangIncomplete,
            pending_group: None,
        }),
        ["end", _] => Event::AllocationEnded(AllocationEnded {
            allocation,
            cause: EndCause::Finished,
            at: now,
            exit: None,
        }),
        ["prio", _, priority] => Event::AllocationReprioritised(AllocationReprioritised {
            allocation,
            priority: priority.parse().unwrap(),
        }),
        _ => panic!("no such step: {step}"),
    };
    (no, event)
}

fn limit(account: &str, resource: &str, rest: &[&str]) -> Event {
    let mut limits = Limits::default();
    let mut validity = Validity::default();
    let mut none = false;
    for word in rest {
        match word.split_once('=') {
            None if *word == "none" => none = true,
            None => limits.hard = number(word),
            Some(("soft", value)) => limits.soft = Some(number(value)),
            Some(("burst", value)) => {
                let (burst, ms) = value.split_once('/').unwrap();
                limits.burst = Some(number(burst));
                limits.burst_ms = number(ms);
            }
            Some(("borrow", value)) => limits.borrow = Some(number(value)),
            Some(("lend", value)) => limits.lend = Some(number(value)),
            Some(("from", value)) => validity.from = Some(Millis(value.parse().unwrap())),
            Some(("until", value)) => validity.until = Some(Millis(value.parse().unwrap())),
            Some(other) => panic!("{other:?}"),
        }
    }
    admin(AdminChange::Quota(QuotaSet {
        account: Account::parse(account).unwrap(),
        resource: QuotaResource::parse(resource).unwrap(),
        limits: (!none).then_some(limits),
        validity,
    }))
}

fn settings(tenant: &str, rest: &[&str]) -> Event {
    let mut settings = TenantSettings::default();
    for word in rest {
        match (*word, word.strip_prefix("cohort=")) {
            (_, Some(cohort)) => settings.cohort = Some(token(cohort)),
            ("wait", _) => settings.on_exceed = OnExceed::Wait,
            ("lower", _) => settings.reclaim = ReclaimFrom::LowerPriority,
            ("never", _) => settings.reclaim = ReclaimFrom::Never,
            ("fixed", _) => settings.preemptible = false,
            other => panic!("{other:?}"),
        }
    }
    let tenant = token(tenant);
    admin(AdminChange::Tenant(TenantSet {
        tenant,
        settings,
        closed: false,
        teams: Vec::new(),
    }))
}

fn ask(account: &str, rest: &[&str]) -> Event {
    let account = Account::parse(account).unwrap();
    let mut spec = AllocationSpec::plain(token("jobs"), 0, 0);
    (spec.team, spec.namespace) = (account.team, account.namespace);
    for word in rest {
        match word.split_once('=').unwrap() {
            ("cpu", amount) => spec.cpu_milli = number(amount),
            ("memory", amount) => spec.memory_bytes = number(amount),
            ("gpu", amount) => {
                let mut words = amount.split(':');
                let count = words.next().unwrap().parse().unwrap();
                let models = words.map(token).collect();
                spec.gpu = Some(GpuRequest {
                    count,
                    milli: 1000,
                    models,
                });
            }
            ("prio", priority) => spec.priority = priority.parse().unwrap(),
            ("after", others) => {
                let others = others.split(':').map(|no| Dependency {
                    allocation: AllocationNo(number(no)),
                    success: false,
                });
                spec.depends_on = others.collect();
            }
            ("class", class) => spec.priority_class = Some(token(class)),
            ("gang", gang) => {
                let (name, size) = gang.split_once('/').unwrap();
                let (name, size) = (token(name), size.parse().unwrap());
                spec.gang = Some(Gang {
                    name,
                    size,
                    min: size,
                    uniform_label: None,
                });
            }
            (name, amount) => spec.extended.push((token(name), number(amount))),
        }
    }
    let operation = operation(&account.tenant);
    Event::AllocationRequested(AllocationRequested { operation, spec })
}
