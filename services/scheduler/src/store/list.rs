//! What a tenant has, a page at a time.

use super::{Allocation, allocations, ended};
use chassis::{
    query::cut,
    warm::{Moment, WarmError},
};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;
use vocab::{AllocationId, Millis, Token};

/// Rows of each table that are looked at for one page: whatever is asked for, a page costs no more than that.
const LOOKED_AT: i64 = 2000;

/// Which allocations are asked for. What is none is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// By the names that the tables have for them.
    pub states: Vec<&'static str>,
    pub queue: Option<String>,
    pub job_set: Option<String>,
    pub team: Option<String>,
    pub namespace: Option<String>,
    pub node: Option<String>,
    pub gang: Option<String>,
    pub name_prefix: Option<String>,
    /// Requested then or later.
    pub since: Option<Moment>,
    /// Requested before.
    pub until: Option<Moment>,
    pub limit: u32,
}

/// States of what is over.
const OVER: [&str; 2] = ["ended", "denied"];

impl Wanted {
    fn live(&self) -> bool {
        self.states.iter().any(|state| !OVER.contains(state))
    }

    fn over(&self) -> bool {
        self.states.iter().any(|state| OVER.contains(state))
    }

    pub(super) fn states(&self) -> Vec<String> {
        self.states
            .iter()
            .map(|state| (*state).to_owned())
            .collect()
    }

    /// By something that is no column of what is over.
    pub(super) fn by_message(&self) -> bool {
        self.team.is_some() || self.namespace.is_some() || self.gang.is_some()
    }

    /// Whether one has that.
    pub(super) fn fits(&self, one: &Allocation) -> bool {
        let fits = |wanted: &Option<String>, is: &Option<String>| wanted.is_none() || wanted == is;
        fits(&self.team, &one.team)
            && fits(&self.namespace, &one.namespace)
            && fits(&self.gang, &one.gang)
    }
}

/// A page, the newest request first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub allocations: Vec<Allocation>,
    /// The next page has what was requested before this one; none: there is nothing more.
    pub next: Option<AllocationId>,
}

/// What of the tenant's was requested before `before`, the newest first.
pub async fn list(
    pool: &PgPool,
    tenant: &Token,
    wanted: &Wanted,
    before: Option<AllocationId>,
) -> Result<Page, WarmError> {
    let db = &mut *pool.acquire().await?;
    let before = before.map_or(Uuid::max(), |id| id.0);
    // No further than to where both tables were looked through.
    let mut behind: Option<Behind> = None;
    if wanted.live() {
        behind = behind.max(behind_live(db, tenant, before).await?);
    }
    if wanted.over() {
        behind = behind.max(behind_ended(db, tenant, before).await?);
    }
    let floor = behind.as_ref().map_or(Uuid::nil(), |behind| behind.id);
    // In this order: one that is over meanwhile is in both, and is told as over.
    let mut found = match wanted.live() {
        true => allocations::newest(db, tenant, wanted, (before, floor)).await?,
        false => Vec::new(),
    };
    if wanted.over() {
        let over = ended::newest(db, tenant, wanted, (before, floor)).await?;
        found.retain(|live| over.iter().all(|over| over.id != live.id));
        found.extend(over);
        found.sort_unstable_by_key(|one| std::cmp::Reverse(one.id.0));
    }
    let next = match cut(&mut found, wanted.limit) {
        true => found.last().map(|last| last.id),
        // The one at the floor is yet to be looked at, and what was requested before it, unless that was too early.
        false => behind
            .filter(|behind| {
                wanted
                    .since
                    .is_none_or(|since| behind.requested_at >= since.into())
            })
            .map(|behind| AllocationId(Uuid::from_u128(behind.id.as_u128() + 1))),
    };
    Ok(Page {
        allocations: found,
        next,
    })
}

/// The first one behind those that are looked at; none: they are all. Ids grow with the time of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Behind {
    id: Uuid,
    requested_at: Millis,
}

async fn behind_live(
    db: &mut PgConnection,
    tenant: &Token,
    before: Uuid,
) -> Result<Option<Behind>, WarmError> {
    let behind = sqlx::query!(
        r#"SELECT allocation_id, requested_at AS "requested_at: Moment" FROM live_allocations
           WHERE tenant = $1 AND allocation_id < $2 ORDER BY allocation_id DESC OFFSET $3 LIMIT 1"#,
        tenant.as_str(),
        before,
        LOOKED_AT,
    );
    let behind = behind.fetch_optional(db).await?;
    Ok(behind.map(|row| Behind {
        id: row.allocation_id,
        requested_at: row.requested_at.into(),
    }))
}

async fn behind_ended(
    db: &mut PgConnection,
    tenant: &Token,
    before: Uuid,
) -> Result<Option<Behind>, WarmError> {
    let behind = sqlx::query!(
        r#"SELECT allocation_id, requested_at AS "requested_at: Moment" FROM ended_allocations
           WHERE tenant = $1 AND allocation_id < $2 ORDER BY allocation_id DESC OFFSET $3 LIMIT 1"#,
        tenant.as_str(),
        before,
        LOOKED_AT,
    );
    let behind = behind.fetch_optional(db).await?;
    Ok(behind.map(|row| Behind {
        id: row.allocation_id,
        requested_at: row.requested_at.into(),
    }))
}
