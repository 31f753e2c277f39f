//! The table `other_operations`, and an operation as the view `operations` has it.

use crate::operation::OutcomeKind;
use crate::project::{OperationRow, OperationState};
use chassis::warm::{Moment, OutOfRange, WarmError, unsigned};
use sqlx::PgPool;
use table::{Table, Wide};
use uuid::Uuid;
use vocab::{AllocationId, CellNo, EventNo, Millis, Refusal, Token, Verb};

/// What was asked, and what became of it, but for submits that are answered. Rows leave when their retention window is over,
/// or when the submit is answered.
#[derive(Table)]
#[table(name = "other_operations", key(event_no))]
#[table(check(decided_when_not_pending, "(state = 'pending') = (decided_at IS NULL)"))]
#[table(check(
    refused_by_a_rule,
    "CASE WHEN state = 'refused'
          THEN num_nulls(rule, subject, rule_limit, rule_actual) = 0
          ELSE num_nonnulls(rule, subject, rule_limit, rule_actual) = 0 END"
))]
#[table(check(
    verb_known_unless_refused,
    "verb IS NOT NULL OR (state = 'refused' AND allocation_id IS NULL)"
))]
#[table(check(
    allocation_of_submit_or_cancel,
    "state = 'refused' OR (verb IN ('submit', 'cancel')) = (allocation_id IS NOT NULL)"
))]
#[table(check(
    state_fits_verb,
    "CASE verb
         WHEN 'submit' THEN state IN ('pending', 'refused')
         WHEN 'cancel' THEN state IN ('pending', 'cancelled', 'refused')
         WHEN 'cancel_job_set' THEN state IN ('pending', 'job_set_cancelled', 'refused')
         WHEN 'set_priority' THEN state IN ('pending', 'priority_set', 'refused')
         WHEN 'create_resource' THEN state IN ('pending', 'created', 'refused')
         WHEN 'acquire' THEN state IN ('pending', 'granted', 'refused')
         WHEN 'confirm' THEN state IN ('pending', 'confirmed', 'refused')
         WHEN 'release' THEN state IN ('pending', 'released', 'refused')
         WHEN 'revoke' THEN state IN ('pending', 'revoked', 'refused')
         WHEN 'reclaim' THEN state IN ('pending', 'reclaimed', 'refused')
         ELSE state IN ('applied', 'refused') END"
))]
#[table(check(version_when_applied, "(state = 'applied') = (version IS NOT NULL)"))]
#[table(check(
    granted_until_a_slot,
    "(state = 'granted') = (lease_id IS NOT NULL) AND (state = 'granted') = (deadline_slot IS NOT NULL)"
))]
#[table(check(
    fencing_token_of_a_lease,
    "(state IN ('granted', 'released', 'revoked')) = (fencing_token IS NOT NULL)"
))]
#[table(check(
    counted_allocations,
    "(state IN ('job_set_cancelled', 'priority_set')) = (allocations IS NOT NULL)"
))]
#[table(check(
    slots_of_resources,
    "NOT by_slots OR verb IN ('create_resource', 'acquire', 'confirm', 'release', 'revoke', 'reclaim')"
))]
// One outcome for an operation id, within its retention window, among these.
#[table(index(
    one_stands,
    unique,
    on "tenant, operation_id",
    where "stands AND operation_id IS NOT NULL"
))]
#[table(index(refused, on "tenant, event_no DESC", where "state = 'refused'"))]
pub struct Operation<'a> {
    /// Number of the event that recorded the operation.
    #[table(check = "event_no > 0")]
    event_no: EventNo,
    #[table(fixed)]
    tenant: &'a Token,
    /// None when the message could not be read that far.
    #[table(fixed)]
    operation_id: Option<&'a Token>,
    /// First 16 bytes of SHA-256 over the request's canonical content.
    #[table(check = "octet_length(digest) = 16", fixed)]
    digest: [u8; 16],
    /// Whether the operation id stands for this one: a repeat is answered with its outcome. Not when it was refused for a
    /// reason that says nothing of it, such as a conflict with the one that stands.
    #[table(fixed)]
    stands: bool,
    /// None when refused at the inbox: it may have had none, or the cell was of feature level 9 or below.
    #[table(
        check = "verb IN ('submit', 'cancel', 'cancel_job_set', 'set_priority', 'create_resource', 'acquire', 'confirm', 'release', 'revoke', 'reclaim', 'set_tenant', 'set_quota', 'set_rate', 'set_queue', 'set_priority_class', 'set_scheduling', 'set_cordon', 'set_reservation', 'set_budget', 'set_node', 'close_period', 'set_taints')",
        fixed
    )]
    verb: Option<&'static str>,
    #[table(
        check = "state IN ('pending', 'cancelled', 'applied', 'refused', 'job_set_cancelled', 'priority_set', 'created', 'granted', 'confirmed', 'released', 'revoked', 'reclaimed')"
    )]
    state: &'static str,
    /// The allocation that it made or that it is about.
    #[table(fixed)]
    allocation_id: Option<Uuid>,
    /// Of an applied change.
    #[table(check = "version > 0")]
    version: Option<u64>,
    /// The broken rule and what it was about. A tenant may name any 64-bit number, so these are numeric.
    rule: Option<&'static str>,
    subject: Option<&'a str>,
    #[table(check = "rule_limit >= 0")]
    rule_limit: Option<Wide>,
    #[table(check = "rule_actual >= 0")]
    rule_actual: Option<Wide>,
    #[table(fixed)]
    requested_at: Millis,
    decided_at: Option<Millis>,
    /// Its retention window is counted in slots and not by the clock.
    #[table(default = "false", fixed)]
    by_slots: bool,
    /// Of a granted lease.
    lease_id: Option<Uuid>,
    #[table(check = "fencing_token > 0")]
    fencing_token: Option<u64>,
    #[table(check = "deadline_slot >= 0")]
    deadline_slot: Option<Wide>,
    /// How many a cancel of a job set, or a change of priority, was for.
    #[table(check = "allocations >= 0")]
    allocations: Option<u64>,
    /// The operator that asked, where it is one with a name.
    #[table(fixed)]
    asked_by: Option<&'a Token>,
}

