//! What tenants, teams and namespaces may hold, and what they do hold.

mod get;
mod history;
mod json;
mod tree;

use crate::{
    Failure, amount,
    context::{Context, Whose},
    operate::{Flags, QuotaBudget, QuotaSet},
};
use clap::{Args, Subcommand};
use client::{Client, QuotaQuery, QuotaWait, TenantTreatment};
use quota::store::{AccountRow, PlannedRow};
use vocab::{Account, Token};

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

/// Account that a question is about.
#[derive(Args)]
struct Asked {
    /// tenant, tenant/team or tenant/team/namespace; default: the context's tenant.
    #[arg(value_parser = amount::account, conflicts_with = "tenant")]
    account: Option<Account>,
    #[command(flatten)]
    whose: Whose,
}

impl Asked {
    fn account(self, context: &Context) -> Result<Account, Failure> {
        match self.account {
            Some(account) => Ok(account),
            None => {
                let tenant = context.tenant_name(self.whose.tenant.as_deref())?;
                Ok(Account::tenant(tenant))
            }
        }
    }
}

/// Accounts and resources of a page.
const PAGE: u32 = 1000;

/// What the cell says of accounts, all pages.
struct Told {
    rows: Vec<Of<AccountRow>>,
    planned: Vec<PlannedRow>,
    waiting: Vec<QuotaWait>,
    treatment: Option<TenantTreatment>,
    /// Position of the ledger that all pages include.
    lsn: u64,
}

/// With the cohort of its tenant; empty: none.
struct Of<R> {
    row: R,
    cohort: String,
}

/// Of an account and those below it; `waiting`: so many of those that wait.
async fn ask_of(client: &Client, account: &Account, waiting: u32) -> Result<Told, Failure> {
    let name = |name: &Option<Token>| name.as_ref().map_or("", Token::as_str).to_owned();
    let query = QuotaQuery {
        team: name(&account.team),
        namespace: name(&account.namespace),
        waiting,
        ..QuotaQuery::default()
    };
    ask(client, query).await
}

/// All pages.
async fn ask(client: &Client, query: QuotaQuery) -> Result<Told, Failure> {
    let mut query = QuotaQuery {
        limit: PAGE,
        ..query
    };
    let mut page = client.quota(&query).await?;
    let mut told = Told {
        rows: Vec::new(),
        planned: Vec::new(),
        waiting: std::mem::take(&mut page.waiting),
        treatment: page.treatment.take(),
        lsn: page.lsn,
    };
    loop {
        told.lsn = told.lsn.min(page.lsn);
        for view in page.quotas {
            let (row, planned) = quota::query::of_view(&view).map_err(|it| it.to_string())?;
            told.planned.extend(planned);
            let cohort = view.cohort;
            told.rows.push(Of { row, cohort });
        }
        if page.next.is_empty() {
            return Ok(told);
        }
        query.after = page.next;
        query.at_lsn = page.lsn;
        page = client.quota(&query).await?;
    }
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
