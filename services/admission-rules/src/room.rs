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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use vocab::{
        AllocationNo, Dependency, Gang, GpuRequest, GroupTerm, Operator, Spread, Toleration,
    };

    /// A name that fits into its place.
    fn short() -> Token {
        Token::new("short").unwrap()
    }

    /// A name of 30 bytes, which does not.
    fn long() -> Token {
        Token::new(&"l".repeat(30)).unwrap()
    }

    fn plain() -> AllocationSpec {
        AllocationSpec::plain(short(), 1000, 1)
    }

    /// Compares the bytes of a live allocation beyond those of a plain one.
    fn check(change: impl FnOnce(&mut AllocationSpec), expected: u64) {
        let mut spec = plain();
        change(&mut spec);
        let more = live(&short(), &spec) - live(&short(), &plain());
        assert_eq!(more, expected, "{spec:?}");
    }

    fn check_rules(change: impl FnOnce(&mut PlacementRules), expected: u64) {
        let mut rules = PlacementRules::default();
        change(&mut rules);
        check(|spec| spec.rules = Some(Box::new(rules)), expected);
    }

    #[test]
    fn a_name_takes_room_where_it_does_not_fit_into_its_place() {
        assert_eq!(operation(&short(), &short()), 470);
        assert_eq!(operation(&long(), &short()), 500);
        assert_eq!(operation(&short(), &long()), 560);
        assert_eq!((ended(&short()), ended(&long())), (250, 280));
        assert_eq!(live(&short(), &plain()), 2800);
        assert_eq!(live(&long(), &plain()), 3010);
        let of = |length: usize| beside(&Token::new(&"l".repeat(length)).unwrap());
        assert_eq!((of(24), of(25)), (0, 25));
        check(|spec| spec.job_set = long(), 210);
        let optional: [fn(&mut AllocationSpec) -> &mut Option<Token>; 5] = [
            |spec| &mut spec.name,
            |spec| &mut spec.queue,
            |spec| &mut spec.priority_class,
            |spec| &mut spec.team,
            |spec| &mut spec.namespace,
        ];
        for field in optional {
            check(|spec| *field(spec) = Some(short()), 0);
            check(|spec| *field(spec) = Some(long()), 210);
        }
    }

    #[test]
    fn lists_take_room_for_each_element() {
        let models = |models: Vec<Token>| {
            let (count, milli) = (1, 1000);
            move |spec: &mut AllocationSpec| {
                spec.gpu = Some(GpuRequest {
                    count,
                    milli,
                    models,
                });
            }
        };
        check(models(vec![]), 0);
        check(models(vec![short(), short()]), 7 * 2 * 24);
        check(models(vec![long()]), 7 * (24 + 30));
        check(|spec| spec.extended = vec![(short(), 1)], 7 * 32);
        check(|spec| spec.extended = vec![(long(), 1)], 7 * (32 + 30));
        check(|spec| spec.labels = vec![(short(), short())], 2 * 48);
        check(|spec| spec.labels = vec![(long(), long())], 2 * (48 + 60));
        let after = |no| Dependency {
            allocation: AllocationNo(no),
            success: true,
        };
        check(
            |spec| spec.depends_on = vec![after(1), after(2)],
            800 + 7 * 32,
        );
        let gang = |name, uniform_label| {
            let (size, min) = (2, 2);
            Some(Gang {
                name,
                size,
                min,
                uniform_label,
            })
        };
        check(|spec| spec.gang = gang(short(), None), 800);
        check(
            |spec| spec.gang = gang(long(), Some(long())),
            800 + 7 * (30 + 30),
        );
    }

    #[test]
    fn work_takes_room_for_its_texts() {
        let work = |args: &[&str], env: &[(&str, &str)]| {
            Some(Arc::new(Work {
                command: "c".into(),
                args: args.iter().map(|arg| (*arg).to_owned()).collect(),
                env: env
                    .iter()
                    .map(|(a, b)| ((*a).into(), (*b).into()))
                    .collect(),
                ..Work::default()
            }))
        };
        check(|spec| spec.work = work(&[], &[]), 2 * (64 + 1));
        check(|spec| spec.work = work(&["ab"], &[]), 2 * (64 + 8 + 3));
        let both = work(&["ab"], &[("A", "b")]);
        check(|spec| spec.work = both, 2 * (64 + 8 * 3 + 5));
    }

    #[test]
    fn rules_take_room_unless_they_are_those_of_all_commands() {
        let requires = |label: Token, values: Vec<Token>| Requirement {
            label,
            operator: Operator::In,
            values,
        };
        let commands = || requires(Token::new(Work::NODE_LABEL).unwrap(), vec![short()]);
        let term = |group, topology_key| GroupTerm {
            group,
            topology_key,
        };
        check_rules(|_| (), 0);
        check_rules(|rules| rules.selector = vec![commands()], 0);
        check_rules(
            |rules| rules.selector = vec![commands(), requires(short(), vec![short()])],
            7 * (160 + 56 + 24),
        );
        check_rules(
            |rules| rules.preferred = vec![requires(long(), vec![long()])],
            7 * (160 + 56 + 30 + 24 + 30),
        );
        check_rules(
            |rules| {
                rules.tolerations = vec![Toleration {
                    key: Some(long()),
                    value: Some(short()),
                }];
            },
            7 * (160 + 48 + 30),
        );
        check_rules(|rules| rules.group = Some(short()), 7 * 160);
        check_rules(|rules| rules.group = Some(long()), 7 * (160 + 30));
        check_rules(
            |rules| rules.affinity = vec![term(short(), None)],
            7 * (160 + 48),
        );
        check_rules(
            |rules| rules.anti_affinity = vec![term(long(), Some(long()))],
            7 * (160 + 48 + 60),
        );
        check_rules(
            |rules| {
                rules.spread = vec![Spread {
                    topology_key: Some(long()),
                    max_skew: 1,
                }];
            },
            7 * (160 + 32 + 30),
        );
    }

    #[test]
    fn rooms_are_equal_by_what_is_held() {
        let taken = |of, bytes| {
            let mut room = Room::default();
            room.take(of, &short(), bytes);
            room
        };
        let room = taken(Of::Operations, 5);
        assert!(room == taken(Of::Operations, 5));
        assert!(room != taken(Of::Operations, 6));
        assert!(room != taken(Of::Allocations, 5));
        let mut divided = room.clone();
        divided.divide(Shares::default());
        assert!(room == divided);
    }
}
