//! Those whom nodes were cleared for: placed once there is room, judged like everybody else when they are placed.

use super::{
    super::{
        Scheduler,
        allocation::Phase,
        aside::Aside,
        class::Class,
        fleet::{Moves, Node, NodeNo, Others, keeps_off},
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
        if self.will_be_there(members, aside).is_none() && !trusted {
            return Verdict::Never;
        }
        let mut trial = Trial::default();
        for no in members {
            let place = self.may_be_there(*no, members);
            if place.is_none_or(|place| !self.take(place, &mut trial)) {
                break;
            }
        }
        let places = trial.places.clone();
        self.undo(&mut trial, 0);
        if places.len() == members.len() {
            Verdict::Places(places)
        } else {
            Verdict::Waits
        }
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

    /// Whether all of the unit may be on their nodes, once those have gone who are told to.
    fn will_be_there(&self, members: &[AllocationNo], aside: &Aside) -> Option<()> {
        let nominations = self.nominations(members);
        let mut nodes: BTreeMap<NodeNo, Node> = BTreeMap::new();
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
            let prospect = match nodes.remove(node) {
                Some(prospect) => Some(prospect),
                None => self.prospect(*node, &Plan::default(), members),
            };
            let mut prospect = prospect?;
            self.come(&mut prospect, *node, *no)?;
            nodes.insert(*node, prospect);
        }
        (nominations.len() == members.len()).then_some(())
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

    /// The place of a nominee as things stand now, beside those of its unit that are taken on trial.
    fn may_be_there(&self, no: AllocationNo, members: &[AllocationNo]) -> Option<Place> {
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
        there.check(self.fleet.capacity(*node), class).ok()?;
        self.place_on(no, *node)
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
