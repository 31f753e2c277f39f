//! Warm state of the scheduler: SQL stands in the files of this module and nowhere else.

mod allocations;
mod counts;
mod ended;
mod explain;
mod history;
mod list;
mod look;
mod named;
mod nodes;
mod preemptions;
mod queue;
mod queues;
mod reservations;
mod settings;
mod tallies;

pub use allocations::{Allocation, allocation, changed_behind};
pub use explain::{Explanation, dependencies, explain, wait_for, waits_for};
pub use history::RETENTION_MS;
pub use list::{Page, Wanted, list};
pub use look::Listed;
pub use named::{Looked, NamedLease, NamedResource, Space, named_lease, named_resource};
pub use nodes::{OnNode, Used, WantedNodes, capacity, node, nodes, on_node};
pub use preemptions::{PreemptionEvent, preemptions};
pub use queue::{Ahead, PlaceInQueue, Queued, Standing, queue};
pub use queues::{Held, QueueState, Share, Waits, queues};
pub use reservations::reservations;
pub use tallies::{JobSet, JobSetKey, TenantUse, WantedJobSets, job_sets, tenants};

use crate::project::{Change, Tallies, WarmProjection, Written};
use chassis::warm::{PgSink, Position, WarmError, WarmState, empty, insert, merge, update};
use ledger::Projection;
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use table::{Row, Table};
use vocab::CellNo;

/// The tables of `schemas/postgres/scheduler`.
#[derive(Debug, Clone, Copy)]
pub struct SchedulerTables {
    /// Part of every allocation's id.
    pub cell: CellNo,
}

/// They are made of the rows, and [`VIEWS`] of them.
pub const TABLES: &[&Table] = &[
    Position::TABLE,
    allocations::Record::TABLE,
    ended::Record::TABLE,
    queue::Record::TABLE,
    counts::Record::TABLE,
    counts::NodeRecord::TABLE,
    settings::Queue::TABLE,
    settings::Policy::TABLE,
    nodes::Node::TABLE,
    settings::Weight::TABLE,
    tallies::JobSetRecord::TABLE,
    tallies::TenantRecord::TABLE,
    reservations::Record::TABLE,
    preemptions::Record::TABLE,
    history::Record::TABLE,
    named::Resource::TABLE,
    named::Lease::TABLE,
    Space::TABLE,
];
/// Everything is read as of one moment.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
pub const VIEWS: &str = include_str!("store/views.sql");

impl SchedulerTables {
    /// What was requested and is over within one batch has one row, among those that are over; only what lives longer
    /// has one among the live, and one in the queue while it waits.
    async fn write_allocations(
        &self,
        tx: &mut PgConnection,
        written: &[&Written],
    ) -> Result<(), WarmError> {
        let all = written.iter().copied();
        let (over, live): (Vec<&Written>, Vec<_>) =
            all.partition(|one| one.row.state.stage().is_over());
        let (new, changed): (Vec<&Written>, Vec<_>) =
            live.into_iter().partition(|one| one.is_first());
        let record = |one| allocations::Record::of(self.cell, one);
        insert(tx, new.into_iter().map(record)).await?;
        let changed: Vec<_> = changed.into_iter().map(record).collect();
        update(tx, &changed).await?;
        let were_live = over.iter().filter(|one| !one.is_first());
        let ids = were_live.map(|one| one.row.allocation.id(self.cell).0);
        let left = allocations::leave(tx, &ids.collect::<Vec<_>>()).await?;
        ended::write(tx, self.cell, &over, &left).await?;
        queue::write(tx, self.cell, written).await?;
        tallies::write(tx, &Tallies::of(written)).await
    }
}

/// One for each allocation, by number: of those of one the last.
fn last_of_each(mut written: Vec<&Written>) -> Vec<&Written> {
    written.sort_by_key(|one| one.row.allocation);
    written.dedup_by(|later, kept| {
        let same = later.row.allocation == kept.row.allocation;
        if same {
            *kept = *later;
        }
        same
    });
    written
}

/// Where the projection's changes go.
pub fn sink(pool: PgPool, cell: CellNo) -> PgSink<SchedulerTables> {
    PgSink::new(pool, SchedulerTables { cell })
}

impl WarmState for SchedulerTables {
    type Change = Change;

    const NAME: &'static str = WarmProjection::NAME;
    const DDL: &'static str = include_str!("../../../schemas/postgres/scheduler/0001_tables.sql");

    async fn write(&self, tx: &mut PgConnection, changes: &[Change]) -> Result<(), WarmError> {
        // A statement may not touch a row twice: of what replaces a row only the last is written.
        let mut allocations = Vec::new();
        let mut preemptions = BTreeMap::new();
        let mut counts = BTreeMap::new();
        let mut entries = Vec::new();
        let mut settings = Vec::new();
        let mut nodes = nodes::Rows::new();
        let mut named = named::Rows::default();
        for change in changes {
            match change {
                Change::Allocation(written) => allocations.push(written),
                Change::Preemption(row) => {
                    preemptions.insert(row.preemption.position, &**row);
                }
                Change::Entry(entry) => entries.push(&**entry),
                Change::Setting(row) => settings.push(&**row),
                Change::Node(row) => {
                    nodes.insert(&row.node, Some(&**row));
                }
                Change::NodeGone(node) => {
                    nodes.insert(node, None);
                }
                Change::Resource(row) => named.resource(row),
                Change::Held(row) => named.lease(row),
                Change::Space(row) => named.space(row),
                Change::Count(row) => {
                    counts.insert(&row.key, row);
                }
            }
        }
        self.write_allocations(tx, &last_of_each(allocations))
            .await?;
        counts::write(tx, counts.into_values()).await?;
        let preemptions = preemptions.into_values();
        let preemptions = preemptions.map(|row| preemptions::Record::of(self.cell, row));
        merge(tx, &preemptions.collect::<Vec<_>>()).await?;
        let explanations = entries.iter();
        let explanations = explanations.map(|entry| history::Record::of(self.cell, entry));
        merge(tx, &explanations.collect::<Vec<_>>()).await?;
        history::forget(tx, &entries).await?;
        for row in settings {
            settings::upsert(tx, row).await?;
        }
        nodes::write(tx, &nodes).await?;
        named.write(tx).await
    }

    async fn wipe(&self, tx: &mut PgConnection) -> Result<(), WarmError> {
        empty(
            tx,
            &[
                "live_allocations",
                "ended_allocations",
                "scheduling_queue",
                "queue_counts",
                "node_counts",
                "preemption_events",
                "explanations",
                "queues",
                "scheduling_policy",
                "nodes",
                "reservations",
                "tenant_weights",
                "job_sets",
                "tenant_tallies",
                "named_resources",
                "leases",
                "lease_spaces",
            ],
        )
        .await
    }
}
