//! The table `reservations`.

use super::names;
use crate::project::{ReservationRow, ReservationState};
use chassis::warm::{Moment, OutOfRange, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgPool, types::Json};
use vocab::{AdvanceReservation, Requirement, Token};

pub async fn upsert(tx: &mut PgConnection, row: &ReservationRow) -> Result<(), WarmError> {
    let nodes = match &row.state {
        ReservationState::Granted { nodes } => &nodes[..],
        ReservationState::Asked
        | ReservationState::Refused
        | ReservationState::Withdrawn
        | ReservationState::Over => &[],
    };
    let nodes: Vec<String> = nodes.iter().map(|node| node.as_str().to_owned()).collect();
    let terms = &row.terms;
    sqlx::query!(
        "INSERT INTO reservations (reservation, queue, starts_at, ends_at, nodes_wanted, selector, state, nodes,
                                   version, changed_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT (reservation) DO UPDATE SET
             queue = excluded.queue, starts_at = excluded.starts_at, ends_at = excluded.ends_at,
             nodes_wanted = excluded.nodes_wanted, selector = excluded.selector, state = excluded.state,
             nodes = excluded.nodes, version = excluded.version, changed_at = excluded.changed_at",
        row.reservation.as_str(),
        terms.queue.as_str(),
        Moment::try_from(terms.from)? as _,
        Moment::try_from(terms.until)? as _,
        i64::from(terms.nodes),
        Json(&terms.selector) as _,
        row.state.name(),
        &nodes,
        bigint("version", row.version)?,
        Moment::try_from(row.changed_at)? as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// All reservations, in the order in which they begin.
pub async fn reservations(pool: &PgPool) -> Result<Vec<ReservationRow>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT reservation, queue, starts_at AS "starts_at: Moment", ends_at AS "ends_at: Moment", nodes_wanted,
                  selector AS "selector: Json<Vec<Requirement>>", state, nodes, version,
                  changed_at AS "changed_at: Moment"
           FROM reservations ORDER BY starts_at, reservation"#
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let wanted = u32::try_from(record.nodes_wanted);
        Ok(ReservationRow {
            reservation: names::token("reservation", &record.reservation)?,
            terms: AdvanceReservation {
                queue: names::token("queue", &record.queue)?,
                from: record.starts_at.into(),
                until: record.ends_at.into(),
                nodes: wanted.map_err(|_| OutOfRange::new("nodes_wanted", record.nodes_wanted))?,
                selector: record.selector.0,
            },
            state: state(&record.state, &record.nodes)?,
            version: unsigned("version", record.version)?,
            changed_at: record.changed_at.into(),
        })
    });
    rows.collect()
}

fn state(name: &str, nodes: &[String]) -> Result<ReservationState, OutOfRange> {
    let nodes: Result<Vec<Token>, _> = nodes
        .iter()
        .map(|node| names::token("nodes", node))
        .collect();
    match name {
        "asked" => Ok(ReservationState::Asked),
        "granted" => Ok(ReservationState::Granted { nodes: nodes? }),
        "refused" => Ok(ReservationState::Refused),
        "withdrawn" => Ok(ReservationState::Withdrawn),
        "over" => Ok(ReservationState::Over),
        other => Err(OutOfRange::new("state", other)),
    }
}
