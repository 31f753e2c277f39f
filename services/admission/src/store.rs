//! Warm state of admission: the only file with SQL.

use crate::project::{
    Change, OperationRow, OperationState, Outcome, TenantRow, Verb, WarmProjection,
};
use chassis::warm::{
    CopyRows, Moment, OutOfRange, PgSink, ROWS_MAX, WarmError, WarmState, bigint, unsigned,
};
use ledger::Projection;
use sqlx::{PgConnection, PgPool, migrate::Migrator};
use std::collections::BTreeMap;
use uuid::Uuid;
use vocab::{AllocationId, CellNo, EventNo, Millis, Token};

/// The tables `tenants`, `operations` and `projection_position`.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionTables {
    /// Part of every allocation's id.
    pub cell: CellNo,
}

/// Where the projection's changes go.
pub fn sink(pool: PgPool, cell: CellNo) -> PgSink<AdmissionTables> {
    PgSink::new(pool, AdmissionTables { cell })
}

impl WarmState for AdmissionTables {
    type Change = Change;

    const NAME: &'static str = WarmProjection::NAME;

    fn migrator() -> &'static Migrator {
        static MIGRATOR: Migrator = sqlx::migrate!("../../schemas/postgres/admission");
        &MIGRATOR
    }

    /// Forgets first: an operation id may be used again from then on.
    async fn write(&self, tx: &mut PgConnection, changes: &[Change]) -> Result<(), WarmError> {
        let rows = Rows::of(changes);
        if let Some(through) = rows.forgotten {
            forget(tx, through).await?;
        }
        for (tenant, through) in &rows.forgotten_of {
            forget_of(tx, tenant, *through).await?;
        }
        for tenants in rows.tenants.chunks(ROWS_MAX) {
            upsert_tenants(tx, tenants).await?;
        }
        insert_operations(tx, self.cell, &rows.new_operations).await?;
        for operations in rows.operations.chunks(ROWS_MAX) {
            upsert_operations(tx, self.cell, operations).await?;
        }
        Ok(())
    }

    async fn wipe(&self, tx: &mut PgConnection) -> Result<(), WarmError> {
        sqlx::query!("TRUNCATE tenants, operations")
            .execute(tx)
            .await?;
        Ok(())
    }
}

/// A batch with one row per key, as a statement may not touch a row twice.
#[derive(Default)]
struct Rows<'a> {
    forgotten: Option<EventNo>,
    /// Of those whose window is counted in slots.
    forgotten_of: BTreeMap<&'a Token, EventNo>,
    tenants: Vec<Tenant>,
    /// That no batch has written before, and that COPY can.
    new_operations: Vec<&'a OperationRow>,
    operations: Vec<&'a OperationRow>,
}

/// Whether all of its values are of their columns' types: the unsigned numbers of a refusal and a deadline need a cast.
fn is_plain(row: &OperationRow) -> bool {
    !matches!(
        row.state,
        OperationState::Decided {
            outcome: Outcome::Refused(_) | Outcome::Reserved { .. },
            ..
        }
    )
}

/// A tenant's changes in one batch, as one row.
struct Tenant {
    tenant: Token,
    version: u64,
    first_at: Millis,
    last_at: Millis,
}

impl<'a> Rows<'a> {
    fn of(changes: &'a [Change]) -> Self {
        let mut forgotten = None;
        let mut forgotten_of: BTreeMap<&Token, EventNo> = BTreeMap::new();
        let mut tenants: BTreeMap<&Token, Tenant> = BTreeMap::new();
        let mut operations = BTreeMap::new();
        for change in changes {
            match change {
                Change::Tenant(TenantRow {
                    tenant,
                    version,
                    at,
                }) => {
                    let row = tenants.entry(tenant).or_insert_with(|| Tenant {
                        tenant: tenant.clone(),
                        version: *version,
                        first_at: *at,
                        last_at: *at,
                    });
                    row.version = *version;
                    row.last_at = *at;
                }
                Change::Operation { row, first } => {
                    operations.insert(row.no, (row, *first));
                }
                Change::Forgotten {
                    through,
                    slots_of: None,
                } => forgotten = forgotten.max(Some(*through)),
                Change::Forgotten {
                    through,
                    slots_of: Some(tenant),
                } => {
                    let known = forgotten_of.entry(tenant).or_default();
                    *known = (*known).max(*through);
                }
            }
        }
        operations.retain(
            |no, (row, _): &mut (&OperationRow, bool)| match row.by_slots {
                true => forgotten_of.get(&row.tenant) < Some(no),
                false => Some(*no) > forgotten,
            },
        );
        let operations = operations.into_values();
        let (new, others): (Vec<_>, Vec<_>) =
            operations.partition(|(row, first)| *first && is_plain(row));
        let rows = |operations: Vec<(&'a OperationRow, bool)>| {
            operations.into_iter().map(|(row, _)| row).collect()
        };
        Self {
            forgotten,
            forgotten_of,
            tenants: tenants.into_values().collect(),
            new_operations: rows(new),
            operations: rows(others),
        }
    }
}

