//! The table `reservations`.

use crate::project::{ReservationRow, ReservationState};
use chassis::warm::{Moment, OutOfRange, WarmError, unsigned};
use sqlx::{PgPool, types::Json};
use table::{Read, Table};
use vocab::{AdvanceReservation, Millis, Requirement, Token};

/// Advance reservations of nodes.
#[derive(Table)]
#[table(name = "reservations", key(reservation))]
#[table(check(reservations_check, "ends_at > starts_at"))]
#[table(check(granted_with_nodes, "(state = 'granted') = (cardinality(nodes) > 0)"))]
pub struct Record<'a> {
    reservation: &'a Token,
    queue: &'a Token,
    starts_at: Millis,
    ends_at: Millis,
    #[table(check = "nodes_wanted >= 0")]
    nodes_wanted: u64,
    /// What the nodes must be like.
    #[table(check = "jsonb_typeof(selector) = 'array'")]
    selector: Json<&'a [Requirement]>,
    #[table(check = "state IN ('asked', 'granted', 'refused', 'withdrawn', 'over')")]
    state: &'static str,
    nodes: Vec<&'a str>,
    #[table(check = "version > 0")]
    version: u64,
    changed_at: Millis,
}

impl<'a> Record<'a> {
    pub fn of(row: &'a ReservationRow) -> Self {
        let nodes = match &row.state {
            ReservationState::Granted { nodes } => &nodes[..],
            ReservationState::Asked
            | ReservationState::Refused
            | ReservationState::Withdrawn
            | ReservationState::Over => &[],
        };
        let terms = &row.terms;
        Self {
            reservation: &row.reservation,
            queue: &terms.queue,
            starts_at: terms.from,
            ends_at: terms.until,
            nodes_wanted: terms.nodes.into(),
            selector: Json(&terms.selector),
            state: row.state.name(),
            nodes: nodes.iter().map(Token::as_str).collect(),
            version: row.version,
            changed_at: row.changed_at,
        }
    }
}

/// The reservations for the queues that a tenant may submit to, or all, in the order in which they begin.
pub async fn reservations(
    pool: &PgPool,
    tenant: Option<&Token>,
) -> Result<Vec<ReservationRow>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT reservation, queue, starts_at AS "starts_at: Moment", ends_at AS "ends_at: Moment", nodes_wanted,
                  selector AS "selector: Json<Vec<Requirement>>", state, nodes, version,
                  changed_at AS "changed_at: Moment"
           FROM reservations
           WHERE $1::text IS NULL OR queue = $1 OR queue IN (SELECT queue FROM queues WHERE $1 = ANY (tenants))
           ORDER BY starts_at, reservation"#,
        tenant.map(Token::as_str),
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let wanted = u32::try_from(record.nodes_wanted);
        Ok(ReservationRow {
            reservation: Token::read(record.reservation, "reservation")?,
            terms: AdvanceReservation {
                queue: Token::read(record.queue, "queue")?,
                from: record.starts_at.into(),
                until: record.ends_at.into(),
                nodes: wanted.map_err(|_| OutOfRange::new("nodes_wanted", record.nodes_wanted))?,
                selector: record.selector.0,
            },
            state: state(&record.state, record.nodes)?,
            version: unsigned("version", record.version)?,
            changed_at: record.changed_at.into(),
        })
    });
    rows.collect()
}

fn state(name: &str, nodes: Vec<String>) -> Result<ReservationState, OutOfRange> {
    let nodes = Vec::<Token>::read(nodes, "nodes");
    match name {
        "asked" => Ok(ReservationState::Asked),
        "granted" => Ok(ReservationState::Granted { nodes: nodes? }),
        "refused" => Ok(ReservationState::Refused),
        "withdrawn" => Ok(ReservationState::Withdrawn),
        "over" => Ok(ReservationState::Over),
        other => Err(OutOfRange::new("state", other)),
    }
}
