//! Quota for programs: amounts in the units of the resource types, moments as Unix milliseconds. Amounts are
//! numbers.

use super::{
    get::{View, Waiting, on_exceed, reclaim},
    tree::OfCohort,
};
use crate::{explain::object, print::exact_number, submit::words};
use client::{BudgetView, TenantTreatment};
use quota::{
    project::{AccountState, HourRow},
    store::{AccountRow, PlannedRow},
};
use serde_json::Value;
use vocab::{Limits, Millis};

fn moment(at: Option<Millis>) -> Value {
    at.map(|at| at.0).into()
}

pub fn view(view: &View) -> Value {
    object([
        ("account", view.account.to_string().into()),
        ("tenant", view.tenant.as_ref().map(tenant).into()),
        ("teams", view.teams.clone().into()),
        (
            "resources",
            view.rows
                .iter()
                .map(|row| state(row.resource.to_string(), &row.state))
                .collect(),
        ),
        ("planned", view.planned.iter().map(planned).collect()),
        ("budgets", view.budgets.iter().map(budget).collect()),
        ("waiting", view.waiting.iter().map(waiting).collect()),
        ("as_of", view.lsn.into()),
    ])
}

fn tenant(treatment: &TenantTreatment) -> Value {
    let cohort = Some(treatment.cohort.as_str()).filter(|name| !name.is_empty());
    object([
        ("cohort", cohort.into()),
        ("preemptible", treatment.preemptible.into()),
        ("on_exceed", on_exceed(treatment).name().into()),
        ("reclaim", reclaim(treatment).name().into()),
    ])
}

pub fn account(row: &AccountRow) -> Value {
    let mut found = state(row.resource.to_string(), &row.state);
    if let Some(fields) = found.as_object_mut() {
        fields.insert("account".into(), row.account.to_string().into());
    }
    found
}

fn state(resource: String, state: &AccountState) -> Value {
    object([
        ("resource", resource.into()),
        ("limits", state.limits.map(limits).into()),
        ("version", state.version.into()),
        ("reserved", state.reserved.into()),
        ("used", state.used.into()),
        ("peak", state.peak.map(|peak| peak.used).into()),
        ("peak_at_ms", moment(state.peak.map(|peak| peak.at))),
        ("soft_since_ms", moment(state.soft_since)),
        ("over_since_ms", moment(state.over_since)),
        ("borrowed", state.borrowed.into()),
    ])
}

fn limits(limits: Limits) -> Value {
    object([
        ("hard", limits.hard.into()),
        ("soft", limits.soft.into()),
        ("burst", limits.burst.into()),
        ("burst_ms", limits.burst_ms.into()),
        ("borrow", limits.borrow.into()),
        ("lend", limits.lend.into()),
    ])
}

fn planned(row: &PlannedRow) -> Value {
    object([
        ("resource", row.resource.to_string().into()),
        ("limits", row.planned.limits.map(limits).into()),
        ("from_ms", moment(row.planned.validity.from)),
        ("until_ms", moment(row.planned.validity.until)),
        ("version", row.version.into()),
    ])
}

fn budget(budget: &BudgetView) -> Value {
    object([
        ("of", budget.of.as_str().into()),
        ("amount", budget.amount.into()),
        ("period", words(budget.period()).into()),
        ("period_start_ms", budget.begins_ms.into()),
        ("period_end_ms", budget.ends_ms.into()),
        ("spent", exact_number(&budget.spent)),
        ("as_of_ms", budget.as_of_ms.into()),
        ("burn_per_hour", exact_number(&budget.burn)),
        ("exhausted_at_ms", budget.exhausted_at_ms.into()),
    ])
}

fn waiting((id, state): &Waiting) -> Value {
    let refusal = state.refusal.as_ref();
    object([
        ("allocation_id", id.to_string().into()),
        ("account", state.account.to_string().into()),
        ("priority", state.priority.into()),
        ("since_ms", state.since.0.into()),
        ("rule", refusal.map(|refusal| refusal.rule.name()).into()),
        (
            "subject",
            refusal.map(|refusal| refusal.subject.clone()).into(),
        ),
        ("limit", refusal.map(|refusal| refusal.limit).into()),
        ("actual", refusal.map(|refusal| refusal.actual).into()),
        ("reclaimed", state.reclaimed.is_some().into()),
    ])
}

pub fn cohort(((cohort, resource), row): &OfCohort) -> Value {
    object([
        ("cohort", cohort.as_str().into()),
        ("resource", resource.to_string().into()),
        ("tenants", row.tenants.into()),
        ("hard", exact_number(row.hard)),
        ("lendable", exact_number(row.lendable)),
        ("reserved", exact_number(row.reserved)),
        ("used", exact_number(row.used)),
        ("borrowed", exact_number(row.borrowed)),
    ])
}

pub fn hour(row: &HourRow) -> Value {
    object([
        ("hour_ms", row.hour.0.into()),
        ("used_min", row.used_min.into()),
        ("used_max", row.used_max.into()),
        ("used_ms", exact_number(row.used_ms)),
        ("covered_ms", row.covered_ms.into()),
        ("reserved_max", row.reserved_max.into()),
        ("hard", row.hard.into()),
    ])
}