async fn forget(tx: &mut PgConnection, through: EventNo) -> Result<(), WarmError> {
    let through = bigint("event_no", through.0)?;
    sqlx::query!(
        "DELETE FROM operations WHERE event_no <= $1 AND NOT by_slots",
        through
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn forget_of(
    tx: &mut PgConnection,
    tenant: &Token,
    through: EventNo,
) -> Result<(), WarmError> {
    sqlx::query!(
        "DELETE FROM operations WHERE tenant = $1 AND event_no <= $2 AND by_slots",
        tenant.as_str(),
        bigint("event_no", through.0)?,
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn upsert_tenants(tx: &mut PgConnection, rows: &[Tenant]) -> Result<(), WarmError> {
    let mut tenants = Vec::with_capacity(rows.len());
    let mut versions = Vec::with_capacity(rows.len());
    let mut created = Vec::with_capacity(rows.len());
    let mut changed = Vec::with_capacity(rows.len());
    for row in rows {
        tenants.push(row.tenant.as_str());
        versions.push(bigint("version", row.version)?);
        created.push(Moment::try_from(row.first_at)?);
        changed.push(Moment::try_from(row.last_at)?);
    }
    sqlx::query!(
        "INSERT INTO tenants (tenant, version, created_at, changed_at)
         SELECT * FROM UNNEST($1::text[], $2::bigint[], $3::timestamptz[], $4::timestamptz[])
         ON CONFLICT (tenant) DO UPDATE SET version = excluded.version, changed_at = excluded.changed_at",
        &tenants as _,
        &versions,
        &created as _,
        &changed as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn insert_operations(
    tx: &mut PgConnection,
    cell: CellNo,
    rows: &[&OperationRow],
) -> Result<(), WarmError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut columns = Columns::default();
    let mut copy = CopyRows::new(16);
    for (at, row) in rows.iter().enumerate() {
        columns.push(cell, row)?;
        copy.row();
        columns.copy(at, &mut copy)?;
    }
    let statement = "COPY operations
             (event_no, tenant, operation_id, digest, stands, verb, state, allocation_id, version, rule, subject,
              requested_at, decided_at, by_slots, epoch, allocations)
         FROM STDIN (FORMAT binary)";
    copy.send(tx, statement).await
}

async fn upsert_operations(
    tx: &mut PgConnection,
    cell: CellNo,
    rows: &[&OperationRow],
) -> Result<(), WarmError> {
    let mut columns = Columns::default();
    for row in rows {
        columns.push(cell, row)?;
    }
    sqlx::query!(
        "INSERT INTO operations
             (event_no, tenant, operation_id, digest, stands, verb, state, allocation_id, version, rule, subject,
              rule_limit, rule_actual, requested_at, decided_at, by_slots, reservation_id, epoch, deadline_slot,
              allocations)
         SELECT event_no, tenant, operation_id, digest, stands, verb, state, allocation_id, version, rule, subject,
                rule_limit::numeric, rule_actual::numeric, requested_at, decided_at, by_slots, reservation_id, epoch,
                deadline_slot::numeric, allocations
         FROM UNNEST($1::bigint[], $2::text[], $3::text[], $4::bytea[], $5::boolean[], $6::text[], $7::text[],
                     $8::uuid[], $9::bigint[], $10::text[], $11::text[], $12::text[], $13::text[],
                     $14::timestamptz[], $15::timestamptz[], $16::boolean[], $17::uuid[], $18::bigint[], $19::text[],
                     $20::bigint[])
             AS row (event_no, tenant, operation_id, digest, stands, verb, state, allocation_id, version, rule,
                     subject, rule_limit, rule_actual, requested_at, decided_at, by_slots, reservation_id, epoch,
                     deadline_slot, allocations)
         ON CONFLICT (event_no) DO UPDATE SET
             state = excluded.state, version = excluded.version, rule = excluded.rule, subject = excluded.subject,
             rule_limit = excluded.rule_limit, rule_actual = excluded.rule_actual,
             decided_at = excluded.decided_at, reservation_id = excluded.reservation_id, epoch = excluded.epoch,
             deadline_slot = excluded.deadline_slot, allocations = excluded.allocations",
        &columns.numbers,
        &columns.tenants as _,
        &columns.operation_ids as _,
        &columns.digests as _,
        &columns.stands,
        &columns.verbs as _,
        &columns.states as _,
        &columns.allocations as _,
        &columns.versions as _,
        &columns.rules as _,
        &columns.subjects as _,
        &columns.limits as _,
        &columns.actuals as _,
        &columns.requested as _,
        &columns.decided as _,
        &columns.by_slots,
        &columns.reservations as _,
        &columns.epochs as _,
        &columns.deadlines as _,
        &columns.counts as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The rows, column by column. A refusal's numbers go as text: a tenant may name any unsigned number, and more than half
/// of them are no `bigint`.
#[derive(Default)]
struct Columns<'a> {
    numbers: Vec<i64>,
    tenants: Vec<&'a str>,
    operation_ids: Vec<Option<&'a str>>,
    digests: Vec<&'a [u8]>,
    stands: Vec<bool>,
    verbs: Vec<Option<&'static str>>,
    states: Vec<&'static str>,
    allocations: Vec<Option<Uuid>>,
    versions: Vec<Option<i64>>,
    rules: Vec<Option<&'static str>>,
    subjects: Vec<Option<&'a str>>,
    limits: Vec<Option<String>>,
    actuals: Vec<Option<String>>,
    requested: Vec<Moment>,
    decided: Vec<Option<Moment>>,
    by_slots: Vec<bool>,
    reservations: Vec<Option<Uuid>>,
    epochs: Vec<Option<i64>>,
    /// As text, like a refusal's numbers.
    deadlines: Vec<Option<String>>,
    counts: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    /// The values of one row that is plain, in the order of the statement.
    fn copy(&self, at: usize, copy: &mut CopyRows) -> Result<(), WarmError> {
        copy.value(&self.numbers[at])?;
        copy.value(&self.tenants[at])?;
        copy.value(&self.operation_ids[at])?;
        copy.value(&self.digests[at])?;
        copy.value(&self.stands[at])?;
        copy.value(&self.verbs[at])?;
        copy.value(&self.states[at])?;
        copy.value(&self.allocations[at])?;
        copy.value(&self.versions[at])?;
        copy.value(&self.rules[at])?;
        copy.value(&self.subjects[at])?;
        copy.value(&self.requested[at])?;
        copy.value(&self.decided[at])?;
        copy.value(&self.by_slots[at])?;
        copy.value(&self.epochs[at])?;
        copy.value(&self.counts[at])?;
        Ok(())
    }

    fn push(&mut self, cell: CellNo, row: &'a OperationRow) -> Result<(), OutOfRange> {
        self.numbers.push(bigint("event_no", row.no.0)?);
        self.tenants.push(row.tenant.as_str());
        self.operation_ids
            .push(row.operation_id.as_ref().map(Token::as_str));
        self.digests.push(&row.digest);
        self.stands.push(row.stands());
        self.verbs.push(row.verb.map(Verb::name));
        self.allocations
            .push(row.allocation.map(|no| no.id(cell).0));
        self.requested.push(row.requested_at.try_into()?);

        let (state, decided, outcome) = match &row.state {
            OperationState::Pending => ("pending", None, None),
            OperationState::Decided { at, outcome } => {
                (outcome.name(), Some(Moment::try_from(*at)?), Some(outcome))
            }
        };
        let (mut version, mut refusal) = (None, None);
        let (mut reservation, mut epoch, mut deadline, mut count) = (None, None, None, None);
        match outcome {
            Some(Outcome::Applied { version: applied }) => {
                version = Some(bigint("version", *applied)?);
            }
            Some(Outcome::Refused(why)) => refusal = Some(why),
            Some(
                Outcome::JobSetCancelled { allocations } | Outcome::PrioritySet { allocations },
            ) => {
                count = Some(bigint("allocations", *allocations)?);
            }
            Some(Outcome::Reserved {
                reservation: no,
                deadline: slot,
            }) => {
                reservation = Some(no.id(cell).0);
                epoch = Some(1);
                deadline = Some(slot.to_string());
            }
            Some(Outcome::Released { epoch: now } | Outcome::Revoked { epoch: now }) => {
                epoch = Some(bigint("epoch", *now)?);
            }
            Some(
                Outcome::Placed
                | Outcome::Waiting
                | Outcome::Ended
                | Outcome::Cancelled
                | Outcome::Created
                | Outcome::Confirmed
                | Outcome::Reclaimed,
            )
            | None => {}
        }
        self.by_slots.push(row.by_slots);
        self.reservations.push(reservation);
        self.epochs.push(epoch);
        self.deadlines.push(deadline);
        self.counts.push(count);
        self.states.push(state);
        self.decided.push(decided);
        self.versions.push(version);
        self.rules.push(refusal.map(|why| why.rule.name()));
        self.subjects.push(refusal.map(|why| why.subject.as_str()));
        self.limits.push(refusal.map(|why| why.limit.to_string()));
        self.actuals.push(refusal.map(|why| why.actual.to_string()));
        Ok(())
    }
}

/// An operation as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOperation {
    pub no: EventNo,
    pub verb: Option<String>,
    /// `pending`, or the name of its outcome.
    pub state: String,
    pub allocation: Option<AllocationId>,
    pub version: Option<u64>,
    pub refusal: Option<StoredRefusal>,
    /// Of a granted reservation.
    pub reservation: Option<AllocationId>,
    pub epoch: Option<u64>,
    pub deadline_slot: Option<u64>,
    /// How many a job set's cancel or change of priority was for.
    pub allocations: Option<u64>,
    pub requested_at: Millis,
    pub decided_at: Option<Millis>,
}

/// The broken rule, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRefusal {
    pub rule: String,
    pub subject: String,
    pub limit: u64,
    pub actual: u64,
}

/// The operation that the id stands for, within the retention window.
pub async fn operation(
    pool: &PgPool,
    tenant: &Token,
    operation_id: &Token,
) -> Result<Option<StoredOperation>, WarmError> {
    let record = sqlx::query!(
        r#"SELECT event_no, verb, state, allocation_id, version, rule, subject, rule_limit::text AS rule_limit,
                  rule_actual::text AS rule_actual, requested_at AS "requested_at: Moment",
                  decided_at AS "decided_at: Moment", reservation_id, epoch, deadline_slot::text AS deadline_slot,
                  allocations
           FROM operations WHERE tenant = $1 AND operation_id = $2 AND stands"#,
        tenant.as_str(),
        operation_id.as_str(),
    )
    .fetch_optional(pool)
    .await?;
    let Some(record) = record else {
        return Ok(None);
    };
    let refusal = match (
        record.rule,
        record.subject,
        record.rule_limit,
        record.rule_actual,
    ) {
        (Some(rule), Some(subject), Some(limit), Some(actual)) => {
            let number = |what, text: String| text.parse().map_err(|_| OutOfRange::new(what, text));
            Some(StoredRefusal {
                rule,
                subject,
                limit: number("rule_limit", limit)?,
                actual: number("rule_actual", actual)?,
            })
        }
        // All or none of them, by the table's own check.
        _ => None,
    };
    Ok(Some(StoredOperation {
        no: EventNo(unsigned("event_no", record.event_no)?),
        verb: record.verb,
        state: record.state,
        allocation: record.allocation_id.map(AllocationId),
        version: record
            .version
            .map(|version| unsigned("version", version))
            .transpose()?,
        refusal,
        reservation: record.reservation_id.map(AllocationId),
        epoch: record.epoch.map(|n| unsigned("epoch", n)).transpose()?,
        deadline_slot: record
            .deadline_slot
            .map(|text| {
                text.parse()
                    .map_err(|_| OutOfRange::new("deadline_slot", text))
            })
            .transpose()?,
        allocations: record
            .allocations
            .map(|n| unsigned("allocations", n))
            .transpose()?,
        requested_at: record.requested_at.into(),
        decided_at: record.decided_at.map(Millis::from),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn operation(no: u64, state: OperationState) -> Change {
        let row = OperationRow {
            no: EventNo(no),
            tenant: token("t"),
            operation_id: None,
            digest: [0; 16],
            verb: Some(Verb::Submit),
            allocation: None,
            by_slots: false,
            requested_at: Millis(0),
            state,
        };
        Change::Operation { row, first: true }
    }

    fn tenant(name: &str, version: u64, at: i64) -> Change {
        Change::Tenant(TenantRow {
            tenant: token(name),
            version,
            at: Millis(at),
        })
    }

    #[test]
    fn a_batch_has_one_row_per_key() {
        let placed = OperationState::Decided {
            at: Millis(9),
            outcome: Outcome::Placed,
        };
        let changes = [
            operation(1, OperationState::Pending),
            operation(3, OperationState::Pending),
            tenant("a", 1, 5),
            operation(2, OperationState::Pending),
            Change::Forgotten {
                through: EventNo(2),
                slots_of: None,
            },
            tenant("a", 2, 6),
            operation(3, placed.clone()),
            Change::Forgotten {
                through: EventNo(1),
                slots_of: None,
            },
        ];
        let rows = Rows::of(&changes);
        assert_eq!(rows.forgotten, Some(EventNo(2)));
        let operations: Vec<_> = rows
            .new_operations
            .iter()
            .map(|row| (row.no.0, &row.state))
            .collect();
        assert_eq!(operations, [(3, &placed)]);
        assert!(rows.operations.is_empty());
        let tenants: Vec<_> = rows
            .tenants
            .iter()
            .map(|row| {
                (
                    row.tenant.as_str(),
                    row.version,
                    row.first_at.0,
                    row.last_at.0,
                )
            })
            .collect();
        assert_eq!(tenants, [("a", 2, 5, 6)]);
    }
}
