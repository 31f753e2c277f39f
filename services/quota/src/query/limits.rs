//! What accounts may hold, and what they do hold.

use crate::{
    project::{AccountState, Key, Peak, Planned, Reclaimed, TenantRow, WaitingState},
    store::{self, AccountRow, PlannedRow, WaitingRow},
};
use chassis::query::{Asked, Trouble, Verb, page_limit};
use schemas::v1::{
    PlannedLimits, QuotaLimits, QuotaPage, QuotaQuery, QuotaView, QuotaWait, TenantTreatment,
};
use sqlx::PgPool;
use std::collections::BTreeMap;
use vocab::{
    Account, AllocationId, CellNo, Limits, Lsn, Millis, QuotaResource, Refusal, Rule, Token,
    Validity,
};
use wire::Message as _;

/// Accounts and resources of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 200;
/// Of those that wait, so many are told at the most.
const WAITING_MAX: u32 = 200;

/// The verb `quota`.
pub struct QuotaQueries {
    pub pool: PgPool,
    pub cell: CellNo,
}

impl Verb for QuotaQueries {
    const NAME: &'static str = "quota";
    type Query = QuotaQuery;
    type Reply = QuotaPage;

    fn position(query: &QuotaQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<QuotaQuery>) -> Result<QuotaPage, Trouble> {
        let (query, whose) = (&asked.query, asked.whose());
        let limit = page_limit(query.limit, PAGE, PAGE_MAX)?;
        if query.waiting > WAITING_MAX {
            let (limit, actual) = (WAITING_MAX.into(), query.waiting.into());
            let refusal = Refusal::over(Rule::QuantityTooLarge, "waiting", limit, actual);
            return Err(Trouble::Refused(refusal));
        }
        let after = match query.after.as_str() {
            "" => None,
            text => {
                let key = key(text);
                Some(key.ok_or_else(|| Trouble::refused(Rule::SettingInvalid, "after"))?)
            }
        };
        let rows = store::accounts(&self.pool, whose, after.as_ref(), limit + 1).await?;
        let tenants = store::tenants(&self.pool, whose).await?;
        let planned = store::planned(&self.pool, whose).await?;
        let waiting = match whose {
            Some(tenant) if after.is_none() && query.waiting > 0 => {
                let account = Account::tenant(tenant.clone());
                store::waiting(&self.pool, &account, query.waiting).await?
            }
            _ => Vec::new(),
        };
        let of_tenant: BTreeMap<&Token, &TenantRow> =
            tenants.iter().map(|row| (&row.tenant, row)).collect();
        let shown = rows.iter().take(limit as usize);
        let quotas: Vec<QuotaView> = shown.map(|row| view(row, &of_tenant, &planned)).collect();
        let last = rows.get(quotas.len().saturating_sub(1));
        let last = last.filter(|_| rows.len() > quotas.len());
        Ok(QuotaPage {
            next: last.map_or_else(String::new, |row| {
                format!("{} {}", row.account, row.resource)
            }),
            quotas,
            refusal: None,
            lsn: asked.applied.0,
            waiting: waiting.iter().map(|row| wait(row, self.cell)).collect(),
            treatment: whose
                .and_then(|tenant| of_tenant.get(tenant))
                .map(|row| treatment(row)),
        })
    }
}

