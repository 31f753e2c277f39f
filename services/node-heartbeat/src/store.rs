//! Warm state of node-heartbeat: the only file with SQL.

mod json;

use crate::project::{NodeRow, NodeState, WarmProjection};
use chassis::warm::{Moment, OutOfRange, PgSink, ROWS_MAX, WarmError, WarmState, bigint, unsigned};
use ledger::Projection;
use sqlx::{PgConnection, PgPool, migrate::Migrator};
use std::collections::BTreeMap;
use vocab::{NodeCapacity, Token};

/// The tables `nodes` and `projection_position`.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeTables;

/// Where the projection's changes go.
pub fn sink(pool: PgPool) -> PgSink<NodeTables> {
    PgSink::new(pool, NodeTables)
}

impl WarmState for NodeTables {
    type Change = NodeRow;

    const NAME: &'static str = WarmProjection::NAME;

    fn migrator() -> &'static Migrator {
        static MIGRATOR: Migrator = sqlx::migrate!("../../schemas/postgres/node-heartbeat");
        &MIGRATOR
    }

    async fn write(&self, tx: &mut PgConnection, changes: &[NodeRow]) -> Result<(), WarmError> {
        for rows in collapse(changes).chunks(ROWS_MAX) {
            upsert(tx, rows).await?;
        }
        Ok(())
    }

    async fn wipe(&self, tx: &mut PgConnection) -> Result<(), WarmError> {
        sqlx::query!("TRUNCATE nodes").execute(tx).await?;
        Ok(())
    }
}

/// One row per node, the last: a statement may not touch a row twice.
fn collapse(changes: &[NodeRow]) -> Vec<&NodeRow> {
    let mut last = BTreeMap::new();
    for row in changes {
        last.insert(&row.node, row);
    }
    last.into_values().collect()
}

async fn upsert(tx: &mut PgConnection, rows: &[&NodeRow]) -> Result<(), WarmError> {
    let count = rows.len();
    let mut nodes = Vec::with_capacity(count);
    let mut incarnations = Vec::with_capacity(count);
    let mut states = Vec::with_capacity(count);
    let mut cpus = Vec::with_capacity(count);
    let mut memories = Vec::with_capacity(count);
    let mut gpus = Vec::with_capacity(count);
    let mut models = Vec::with_capacity(count);
    let mut labels = Vec::with_capacity(count);
    let mut taints = Vec::with_capacity(count);
    let mut extended = Vec::with_capacity(count);
    let mut topologies = Vec::with_capacity(count);
    let mut registered = Vec::with_capacity(count);
    let mut since = Vec::with_capacity(count);
    let mut last_seen = Vec::with_capacity(count);
    for row in rows {
        nodes.push(row.node.as_str());
        // As text: an agent may choose any unsigned number, and more than half of them are no bigint.
        incarnations.push(row.incarnation.to_string());
        states.push(row.state.name());
        cpus.push(bigint("cpu_milli", row.capacity.cpu_milli)?);
        memories.push(bigint("memory_bytes", row.capacity.memory_bytes)?);
        gpus.push(i32::from(row.capacity.gpus));
        models.push(row.capacity.gpu_model.as_ref().map(Token::as_str));
        labels.push(json::object(&row.capacity.labels)?);
        taints.push(json::text(&row.capacity.taints)?);
        extended.push(json::object(&row.capacity.extended)?);
        topologies.push(row.capacity.topology.as_ref().map(json::text).transpose()?);
        registered.push(Moment::try_from(row.registered_at)?);
        since.push(Moment::try_from(row.since)?);
        last_seen.push(Moment::try_from(row.last_seen)?);
    }
    sqlx::query!(
        "INSERT INTO nodes
             (node, incarnation, state, cpu_milli, memory_bytes, gpus, gpu_model, registered_at, since, last_seen,
              labels, taints, extended, topology)
         SELECT node, incarnation::numeric, state, cpu_milli, memory_bytes, gpus, gpu_model, registered_at, since,
                last_seen, labels::jsonb, taints::jsonb, extended::jsonb, topology::jsonb
         FROM UNNEST($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::integer[], $7::text[],
                     $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::text[], $12::text[], $13::text[],
                     $14::text[])
             AS row (node, incarnation, state, cpu_milli, memory_bytes, gpus, gpu_model, registered_at, since,
                     last_seen, labels, taints, extended, topology)
         ON CONFLICT (node) DO UPDATE SET
             incarnation = excluded.incarnation, state = excluded.state, cpu_milli = excluded.cpu_milli,
             memory_bytes = excluded.memory_bytes, gpus = excluded.gpus, gpu_model = excluded.gpu_model,
             registered_at = excluded.registered_at, since = excluded.since, last_seen = excluded.last_seen,
             labels = excluded.labels, taints = excluded.taints, extended = excluded.extended,
             topology = excluded.topology",
        &nodes as _,
        &incarnations,
        &states as _,
        &cpus,
        &memories,
        &gpus,
        &models as _,
        &registered as _,
        &since as _,
        &last_seen as _,
        &labels,
        &taints,
        &extended,
        &topologies as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The fleet, by name.
pub async fn nodes(pool: &PgPool) -> Result<Vec<NodeRow>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT node, incarnation::text AS "incarnation!", state, cpu_milli, memory_bytes, gpus, gpu_model,
                  registered_at AS "registered_at: Moment", since AS "since: Moment",
                  last_seen AS "last_seen: Moment", labels::text AS "labels!", taints::text AS "taints!",
                  extended::text AS "extended!", topology::text AS topology
           FROM nodes ORDER BY node"#
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let bad = |what, value: &str| OutOfRange::new(what, value);
        let token = |what, text: &str| Token::new(text).map_err(|_| bad(what, text));
        Ok(NodeRow {
            node: token("node", &record.node)?,
            incarnation: record
                .incarnation
                .parse()
                .map_err(|_| bad("incarnation", &record.incarnation))?,
            state: NodeState::ALL
                .into_iter()
                .find(|state| state.name() == record.state)
                .ok_or_else(|| bad("state", &record.state))?,
            capacity: NodeCapacity {
                cpu_milli: unsigned("cpu_milli", record.cpu_milli)?,
                memory_bytes: unsigned("memory_bytes", record.memory_bytes)?,
                gpus: u16::try_from(record.gpus)
                    .map_err(|_| OutOfRange::new("gpus", record.gpus))?,
                gpu_model: record
                    .gpu_model
                    .map(|model| token("gpu_model", &model))
                    .transpose()?,
                labels: json::named("labels", &record.labels)?,
                taints: json::value("taints", &record.taints)?,
                extended: json::named("extended", &record.extended)?,
                topology: record
                    .topology
                    .map(|text| json::value("topology", &text))
                    .transpose()?,
            },
            registered_at: record.registered_at.into(),
            since: record.since.into(),
            last_seen: record.last_seen.into(),
        })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::Millis;

    #[test]
    fn the_last_change_of_a_node_is_written() {
        let row = |node, incarnation| NodeRow {
            node: Token::new(node).unwrap(),
            incarnation,
            state: NodeState::Ready,
            capacity: NodeCapacity::default(),
            registered_at: Millis(0),
            since: Millis(0),
            last_seen: Millis(0),
        };
        let changes = [row("b", 1), row("a", 1), row("b", 2)];
        let found: Vec<_> = collapse(&changes)
            .iter()
            .map(|row| (row.node.as_str(), row.incarnation))
            .collect();
        assert_eq!(found, [("a", 1), ("b", 2)]);
    }
}
