//! The tables of named resources. Of what a batch changes more than once, the last is written; what is forgotten by then
//! goes in one statement.

use super::names;
use crate::project::{HeldRow, ResourceRow, SpaceRow};
use chassis::warm::{OutOfRange, ROWS_MAX, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgExecutor};
use std::collections::BTreeMap;
use vocab::{ReservationNo, ReservationState, Slot, Token};

/// What a batch writes.
#[derive(Default)]
pub struct Rows<'a> {
    resources: BTreeMap<(&'a Token, &'a Token), &'a ResourceRow>,
    reservations: BTreeMap<(&'a Token, ReservationNo), &'a HeldRow>,
    spaces: BTreeMap<&'a Token, Slot>,
}

impl<'a> Rows<'a> {
    pub fn resource(&mut self, row: &'a ResourceRow) {
        self.resources.insert((&row.tenant, &row.resource), row);
    }

    pub fn reservation(&mut self, row: &'a HeldRow) {
        self.reservations
            .insert((&row.tenant, row.reservation), row);
    }

    pub fn space(&mut self, row: &'a SpaceRow) {
        self.spaces.insert(&row.tenant, row.slot);
    }

    pub async fn write(self, tx: &mut PgConnection) -> Result<(), WarmError> {
        let resources: Vec<_> = self.resources.into_values().collect();
        for rows in resources.chunks(ROWS_MAX) {
            upsert_resources(tx, rows).await?;
        }
        let reservations: Vec<_> = self.reservations.into_values().collect();
        for rows in reservations.chunks(ROWS_MAX) {
            upsert_reservations(tx, rows).await?;
        }
        let spaces: Vec<_> = self.spaces.into_iter().collect();
        for rows in spaces.chunks(ROWS_MAX) {
            pass(tx, rows).await?;
        }
        Ok(())
    }
}

