//! Accounts, their limits and budgets, and how a tenant is treated.

use super::operation::operation_to_proto;
use super::{WireError, find, optional_token, text, texts, token, tokens};
use schemas::v1;
use v1::event::Kind;
use vocab::fact::{BudgetSet, QuotaSet};
use vocab::{
    Account, Budget, BudgetOf, Limits, Millis, OnExceed, Operation, Period, QuotaResource,
    ReclaimFrom, TenantSettings, Validity,
};

pub(super) fn account_from_proto(
    tenant: &str,
    team: &str,
    namespace: &str,
) -> Result<Account, WireError> {
    Ok(Account {
        tenant: token(tenant, "account.tenant")?,
        team: optional_token(team, "account.team")?,
        namespace: optional_token(namespace, "account.namespace")?,
    })
}

pub(super) fn resource_from_proto(resource: &str) -> Result<QuotaResource, WireError> {
    QuotaResource::parse(resource).ok_or(WireError("resource"))
}

/// None when nothing is set: the first version wrote none.
pub(super) fn settings_to_proto(settings: &TenantSettings) -> Option<v1::TenantSettings> {
    (*settings != TenantSettings::default()).then(|| v1::TenantSettings {
        cohort: text(&settings.cohort),
        weight_milli: settings.weight_milli,
        preemptible: settings.preemptible,
        on_exceed: settings.on_exceed as i32,
        reclaim: settings.reclaim as i32,
        rate_milli: settings.rate_milli,
        rate_burst: settings.rate_burst,
        allocations_max: settings.allocations_max,
        priority_classes: texts(&settings.priority_classes),
        priority_max: settings.priority_max,
        default_cpu_milli: settings.default_cpu_milli,
        default_memory_bytes: settings.default_memory_bytes,
    })
}

pub(super) fn settings_from_proto(
    settings: Option<v1::TenantSettings>,
) -> Result<TenantSettings, WireError> {
    let Some(settings) = settings else {
        return Ok(TenantSettings::default());
    };
    let classes = tokens(&settings.priority_classes, "settings.priority_classes")?;
    Ok(TenantSettings {
        cohort: optional_token(&settings.cohort, "settings.cohort")?,
        weight_milli: settings.weight_milli,
        preemptible: settings.preemptible,
        on_exceed: find(
            &OnExceed::ALL,
            settings.on_exceed,
            |o| o as i32,
            "on_exceed",
        )?,
        reclaim: find(&ReclaimFrom::ALL, settings.reclaim, |r| r as i32, "reclaim")?,
        rate_milli: settings.rate_milli,
        rate_burst: settings.rate_burst,
        allocations_max: settings.allocations_max,
        priority_classes: classes,
        priority_max: settings.priority_max,
        default_cpu_milli: settings.default_cpu_milli,
        default_memory_bytes: settings.default_memory_bytes,
    })
}

pub(super) fn limits_to_proto(limits: &Limits) -> v1::Limits {
    v1::Limits {
        hard: limits.hard,
        soft: limits.soft,
        burst: limits.burst,
        burst_ms: limits.burst_ms,
        borrow: limits.borrow,
        lend: limits.lend,
    }
}

pub(super) fn limits_from_proto(limits: &v1::Limits) -> Limits {
    Limits {
        hard: limits.hard,
        soft: limits.soft,
        burst: limits.burst,
        burst_ms: limits.burst_ms,
        borrow: limits.borrow,
        lend: limits.lend,
    }
}

/// A hard limit alone is written as the first version wrote it.
pub(super) fn quota_to_proto(
    operation: &Operation,
    account: &Account,
    resource: &QuotaResource,
    limits: Option<&Limits>,
    validity: Validity,
    version: u64,
) -> Kind {
    let hard = limits.map_or(0, |limits| limits.hard);
    let more = limits.filter(|limits| **limits != Limits::hard(hard));
    Kind::QuotaSet(v1::QuotaSet {
        operation: operation_to_proto(operation),
        tenant: account.tenant.to_string(),
        resource: resource.to_string(),
        limit: hard,
        version,
        team: text(&account.team),
        namespace: text(&account.namespace),
        limits: more.map(limits_to_proto),
        from_ms: validity.from.map(|at| at.0),
        until_ms: validity.until.map(|at| at.0),
        unlimited: limits.is_none(),
    })
}

pub(super) fn quota_from_proto(set: &v1::QuotaSet) -> Result<QuotaSet, WireError> {
    let limits = match &set.limits {
        Some(limits) => limits_from_proto(limits),
        None => Limits::hard(set.limit),
    };
    Ok(QuotaSet {
        account: account_from_proto(&set.tenant, &set.team, &set.namespace)?,
        resource: resource_from_proto(&set.resource)?,
        limits: (!set.unlimited).then_some(limits),
        validity: Validity {
            from: set.from_ms.map(Millis),
            until: set.until_ms.map(Millis),
        },
    })
}

pub(super) fn budget_to_proto(
    operation: &Operation,
    account: &Account,
    of: &BudgetOf,
    budget: Option<&Budget>,
    version: u64,
) -> Kind {
    Kind::BudgetSet(v1::BudgetSet {
        operation: operation_to_proto(operation),
        tenant: account.tenant.to_string(),
        team: text(&account.team),
        namespace: text(&account.namespace),
        of: of.name().to_owned(),
        budget: budget.map(|budget| v1::Budget {
            amount: budget.amount,
            period: budget.period as i32,
        }),
        version,
    })
}

pub(super) fn budget_from_proto(set: &v1::BudgetSet) -> Result<BudgetSet, WireError> {
    let budget = |given: &v1::Budget| {
        Ok(Budget {
            amount: given.amount,
            period: find(&Period::ALL, given.period, |p| p as i32, "budget.period")?,
        })
    };
    Ok(BudgetSet {
        account: account_from_proto(&set.tenant, &set.team, &set.namespace)?,
        of: BudgetOf::parse(&set.of).ok_or(WireError("budget.of"))?,
        budget: set.budget.as_ref().map(budget).transpose()?,
    })
}
