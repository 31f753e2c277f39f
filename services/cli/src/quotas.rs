//! What tenants, teams and namespaces may hold, and what they do hold.

mod get;
mod history;
mod json;
mod tree;

use crate::{
    Failure,
    context::Context,
    operate::{QuotaBudget, QuotaSet},
};
use clap::Subcommand;

#[derive(Subcommand)]
pub enum QuotaCommand {
    /// Set the limits of one resource.
    Set(Box<QuotaSet>),
    /// Set what may be used up in every period.
    Budget(QuotaBudget),
    /// Show an account: limits, what is held, what is planned, budgets, who waits.
    Get(get::Get),
    /// Show all accounts, or a tenant's, by level; and the sums of the cohorts.
    Tree(tree::Tree),
    /// Show what an account used in each hour.
    History(history::History),
}

impl QuotaCommand {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Set(set) => set.run(context).await,
            Self::Budget(budget) => budget.run(context).await,
            Self::Get(get) => get.run(context).await,
            Self::Tree(tree) => tree.run(context).await,
            Self::History(history) => history.run(context).await,
        }
    }
}
