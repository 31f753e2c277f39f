//! Quota for programs: amounts in the units of the resource types, moments as Unix milliseconds. Sums that may be larger
//! than any program's numbers are text.

use super::get::View;
use crate::explain::object;
use quota::{
    project::{AccountState, BudgetState, HourRow, TenantRow},
    store::{AccountRow, CohortRow, PlannedRow, WaitingRow},
};
use serde_json::Value;
use vocab::{BudgetOf, CellNo, Limits, Millis, Token};

fn moment(at: Option<Millis>) -> Value {
    at.map(|at| at.0).into()
}

pub fn view(view: &View) -> Value {
    let budgets = view.budgets.iter();
    object([
        ("account", view.account.to_string().into()),
        ("tenant", view.tenant.as_ref().map(tenant).into()),
        (
            "resources",
            view.rows
                .iter()
                .map(|row| state(row.resource.to_string(), &row.state))
                .collect(),
        ),
        ("planned", view.planned.iter().map(planned).collect()),
        (
            "budgets",
            budgets.map(|(of, row)| budget(of, row)).collect(),
        ),
        (
            "waiting",
            view.waiting
                .iter()
                .map(|row| waiting(view.cell, row))
                .collect(),
        ),
    ])
}

pub fn tenant(row: &TenantRow) -> Value {
    object([
        ("tenant", row.tenant.as_str().into()),
        ("cohort", row.cohort.as_ref().map(Token::as_str).into()),
        ("preemptible", row.preemptible.into()),
        ("on_exceed", row.on_exceed.name().into()),
        ("reclaim", row.reclaim.name().into()),
        ("version", row.version.into()),
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

fn budget(of: &BudgetOf, row: &BudgetState) -> Value {
    object([
        ("of", of.name().into()),
        ("amount", row.budget.amount.into()),
        ("period", row.budget.period.name().into()),
        ("version", row.version.into()),
        ("period_start_ms", row.period.0.0.into()),
        ("period_end_ms", row.period.1.0.into()),
        ("spent", row.spent.to_string().into()),
        ("as_of_ms", row.as_of.0.into()),
        ("burn_per_hour", row.burn.to_string().into()),
        ("exhausted_at_ms", moment(row.exhausted_at)),
    ])
}

fn waiting(cell: CellNo, row: &WaitingRow) -> Value {
    let state = &row.state;
    let refusal = state.refusal.as_ref();
    let by = state.reclaimed.and_then(|reclaimed| reclaimed.by);
    object([
        ("allocation_id", row.allocation.id(cell).to_string().into()),
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
        ("reclaimed_by", by.map(|by| by.id(cell).to_string()).into()),
    ])
}

pub fn cohort(row: &CohortRow) -> Value {
    object([
        ("cohort", row.cohort.as_str().into()),
        ("resource", row.resource.to_string().into()),
        ("tenants", row.tenants.into()),
        ("hard", row.hard.to_string().into()),
        ("lendable", row.lendable.to_string().into()),
        ("reserved", row.reserved.to_string().into()),
        ("used", row.used.to_string().into()),
        ("borrowed", row.borrowed.to_string().into()),
    ])
}

pub fn hour(row: &HourRow) -> Value {
    object([
        ("hour_ms", row.hour.0.into()),
        ("used_min", row.used_min.into()),
        ("used_max", row.used_max.into()),
        ("used_ms", row.used_ms.to_string().into()),
        ("covered_ms", row.covered_ms.into()),
        ("reserved_max", row.reserved_max.into()),
        ("hard", row.hard.into()),
    ])
}