impl<'a> Operation<'a> {
    pub fn of(cell: CellNo, row: &'a OperationRow) -> Self {
        let (state, decided_at, outcome) = match &row.state {
            OperationState::Pending => ("pending", None, None),
            OperationState::Decided { at, outcome } => (outcome.name(), Some(*at), Some(outcome)),
        };
        let pending = Self {
            event_no: row.no,
            tenant: &row.tenant,
            operation_id: row.operation_id.as_ref(),
            digest: row.digest,
            stands: row.stands(),
            verb: row.verb.map(Verb::name),
            state,
            allocation_id: row.allocation.map(|no| no.id(cell).0),
            version: None,
            rule: None,
            subject: None,
            rule_limit: None,
            rule_actual: None,
            requested_at: row.requested_at,
            decided_at,
            by_slots: row.by_slots,
            lease_id: None,
            fencing_token: None,
            deadline_slot: None,
            allocations: None,
            asked_by: row.by.as_deref(),
        };
        match outcome {
            Some(outcome) => pending.decided(cell, outcome),
            None => pending,
        }
    }

    fn decided(self, cell: CellNo, outcome: &'a OutcomeKind) -> Self {
        match outcome {
            OutcomeKind::Applied { version } => Self {
                version: Some(*version),
                ..self
            },
            OutcomeKind::Refused(Refusal {
                rule,
                subject,
                limit,
                actual,
            }) => Self {
                rule: Some(rule.name()),
                subject: Some(subject),
                rule_limit: Some(Wide(*limit)),
                rule_actual: Some(Wide(*actual)),
                ..self
            },
            OutcomeKind::JobSetCancelled { allocations }
            | OutcomeKind::PrioritySet { allocations } => Self {
                allocations: Some(*allocations),
                ..self
            },
            OutcomeKind::Granted { lease, deadline } => Self {
                lease_id: Some(lease.id(cell).0),
                fencing_token: Some(1),
                deadline_slot: Some(Wide(*deadline)),
                ..self
            },
            OutcomeKind::Released { fencing_token } | OutcomeKind::Revoked { fencing_token } => {
                Self {
                    fencing_token: Some(*fencing_token),
                    ..self
                }
            }
            OutcomeKind::Submitted { .. }
            | OutcomeKind::Cancelled { .. }
            | OutcomeKind::ResourceCreated
            | OutcomeKind::Confirmed
            | OutcomeKind::Reclaimed
            | OutcomeKind::Passes(_) => self,
        }
    }
}

/// An operation as the view has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOperation {
    pub no: EventNo,
    pub verb: Option<String>,
    /// `pending`, or the name of its outcome.
    pub state: String,
    pub allocation: Option<AllocationId>,
    pub version: Option<u64>,
    pub refusal: Option<StoredRefusal>,
    /// Of a granted lease.
    pub lease: Option<AllocationId>,
    pub fencing_token: Option<u64>,
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
        r#"SELECT event_no AS "event_no!", verb, state AS "state!", allocation_id, version, rule, subject, rule_limit::text AS rule_limit,
                  rule_actual::text AS rule_actual, requested_at AS "requested_at!: Moment",
                  decided_at AS "decided_at: Moment", lease_id, fencing_token, deadline_slot::text AS deadline_slot,
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
        // All or none of them, by a check of the table that has it.
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
        lease: record.lease_id.map(AllocationId),
        fencing_token: record
            .fencing_token
            .map(|n| unsigned("fencing_token", n))
            .transpose()?,
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
