//! How much memory the cell's services take for what is kept of each tenant, and how much more of it a tenant may have.
//!
//! It is counted by stated costs, from what is on the ledger alone. They are what all deciders and projections of a cell take
//! together, measured by `loadtest/tests/it/guard/room.rs`. A change of them is a change of the state: count `STATE_VERSION` up.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{
    AllocationSpec, PlacementRules, Refusal, Requirement, Rule, Token, Work,
    sabotage::{self, Bug},
};

/// An operation that is remembered.
const OPERATION: u64 = 470;
/// An allocation that has not ended.
pub(super) const LIVE: u64 = 2800;
/// The same up to version 8 of the state.
pub(super) const LIVE_UP_TO_8: u64 = 4100;
/// The same in versions 9 and 10.
pub(super) const LIVE_UP_TO_10: u64 = 2600;
/// One that has, within its window.
const ENDED: u64 = 250;
/// Entries of names, of dependencies and of a gang that one with such has.
const LINKED: u64 = 800;
/// How often what a specification holds beside itself is kept.
const COPIES: u64 = 7;
/// The same of its labels, by which nothing is decided.
const LABEL_COPIES: u64 = 2;
/// The same of what it runs: who tells its node has it as a message, and the scheduler's rows as it was decoded.
const WORK_COPIES: u64 = 2;
/// A name longer than this stands beside its place.
const NAME: usize = 24;

/// What takes room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Of {
    Operations,
    Allocations,
}

/// How room is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shares {
    /// What each tenant may have for its operations, whatever the others have.
    pub operations_own_bytes: u64,
    /// The same for its allocations. By itself, so that who has no room for one more can still cancel those that it has.
    pub allocations_own_bytes: u64,
    /// What tenants may have together beyond that.
    pub shared_bytes_max: u64,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            operations_own_bytes: 1 << 20,
            allocations_own_bytes: 1 << 20,
            shared_bytes_max: 4 << 30,
        }
    }
}

impl Shares {
    fn own(&self, of: Of) -> u64 {
        match of {
            Of::Operations => self.operations_own_bytes,
            Of::Allocations => self.allocations_own_bytes,
        }
    }

    /// What somebody who has so much has beyond its own share.
    fn beyond(&self, of: Of, held: u64) -> u64 {
        held.saturating_sub(self.own(of))
    }

    fn armed(self) -> Self {
        match sabotage::armed(Bug::OwnRoomShared) {
            true => Self {
                operations_own_bytes: 0,
                shared_bytes_max: self.shared_bytes_max + self.operations_own_bytes,
                ..self
            },
            false => self,
        }
    }
}

/// Bytes by tenant. The operators' lane has no end, so nothing of theirs is counted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Room {
    /// Without those that have none.
    operations: BTreeMap<Token, u64>,
    allocations: BTreeMap<Token, u64>,
    /// Follows from what is held and from a setting, so it is no part of the state; none before the first decision.
    #[serde(skip)]
    beyond: Option<Beyond>,
}

/// The sum of what each has beyond its own shares.
#[derive(Debug, Clone, Copy)]
struct Beyond {
    by: Shares,
    sum: u64,
}

impl PartialEq for Room {
    fn eq(&self, other: &Self) -> bool {
        (&self.operations, &self.allocations) == (&other.operations, &other.allocations)
    }
}

impl Eq for Room {}

impl Room {
    fn all(&self, of: Of) -> &BTreeMap<Token, u64> {
        match of {
            Of::Operations => &self.operations,
            Of::Allocations => &self.allocations,
        }
    }

    pub fn held(&self, of: Of, tenant: &Token) -> u64 {
        self.all(of).get(tenant).copied().unwrap_or(0)
    }

    /// Divides it so from now on.
    pub fn divide(&mut self, shares: Shares) {
        let by = shares.armed();
        if self.beyond.is_some_and(|beyond| beyond.by == by) {
            return;
        }
        let sum = |of| -> u64 {
            let held = self.all(of).values();
            held.map(|held| by.beyond(of, *held)).sum()
        };
        let sum = sum(Of::Operations) + sum(Of::Allocations);
        self.beyond = Some(Beyond { by, sum });
    }

    pub fn take(&mut self, of: Of, tenant: &Token, bytes: u64) {
        self.set(of, tenant, self.held(of, tenant) + bytes);
    }

    /// What was taken.
    pub fn give(&mut self, of: Of, tenant: &Token, bytes: u64) {
        self.set(of, tenant, self.held(of, tenant).saturating_sub(bytes));
    }

    fn set(&mut self, of: Of, tenant: &Token, bytes: u64) {
        if tenant.as_str() == vocab::subjects::OPERATOR {
            return;
        }
        let held = match of {
            Of::Operations => &mut self.operations,
            Of::Allocations => &mut self.allocations,
        };
        let before = match bytes {
            0 => held.remove(tenant),
            _ => held.insert(tenant.clone(), bytes),
        };
        if let Some(Beyond { by, sum }) = &mut self.beyond {
            *sum = *sum - by.beyond(of, before.unwrap_or(0)) + by.beyond(of, bytes);
        }
    }

