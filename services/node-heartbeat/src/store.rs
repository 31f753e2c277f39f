//! Warm state of node-heartbeat: the only file with SQL.

mod json;

use crate::project::{ApprovalRow, Change, NodeRow, NodeState, WarmProjection};
use chassis::warm::{Moment, OutOfRange, PgSink, ROWS_MAX, WarmError, WarmState, bigint, unsigned};
use ledger::Projection;
use sqlx::{PgConnection, PgPool, migrate::Migrator};
use std::collections::BTreeMap;
use vocab::{NodeApproval, NodeCapacity, Token};

/// The tables `nodes`, `node_approvals` and `projection_position`.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeTables;

/// Where the projection's changes go.
pub fn sink(pool: PgPool) -> PgSink<NodeTables> {
    PgSink::new(pool, NodeTables)
}

impl WarmState for NodeTables {
    type Change = Change;

    const NAME: &'static str = WarmProjection::NAME;

    fn migrator() -> &'static Migrator {
        static MIGRATOR: Migrator = sqlx::migrate!("../../schemas/postgres/node-heartbeat");
        &MIGRATOR
    }

    async fn write(&self, tx: &mut PgConnection, changes: &[Change]) -> Result<(), WarmError> {
        let last = Last::of(changes);
        for rows in last.nodes.chunks(ROWS_MAX) {
            upsert(tx, rows).await?;
        }
        for rows in last.approvals.chunks(ROWS_MAX) {
            upsert_approvals(tx, rows).await?;
        }
        sqlx::query!(
            "DELETE FROM nodes WHERE node = ANY($1)",
            &last.forgotten as _
        )
        .execute(&mut *tx)
        .await?;
        sqlx::query!(
            "DELETE FROM node_approvals WHERE node = ANY($1)",
            &last.withdrawn as _
        )
        .execute(tx)
        .await?;
        Ok(())
    }

    async fn wipe(&self, tx: &mut PgConnection) -> Result<(), WarmError> {
        sqlx::query!("TRUNCATE nodes, node_approvals")
            .execute(tx)
            .await?;
        Ok(())
    }
}

/// What is left of the changes: one row per node, the last, because a statement may not touch a row twice.
#[derive(Debug, Default)]
struct Last<'a> {
    nodes: Vec<&'a NodeRow>,
    forgotten: Vec<&'a str>,
    approvals: Vec<&'a ApprovalRow>,
    withdrawn: Vec<&'a str>,
}

impl<'a> Last<'a> {
    fn of(changes: &'a [Change]) -> Self {
        let mut last = BTreeMap::new();
        for change in changes {
            let of_node = matches!(change, Change::Node(_) | Change::Forgotten(_));
            last.insert((change.node(), of_node), change);
        }
        let mut all = Self::default();
        for change in last.into_values() {
            match change {
                Change::Node(row) => all.nodes.push(row),
                Change::Forgotten(node) => all.forgotten.push(node.as_str()),
                Change::Approval(row) => all.approvals.push(row),
                Change::Withdrawn(node) => all.withdrawn.push(node.as_str()),
            }
        }
        all
    }
}

