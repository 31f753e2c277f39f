//! Warm state of node-heartbeat: SQL stands in the files of this module and nowhere else.

mod approvals;
mod conditions;
mod nodes;

pub use approvals::{Approval, approvals};
pub use conditions::Condition;
pub use nodes::Node;

use crate::project::{ApprovalRow, Change, ConditionRow, NodeRow, WarmProjection};
use chassis::warm::{PgSink, Position, WarmError, WarmState, empty, merge};
use ledger::Projection;
use sqlx::{PgConnection, PgPool, types::Json};
use std::collections::BTreeMap;
use table::{Row, Table};
use vocab::Token;

/// The tables of `schemas/postgres/node-heartbeat`.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeTables;

/// They are made of the rows, and [`VIEWS`] of them.
pub const TABLES: &[&Table] = &[
    Position::TABLE,
    Node::TABLE,
    Approval::TABLE,
    Condition::TABLE,
];
pub const VIEWS: &str = include_str!("store/views.sql");

/// Where the projection's changes go.
pub fn sink(pool: PgPool) -> PgSink<NodeTables> {
    PgSink::new(pool, NodeTables)
}

impl WarmState for NodeTables {
    type Change = Change;

    const NAME: &'static str = WarmProjection::NAME;
    const DDL: &'static str =
        include_str!("../../../schemas/postgres/node-heartbeat/0001_tables.sql");

    async fn write(&self, tx: &mut PgConnection, changes: &[Change]) -> Result<(), WarmError> {
        let last = Last::of(changes);
        let nodes: Vec<Node> = last.nodes.into_iter().map(Node::from).collect();
        merge(tx, &nodes).await?;
        let approvals: Vec<_> = last.approvals.into_iter().map(Approval::from).collect();
        merge(tx, &approvals).await?;
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
        .execute(&mut *tx)
        .await?;
        let conditions: Vec<_> = last.conditions.into_iter().map(Condition::from).collect();
        merge(tx, &conditions).await?;
        let (of, gone): (Vec<&str>, Vec<&str>) = last.ended.into_iter().unzip();
        sqlx::query!(
            "DELETE FROM node_conditions
             WHERE (node, condition) IN (SELECT * FROM unnest($1::text[], $2::text[]))",
            &of as _,
            &gone as _
        )
        .execute(tx)
        .await?;
        Ok(())
    }

    async fn wipe(&self, tx: &mut PgConnection) -> Result<(), WarmError> {
        empty(tx, &["nodes", "node_approvals", "node_conditions"]).await
    }
}

/// What is left of the changes: one row per key, the last, because a statement may not touch a row twice.
#[derive(Debug, Default)]
struct Last<'a> {
    nodes: Vec<&'a NodeRow>,
    forgotten: Vec<&'a str>,
    approvals: Vec<&'a ApprovalRow>,
    withdrawn: Vec<&'a str>,
    conditions: Vec<&'a ConditionRow>,
    ended: Vec<(&'a str, &'a str)>,
}

/// What a change is of.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Node(&'a Token),
    Approval(&'a Token),
    Condition(&'a Token, &'a Token),
}

fn key(change: &Change) -> Key<'_> {
    match change {
        Change::Node(row) => Key::Node(&row.node),
        Change::Forgotten(node) => Key::Node(node),
        Change::Approval(row) => Key::Approval(&row.node),
        Change::Withdrawn(node) => Key::Approval(node),
        Change::Condition(row) => Key::Condition(&row.node, &row.condition),
        Change::NoCondition(node, condition) => Key::Condition(node, condition),
    }
}

impl<'a> Last<'a> {
    fn of(changes: &'a [Change]) -> Self {
        let last: BTreeMap<_, _> = changes.iter().map(|change| (key(change), change)).collect();
        let mut all = Self::default();
        for change in last.into_values() {
            match change {
                Change::Node(row) => all.nodes.push(row),
                Change::Forgotten(node) => all.forgotten.push(node.as_str()),
                Change::Approval(row) => all.approvals.push(row),
                Change::Withdrawn(node) => all.withdrawn.push(node.as_str()),
                Change::Condition(row) => all.conditions.push(row),
                Change::NoCondition(node, condition) => {
                    all.ended.push((node.as_str(), condition.as_str()));
                }
            }
        }
        all
    }
}

/// Values by their names, so that a query can ask for one.
fn names<V: Clone>(named: &[(Token, V)]) -> Json<BTreeMap<Token, V>> {
    Json(named.iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::NodeState;
    use vocab::{Millis, NodeCapacity};

    #[test]
    fn the_last_change_of_each_thing_is_written() {
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
        let condition = |of, condition, reason: Option<&'static str>| {
            Change::Condition(Box::new(ConditionRow {
                node: node(of),
                condition: node(condition),
                reason: reason.map(node),
                since: Millis(0),
            }))
        };
        let changes = [
            row("b", 1),
            row("a", 1),
            Change::Withdrawn(node("b")),
            row("b", 2),
            row("c", 1),
            Change::Forgotten(node("c")),
            condition("a", "DiskPressure", Some("full")),
            condition("a", "GpuXid", None),
            Change::NoCondition(node("a"), node("GpuXid")),
            condition("a", "DiskPressure", Some("fuller")),
        ];
        let last = Last::of(&changes);
        let found = last.nodes.iter();
        let found: Vec<_> = found
            .map(|row| (row.node.as_str(), row.incarnation))
            .collect();
        assert_eq!(found, [("a", 1), ("b", 2)]);
        assert_eq!((last.forgotten, last.withdrawn), (vec!["c"], vec!["b"]));
        assert!(last.approvals.is_empty());
        let reasons: Vec<_> = last.conditions.iter().map(|row| &row.reason).collect();
        assert_eq!(reasons, [&Some(node("fuller"))]);
        assert_eq!(last.ended, [("a", "GpuXid")]);
    }
}
