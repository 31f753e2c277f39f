//! The tables of named resources. Of what a batch changes more than once, the last is written; what is forgotten by then
//! goes in one statement.

use crate::project::{HeldRow, ResourceRow, SpaceRow};
use chassis::warm::{OutOfRange, ROWS_MAX, WarmError, bigint, merge, unsigned};
use sqlx::{PgConnection, PgExecutor};
use std::collections::BTreeMap;
use table::{Read, Table, Wide};
use vocab::{LeaseNo, LeaseState, Millis, Slot, Token};

/// What a batch writes.
#[derive(Default)]
pub struct Rows<'a> {
    resources: BTreeMap<(&'a Token, &'a Token), &'a ResourceRow>,
    leases: BTreeMap<(&'a Token, LeaseNo), &'a HeldRow>,
    spaces: BTreeMap<&'a Token, Slot>,
}

impl<'a> Rows<'a> {
    pub fn resource(&mut self, row: &'a ResourceRow) {
        self.resources.insert((&row.tenant, &row.resource), row);
    }

    pub fn lease(&mut self, row: &'a HeldRow) {
        self.leases.insert((&row.tenant, row.lease), row);
    }

    pub fn space(&mut self, row: &'a SpaceRow) {
        self.spaces.insert(&row.tenant, row.slot);
    }

    pub async fn write(self, tx: &mut PgConnection) -> Result<(), WarmError> {
        let resources: Vec<_> = self.resources.into_values().map(Resource::of).collect();
        merge(tx, &resources).await?;
        let leases = self.leases.into_values().map(Lease::of);
        merge(tx, &leases.collect::<Vec<_>>()).await?;
        let spaces: Vec<_> = self.spaces.into_iter().collect();
        for rows in spaces.chunks(ROWS_MAX) {
            pass(tx, rows).await?;
        }
        Ok(())
    }
}

/// Where one stands follows from the lease that holds it.
#[derive(Table)]
#[table(
    name = "named_resources",
    key(tenant, resource),
    with = "fillfactor = 80"
)]
pub struct Resource<'a> {
    tenant: &'a Token,
    resource: &'a Token,
    /// Counts the changes of its state.
    #[table(check = "version >= 0")]
    version: u64,
    /// Number of the lease that holds it; none: it is available.
    #[table(check = "lease > 0")]
    lease: Option<LeaseNo>,
}

impl<'a> Resource<'a> {
    fn of(row: &'a ResourceRow) -> Self {
        Self {
            tenant: &row.tenant,
            resource: &row.resource,
            version: row.version,
            lease: row.lease,
        }
    }
}

/// Live ones, and ended ones as long as they are remembered.
#[derive(Table)]
#[table(name = "leases", key(tenant, number), with = "fillfactor = 80")]
#[table(check(
    remembered_once_ended,
    "(state IN ('released', 'expired', 'revoked')) = (retire_after IS NOT NULL)"
))]
#[table(index(ended, on "tenant, retire_after", where "retire_after IS NOT NULL"))]
pub struct Lease<'a> {
    tenant: &'a Token,
    /// Of the event that granted it.
    #[table(check = "number > 0")]
    number: LeaseNo,
    #[table(fixed)]
    holder: &'a Token,
    #[table(check = "fencing_token > 0")]
    fencing_token: u64,
    state: LeaseState,
    /// In this state since then.
    since: Millis,
    /// Slots, which no integer type has all of.
    #[table(check = "deadline >= 0", fixed)]
    deadline: Wide,
    /// The last slot at which an ended one is remembered.
    #[table(check = "retire_after >= 0")]
    retire_after: Option<Wide>,
    /// As they were asked for.
    #[table(check = "cardinality(resources) > 0", fixed)]
    resources: &'a Vec<Token>,
}

impl<'a> Lease<'a> {
    fn of(row: &'a HeldRow) -> Self {
        Self {
            tenant: &row.tenant,
            number: row.lease,
            holder: &row.holder,
            fencing_token: row.fencing_token,
            state: row.state,
            since: row.since,
            deadline: Wide(row.deadline),
            retire_after: row.retire_after.map(Wide),
            resources: &row.resources,
        }
    }
}

/// Each tenant's time, and how far its leases are forgotten.
#[derive(Debug, Table)]
#[table(name = "lease_spaces", key(tenant), with = "fillfactor = 50")]
pub struct Space {
    pub tenant: Token,
    /// The latest that was seen.
    #[table(check = "slot >= 0")]
    pub slot: Wide,
    /// The highest number that was forgotten; 0: none.
    #[table(check = "retired >= 0")]
    pub retired: u64,
}

