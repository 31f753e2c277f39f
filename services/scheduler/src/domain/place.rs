//! Placing what is next: one allocation on the best node that it may go to, or a gang all at once.

use super::{
    Scheduler,
    allocation::{Live, Phase},
    aside::Aside,
    class::{Class, ClassNo, ShapeNo},
    fleet::{NodeNo, Others, Spot, Taken, Wanted},
    scoring,
};
use vocab::{AllocationNo, Candidate, Event, PlacementPolicy, Token, WaitingReason};

/// A place that was found; nothing stands on the ledger yet.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub allocation: AllocationNo,
    pub node: NodeNo,
    pub spot: Spot,
    pub policy: PlacementPolicy,
    pub candidates: Vec<Candidate>,
}

/// How many nodes a placement names beside the one that was chosen.
const RUNNERS_UP: usize = 2;

/// Only nodes whose label has this value.
type Uniform<'a> = Option<(&'a Token, &'a Token)>;

impl Scheduler {
    pub(super) fn placement_policy(&self, live: &Live) -> PlacementPolicy {
        let class = self.priority_class(live).and_then(|class| class.placement);
        let queue = || self.queues.get(live.queue).settings.placement;
        class.or_else(queue).unwrap_or(self.policy.placement)
    }

    /// The best node for one allocation, as things stand.
    fn find_place(&mut self, no: AllocationNo, uniform: Uniform<'_>, aside: &Aside) -> Option<Place> {
        let live = self.live.get(&no)?;
        let policy = self.placement_policy(live);
        let class = self.classes.get(live.class.0);
        let wanted = Wanted {
            no: live.class,
            class,
            policy,
            popularity: &self.popularity,
        };
        self.fleet.rank(&wanted);
        let fleet = &self.fleet;
        let others = class.looks_at_others().then(|| Others::of(fleet, class));
        let may = |node: NodeNo| {
            let value = |label: &Token| fleet.capacity(node).label(label.as_str());
            uniform.is_none_or(|(label, wanted)| value(label) == Some(wanted))
                && others.as_ref().is_none_or(|others| others.keep_off(node).is_none())
        };
        let better = |a: &Option<(NodeNo, super::fleet::Value)>, b| match a {
            Some((_, value)) => *value < b,
            None => true,
        };
        let best_but = |not: &[NodeNo]| {
            let mut best = fleet.best(&wanted, |node| !not.contains(&node) && may(node));
            for node in fleet.aside().iter().copied() {
                let there = fleet.node(node);
                if there.open() && there.nominees.is_empty() && !not.contains(&node) && may(node) {
                    let value = fleet.value(node, &wanted);
                    if value.fits() && better(&best, value) && aside.lets(self, no, live, node) {
                        best = Some((node, value));
                    }
                }
            }
            best
        };
        let avoided: Vec<_> = live.avoid.into_iter().collect();
        // A node that a run failed on is better than none.
        let found = best_but(&avoided).or_else(|| if avoided.is_empty() { None } else { best_but(&[]) });
        let (node, value) = found?;
        let mut named = vec![node];
        let candidate = |node, value: super::fleet::Value| Candidate {
            node: fleet.node(node).name.clone(),
            score: value.score(),
        };
        let mut candidates = vec![candidate(node, value)];
        for _ in 0..RUNNERS_UP {
            let Some((next, value)) = best_but(&named) else {
                break;
            };
            named.push(next);
            candidates.push(candidate(next, value));
        }
        let spot = fleet.node(node).spot(fleet.capacity(node), class, |room| {
            scoring::devices(policy.into(), &self.popularity, room, &class.ask)
        })?;
        Some(Place {
            allocation: no,
            node,
            spot,
            policy,
            candidates,
        })
    }

