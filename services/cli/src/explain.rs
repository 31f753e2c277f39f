//! Why an allocation stands where it stands, now or at an earlier position of the ledger.

mod entry;
mod json;
mod quota;
mod reasons;
mod text;

pub use entry::sheet;
pub use json::{explanation, object, of_refusal};
pub use quota::{lent_lines, lent_value, short as quota_short};
pub use reasons::{keeps_off, waits};
pub use text::{lines, percent};

use crate::{
    Failure,
    context::{Context, Whose},
    get::of_allocation,
    list, names,
    print::{Output, Page},
    submit::{how, words},
};
use clap::Args;
use client::{AllocationView, Client, ExplainQuery, Party, QueryError, QuotaQuery, TryQuotaQuery};
use scheduler::{query, store::Allocation};
use schemas::v1::{LentQuota, quota_trial::Decided};
use serde_json::Value;
use vocab::{Lsn, Rule};

/// Maximum number of accounts on a page.
const QUOTAS_PAGE: u32 = 1000;

#[derive(Args)]
pub struct Explain {
    #[command(flatten)]
    whose: Whose,
    /// Its id or name, or the beginning of one.
    allocation_id: String,
    /// As of this position of the ledger, and not as of now.
    #[arg(long, value_name = "LSN")]
    at: Option<u64>,
    /// Show all that was decided about it.
    #[arg(long)]
    history: bool,
    #[command(flatten)]
    output: Output,
}

impl Explain {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.asker_of_one(self.whose.tenant.as_deref()).await?;
        let tenant = context.tenant_name(self.whose.tenant.as_deref())?;
        let query = ExplainQuery {
            allocation_id: names::allocation(&client, &self.allocation_id).await?,
            as_of_lsn: self.at.unwrap_or(0),
            at_lsn: 0,
        };
        let id = &query.allocation_id;
        let reply = of_allocation(&client, id, async || client.explain(&query).await).await?;
        let found = query::explanation(&reply, &tenant)?;
        let at = self.at.map(Lsn);
        let lent = match at {
            None => lent_quota(context, &client, &found.allocation).await?,
            Some(_) => None,
        };
        let mut value = explanation(&found, at);
        value["lent"] = lent.as_ref().map(Lent::value).into();
        value["depends_on"] = reply.depends_on.iter().map(list::json).collect();
        let mut text = lines(&found, at, self.history);
        let position = text.pop();
        text.extend(lent.iter().flat_map(Lent::lines));
        text.extend(reply.depends_on.iter().map(depends));
        text.extend(position);
        Page::new(value)
            .lines(text)
            .rows(sheet(&found))
            .print(self.output)
    }
}

/// Quota that a waiting tenant has lent to others of its cohort.
struct Lent {
    quota: LentQuota,
    cohort: String,
    /// Number of allocations of others that would be stopped for it.
    reclaims: u32,
    /// Known to operators.
    borrowers: Vec<quota::Borrower>,
}

impl Lent {
    fn lines(&self) -> Vec<String> {
        lent_lines(&self.quota, &self.cohort, self.reclaims, &self.borrowers)
    }

    fn value(&self) -> Value {
        lent_value(&self.quota, &self.borrowers)
    }
}

/// Asks quota for the lent part of the tenant's limit, if the allocation waits for quota. Earlier versions do not answer.
async fn lent_quota(
    context: &Context,
    client: &Client,
    allocation: &Allocation,
) -> Result<Option<Lent>, Failure> {
    let refusal = allocation.quota.as_ref();
    if refusal.is_none_or(|refusal| refusal.rule != Rule::QuotaExceeded) {
        return Ok(None);
    }
    let query = TryQuotaQuery {
        allocation_id: allocation.id.to_string(),
        ..TryQuotaQuery::default()
    };
    let trial = match client.try_quota(&query).await {
        Ok(reply) => reply.trial,
        // It waits no longer, or this version of quota does not know the question.
        Err(QueryError::Refused(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let Some(trial) = trial else {
        return Ok(None);
    };
    let Some(quota) = trial.lent else {
        return Ok(None);
    };
    let reclaims = match trial.decided {
        Some(Decided::Waiting(waiting)) => waiting.reclaims,
        _ => 0,
    };
    let borrowers = match client.party() {
        Party::Operator => borrowers(context, allocation, &quota, &trial.cohort).await?,
        Party::Tenant(_) => Vec::new(),
    };
    Ok(Some(Lent {
        quota,
        cohort: trial.cohort,
        reclaims,
        borrowers,
    }))
}

/// The other tenants of the cohort that borrow of the resource, as operators may see.
async fn borrowers(
    context: &Context,
    allocation: &Allocation,
    lent: &LentQuota,
    cohort: &str,
) -> Result<Vec<quota::Borrower>, Failure> {
    let client = context.operator_until(None).await?;
    let mut query = QuotaQuery {
        limit: QUOTAS_PAGE,
        ..QuotaQuery::default()
    };
    let mut found = Vec::new();
    loop {
        let page = client.quota(&query).await?;
        let borrowing = page.quotas.into_iter().filter(|one| {
            let is_lent = one.cohort == cohort && one.resource == lent.resource;
            is_lent && one.borrowed > 0 && one.team.is_empty() && one.tenant != allocation.tenant
        });
        found.extend(borrowing.map(|one| (one.tenant, one.borrowed)));
        query.after = page.next;
        if query.after.is_empty() {
            return Ok(found);
        }
    }
}

fn depends(on: &AllocationView) -> String {
    let stands = match &on.ended {
        Some(ended) => how(ended.cause(), ended.exit),
        None => words(on.state()),
    };
    let name = match on.name.as_str() {
        "" => String::new(),
        name => format!("{name}, "),
    };
    format!("depends on   {name}{}: {stands}", on.allocation_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::v1;

    #[test]
    fn a_dependency_is_named_with_how_it_stands() {
        let running = AllocationView {
            allocation_id: "7".to_owned(),
            state: v1::AllocationState::Started.into(),
            ..AllocationView::default()
        };
        assert_eq!(depends(&running), "depends on   7: started");
        let failed = AllocationView {
            name: "train".to_owned(),
            ended: Some(v1::Ended {
                cause: v1::EndCause::Failed.into(),
                exit: Some(v1::RunExit {
                    code: 3,
                    ..v1::RunExit::default()
                }),
                ..v1::Ended::default()
            }),
            ..running
        };
        assert_eq!(
            depends(&failed),
            "depends on   train, 7: failed, exit code 3"
        );
    }
}
