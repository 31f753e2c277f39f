//! Units of preemption: a single allocation, or all members of a gang that are on nodes.

use super::{
    super::{
        Scheduler,
        class::{Amounts, add},
        gang::GangNo,
    },
    board::{Entry, Seen},
    claim::{Claimant, Shares},
};
use std::{cmp::Reverse, collections::BTreeMap};
use vocab::{AllocationNo, Millis};

/// Allocations that are preempted together, on all nodes.
#[derive(Debug, Clone, Copy)]
pub struct Unit {
    /// Highest priority among the members.
    pub priority: i32,
    pub members: usize,
    /// Placement of the oldest and of the youngest member.
    pub oldest: Millis,
    youngest: Millis,
    /// All members are of preemptible classes.
    preemptible: bool,
}

/// Cost of a choice: the highest priority among the victims, their number, and the oldest of them (younger is better).
pub type Badness = (Option<i32>, usize, Reverse<Millis>);

/// Lower bound of the highest priority among the victims, and an estimate of their number.
pub type Least = (Option<i32>, usize);

/// Known units of gangs.
pub type Gangs = BTreeMap<GangNo, Unit>;

/// Part of a unit on one node.
struct Part {
    priority: i32,
    members: usize,
    amounts: Amounts,
    may_go: bool,
}

impl Scheduler {
    pub(super) fn unit_of(&self, victim: AllocationNo) -> Option<Unit> {
        let mut unit: Option<Unit> = None;
        for no in self.fellows(victim) {
            let live = self.allocations.get(&no)?;
            let placed = live.binding()?.placed;
            let preemptible = self.settings.preemptible(live.priority_class);
            let one = Unit {
                priority: live.priority,
                members: 1,
                oldest: placed,
                youngest: placed,
                preemptible,
            };
            unit = Some(match unit {
                None => one,
                Some(unit) => Unit {
                    priority: unit.priority.max(one.priority),
                    members: unit.members + 1,
                    oldest: unit.oldest.min(placed),
                    youngest: unit.youngest.max(placed),
                    preemptible: unit.preemptible && preemptible,
                },
            });
        }
        unit
    }

    /// Returns the cost of these victims, one for each unit.
    pub(super) fn badness(&self, victims: impl Iterator<Item = AllocationNo>) -> Badness {
        let none = (None, 0, Reverse(Millis(i64::MAX)));
        let units = victims.filter_map(|no| self.unit_of(no));
        units.fold(none, |(priority, members, oldest), unit| {
            (
                priority.max(Some(unit.priority)),
                members + unit.members,
                oldest.max(Reverse(unit.oldest)),
            )
        })
    }
}

/// Returns the least that must be preempted on a node for a claimant that asks for these amounts; none if there cannot be room.
/// A claimant that is `alone` would have been placed if there were room without any victim.
pub fn glance(
    (state, seen): (&Scheduler, &Seen),
    (claimant, shares): (&Claimant<'_>, &Shares),
    (asks, alone): (&Amounts, bool),
    gangs: &mut Gangs,
) -> Option<Least> {
    let enough = |room: &Amounts| room.iter().zip(asks).all(|(room, asks)| room >= asks);
    // A stopping allocation makes room without any victim.
    if enough(&seen.prospect) && (seen.clears || !alone) {
        return Some((None, 0));
    }
    let mut room = seen.prospect;
    let mut least = (None, 0);
    let mut takes = |priority: i32, members: usize, amounts: &Amounts| {
        if least.0.is_some() && enough(&room) {
            return false;
        }
        add(&mut room, amounts);
        least = (Some(priority), least.1 + members);
        true
    };
    let may_go = |entry: &Entry| claimant.might_take(entry, shares);
    if seen.any_gang {
        for part in parts(state, seen, claimant, may_go, gangs) {
            if !takes(part.priority, part.members, &part.amounts) {
                break;
            }
        }
    } else {
        for entry in &seen.may_go {
            if entry.priority > claimant.live.priority {
                break;
            }
            let goes = may_go(entry) && !claimant.spares(entry.placed);
            if goes && !takes(entry.priority, 1, &entry.amounts) {
                break;
            }
        }
    }
    (enough(&room) && least.0.is_some()).then_some(least)
}

/// Returns the units on the node that may be preempted, the lowest priority and the fewest members first.
fn parts(
    state: &Scheduler,
    seen: &Seen,
    claimant: &Claimant<'_>,
    may_go: impl Fn(&Entry) -> bool,
    gangs: &mut Gangs,
) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut of_gangs: BTreeMap<GangNo, Part> = BTreeMap::new();
    for entry in &seen.may_go {
        let Some(gang) = entry.gang else {
            if may_go(entry) && !claimant.spares(entry.placed) {
                parts.push(Part {
                    priority: entry.priority,
                    members: 1,
                    amounts: entry.amounts,
                    may_go: true,
                });
            }
            continue;
        };
        let unit = match gangs.get(&gang) {
            Some(unit) => *unit,
            None => match state.unit_of(entry.no) {
                Some(unit) => *gangs.entry(gang).or_insert(unit),
                None => continue,
            },
        };
        let part = of_gangs.entry(gang).or_insert_with(|| Part {
            priority: unit.priority,
            members: unit.members,
            amounts: Amounts::default(),
            may_go: false,
        });
        add(&mut part.amounts, &entry.amounts);
        part.may_go |= unit.preemptible
            && unit.priority <= claimant.live.priority
            && may_go(entry)
            && !claimant.spares(unit.youngest);
    }
    parts.extend(of_gangs.into_values().filter(|part| part.may_go));
    parts.sort_by_key(|part| (part.priority, part.members));
    parts
}
