//! Reads the ledger with eyes of its own and knows what must hold at every position of it.
//!
//! Nothing here is shared with what it checks: frames are decoded from the contract's messages, the model is naive,
//! and each rule is written down a second time. Files: one per part of the ledger. The rules of named resources are
//! those of their kernel's model, which shares no code with it.

mod allocations;
mod asked;
mod bill;
mod chain;
mod deadlines;
mod demand;
mod fit;
mod gangs;
mod inboxes;
mod isolation;
mod nodes;
mod others;
mod outcomes;
mod progress;
mod queues;
mod quotas;
mod replay;
mod resources;
mod rest;
mod runs;
mod settings;

pub use demand::Demand;
pub use fit::PRESSURES;
use inboxes::operation_of;
pub use inboxes::{Ask, Asked, Expect, TurnedAway};
pub use isolation::impossible_changes_nothing;
pub use nodes::{Heartbeat, Named};
pub use outcomes::Fed;
pub use replay::{Replay, Replays, begins_quietly};
pub use resources::Granted;

use super::process::Orders;
use crate::history::Bounds;
use ledger::Record;
use prost::Message;
use schemas::v1::{self, event::Kind};
use serde::Serialize;
use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
};

/// The invariants, by number; 0 is for code that broke down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Invariant {
    /// A panic, or a process that gave up.
    Breakdown = 0,
    /// No device, core or byte is held twice.
    Exclusive = 1,
    /// No quota is exceeded.
    Quota = 2,
    /// An acknowledged request gets exactly one outcome.
    Outcome = 3,
    /// An operation repeated is not done again.
    Operation = 4,
    /// Expiry may be late, never early.
    Expiry = 5,
    /// What is terminal stays so.
    Terminal = 6,
    /// One history: the chain, the watermarks, and states that follow from them.
    Replay = 7,
    /// What is placed may be there: selectors, taints, cordons, whole gangs; and only what may be preempted is.
    Fit = 8,
    /// What is answered about named resources is what their rules say.
    Lease = 9,
    /// No queue comes to hold more than its limit, nor one above it, whoever had to go for that.
    QueueLimit = 11,
    /// Decisions come to an end: the number of preemptions is bounded by who could go for whom.
    Rest = 12,
    /// A leader that begins in any quiet state decides nothing.
    Memory = 13,
    /// Whatever could be placed on what is free is.
    Progress = 14,
    /// Nothing is placed and preempted at once, and nothing finished runs again.
    Waste = 15,
    /// What is impossible changes nothing for anybody else.
    Isolation = 16,
    /// No fact is written before the cell is at its feature level.
    Level = 17,
    /// Nothing waits for longer than its time to live, and a run is told to stop at its time limit; neither is early.
    Deadline = 18,
    /// Past use keeps its price, unless a correction is stated.
    Bill = 19,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invariant {}, {invariant:?}: lsn {lsn}: {text}", *.invariant as u8)]
pub struct Violation {
    pub invariant: Invariant,
    /// Where on the ledger, or how long it was.
    pub lsn: u64,
    pub text: String,
}

/// Settings of the deciders that the rules depend on.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub cell: u64,
    pub lease_ms: i64,
    pub window_ms: i64,
    pub operations_max: u64,
    pub allocations_max: u64,
    /// Of each tenant, for its operations.
    pub own_bytes: u64,
    /// Of all tenants, for theirs.
    pub shared_bytes_max: u64,
    /// The length of a slot of leases; 0: requests say it.
    pub slot_ms: u64,
    pub bounds: Bounds,
}

/// Who wrote a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writer {
    Admission,
    Quota,
    Scheduler,
    Nodes,
}

/// Where an event stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    lsn: u64,
    index: u32,
    no: u64,
    now: i64,
    /// What the writer says it had seen.
    through: u64,
}

impl Place {
    fn wrong(&self, invariant: Invariant, text: impl fmt::Display) -> Violation {
        Violation {
            invariant,
            lsn: self.lsn,
            text: text.to_string(),
        }
    }

    fn rule(
        &self,
        holds: bool,
        invariant: Invariant,
        text: impl FnOnce() -> String,
    ) -> Result<(), Violation> {
        if holds {
            Ok(())
        } else {
            Err(self.wrong(invariant, text()))
        }
    }

    /// Whether the writer had seen what stands at `lsn`.
    fn saw(&self, lsn: u64) -> bool {
        lsn <= self.through
    }
}

/// The process that wrote a frame.
fn process_of(leader: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(leader.get(..8)?.try_into().ok()?))
}

