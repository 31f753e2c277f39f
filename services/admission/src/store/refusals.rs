//! What was refused of late, of the table `other_operations`.

use super::StoredRefusal;
use chassis::warm::{Moment, OutOfRange, WarmError, bigint, unsigned};
use sqlx::{FromRow, PgPool};
use vocab::{EventNo, Millis, Rule, Token};

/// An operation that was refused, within its retention window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedOperation {
    pub no: EventNo,
    pub tenant: String,
    pub operation_id: Option<String>,
    pub verb: Option<String>,
    pub refusal: StoredRefusal,
    pub at: Millis,
    /// The operator that asked, where it is one with a name.
    pub by: Option<String>,
}

#[derive(FromRow)]
struct Record {
    event_no: i64,
    tenant: String,
    operation_id: Option<String>,
    verb: Option<String>,
    rule: String,
    subject: String,
    rule_limit: String,
    rule_actual: String,
    decided_at: Moment,
    asked_by: Option<String>,
}

impl TryFrom<Record> for RefusedOperation {
    type Error = WarmError;

    fn try_from(row: Record) -> Result<Self, WarmError> {
        let number = |what, text: String| text.parse().map_err(|_| OutOfRange::new(what, text));
        Ok(Self {
            no: EventNo(unsigned("event_no", row.event_no)?),
            tenant: row.tenant,
            operation_id: row.operation_id,
            verb: row.verb,
            refusal: StoredRefusal {
                rule: row.rule,
                subject: row.subject,
                limit: number("rule_limit", row.rule_limit)?,
                actual: number("rule_actual", row.rule_actual)?,
            },
            at: row.decided_at.into(),
            by: row.asked_by,
        })
    }
}

/// A tenant's, or anybody's, before the one that is named, the latest first.
pub async fn refusals(
    pool: &PgPool,
    tenant: Option<&Token>,
    rule: Option<Rule>,
    before: EventNo,
    limit: u32,
) -> Result<Vec<RefusedOperation>, WarmError> {
    // Apart, as one statement for both would not go by the tenant's index.
    let of = match tenant {
        Some(_) => "tenant = $1",
        None => "$1::text IS NULL",
    };
    let query = format!(
        "SELECT event_no, tenant, operation_id, verb, rule, subject, rule_limit::text, rule_actual::text, decided_at, asked_by
         FROM other_operations
         WHERE state = 'refused' AND {of} AND ($2::text IS NULL OR rule = $2) AND event_no < $3
         ORDER BY event_no DESC LIMIT $4"
    );
    let rows: Vec<Record> = sqlx::query_as(&query)
        .bind(tenant.map(Token::as_str))
        .bind(rule.map(Rule::name))
        .bind(bigint("after", before.0)?)
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    rows.into_iter().map(RefusedOperation::try_from).collect()
}
