//! Those whom nodes were cleared for: placed once there is room, judged like everybody else when they are placed.

use super::{
    super::{
        Scheduler,
        allocation::Phase,
        aside::Aside,
        class::Class,
        fleet::{Moves, NodeNo, Others, Spot, keeps_off},
        place::{Place, Trial},
    },
    plan::Plan,
};
use ledger::Draft;
use std::collections::{BTreeMap, BTreeSet};
use vocab::fact::AllocationWaiting;
use vocab::{
    AllocationNo, WaitingReason,
    sabotage::{self, Bug},
};

/// Nominees that find room on their node, with their places there.
type Arrivals = BTreeMap<AllocationNo, Spot>;

/// How those of one unit stand.
enum Verdict {
    /// There is room for all of them on their nodes.
    Places(Vec<Place>),
    /// There will be, once those have gone who are told to.
    Waits,
    /// Not even then, or they may not be there any more.
    Never,
}

/// Places those whose nodes have been cleared, or who find room elsewhere before; those who cannot come to their nodes any
/// more go back to their pending group.
pub fn decide(state: &mut Scheduler, aside: &Aside, draft: &mut Draft) {
    let nominated: Vec<_> = state.allocations.nominated().iter().copied().collect();
    let mut looked_at = BTreeSet::new();
    for no in nominated {
        if draft.full() {
            return;
        }
        // The first of a gang may have placed it, or sent it back, with all others.
        let Some(live) = state.allocations.get(&no) else {
            continue;
        };
        if !matches!(live.phase, Phase::Nominated(_)) {
            continue;
        }
        let gang = live.gang.filter(|gang| !state.waiting.gangs().runs(*gang));
        let members = state.nominated_with(no);
        if !looked_at.insert(members.first().copied()) {
            continue;
        }
        let enough = gang.is_none_or(|gang| state.waiting.gangs().enough(gang, members.len()));
        let verdict = match enough {
            true => state.judge(&members, aside),
            false => Verdict::Never,
        };
        let places = match verdict {
            Verdict::Places(places) => Some(places),
            Verdict::Waits => state.elsewhere(&members, aside),
            Verdict::Never => {
                state.withdraw(members, draft);
                continue;
            }
        };
        for place in places.into_iter().flatten() {
            let event = state.placed_event(place, aside);
            draft.emit(state, event);
        }
        if let Some(gang) = gang.filter(|gang| state.waiting.gangs().runs(*gang)) {
            let rest = state.waiting.gangs().ready_members(gang);
            state.tell_the_rest(&rest, draft);
        }
    }
    state.pace.room_gained = false;
}

impl Scheduler {
    /// The nominees that come with it, all or none, in the order in which they were planned; none if it is no nominee.
    pub(super) fn nominated_with(&self, no: AllocationNo) -> Vec<AllocationNo> {
        if !self.allocations.nominated().contains(&no) {
            return Vec::new();
        }
        let gang = self.allocations.get(&no).and_then(|live| live.gang);
        let Some(gang) = gang.filter(|gang| !self.waiting.gangs().runs(*gang)) else {
            return vec![no];
        };
        let of_gang = |no: &&AllocationNo| {
            self.allocations
                .get(no)
                .is_some_and(|live| live.gang == Some(gang))
        };
        let nominated = self.allocations.nominated().iter();
        let mut members: Vec<_> = nominated.filter(of_gang).copied().collect();
        self.largest_first(&mut members);
        members
    }

    fn withdraw(&mut self, members: Vec<AllocationNo>, draft: &mut Draft) {
        for allocation in members {
            let (reason, pending_group) = (WaitingReason::NoRoomNow, None);
            let waiting = AllocationWaiting {
                allocation,
                reason,
                pending_group,
            };
            draft.emit(self, waiting);
        }
    }

    fn judge(&mut self, members: &[AllocationNo], aside: &Aside) -> Verdict {
        let trusted = sabotage::armed(Bug::NomineeIgnoresFilters)
            && self
                .nominations(members)
                .iter()
                .all(|(_, node, _)| self.fleet.node(*node).ready);
        let nodes = self.nominations(members).into_iter();
        let nodes: BTreeSet<_> = nodes.map(|(_, node, _)| node).collect();
        let arrivals = nodes.into_iter().map(|node| (node, self.arrivals(node)));
        let arrivals = arrivals.collect();
        let Some(spots) = self
            .will_be_there(members, aside, &arrivals)
            .or(trusted.then(BTreeMap::new))
        else {
            return Verdict::Never;
        };
        let kept_for = self.kept_for(members, &arrivals);
        let mut trial = Trial::default();
        for no in members {
            let spot = spots.get(no);
            let place = self.may_be_there(*no, members, spot);
            if place.is_none_or(|place| !self.take(place, &mut trial)) {
                break;
            }
        }
        let places = trial.places.clone();
        let all = places.len() == members.len() && self.still_come(&kept_for);
        self.undo(&mut trial, 0);
        if all {
            Verdict::Places(places)
        } else {
            Verdict::Waits
        }
    }

    /// Returns, for each node of the unit, the other nominees that must still fit once the unit is placed: those that were
    /// nominated before it and those of a higher priority, as far as they fit now.
    fn kept_for(
        &self,
        members: &[AllocationNo],
        arrivals: &BTreeMap<NodeNo, Arrivals>,
    ) -> BTreeMap<NodeNo, BTreeSet<AllocationNo>> {
        let priority = |no: &AllocationNo| self.allocations.get(no).map(|live| live.priority);
        let of_unit = |no: &&AllocationNo| members.contains(no);
        let kept_for = arrivals.iter().map(|(node, arrivals)| {
            let nominees = &self.fleet.node(*node).nominees;
            let before = nominees.iter().rposition(|no| of_unit(&no)).unwrap_or(0);
            let highest = nominees.iter().filter(of_unit).map(priority).max();
            let others = nominees.iter().enumerate().filter(|(at, no)| {
                let kept = *at < before || Some(priority(no)) > highest;
                kept && !of_unit(no) && arrivals.contains_key(no)
            });
            (*node, others.map(|(_, no)| *no).collect())
        });
        kept_for.collect()
    }