    /// The tenant may have so many bytes for this. Up to its own share nobody keeps it from that. Beyond it, it may have as
    /// much of what all share as it leaves, so that there is always something left for who comes next. Nobody has any room
    /// that was never divided.
    pub fn check(&self, of: Of, tenant: &Token, would_be: u64) -> Result<(), Refusal> {
        let limit = self.beyond.map_or(0, |Beyond { by, sum }| {
            let others = sum - by.beyond(of, self.held(of, tenant));
            let shared = by.shared_bytes_max.saturating_sub(others) / 2;
            by.own(of).saturating_add(shared)
        });
        if would_be <= limit {
            return Ok(());
        }
        Err(Refusal::over(Rule::CellFull, "bytes", limit, would_be))
    }
}

pub(super) fn operation(tenant: &Token, id: &Token) -> u64 {
    OPERATION + beside(tenant) + 3 * beside(id)
}

pub(super) fn live(tenant: &Token, spec: &AllocationSpec) -> u64 {
    let linked = match spec.gang.is_some() || !spec.depends_on.is_empty() {
        true => LINKED,
        false => 0,
    };
    let labels = spec.labels.iter();
    let labels = labels.map(|(name, value)| 48 + beside(name) + beside(value));
    let work = spec.work.as_deref().map_or(0, of_work);
    LIVE + linked
        + COPIES * (beside(tenant) + of_spec(spec))
        + LABEL_COPIES * labels.sum::<u64>()
        + WORK_COPIES * work
}

pub(super) fn ended(tenant: &Token) -> u64 {
    ENDED + beside(tenant)
}

/// What a name takes beside its place.
fn beside(name: &Token) -> u64 {
    match name.as_str().len() {
        length if length > NAME => length as u64,
        _ => 0,
    }
}

fn beside_all<'a>(names: impl IntoIterator<Item = &'a Option<Token>>) -> u64 {
    names.into_iter().flatten().map(beside).sum()
}

/// What a specification holds beside itself, without its labels.
fn of_spec(spec: &AllocationSpec) -> u64 {
    let models = spec.gpu.iter().flat_map(|gpu| &gpu.models);
    let models: u64 = models.map(|model| 24 + beside(model)).sum();
    let extended = spec.extended.iter().map(|(name, _)| 32 + beside(name));
    let gang = spec.gang.as_ref();
    let gang = gang.map_or(0, |it| beside(&it.name) + beside_all([&it.uniform_label]));
    let rules = spec.rules.as_deref();
    let rules = rules.filter(|rules| !is_of_work_alone(rules));
    let rules = rules.map_or(0, of_rules);
    let names = [&spec.name, &spec.queue, &spec.priority_class];
    beside(&spec.job_set)
        + beside_all(names)
        + beside_all([&spec.team, &spec.namespace])
        + models
        + extended.sum::<u64>()
        + gang
        + rules
        + 16 * spec.depends_on.len() as u64
}

fn of_work(work: &Work) -> u64 {
    let texts = work.args.len() + 2 * work.env.len();
    64 + 8 * texts as u64 + work.bytes() as u64
}

fn is_of_work_alone(rules: &PlacementRules) -> bool {
    let PlacementRules {
        selector,
        tolerations,
        group,
        affinity,
        anti_affinity,
        spread,
        numa: _,
        preferred,
    } = rules;
    selector
        .iter()
        .all(|one| one.label.as_str() == Work::NODE_LABEL)
        && tolerations.is_empty()
        && group.is_none()
        && affinity.is_empty()
        && anti_affinity.is_empty()
        && spread.is_empty()
        && preferred.is_empty()
}

/// What admission itself asks for whatever runs a command is the same for all, and is kept once.
fn of_rules(rules: &PlacementRules) -> u64 {
    let own = |one: &&Requirement| one.label.as_str() != Work::NODE_LABEL;
    let selector = rules.selector.iter().chain(&rules.preferred);
    let selector = selector.filter(own).map(|one| {
        let values: u64 = one.values.iter().map(|value| 24 + beside(value)).sum();
        56 + beside(&one.label) + values
    });
    let tolerations = rules.tolerations.iter();
    let tolerations = tolerations.map(|one| 48 + beside_all([&one.key, &one.value]));
    let terms = rules.affinity.iter().chain(&rules.anti_affinity);
    let terms = terms.map(|one| 48 + beside(&one.group) + beside_all([&one.topology_key]));
    let spread = rules.spread.iter();
    let spread = spread.map(|one| 32 + beside_all([&one.topology_key]));
    let rest = selector.chain(tolerations).chain(terms).chain(spread);
    160 + beside_all([&rules.group]) + rest.sum::<u64>()
}
