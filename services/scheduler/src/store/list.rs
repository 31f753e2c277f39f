//! What a tenant has, a page at a time.

use super::{Allocation, BEGIN, allocations, ended};
use chassis::{
    query::cut,
    warm::{Moment, OutOfRange, WarmError},
};
use futures::{Stream, TryStreamExt};
use sqlx::{FromRow, PgConnection, PgPool, Postgres, postgres::PgArguments, query::QueryAs};
use std::pin::pin;
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
    pub priority_class: Option<String>,
    /// All of these by name; none for any value.
    pub labels: Vec<(Token, Option<Token>)>,
    pub name_prefix: Option<String>,
    /// Requested then or later.
    pub since: Option<Moment>,
    /// Requested before.
    pub until: Option<Moment>,
    pub oldest_first: bool,
    pub limit: u32,
}

/// Ids behind the one and before the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Within {
    above: Uuid,
    below: Uuid,
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

    /// By something that stands in the message alone, and is no column.
    fn by_message(&self) -> bool {
        self.team.is_some()
            || self.namespace.is_some()
            || self.gang.is_some()
            || self.priority_class.is_some()
            || !self.labels.is_empty()
    }

    /// Whether one has that.
    fn fits(&self, one: &Allocation) -> bool {
        let fits = |wanted: &Option<String>, is: Option<&Token>| {
            wanted.is_none() || wanted.as_deref() == is.map(Token::as_str)
        };
        let spec = &one.spec;
        let labelled = |(name, value): &(Token, Option<Token>)| {
            let has =
                |is: &(Token, Token)| is.0 == *name && value.as_ref().is_none_or(|it| is.1 == *it);
            spec.labels.iter().any(has)
        };
        fits(&self.team, spec.team.as_ref())
            && fits(&self.namespace, spec.namespace.as_ref())
            && fits(&self.gang, spec.gang.as_ref().map(|gang| &gang.name))
            && fits(&self.priority_class, spec.priority_class.as_ref())
            && self.labels.iter().all(labelled)
    }

    fn order(&self) -> &'static str {
        match self.oldest_first {
            true => "ASC",
            false => "DESC",
        }
    }

    /// The statement for a page of one of the two tables; [`Wanted::bind`] has its parameters. It ends with the last row of the page,
    /// or with the last one that is looked at.
    pub(super) fn select(&self, table: &str, columns: &str) -> String {
        let order = self.order();
        format!(
            "SELECT {columns}
             FROM (SELECT * FROM {table} WHERE tenant = $1 AND allocation_id > $2 AND allocation_id < $3
                   ORDER BY allocation_id {order} LIMIT {LOOKED_AT}) AS looked_at
             WHERE state = ANY ($4)
               AND ($5::text IS NULL OR queue = $5) AND ($6::text IS NULL OR job_set = $6)
               AND ($7::text IS NULL OR node = $7) AND ($8::text IS NULL OR starts_with(name, $8))
               AND ($9::timestamptz IS NULL OR requested_at >= $9)
               AND ($10::timestamptz IS NULL OR requested_at < $10)
             ORDER BY allocation_id {order} LIMIT $11"
        )
    }

    pub(super) fn bind<'q, T>(
        &self,
        query: QueryAs<'q, Postgres, T, PgArguments>,
        tenant: &Token,
        within: Within,
    ) -> QueryAs<'q, Postgres, T, PgArguments> {
        let limit = i64::from(self.limit) + 1;
        query
            .bind(tenant.as_str().to_owned())
            .bind(within.above)
            .bind(within.below)
            .bind(self.states.clone())
            .bind(self.queue.clone())
            .bind(self.job_set.clone())
            .bind(self.node.clone())
            .bind(self.name_prefix.clone())
            .bind(self.since)
            .bind(self.until)
            .bind(if self.by_message() { LOOKED_AT } else { limit })
    }

    /// Those of the rows that fit, and one more than a page has at the most, one row after the other: thousands may be looked at, and what
    /// one runs takes up to 48 KiB. That is left out of what is found, as no page tells it.
    pub(super) async fn first<R>(
        &self,
        rows: impl Stream<Item = sqlx::Result<R>>,
    ) -> Result<Vec<Allocation>, WarmError>
    where
        Allocation: TryFrom<R, Error = OutOfRange>,
    {
        let (mut rows, mut found) = (pin!(rows), Vec::new());
        while let Some(row) = rows.try_next().await? {
            let mut row = Allocation::try_from(row)?;
            row.spec.work = None;
            if self.fits(&row) {
                found.push(row);
            }
            if found.len() > self.limit as usize {
                break;
            }
        }
        Ok(found)
    }

    /// Whether none that comes behind this one is in the time that is asked for.
    fn is_past(&self, end: &End) -> bool {
        match self.oldest_first {
            true => (self.until).is_some_and(|until| end.requested_at >= until.into()),
            false => (self.since).is_some_and(|since| end.requested_at < since.into()),
        }
    }
}