/// The checker's own model of the world.
pub struct Checker {
    limits: Limits,
    chain: chain::Chain,
    inboxes: inboxes::Inboxes,
    allocations: allocations::Allocations,
    quotas: quotas::Quotas,
    nodes: nodes::Nodes,
    settings: settings::Settings,
    /// Up to here the cell was at its first feature level.
    first_level_through: u64,
    /// It began at the first level: a leader hears some time later that it was raised.
    began_at_first_level: bool,
    asked: asked::Requests,
    bill: bill::Bill,
    resources: resources::Resources,
    outcomes: outcomes::Outcomes,
    rest: rest::Rest,
    events: u64,
    proofs: u64,
    moves: u64,
}

impl Checker {
    pub fn new(limits: Limits, orders: Orders) -> Self {
        Self {
            limits,
            chain: chain::Chain::default(),
            inboxes: inboxes::Inboxes::new(orders),
            allocations: allocations::Allocations::default(),
            quotas: quotas::Quotas::default(),
            nodes: nodes::Nodes::default(),
            settings: settings::Settings::default(),
            first_level_through: 0,
            began_at_first_level: false,
            asked: asked::Requests::default(),
            bill: bill::Bill::default(),
            resources: resources::Resources::new(limits.bounds, limits.slot_ms),
            outcomes: outcomes::Outcomes::default(),
            rest: rest::Rest::default(),
            events: 0,
            moves: 0,
            proofs: 0,
        }
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    /// SHA-256 over all records, chained.
    pub fn digest(&self) -> [u8; 32] {
        self.chain.digest()
    }

    /// Allocations that stand on the ledger, for whoever wants to cancel one.
    pub fn allocations(&self) -> impl Iterator<Item = (u64, &str)> {
        self.allocations.all()
    }

    /// Leases that were granted, for whoever wants to confirm, release or revoke one.
    pub fn granted(&self) -> Vec<Granted<'_>> {
        self.resources.granted()
    }

    /// A message was published at ingress, acknowledged.
    pub fn asked(&mut self, ask: Ask) {
        self.inboxes.asked(ask);
    }

    /// A message was published at the nodes' inbox, acknowledged.
    pub fn reported(&mut self, node: &str, payload: &[u8]) {
        self.nodes.reported(node, payload);
    }

    /// The cell's feature level is the first one for now.
    pub fn is_of_first_level(&mut self) {
        self.first_level_through = u64::MAX;
        self.began_at_first_level = true;
    }

    /// The cell's feature level was raised to the newest when its ledger ended at `lsn`.
    pub fn raised(&mut self, lsn: u64) {
        self.first_level_through = self.first_level_through.min(lsn);
    }

    /// A process began, its clock showing `clock_ms`; `drafted` holds the step of its latest draft.
    pub fn began(&mut self, process: u64, clock_ms: i64, drafted: Arc<AtomicU64>) {
        self.nodes.began(process, clock_ms, drafted);
    }

    /// A heartbeat reached a process.
    pub fn heard(&mut self, heartbeat: Heartbeat) {
        self.nodes.heard(heartbeat);
    }