async fn upsert_approvals(tx: &mut PgConnection, rows: &[&ApprovalRow]) -> Result<(), WarmError> {
    for row in rows {
        let NodeApproval {
            capacity,
            token,
            until,
        } = &row.approval;
        let joined = row.joined.as_ref();
        let joined_at = joined.map(|(_, at)| Moment::try_from(*at)).transpose()?;
        sqlx::query!(
            "INSERT INTO node_approvals
                 (node, version, cpu_milli, memory_bytes, gpus, gpu_model, labels, extended, approved_at, token_until,
                  token_digest, key, joined_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7::text::jsonb, $8::text::jsonb, $9, $10, $11, $12, $13)
             ON CONFLICT (node) DO UPDATE SET
                 version = excluded.version, cpu_milli = excluded.cpu_milli, memory_bytes = excluded.memory_bytes,
                 gpus = excluded.gpus, gpu_model = excluded.gpu_model, labels = excluded.labels,
                 extended = excluded.extended, approved_at = excluded.approved_at,
                 token_until = excluded.token_until, token_digest = excluded.token_digest, key = excluded.key,
                 joined_at = excluded.joined_at",
            row.node.as_str(),
            bigint("version", row.version)?,
            bigint("cpu_milli", capacity.cpu_milli)?,
            bigint("memory_bytes", capacity.memory_bytes)?,
            i32::from(capacity.gpus),
            capacity.gpu_model.as_ref().map(Token::as_str),
            json::object(&capacity.labels)?,
            json::object(&capacity.extended)?,
            Moment::try_from(row.approved_at)? as _,
            Moment::try_from(*until)? as _,
            token.as_slice(),
            joined.map(|(key, _)| key.as_str()),
            joined_at as _,
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

async fn upsert(tx: &mut PgConnection, rows: &[&NodeRow]) -> Result<(), WarmError> {
    let count = rows.len();
    let mut nodes = Vec::with_capacity(count);
    let mut incarnations = Vec::with_capacity(count);
    let mut boots = Vec::with_capacity(count);
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
        incarnations.push(row.incarnation.to_string());
        // As text: an agent may choose any unsigned number, and more than half of them are no bigint.
        boots.push(row.boot.to_string());
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
              labels, taints, extended, topology, boot)
         SELECT node, incarnation::numeric, state, cpu_milli, memory_bytes, gpus, gpu_model, registered_at, since,
                last_seen, labels::jsonb, taints::jsonb, extended::jsonb, topology::jsonb, boot::numeric
         FROM UNNEST($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::integer[], $7::text[],
                     $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::text[], $12::text[], $13::text[],
                     $14::text[], $15::text[])
             AS row (node, incarnation, state, cpu_milli, memory_bytes, gpus, gpu_model, registered_at, since,
                     last_seen, labels, taints, extended, topology, boot)
         ON CONFLICT (node) DO UPDATE SET
             incarnation = excluded.incarnation, state = excluded.state, cpu_milli = excluded.cpu_milli,
             memory_bytes = excluded.memory_bytes, gpus = excluded.gpus, gpu_model = excluded.gpu_model,
             registered_at = excluded.registered_at, since = excluded.since, last_seen = excluded.last_seen,
             labels = excluded.labels, taints = excluded.taints, extended = excluded.extended,
             topology = excluded.topology, boot = excluded.boot",
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
        &boots,
    )
    .execute(tx)
    .await?;
    Ok(())
}

fn token(what: &'static str, text: &str) -> Result<Token, OutOfRange> {
    Token::new(text).map_err(|_| OutOfRange::new(what, text))
}

/// What the columns of both tables say; without taints and topology.
fn capacity(
    (cpu_milli, memory_bytes): (i64, i64),
    (gpus, gpu_model): (i32, Option<String>),
    (labels, extended): (&str, &str),
) -> Result<NodeCapacity, WarmError> {
    let model = gpu_model.map(|model| token("gpu_model", &model));
    Ok(NodeCapacity {
        cpu_milli: unsigned("cpu_milli", cpu_milli)?,
        memory_bytes: unsigned("memory_bytes", memory_bytes)?,
        gpus: u16::try_from(gpus).map_err(|_| OutOfRange::new("gpus", gpus))?,
        gpu_model: model.transpose()?,
        labels: json::named("labels", labels)?,
        extended: json::named("extended", extended)?,
        ..NodeCapacity::default()
    })
}

/// The fleet, by name.
pub async fn nodes(pool: &PgPool) -> Result<Vec<NodeRow>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT node, incarnation::text AS "incarnation!", boot::text AS "boot!", state, cpu_milli, memory_bytes, gpus, gpu_model,
                  registered_at AS "registered_at: Moment", since AS "since: Moment",
                  last_seen AS "last_seen: Moment", labels::text AS "labels!", taints::text AS "taints!",
                  extended::text AS "extended!", topology::text AS topology
           FROM nodes ORDER BY node"#
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let bad = |what, value: &str| OutOfRange::new(what, value);
        Ok(NodeRow {
            node: token("node", &record.node)?,
            incarnation: record
                .incarnation
                .parse()
                .map_err(|_| bad("incarnation", &record.incarnation))?,
            boot: record.boot.parse().map_err(|_| bad("boot", &record.boot))?,
            state: NodeState::ALL
                .into_iter()
                .find(|state| state.name() == record.state)
                .ok_or_else(|| bad("state", &record.state))?,
            capacity: NodeCapacity {
                taints: json::value("taints", &record.taints)?,
                topology: record
                    .topology
                    .map(|text| json::value("topology", &text))
                    .transpose()?,
                ..capacity(
                    (record.cpu_milli, record.memory_bytes),
                    (record.gpus, record.gpu_model),
                    (&record.labels, &record.extended),
                )?
            },
            registered_at: record.registered_at.into(),
            since: record.since.into(),
            last_seen: record.last_seen.into(),
        })
    });
    rows.collect()
}

/// Who may join, and who has, by name.
pub async fn approvals(pool: &PgPool) -> Result<Vec<ApprovalRow>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT node, version, cpu_milli, memory_bytes, gpus, gpu_model, labels::text AS "labels!",
                  extended::text AS "extended!", approved_at AS "approved_at: Moment",
                  token_until AS "token_until: Moment", token_digest, key, joined_at AS "joined_at: Moment"
           FROM node_approvals ORDER BY node"#
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let digest = record.token_digest.try_into();
        let key = record.key.map(|key| token("key", &key)).transpose()?;
        Ok(ApprovalRow {
            node: token("node", &record.node)?,
            version: unsigned("version", record.version)?,
            approval: NodeApproval {
                capacity: capacity(
                    (record.cpu_milli, record.memory_bytes),
                    (record.gpus, record.gpu_model),
                    (&record.labels, &record.extended),
                )?,
                token: digest.map_err(|_| OutOfRange::new("token_digest", "its length"))?,
                until: record.token_until.into(),
            },
            approved_at: record.approved_at.into(),
            joined: key.zip(record.joined_at.map(Into::into)),
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
        let node = |name| Token::new(name).unwrap();
        let row = |name, incarnation| {
            Change::Node(Box::new(NodeRow {
                node: node(name),
                incarnation,
                boot: 1,
                state: NodeState::Ready,
                capacity: NodeCapacity::default(),
                registered_at: Millis(0),
                since: Millis(0),
                last_seen: Millis(0),
            }))
        };
        let changes = [
            row("b", 1),
            row("a", 1),
            Change::Withdrawn(node("b")),
            row("b", 2),
            row("c", 1),
            Change::Forgotten(node("c")),
        ];
        let last = Last::of(&changes);
        let found = last.nodes.iter();
        let found: Vec<_> = found
            .map(|row| (row.node.as_str(), row.incarnation))
            .collect();
        assert_eq!(found, [("a", 1), ("b", 2)]);
        assert_eq!((last.forgotten, last.withdrawn), (vec!["c"], vec!["b"]));
        assert!(last.approvals.is_empty());
    }
}