    /// Places for the members of one unit: all of a single, at least the minimum of a gang. The state is as before.
    pub(super) fn find_places(
        &mut self,
        members: &[AllocationNo],
        shape: ShapeNo,
        aside: &Aside,
    ) -> Result<Vec<Place>, Short> {
        let shape = self.shapes.get(shape.0);
        if let ([single], None) = (members, &shape.uniform_label) {
            let place = self.find_place(*single, None, aside);
            return place.map(|place| vec![place]).ok_or(Short {
                reason: WaitingReason::NoRoomNow,
                missing: 1,
            });
        }
        let shape = shape.clone();
        let min = shape.min as usize;
        let Some(label) = &shape.uniform_label else {
            let places = self.try_all(members, None, aside);
            return enough(places, min);
        };
        let values = self.fleet.label_values(label);
        if values.is_empty() {
            return Err(Short {
                reason: WaitingReason::NoUniformLabel,
                missing: 1,
            });
        }
        // The value that takes the most members; the first by name among equals.
        let mut best: Vec<Place> = Vec::new();
        for value in &values {
            let places = self.try_all(members, Some((label, value)), aside);
            if places.len() > best.len() {
                best = places;
            }
            if best.len() == members.len() {
                break;
            }
        }
        enough(best, min)
    }

    /// Places for as many members as find one, one after the other. Members of one class find none once one has not.
    fn try_all(&mut self, members: &[AllocationNo], uniform: Uniform<'_>, aside: &Aside) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        let mut taken: Vec<(NodeNo, AllocationNo, ClassNo, Taken)> = Vec::new();
        let mut full: Option<ClassNo> = None;
        for no in members {
            let Some(class_no) = self.live.get(no).map(|live| live.class) else {
                continue;
            };
            if full == Some(class_no) {
                continue;
            }
            let place = self.find_place(*no, uniform, aside).and_then(|place| {
                let class = self.classes.get(class_no.0);
                let took = self.fleet.take(place.node, *no, class, &place.spot).ok()?;
                Some((place, took))
            });
            match place {
                Some((place, took)) => {
                    taken.push((place.node, *no, class_no, took));
                    places.push(place);
                }
                None => full = Some(class_no),
            }
        }
        self.undo(taken);
        places
    }

    /// The places of nominees, if what they wait for has gone from all their nodes. The state is as before.
    pub(super) fn places_of_nominees(&mut self, members: &[AllocationNo]) -> Option<Vec<Place>> {
        let mut places = Vec::new();
        let mut taken = Vec::new();
        for no in members {
            let live = self.live.get(no)?;
            let Phase::Nominated(node) = live.phase else {
                break;
            };
            let policy = self.placement_policy(live);
            let class = self.classes.get(live.class.0);
            let there = self.fleet.node(node);
            let capacity = self.fleet.capacity(node);
            if there.check(capacity, class).is_err() {
                break;
            }
            let spot = there.spot(capacity, class, |room| {
                scoring::devices(policy.into(), &self.popularity, room, &class.ask)
            });
            let Some(spot) = spot else {
                break;
            };
            let Ok(took) = self.fleet.take(node, *no, class, &spot) else {
                break;
            };
            taken.push((node, *no, live.class, took));
            places.push(Place {
                allocation: *no,
                node,
                spot,
                policy,
                candidates: Vec::new(),
            });
        }
        self.undo(taken);
        (places.len() == members.len()).then_some(places)
    }

    fn undo(&mut self, taken: Vec<(NodeNo, AllocationNo, ClassNo, Taken)>) {
        for (node, no, class, took) in taken.into_iter().rev() {
            let class: &Class = self.classes.get(class.0);
            self.fleet.give_back_trial(node, no, class, &took);
        }
    }

    pub(super) fn placed_event(&self, place: Place) -> Event {
        let node = self.fleet.node(place.node);
        Event::AllocationPlaced {
            allocation: place.allocation,
            node: node.name.clone(),
            incarnation: node.incarnation,
            gpus: place.spot.gpus,
            zones: place.spot.zones,
            policy: place.policy,
            candidates: place.candidates,
        }
    }
}

/// Why there are no places, and for how many members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Short {
    pub reason: WaitingReason,
    pub missing: u32,
}

fn enough(places: Vec<Place>, min: usize) -> Result<Vec<Place>, Short> {
    match min.checked_sub(places.len()) {
        None | Some(0) if !places.is_empty() => Ok(places),
        missing => Err(Short {
            reason: WaitingReason::GangNoRoom,
            // A gang has at most 1024 members.
            missing: missing.unwrap_or(1).max(1) as u32,
        }),
    }
}
