//! The tenants, with what each has in the cell.

use super::{name_prefix, nodes::amounts};
use crate::store::{self, TenantUse};
use chassis::query::{Asked, Trouble, Verb, cut_to_fit, page_limit};
use schemas::v1::{TenantView, TenantsPage, TenantsQuery};
use sqlx::PgPool;
use vocab::{Lsn, Rule, Token};

/// Tenants of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 100;

/// The verb `tenants`.
pub struct TenantsQueries {
    pub pool: PgPool,
}

impl Verb for TenantsQueries {
    const NAME: &'static str = "tenants";
    const OPERATORS_ONLY: bool = true;
    type Query = TenantsQuery;
    type Reply = TenantsPage;

    fn position(query: &TenantsQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<TenantsQuery>) -> Result<TenantsPage, Trouble> {
        let query = &asked.query;
        let limit = page_limit(query.limit, PAGE, PAGE_MAX)? as usize;
        let prefix = name_prefix(&query.name_prefix)?;
        if !query.after.is_empty() && Token::new(&query.after).is_err() {
            return Err(Trouble::refused(Rule::SettingInvalid, "after"));
        }
        let page = store::tenants(&self.pool, &prefix, &query.after, limit).await?;
        let capacity = store::capacity(&self.pool).await?;
        let mut tenants: Vec<_> = page.found.iter().map(view).collect();
        let next = match cut_to_fit(&mut tenants) {
            true => tenants.last().map(|last| last.tenant.clone()),
            false => page.next,
        };
        Ok(TenantsPage {
            tenants,
            refusal: None,
            next: next.unwrap_or_default(),
            lsn: asked.applied.0,
            capacity: Some(amounts(capacity)),
        })
    }
}

fn view(one: &TenantUse) -> TenantView {
    let (version, weight_milli) = one
        .settings
        .unwrap_or_else(|| (0, vocab::TenantSettings::default().weight_milli));
    TenantView {
        tenant: one.tenant.clone(),
        version,
        weight_milli,
        queues: one.queues.clone(),
        requested: one.requested,
        waiting: one.waiting,
        placed: one.placed,
        started: one.running,
        stopping: one.stopping,
        held: Some(amounts(one.held)),
    }
}