    /// Returns whether all of these nominees fit on their nodes.
    fn still_come(&self, kept_for: &BTreeMap<NodeNo, BTreeSet<AllocationNo>>) -> bool {
        kept_for.iter().all(|(node, others)| {
            let come = || self.arrivals(*node);
            others.is_empty() || others.is_subset(&come().into_keys().collect())
        })
    }

    /// Returns the places of the node's nominees once all stopping allocations have left, in the order of nomination. Nominees
    /// that find no room are left out.
    fn arrivals(&self, no: NodeNo) -> Arrivals {
        let mut node = self.left_by_then(no, &Plan::default());
        let mut arrivals = BTreeMap::new();
        for nominee in &self.fleet.node(no).nominees {
            // Members of the unit may be placed on trial.
            if !node.holds.contains(nominee)
                && let Some(spot) = self.come(&mut node, no, *nominee)
            {
                arrivals.insert(*nominee, spot);
            }
        }
        arrivals
    }

    pub(super) fn nominations(
        &self,
        members: &[AllocationNo],
    ) -> Vec<(AllocationNo, NodeNo, &Class)> {
        let nomination = |no: &AllocationNo| {
            let live = self.allocations.get(no)?;
            match live.phase {
                Phase::Nominated(node) => Some((*no, node, self.allocations.class(live.class))),
                _ => None,
            }
        };
        members.iter().filter_map(nomination).collect()
    }

    /// Returns the places of the unit once all stopping allocations have left; none if a member may not come to its node.
    fn will_be_there(
        &self,
        members: &[AllocationNo],
        aside: &Aside,
        arrivals: &BTreeMap<NodeNo, Arrivals>,
    ) -> Option<Arrivals> {
        let nominations = self.nominations(members);
        let mut spots = BTreeMap::new();
        for (at, (no, node, class)) in nominations.iter().enumerate() {
            let live = self.allocations.get(no)?;
            let there = self.fleet.node(*node);
            let lets = || !*there.aside || aside.lets(self, *no, live, *node);
            let over_limit = self
                .waiting
                .queues()
                .is_above_limit(live.queue, &class.amounts());
            let kind = keeps_off(self.fleet.capacity(*node), class);
            if !there.stays() || kind.is_some() || over_limit || !lets() {
                return None;
            }
            if class.looks_at_others() {
                let moves = self.moves_of_nominee(&nominations, at);
                let others = Others::of(&self.fleet, class, &moves);
                if others.keep_off(*node).is_some() {
                    return None;
                }
            }
            spots.insert(*no, arrivals.get(node)?.get(no)?.clone());
        }
        (nominations.len() == members.len()).then_some(spots)
    }

    /// What will have changed for one of a unit by the time that it comes: who goes has gone, and those of the unit come one
    /// after the other.
    pub(super) fn moves_of_nominee<'a>(
        &'a self,
        nominations: &[(AllocationNo, NodeNo, &'a Class)],
        at: usize,
    ) -> Moves<'a> {
        let of = |(_, node, class): &(AllocationNo, NodeNo, &'a Class)| (*node, *class);
        Moves {
            gone: self.going(nominations[at].2),
            come: nominations[..at].iter().map(of).collect(),
            not_coming: nominations.iter().map(of).collect(),
            may_come: Vec::new(),
        }
    }

    /// Returns the place of a nominee as the node is now, with members of its unit placed on trial: the planned spot if that is
    /// free, otherwise the policy's choice.
    fn may_be_there(
        &self,
        no: AllocationNo,
        members: &[AllocationNo],
        spot: Option<&Spot>,
    ) -> Option<Place> {
        let nominations = self.nominations(members);
        let (_, node, class) = nominations.iter().find(|(of, _, _)| *of == no)?;
        if class.looks_at_others() {
            let of = |(_, node, class): &(AllocationNo, NodeNo, _)| (*node, *class);
            let moves = Moves {
                not_coming: nominations.iter().map(of).collect(),
                ..Moves::default()
            };
            let others = Others::of(&self.fleet, class, &moves);
            if others.keep_off(*node).is_some() {
                return None;
            }
        }
        let there = self.fleet.node(*node);
        if !there.open() {
            return None;
        }
        let capacity = self.fleet.capacity(*node);
        there.check(capacity, class).ok()?;
        let place = self.place_on(no, *node)?;
        let free = |spot: &&Spot| {
            let mut there = there.clone();
            there.take(capacity, (no, class), spot.parts()).is_ok()
        };
        let spot = spot.filter(|spot| **spot != place.spot).filter(free);
        Some(Place {
            spot: spot.cloned().unwrap_or(place.spot),
            ..place
        })
    }

    /// Places for all of the unit without anybody having to go, where there was none when they were nominated. One who does
    /// not stop in time keeps nobody from them.
    fn elsewhere(&mut self, members: &[AllocationNo], aside: &Aside) -> Option<Vec<Place>> {
        if !self.pace.room_gained {
            return None;
        }
        let places = self.try_all(members, None, aside);
        (places.len() == members.len()).then_some(places)
    }
}
