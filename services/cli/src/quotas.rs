//! What tenants, teams and namespaces may hold, and what they do hold.

mod get;
mod history;
mod json;
mod tree;

use crate::{
    Failure,
    operate::{QuotaBudget, QuotaSet},
};
use chassis::stack::Stack;
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
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        match self {
            Self::Set(set) => set.run(stack).await,
            Self::Budget(budget) => budget.run(stack).await,
            Self::Get(get) => get.run(stack).await,
            Self::Tree(tree) => tree.run(stack).await,
            Self::History(history) => history.run(stack).await,
        }
    }
}