/// The tenants' time has come to these slots: what was to be remembered until before them is forgotten.
async fn pass(tx: &mut PgConnection, rows: &[(&Token, Slot)]) -> Result<(), WarmError> {
    let tenants: Vec<_> = rows.iter().map(|(tenant, _)| tenant.as_str()).collect();
    let slots: Vec<_> = rows.iter().map(|(_, slot)| slot.to_string()).collect();
    sqlx::query!(
        "WITH seen AS (SELECT tenant, slot::numeric AS slot
                       FROM UNNEST($1::text[], $2::text[]) AS row (tenant, slot)),
              gone AS (DELETE FROM leases AS r USING seen
                       WHERE r.tenant = seen.tenant AND r.retire_after < seen.slot
                       RETURNING r.tenant, r.number),
              last AS (SELECT tenant, max(number) AS number FROM gone GROUP BY tenant)
         INSERT INTO lease_spaces AS s (tenant, slot, retired)
         SELECT seen.tenant, seen.slot, coalesce(last.number, 0)
         FROM seen LEFT JOIN last ON last.tenant = seen.tenant
         ON CONFLICT (tenant) DO UPDATE SET
             slot = excluded.slot, retired = greatest(s.retired, excluded.retired)",
        &tenants as _,
        &slots,
    )
    .execute(tx)
    .await?;
    Ok(())
}

fn number(LeaseNo(no): LeaseNo) -> Result<i64, OutOfRange> {
    bigint("lease", no)
}

fn slot(what: &'static str, text: &str) -> Result<Slot, OutOfRange> {
    text.parse().map_err(|_| OutOfRange::new(what, text))
}

/// A named resource as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedResource {
    pub version: u64,
    /// Who holds it, and how.
    pub held: Option<(LeaseNo, LeaseState)>,
}

pub async fn named_resource(
    db: impl PgExecutor<'_>,
    tenant: &Token,
    resource: &Token,
) -> Result<Option<NamedResource>, WarmError> {
    let record = sqlx::query!(
        r#"SELECT r.version, r.lease, h.state AS "state?"
           FROM named_resources AS r
           LEFT JOIN leases AS h ON h.tenant = r.tenant AND h.number = r.lease
           WHERE r.tenant = $1 AND r.resource = $2"#,
        tenant.as_str(),
        resource.as_str(),
    )
    .fetch_optional(db)
    .await?;
    let Some(record) = record else {
        return Ok(None);
    };
    let held = match (record.lease, record.state) {
        (Some(no), Some(state)) => Some((
            LeaseNo(unsigned("lease", no)?),
            LeaseState::read(state, "state")?,
        )),
        _ => None,
    };
    Ok(Some(NamedResource {
        version: unsigned("version", record.version)?,
        held,
    }))
}

/// A lease as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedLease {
    pub holder: String,
    pub fencing_token: u64,
    pub state: LeaseState,
    pub deadline: Slot,
    pub retire_after: Option<Slot>,
    pub resources: Vec<String>,
}

/// What a look at a number has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked {
    Found(NamedLease),
    /// It, or a later one, has ended and is forgotten.
    Retired,
    NotFound,
}

/// One of the tenant's own at `at`, or at the tenant's latest slot if that is later; and the latest slot.
pub async fn named_lease(
    db: impl PgExecutor<'_>,
    tenant: &Token,
    no: LeaseNo,
    at: Slot,
) -> Result<(Slot, Looked), WarmError> {
    // No number of an event is as high.
    let Ok(number) = number(no) else {
        return Ok((0, Looked::NotFound));
    };
    let record = sqlx::query!(
        r#"WITH space AS (SELECT slot, greatest(slot, $3::text::numeric) AS at, retired
                          FROM lease_spaces WHERE tenant = $1)
           SELECT space.slot::text AS "slot!", h.retire_after < space.at AS over, h.holder AS "holder?",
                  h.fencing_token AS "fencing_token?", h.state AS "state?", h.deadline::text AS deadline,
                  h.retire_after::text AS retire_after, h.resources AS "resources?",
                  CASE WHEN h.number IS NULL
                       THEN $2 <= greatest(space.retired,
                                           (SELECT max(number) FROM leases
                                            WHERE tenant = $1 AND retire_after < space.at)) END AS retired
           FROM space LEFT JOIN leases AS h ON h.tenant = $1 AND h.number = $2"#,
        tenant.as_str(),
        number,
        at.to_string(),
    )
    .fetch_optional(db)
    .await?;
    let Some(record) = record else {
        return Ok((0, Looked::NotFound));
    };
    let seen = slot("slot", &record.slot)?;
    let (Some(holder), Some(fencing_token), Some(state), Some(deadline), Some(resources)) = (
        record.holder,
        record.fencing_token,
        record.state,
        record.deadline,
        record.resources,
    ) else {
        let looked = match record.retired {
            Some(true) => Looked::Retired,
            Some(false) | None => Looked::NotFound,
        };
        return Ok((seen, looked));
    };
    if record.over == Some(true) {
        return Ok((seen, Looked::Retired));
    }
    let retire_after = record.retire_after.as_deref();
    let found = NamedLease {
        holder,
        fencing_token: unsigned("fencing_token", fencing_token)?,
        state: LeaseState::read(state, "state")?,
        deadline: slot("deadline", &deadline)?,
        retire_after: retire_after
            .map(|at| slot("retire_after", at))
            .transpose()?,
        resources,
    };
    Ok((seen, Looked::Found(found)))
}