/// A page, in the order that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub allocations: Vec<Allocation>,
    /// The next page has what comes behind this one; none: there is nothing more.
    pub next: Option<AllocationId>,
}

/// What of the tenant's comes behind `after`, in the order of the requests.
pub async fn list(
    pool: &PgPool,
    tenant: &Token,
    wanted: &Wanted,
    after: Option<AllocationId>,
) -> Result<Page, WarmError> {
    // What ends between two looks would be in neither table where it was looked for.
    let mut tx = pool.begin_with(BEGIN).await?;
    let db = &mut *tx;
    let mut within = Within {
        above: Uuid::nil(),
        below: Uuid::max(),
    };
    match (after, wanted.oldest_first) {
        (None, _) => {}
        (Some(after), true) => within.above = after.0,
        (Some(after), false) => within.below = after.0,
    }
    // In the order of the page.
    let place = |id: Uuid| match wanted.oldest_first {
        true => id.as_u128(),
        false => u128::MAX - id.as_u128(),
    };
    let (mut found, mut end): (Vec<Allocation>, Option<End>) = (Vec::new(), None);
    for (is_wanted, is_live) in [(wanted.live(), true), (wanted.over(), false)] {
        if !is_wanted {
            continue;
        }
        let (table, of_table) = match is_live {
            true => (
                "live_allocations",
                allocations::page(db, tenant, wanted, within).await?,
            ),
            false => (
                "ended_allocations",
                ended::page(db, tenant, wanted, within).await?,
            ),
        };
        // With one more than a page it was looked no further than to that one.
        let end_of_table = match of_table.get(wanted.limit as usize) {
            Some(last) => Some(End::at(last)),
            None => first_behind(db, table, tenant, wanted, within).await?,
        };
        let ends = end.into_iter().chain(end_of_table);
        end = ends.min_by_key(|end| place(end.id));
        found.extend(of_table);
    }
    tx.commit().await?;
    // No further than to where both tables were looked through.
    if let Some(end) = &end {
        let last = place(end.id);
        found.retain(|one| place(one.id.0) < last || (one.id.0 == end.id && end.is_found));
    }
    found.sort_unstable_by_key(|one| place(one.id.0));
    let next = match cut(&mut found, wanted.limit) {
        true => found.last().map(|last| last.id),
        // The first that was not looked at is yet to be, and what comes behind it.
        false => end
            .filter(|end| !wanted.is_past(end))
            .map(|end| end.before(wanted.oldest_first)),
    };
    Ok(Page {
        allocations: found,
        next,
    })
}

/// Where it was looked no further. Ids grow with the time of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
struct End {
    #[sqlx(rename = "allocation_id")]
    id: Uuid,
    #[sqlx(try_from = "Moment")]
    requested_at: Millis,
    /// This one was looked at itself, and is asked for.
    #[sqlx(skip)]
    is_found: bool,
}

impl End {
    fn at(last: &Allocation) -> Self {
        Self {
            id: last.id.0,
            requested_at: last.requested_at,
            is_found: true,
        }
    }

    /// The id that comes right before it, which may be nobody's.
    fn before(&self, oldest_first: bool) -> AllocationId {
        let id = self.id.as_u128();
        AllocationId(Uuid::from_u128(match oldest_first {
            true => id.saturating_sub(1),
            false => id.saturating_add(1),
        }))
    }
}

/// The first row behind those that are looked at; none: they are all.
async fn first_behind(
    db: &mut PgConnection,
    table: &str,
    tenant: &Token,
    wanted: &Wanted,
    within: Within,
) -> Result<Option<End>, WarmError> {
    let order = wanted.order();
    let query = format!(
        "SELECT allocation_id, requested_at FROM {table}
         WHERE tenant = $1 AND allocation_id > $2 AND allocation_id < $3
         ORDER BY allocation_id {order} OFFSET $4 LIMIT 1"
    );
    let behind = sqlx::query_as(&query)
        .bind(tenant.as_str())
        .bind(within.above)
        .bind(within.below)
        .bind(LOOKED_AT);
    Ok(behind.fetch_optional(db).await?)
}
