//! What accounts may hold, and what they do hold.

use crate::{
    project::{AccountState, Key, Peak, Planned, Reclaimed, TenantRow, WaitingState},
    store::{self, AccountRow, PlannedRow, WaitingRow},
};
use chassis::query::{Asked, Trouble, Verb, cut, page_limit};
use schemas::{
    ToProst as _,
    v1::{
        PlannedLimits, QuotaLimits, QuotaPage, QuotaQuery, QuotaView, QuotaWait, TenantTreatment,
    },
};
use sqlx::PgPool;
use std::collections::BTreeMap;
use vocab::{
    Account, AllocationId, CellNo, Limits, Lsn, Millis, QuotaResource, Refusal, Rule, Token,
    Validity,
};

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
        let below = below(&query.team, &query.namespace)?;
        let mut rows = store::accounts(&self.pool, whose, after.as_ref(), limit + 1).await?;
        let tenants = store::tenants(&self.pool, whose).await?;
        let planned = store::planned(&self.pool, whose).await?;
        rows = with_planned(rows, &planned, after.as_ref(), limit);
        let waiting = match whose {
            Some(tenant) if after.is_none() && query.waiting > 0 => {
                let account = Account {
                    tenant: tenant.clone(),
                    team: below.0.clone(),
                    namespace: below.1.clone(),
                };
                store::waiting(&self.pool, &account, query.waiting).await?
            }
            _ => Vec::new(),
        };
        let of_tenant: BTreeMap<&Token, &TenantRow> =
            tenants.iter().map(|row| (&row.tenant, row)).collect();
        let mut plans: BTreeMap<[String; 4], Vec<&PlannedRow>> = BTreeMap::new();
        for plan in &planned {
            let key = order(&plan.account, &plan.resource);
            plans.entry(key).or_default().push(plan);
        }
        let has_more = cut(&mut rows, limit);
        let last = rows.last().filter(|_| has_more);
        let next = last.map_or_else(String::new, |row| {
            format!("{} {}", row.account, row.resource)
        });
        let fits = |row: &&AccountRow| {
            let is =
                |wanted: &Option<Token>, own: &Option<Token>| wanted.is_none() || wanted == own;
            is(&below.0, &row.account.team) && is(&below.1, &row.account.namespace)
        };
        let quotas = rows.iter().filter(fits);
        let quotas = quotas.map(|row| view(row, &of_tenant, &plans)).collect();
        Ok(QuotaPage {
            next,
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
pub struct Unreadable(pub(super) &'static str);

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

/// The team and the namespace that are asked for.
pub(super) fn below(
    team: &str,
    namespace: &str,
) -> Result<(Option<Token>, Option<Token>), Trouble> {
    let name = |text: &str, field: &str| match text {
        "" => Ok(None),
        name => match Token::new(name) {
            Ok(name) => Ok(Some(name)),
            Err(_) => Err(Trouble::refused(Rule::NameInvalid, field)),
        },
    };
    let (team, namespace) = (name(team, "team")?, name(namespace, "namespace")?);
    if namespace.is_some() && team.is_none() {
        return Err(Trouble::refused(Rule::NameInvalid, "team"));
    }
    Ok((team, namespace))
}

/// As the tables order them.
fn order(account: &Account, resource: &QuotaResource) -> [String; 4] {
    let below = |name: &Option<Token>| name.as_ref().map_or_else(String::new, Token::to_string);
    [
        account.tenant.to_string(),
        below(&account.team),
        below(&account.namespace),
        resource.to_string(),
    ]
}

/// With what has no row because nothing holds of it yet: the first `limit` behind `after`, and one more if there is one.
fn with_planned(
    rows: Vec<AccountRow>,
    planned: &[PlannedRow],
    after: Option<&Key>,
    limit: u32,
) -> Vec<AccountRow> {
    let most = limit as usize + 1;
    let of = |row: &AccountRow| order(&row.account, &row.resource);
    let after = after.map(|(account, resource)| order(account, resource));
    // Behind the last of a page that is full there may be rows that were not read.
    let end = rows.last().filter(|_| rows.len() >= most).map(of);
    let mut all: BTreeMap<[String; 4], AccountRow> =
        rows.into_iter().map(|row| (of(&row), row)).collect();
    for plan in planned {
        let key = order(&plan.account, &plan.resource);
        let behind = after.as_ref().is_none_or(|after| key > *after);
        if behind && end.as_ref().is_none_or(|end| key < *end) {
            all.entry(key).or_insert_with(|| AccountRow {
                account: plan.account.clone(),
                resource: plan.resource.clone(),
                state: AccountState::default(),
            });
        }
    }
    all.into_values().take(most).collect()
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
    plans: &BTreeMap<[String; 4], Vec<&PlannedRow>>,
) -> QuotaView {
    let (account, state) = (&row.account, &row.state);
    let cohort = tenants.get(&account.tenant);
    let plans = plans.get(&order(account, &row.resource));
    let plans = plans.map_or(&[][..], Vec::as_slice);
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
        planned: plans.iter().map(|row| plan(row)).collect(),
    }
}

pub(super) fn limits(limits: Limits) -> QuotaLimits {
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
    fn what_is_only_planned_has_its_place_in_the_pages() {
        let row = |text: &str| {
            let (account, resource) = key(text).unwrap();
            let state = AccountState::default();
            AccountRow {
                account,
                resource,
                state,
            }
        };
        let planned = |text: &str| {
            let AccountRow {
                account, resource, ..
            } = row(text);
            let planned = Planned {
                limits: None,
                validity: Validity::default(),
            };
            PlannedRow {
                account,
                resource,
                version: 1,
                planned,
            }
        };
        let stored = ["a cpu", "a/b cpu", "b cpu", "c cpu"];
        let plans = ["a gpu", "a/b cpu", "a/b/c cpu", "d cpu"].map(planned);
        let all = [
            "a cpu",
            "a gpu",
            "a/b cpu",
            "a/b/c cpu",
            "b cpu",
            "c cpu",
            "d cpu",
        ];
        for limit in 1..9 {
            let (mut found, mut after): (Vec<String>, Option<Key>) = (Vec::new(), None);
            loop {
                let behind = |row: &AccountRow| {
                    let after = after.as_ref().map(|(account, it)| order(account, it));
                    after.is_none_or(|after| order(&row.account, &row.resource) > after)
                };
                let rows = stored.iter().map(|text| row(text)).filter(behind);
                let rows = rows.take(limit as usize + 1).collect();
                let mut page = with_planned(rows, &plans, after.as_ref(), limit);
                let has_more = cut(&mut page, limit);
                let keys = page.iter();
                found.extend(keys.map(|it| format!("{} {}", it.account, it.resource)));
                if !has_more {
                    break;
                }
                let last = page.last();
                after = last.map(|it| (it.account.clone(), it.resource.clone()));
            }
            assert_eq!(found, all, "{limit}");
        }
    }

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
