//! What may be used up in every period.

use crate::{project::BudgetState, store};
use chassis::query::{Asked, Trouble, Verb};
use schemas::v1::{BudgetQuery, BudgetReply, BudgetView, Period};
use sqlx::PgPool;
use vocab::{Account, BudgetOf, Lsn, Token};

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
        let found = store::budgets(&self.pool, &asked.tenant).await?;
        Ok(BudgetReply {
            budgets: found.into_iter().map(view).collect(),
            refusal: None,
            lsn: asked.applied.0,
        })
    }
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
    }
}
