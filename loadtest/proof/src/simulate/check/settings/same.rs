//! Whether an event is the change that was asked for.

use super::{Place, account, usual};
use schemas::v1::{self, event::Kind, request::Verb};

fn positive(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// And the version that it makes; none when it is another kind of change.
pub fn same(at: &Place, verb: &Verb, kind: &Kind) -> Option<(bool, u64)> {
    Some(match (verb, kind) {
        (Verb::SetTenant(asked), Kind::TenantSet(e)) => (same_tenant(asked, e), e.version),
        (Verb::SetQuota(asked), Kind::QuotaSet(e)) => (same_quota(asked, e), e.version),
        (Verb::SetBudget(asked), Kind::BudgetSet(e)) => (same_budget(asked, e), e.version),
        (Verb::SetRate(asked), Kind::RateSet(e)) => {
            let change = e.change.clone().unwrap_or_default();
            let from = match asked.effective_from_ms {
                0 if !asked.correction => at.now + 1,
                ms => ms,
            };
            let same = change.resource == asked.resource
                && change.withdrawn == asked.withdrawn
                && change.micro_per_unit_hour == positive(asked.micro_per_unit_hour)
                && change.effective_from_ms == from
                && change.tenant == asked.tenant
                && change.priority_class == asked.priority_class
                && change.pool == asked.pool
                && change.cluster == asked.cluster;
            (same, e.version)
        }
        (Verb::SetQueue(asked), Kind::QueueSet(e)) => {
            let change = e.change.clone().unwrap_or_default();
            let settings = change.settings.unwrap_or_default();
            let weight = asked.weight_milli.unwrap_or(1000);
            let same = change.queue == asked.queue
                && change.closed == asked.closed
                && settings.parent == asked.parent
                && i64::from(settings.weight_milli) == weight
                && settings.order == asked.order
                && settings.limits.len() == asked.limits.len();
            (same, e.version)
        }
        (Verb::SetPriorityClass(asked), Kind::PriorityClassSet(e)) => {
            let change = e.change.clone().unwrap_or_default();
            let class = v1::PriorityClass {
                value: asked.value,
                preemptible: asked.preemptible,
                preempts: asked.preempts,
                grace_ms: positive(asked.grace_ms),
                placement: asked.placement,
            };
            let same = change.priority_class == asked.priority_class
                && change.closed == asked.closed
                && change.settings.unwrap_or_default() == class;
            (same, e.version)
        }
        (Verb::SetScheduling(asked), Kind::SchedulingSet(e)) => {
            let change = e.change.unwrap_or_default();
            let policy = change.policy.unwrap_or_default();
            let same = policy.placement == asked.placement && policy.backfill == asked.backfill;
            (same, e.version)
        }
        (Verb::SetCordon(asked), Kind::CordonSet(e)) => {
            let change = e.change.clone().unwrap_or_default();
            let same = change
                == v1::cordon_set::Change {
                    node: asked.node.clone(),
                    cordoned: asked.cordoned,
                    drain: asked.drain,
                    at_once: asked.at_once,
                };
            (same, e.version)
        }
        (Verb::SetTaints(asked), Kind::TaintsSet(e)) => {
            let change = e.change.clone().unwrap_or_default();
            let same = change.node == asked.node
                && change.taints.len() == asked.taints.len()
                && asked.taints.iter().all(|it| change.taints.contains(it));
            (same, e.version)
        }
        (Verb::SetNode(asked), Kind::NodeSet(e)) => {
            let change = e.change.clone().unwrap_or_default();
            let approved = asked.approved.clone().map(|it| v1::NodeApproval {
                capacity: it.capacity,
                token: it.token_digest,
                until_ms: it.token_until_ms,
            });
            (
                change.node == asked.node && change.approval == approved,
                e.version,
            )
        }
        (Verb::ClosePeriod(asked), Kind::PeriodClosed(e)) => {
            let change = e.change.unwrap_or_default();
            (change.month == asked.month, e.version)
        }
        _ => return None,
    })
}

fn same_tenant(asked: &v1::SetTenant, e: &v1::TenantSet) -> bool {
    let mut teams = asked.teams.clone();
    teams.sort();
    let mut priority_classes = asked.priority_classes.clone();
    priority_classes.sort();
    priority_classes.dedup();
    let rate_burst = match asked.rate_milli {
        None if asked.rate_burst == 0 => 10_000,
        _ => positive(asked.rate_burst),
    };
    let wanted = v1::TenantSettings {
        cohort: asked.cohort.clone(),
        weight_milli: asked.weight_milli.map_or(1000, |it| positive(it) as u32),
        preemptible: asked.preemptible.unwrap_or(true),
        on_exceed: asked.on_exceed,
        reclaim: asked.reclaim,
        rate_milli: asked.rate_milli.map_or(1_000_000, positive),
        rate_burst,
        allocations_max: positive(asked.allocations_max),
        priority_classes,
        priority_max: asked.priority_max.unwrap_or(1_000_000),
        default_cpu_milli: positive(asked.default_cpu_milli),
        default_memory_bytes: positive(asked.default_memory_bytes),
    };
    let change = e.change.clone().unwrap_or_default();
    change.tenant == asked.tenant
        && change.closed == asked.closed
        && change.teams == teams
        && change.settings.unwrap_or_else(usual) == wanted
}

fn same_quota(asked: &v1::SetQuota, e: &v1::QuotaSet) -> bool {
    let wanted = v1::Limits {
        hard: positive(asked.limit),
        soft: asked.soft.map(positive),
        burst: asked.burst.map(positive),
        burst_ms: positive(asked.burst_ms),
        borrow: asked.borrow.map(positive),
        lend: asked.lend.map(positive),
    };
    let wanted = (!asked.unlimited).then_some(wanted);
    let change = e.change.clone().unwrap_or_default();
    account(&change.tenant, &change.team, &change.namespace)
        == account(&asked.tenant, &asked.team, &asked.namespace)
        && change.resource == asked.resource
        && change.limits == wanted
        && (change.from_ms, change.until_ms) == (asked.from_ms, asked.until_ms)
}

fn same_budget(asked: &v1::SetBudget, e: &v1::BudgetSet) -> bool {
    let wanted = asked.amount.map(|amount| v1::Budget {
        amount: positive(amount),
        period: asked.period,
    });
    let change = e.change.clone().unwrap_or_default();
    account(&change.tenant, &change.team, &change.namespace)
        == account(&asked.tenant, &asked.team, &asked.namespace)
        && change.of == asked.of
        && change.budget == wanted
}
