//! What may be used up in every period.

use crate::{
    project::{BudgetKey, BudgetState},
    store,
};
use chassis::query::{Asked, Trouble, Verb, cut, page_limit};
use schemas::v1::{BudgetQuery, BudgetReply, BudgetView, Period};
use sqlx::PgPool;
use vocab::{Account, BudgetOf, Lsn, Rule, Token};

/// Budgets of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;

/// The verb `budget`.
pub struct BudgetQueries {
    pub pool: PgPool,
}

impl Verb for BudgetQueries {
    const NAME: &'static str = "budget";
    type Query = BudgetQuery;
    type Reply = BudgetReply;

    fn position(query: &BudgetQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<BudgetQuery>) -> Result<BudgetReply, Trouble> {
        let query = &asked.query;
        let limit = page_limit(query.limit, PAGE_MAX, PAGE_MAX)?;
        let after = match query.after.as_str() {
            "" => None,
            text => {
                let key = key(text);
                Some(key.ok_or_else(|| Trouble::refused(Rule::SettingInvalid, "after"))?)
            }
        };
        let (whose, after) = (asked.whose(), after.as_ref());
        let mut found = store::budgets(&self.pool, whose, after, limit + 1).await?;
        let has_more = cut(&mut found, limit);
        let last = found.last().filter(|_| has_more);
        Ok(BudgetReply {
            next: last.map_or_else(String::new, |(account, of, _)| written(account, of)),
            budgets: found.into_iter().map(view).collect(),
            refusal: None,
            lsn: asked.applied.0,
        })
    }
}

fn written(account: &Account, of: &BudgetOf) -> String {
    format!("{account} {}", of.name())
}

/// As the page before has written it.
fn key(after: &str) -> Option<BudgetKey> {
    let (account, of) = after.split_once(' ')?;
    Some((Account::parse(account)?, BudgetOf::parse(of)?))
}

fn view((account, of, state): (Account, BudgetOf, BudgetState)) -> BudgetView {
    let name = |token: Option<Token>| token.map_or_else(String::new, String::from);
    let period = match state.budget.period {
        vocab::Period::Hour => Period::Hour,
        vocab::Period::Day => Period::Day,
        vocab::Period::Week => Period::Week,
        vocab::Period::Month => Period::Month,
    };
    BudgetView {
        team: name(account.team),
        namespace: name(account.namespace),
        of: of.name().to_owned(),
        amount: state.budget.amount,
        period: period.into(),
        begins_ms: state.period.0.0,
        ends_ms: state.period.1.0,
        as_of_ms: state.as_of.0,
        spent: state.spent.to_string(),
        burn: state.burn.to_string(),
        exhausted_at_ms: state.exhausted_at.map(|at| at.0),
        tenant: account.tenant.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_only_where_one_ended() {
        let check = |after: &str, expected: bool| {
            let found = key(after).map(|(account, of)| written(&account, &of));
            assert_eq!(found.as_deref(), expected.then_some(after));
        };
        for place in ["a money", "a/b gpu", "a/b/c memory"] {
            check(place, true);
        }
        for unreadable in ["a", "a/b/c/d cpu", "a gpu:T4", " cpu", "a  cpu"] {
            check(unreadable, false);
        }
    }
}