    /// Takes in the next record. `step` is the world's, `latest_ms` the latest that a right clock may show.
    pub fn record(&mut self, record: &Record, step: u64, latest_ms: i64) -> Result<(), Violation> {
        let (writer, frame) = self.chain.accept(record)?;
        if frame.now_ms > latest_ms {
            let ahead = frame.now_ms - latest_ms;
            return Err(Violation {
                invariant: Invariant::Expiry,
                lsn: record.lsn.0,
                text: format!("{writer:?}'s clock is {ahead} ms ahead of what it may show"),
            });
        }
        self.events += frame.events.len() as u64;
        let lsn = record.lsn.0;
        let place = |index: usize| Place {
            lsn,
            index: index as u32,
            no: frame.first_event_no + index as u64,
            now: frame.now_ms,
            through: frame.through_lsn,
        };
        let kinds = frame
            .events
            .iter()
            .enumerate()
            .map(|(index, event)| match &event.kind {
                Some(kind) => Ok((place(index), kind)),
                None => Err(place(index).wrong(Invariant::Replay, "an event without a kind")),
            })
            .collect::<Result<Vec<_>, _>>()?;
        for (at, kind) in &kinds {
            let newer = match kind {
                Kind::NodeSuspected(_)
                | Kind::PeriodClosed(_)
                | Kind::TaintsSet(_)
                | Kind::NodeConditionChanged(_)
                | Kind::NodeCapacityChanged(_) => true,
                Kind::CordonSet(e) => e.change.as_ref().is_some_and(|set| set.drain),
                Kind::TenantSet(e) => {
                    let set = e.change.as_ref();
                    set.is_some_and(|set| set.closed || !set.teams.is_empty())
                }
                Kind::OperationRefused(e) => e.verb != 0,
                Kind::QueueSet(e) => e.change.as_ref().is_some_and(|set| set.closed),
                Kind::PriorityClassSet(e) => e.change.as_ref().is_some_and(|set| set.closed),
                Kind::NodeRegistered(e) => e.capacity.as_ref().is_some_and(|it| {
                    it.max_runs > 0 || it.taints.iter().any(|taint| taint.effect != 0)
                }),
                Kind::AllocationRequested(e) => e.spec.as_ref().is_some_and(|spec| {
                    let rules = spec.rules.as_ref();
                    let prefers = rules.is_some_and(|rules| !rules.preferred.is_empty());
                    let bounded = spec.ttl_ms > 0 || spec.time_limit_ms > 0;
                    prefers || bounded || spec.array_index.is_some()
                }),
                Kind::AllocationStopping(e) => e.time_limit,
                Kind::RateSet(e) => e.change.as_ref().is_some_and(|rate| {
                    let scope = [
                        &rate.tenant,
                        &rate.priority_class,
                        &rate.pool,
                        &rate.cluster,
                    ];
                    rate.withdrawn || scope.iter().any(|name| !name.is_empty())
                }),
                _ => false,
            };
            let named = operation_of(kind).is_some_and(|operation| !operation.by.is_empty());
            let allowed = !(newer || named) || at.lsn > self.first_level_through;
            at.rule(allowed, Invariant::Level, || format!("{kind:?}"))?;
        }
        let allowed = frame.columns.is_none() || lsn > self.first_level_through;
        place(0).rule(allowed, Invariant::Level, || "columns".to_owned())?;
        self.proofs += u64::from(matches!(writer, Writer::Nodes) && kinds.is_empty());
        self.moves += kinds.iter().filter(|(_, kind)| moves_on(kind)).count() as u64;
        self.stirs(&kinds);
        match writer {
            Writer::Admission => self.admission(&place(0), &frame.leader, &kinds)?,
            Writer::Quota => {
                self.quota(&place(0), &kinds)?;
                self.quota_covers(&place(0))?;
            }
            Writer::Scheduler => {
                self.scheduler(&place(0), &kinds)?;
                self.quota_covers(&place(0))?;
            }
            Writer::Nodes => self.node_heartbeat(&place(0), &frame, &kinds, step)?,
        }
        kinds.iter().try_for_each(|(at, kind)| {
            let allocations = &self.allocations;
            self.outcomes.derive(at, kind, allocations)
        })
    }

    /// The feed has a new message.
    pub fn fed(&mut self, fed: Fed) -> Result<(), Violation> {
        self.outcomes.fed(fed)
    }

    /// Whoever waits behind a reply token is told outcomes.
    pub fn reply(&mut self, tenant: &str, token: &str, payload: &[u8]) -> Result<(), Violation> {
        self.outcomes.reply(tenant, token, payload)
    }

    /// Frames of node-heartbeat that say nothing but that it leads, and how far it has read.
    pub fn proofs(&self) -> u64 {
        self.proofs
    }

    /// Events that have moved something on: quota that comes and goes with bursts, again and again, does not.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Whether nothing is on its way back to quota.
    pub fn settled(&self) -> bool {
        self.quotas.settled()
    }

    /// Somebody was refused without a record.
    pub fn turned(&mut self, turned: &TurnedAway) -> Result<(), Violation> {
        let lsn = self.chain.end();
        self.inboxes.turned(lsn, turned)
    }

    fn end(&self) -> Place {
        Place {
            lsn: self.chain.end(),
            index: 0,
            no: 0,
            now: 0,
            through: self.chain.end(),
        }
    }

    /// All is quiet: nothing may be left over.
    pub fn finish(&mut self) -> Result<(), Violation> {
        let end = self.end();
        self.inboxes.finish(&end)?;
        self.allocations.finish(&end)?;
        self.asked.finish(&end)?;
        self.resources.finish(&end)?;
        self.quotas.finish(&end, &self.allocations)?;
        self.outcomes.finish(&end, &self.inboxes)
    }
}

fn moves_on(kind: &Kind) -> bool {
    !matches!(
        kind,
        Kind::QuotaReserved(_)
            | Kind::QuotaWaiting(_)
            | Kind::QuotaReclaimed(_)
            | Kind::QuotaReleased(_)
            | Kind::AllocationWaiting(_)
            | Kind::PendingGroupExplained(_)
    )
}

fn foreign(at: &Place, kind: &Kind) -> Violation {
    at.wrong(Invariant::Replay, format!("not this writer's: {kind:?}"))
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    M::decode(bytes).ok()
}

/// The name of a node, tenant or job set.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

type Frame = v1::Frame;