async fn upsert_resources(tx: &mut PgConnection, rows: &[&ResourceRow]) -> Result<(), WarmError> {
    let tenants: Vec<_> = rows.iter().map(|row| row.tenant.as_str()).collect();
    let names: Vec<_> = rows.iter().map(|row| row.resource.as_str()).collect();
    let mut versions = Vec::with_capacity(rows.len());
    let mut reservations = Vec::with_capacity(rows.len());
    for row in rows {
        versions.push(bigint("version", row.version)?);
        reservations.push(row.reservation.map(number).transpose()?);
    }
    sqlx::query!(
        "INSERT INTO named_resources (tenant, resource, version, reservation)
         SELECT * FROM UNNEST($1::text[], $2::text[], $3::bigint[], $4::bigint[])
         ON CONFLICT (tenant, resource) DO UPDATE SET
             version = excluded.version, reservation = excluded.reservation",
        &tenants as _,
        &names as _,
        &versions,
        &reservations as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn upsert_reservations(tx: &mut PgConnection, rows: &[&HeldRow]) -> Result<(), WarmError> {
    let count = rows.len();
    let mut tenants = Vec::with_capacity(count);
    let mut numbers = Vec::with_capacity(count);
    let mut holders = Vec::with_capacity(count);
    let mut epochs = Vec::with_capacity(count);
    let mut states = Vec::with_capacity(count);
    let mut deadlines = Vec::with_capacity(count);
    let mut retirements = Vec::with_capacity(count);
    let mut resources = Vec::with_capacity(count);
    for row in rows {
        tenants.push(row.tenant.as_str());
        numbers.push(number(row.reservation)?);
        holders.push(row.holder.as_str());
        epochs.push(bigint("epoch", row.epoch)?);
        states.push(row.state.name());
        deadlines.push(row.deadline.to_string());
        retirements.push(row.retire_after.map(|slot| slot.to_string()));
        resources.push(names::joined(&row.resources, Token::as_str));
    }
    sqlx::query!(
        "INSERT INTO named_reservations (tenant, number, holder, epoch, state, deadline, retire_after, resources)
         SELECT tenant, number, holder, epoch, state, deadline::numeric, retire_after::numeric,
                string_to_array(resources, ',')
         FROM UNNEST($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[])
             AS row (tenant, number, holder, epoch, state, deadline, retire_after, resources)
         ON CONFLICT (tenant, number) DO UPDATE SET
             epoch = excluded.epoch, state = excluded.state, retire_after = excluded.retire_after",
        &tenants as _,
        &numbers,
        &holders as _,
        &epochs,
        &states as _,
        &deadlines,
        &retirements as _,
        &resources,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The tenants' time has come to these slots: what was to be remembered until before them is forgotten.
async fn pass(tx: &mut PgConnection, rows: &[(&Token, Slot)]) -> Result<(), WarmError> {
    let tenants: Vec<_> = rows.iter().map(|(tenant, _)| tenant.as_str()).collect();
    let slots: Vec<_> = rows.iter().map(|(_, slot)| slot.to_string()).collect();
    sqlx::query!(
        "WITH seen AS (SELECT tenant, slot::numeric AS slot
                       FROM UNNEST($1::text[], $2::text[]) AS row (tenant, slot)),
              gone AS (DELETE FROM named_reservations AS r USING seen
                       WHERE r.tenant = seen.tenant AND r.retire_after < seen.slot
                       RETURNING r.tenant, r.number),
              last AS (SELECT tenant, max(number) AS number FROM gone GROUP BY tenant)
         INSERT INTO reservation_spaces AS s (tenant, slot, retired)
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

fn number(ReservationNo(no): ReservationNo) -> Result<i64, OutOfRange> {
    bigint("reservation", no)
}

fn slot(what: &'static str, text: &str) -> Result<Slot, OutOfRange> {
    text.parse().map_err(|_| OutOfRange::new(what, text))
}

/// A named resource as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedResource {
    pub version: u64,
    /// Who holds it, and how.
    pub held: Option<(ReservationNo, ReservationState)>,
}

pub async fn named_resource(
    db: impl PgExecutor<'_>,
    tenant: &Token,
    resource: &Token,
) -> Result<Option<NamedResource>, WarmError> {
    let record = sqlx::query!(
        r#"SELECT r.version, r.reservation, h.state AS "state?"
           FROM named_resources AS r
           LEFT JOIN named_reservations AS h ON h.tenant = r.tenant AND h.number = r.reservation
           WHERE r.tenant = $1 AND r.resource = $2"#,
        tenant.as_str(),
        resource.as_str(),
    )
    .fetch_optional(db)
    .await?;
    let Some(record) = record else {
        return Ok(None);
    };
    let held = match (record.reservation, record.state) {
        (Some(no), Some(state)) => Some((
            ReservationNo(unsigned("reservation", no)?),
            names::reservation_state(&state)?,
        )),
        _ => None,
    };
    Ok(Some(NamedResource {
        version: unsigned("version", record.version)?,
        held,
    }))
}

/// A reservation as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedReservation {
    pub holder: String,
    pub epoch: u64,
    pub state: ReservationState,
    pub deadline: Slot,
    pub retire_after: Option<Slot>,
    pub resources: Vec<String>,
}

/// What a look at a number has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked {
    Found(NamedReservation),
    /// It, or a later one, has ended and is forgotten.
    Retired,
    NotFound,
}

/// One of the tenant's own at `at`, or at the tenant's latest slot if that is later; and the latest slot.
pub async fn named_reservation(
    db: impl PgExecutor<'_>,
    tenant: &Token,
    no: ReservationNo,
    at: Slot,
) -> Result<(Slot, Looked), WarmError> {
    // No number of an event is as high.
    let Ok(number) = number(no) else {
        return Ok((0, Looked::NotFound));
    };
    let record = sqlx::query!(
        r#"WITH space AS (SELECT slot, greatest(slot, $3::text::numeric) AS at, retired
                          FROM reservation_spaces WHERE tenant = $1)
           SELECT space.slot::text AS "slot!", h.retire_after < space.at AS over, h.holder AS "holder?",
                  h.epoch AS "epoch?", h.state AS "state?", h.deadline::text AS deadline,
                  h.retire_after::text AS retire_after, h.resources AS "resources?",
                  CASE WHEN h.number IS NULL
                       THEN $2 <= greatest(space.retired,
                                           (SELECT max(number) FROM named_reservations
                                            WHERE tenant = $1 AND retire_after < space.at)) END AS retired
           FROM space LEFT JOIN named_reservations AS h ON h.tenant = $1 AND h.number = $2"#,
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
    let (Some(holder), Some(epoch), Some(state), Some(deadline), Some(resources)) = (
        record.holder,
        record.epoch,
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
    let found = NamedReservation {
        holder,
        epoch: unsigned("epoch", epoch)?,
        state: names::reservation_state(&state)?,
        deadline: slot("deadline", &deadline)?,
        retire_after: retire_after
            .map(|at| slot("retire_after", at))
            .transpose()?,
        resources,
    };
    Ok((seen, Looked::Found(found)))
}