/// A reply that is none of the contract's, or of a later version.
#[derive(Debug, thiserror::Error)]
#[error("the cell's quota cannot be read: {0}")]
pub struct Unreadable(&'static str);

/// An account's part of a resource, as the cell has said it, and what is planned for it.
pub fn of_view(view: &QuotaView) -> Result<(AccountRow, Vec<PlannedRow>), Unreadable> {
    let account = account(&view.tenant, &view.team, &view.namespace)?;
    let resource = QuotaResource::parse(&view.resource).ok_or(Unreadable("the resource"))?;
    let moment = |at: i64| Some(Millis(at)).filter(|at| at.0 != 0);
    let peak = moment(view.peak_at_ms).map(|at| Peak {
        used: view.used_peak,
        at,
    });
    let planned = view.planned.iter().map(|plan| PlannedRow {
        account: account.clone(),
        resource: resource.clone(),
        version: plan.version,
        planned: Planned {
            limits: plan.limits.as_ref().map(of_limits),
            validity: Validity {
                from: moment(plan.from_ms),
                until: moment(plan.until_ms),
            },
        },
    });
    let planned = planned.collect();
    let state = AccountState {
        limits: view.limits.as_ref().map(of_limits),
        version: view.version,
        reserved: view.reserved,
        used: view.used,
        peak,
        soft_since: moment(view.soft_since_ms),
        over_since: moment(view.over_since_ms),
        borrowed: view.borrowed,
        // Not told.
        changed_at: Millis(0),
    };
    let row = AccountRow {
        account,
        resource,
        state,
    };
    Ok((row, planned))
}

fn account(tenant: &str, team: &str, namespace: &str) -> Result<Account, Unreadable> {
    let names = [tenant, team, namespace];
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    Account::parse(&names.join("/")).ok_or(Unreadable("the account"))
}

fn of_limits(limits: &QuotaLimits) -> Limits {
    Limits {
        hard: limits.hard,
        soft: limits.soft,
        burst: limits.burst,
        burst_ms: limits.burst_ms,
        borrow: limits.borrow,
        lend: limits.lend,
    }
}

/// What one of the tenant's waits for.
pub fn of_wait(
    tenant: &Token,
    wait: &QuotaWait,
) -> Result<(AllocationId, WaitingState), Unreadable> {
    let id = AllocationId::parse(&wait.allocation_id).ok_or(Unreadable("an id"))?;
    let refusal = match &wait.limit {
        None => None,
        Some(limit) => {
            let rule = Rule::from_number(limit.rule).ok_or(Unreadable("a rule"))?;
            Some(Refusal::over(
                rule,
                &*limit.subject,
                limit.limit,
                limit.actual,
            ))
        }
    };
    let state = WaitingState {
        account: account(tenant.as_str(), &wait.team, &wait.namespace)?,
        priority: wait.priority,
        since: Millis(wait.since_ms),
        refusal,
        reclaimed: wait.reclaimed.then_some(Reclaimed { by: None }),
    };
    Ok((id, state))
}

/// As the page before has written it.
fn key(after: &str) -> Option<Key> {
    let (account, resource) = after.split_once(' ')?;
    Some((Account::parse(account)?, QuotaResource::parse(resource)?))
}

fn name(token: Option<&Token>) -> String {
    token.map_or_else(String::new, Token::to_string)
}

fn view(
    row: &AccountRow,
    tenants: &BTreeMap<&Token, &TenantRow>,
    planned: &[PlannedRow],
) -> QuotaView {
    let (account, state) = (&row.account, &row.state);
    let cohort = tenants.get(&account.tenant);
    let own = |plan: &&PlannedRow| plan.account == *account && plan.resource == row.resource;
    QuotaView {
        tenant: account.tenant.to_string(),
        team: name(account.team.as_ref()),
        namespace: name(account.namespace.as_ref()),
        resource: row.resource.to_string(),
        limits: state.limits.map(limits),
        version: state.version,
        reserved: state.reserved,
        used: state.used,
        borrowed: state.borrowed,
        used_peak: state.peak.map_or(0, |peak| peak.used),
        peak_at_ms: state.peak.map_or(0, |peak| peak.at.0),
        soft_since_ms: state.soft_since.map_or(0, |since| since.0),
        over_since_ms: state.over_since.map_or(0, |since| since.0),
        cohort: name(cohort.and_then(|tenant| tenant.cohort.as_ref())),
        planned: planned.iter().filter(own).map(plan).collect(),
    }
}

fn limits(limits: Limits) -> QuotaLimits {
    QuotaLimits {
        hard: limits.hard,
        soft: limits.soft,
        burst: limits.burst,
        burst_ms: limits.burst_ms,
        borrow: limits.borrow,
        lend: limits.lend,
    }
}

fn plan(row: &PlannedRow) -> PlannedLimits {
    let validity = row.planned.validity;
    PlannedLimits {
        limits: row.planned.limits.map(limits),
        from_ms: validity.from.map_or(0, |from| from.0),
        until_ms: validity.until.map_or(0, |until| until.0),
        version: row.version,
    }
}

fn wait(row: &WaitingRow, cell: CellNo) -> QuotaWait {
    let state = &row.state;
    QuotaWait {
        allocation_id: row.allocation.id(cell).to_string(),
        team: name(state.account.team.as_ref()),
        namespace: name(state.account.namespace.as_ref()),
        priority: state.priority,
        since_ms: state.since.0,
        limit: state.refusal.as_ref().map(Refusal::to_prost),
        reclaimed: state.reclaimed.is_some(),
    }
}

fn treatment(row: &TenantRow) -> TenantTreatment {
    TenantTreatment {
        cohort: name(row.cohort.as_ref()),
        preemptible: row.preemptible,
        // The numbers are the contract's.
        on_exceed: row.on_exceed as i32,
        reclaim: row.reclaim as i32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_where_the_one_before_ended() {
        let check = |after: &str, expected: bool| {
            let found = key(after).map(|(account, resource)| format!("{account} {resource}"));
            assert_eq!(found.as_deref(), expected.then_some(after));
        };
        for written in ["a cpu", "a/b gpu:T4", "a/b/c extended:fpga"] {
            check(written, true);
        }
        for unreadable in ["a", "a/b/c/d cpu", "a disk", " cpu", "a  cpu"] {
            check(unreadable, false);
        }
    }
}
