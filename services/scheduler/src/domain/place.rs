//! Placing what is next: one allocation on the best node that it may go to, or a gang all at once.

use super::{
    Scheduler,
    allocation::{Live, Phase},
    aside::Aside,
    class::{Class, ClassNo, ShapeNo},
    fleet::{NodeNo, Others, Spot, Taken, Value, Wanted},
    gang::GangNo,
    scoring,
};
use std::collections::BTreeMap;
use vocab::{AllocationNo, Candidate, Event, PlacementPolicy, Token, WaitingReason};

/// A place that was found; nothing stands on the ledger yet.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub allocation: AllocationNo,
    pub node: NodeNo,
    pub spot: Spot,
    pub policy: PlacementPolicy,
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

    /// What the allocation looks for.
    fn wanted(&self, live: &Live) -> (ClassNo, PlacementPolicy) {
        (live.class, self.placement_policy(live))
    }

    /// The best nodes for one allocation as things stand, the best first, `most` of them.
    fn best_nodes(
        &mut self,
        no: AllocationNo,
        uniform: Uniform<'_>,
        aside: &Aside,
        most: usize,
    ) -> Vec<(NodeNo, Value)> {
        let Some(live) = self.live.get(&no) else {
            return Vec::new();
        };
        let (class_no, policy) = self.wanted(live);
        let class = self.classes.get(class_no.0);
        let wanted = Wanted {
            no: class_no,
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
                && others
                    .as_ref()
                    .is_none_or(|others| others.keep_off(node).is_none())
        };
        let best_but = |not: &dyn Fn(NodeNo) -> bool| {
            let mut best = fleet.best(&wanted, |node| !not(node) && may(node));
            for node in fleet.aside().iter().copied() {
                let there = fleet.node(node);
                if there.open() && there.nominees.is_empty() && !not(node) && may(node) {
                    let value = fleet.value(node, &wanted);
                    let better = best.is_none_or(|(_, best)| best < value);
                    if value.fits() && better && aside.lets(self, no, live, node) {
                        best = Some((node, value));
                    }
                }
            }
            best
        };
        let mut found: Vec<(NodeNo, Value)> = Vec::new();
        while found.len() < most {
            let taken = |node| found.iter().any(|(known, _)| *known == node);
            let next = match live.avoid {
                None => best_but(&taken),
                // A node that a run failed on is better than none.
                Some(avoid) => best_but(&|node| node == avoid || taken(node)).or_else(|| {
                    if found.is_empty() {
                        best_but(&taken)
                    } else {
                        None
                    }
                }),
            };
            match next {
                Some(next) => found.push(next),
                None => break,
            }
        }
        found
    }

    fn find_place(
        &mut self,
        no: AllocationNo,
        uniform: Uniform<'_>,
        aside: &Aside,
    ) -> Option<Place> {
        let (node, _) = *self.best_nodes(no, uniform, aside, 1).first()?;
        let (class, policy) = self.wanted(self.live.get(&no)?);
        let class = self.classes.get(class.0);
        let there = self.fleet.node(node);
        let spot = there.spot(self.fleet.capacity(node), class, |room| {
            scoring::devices(policy.into(), &self.popularity, room, &class.ask)
        })?;
        Some(Place {
            allocation: no,
            node,
            spot,
            policy,
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
            return place
                .map(|place| vec![place])
                .ok_or_else(|| Short::of(WaitingReason::NoRoomNow));
        }
        let shape = shape.clone();
        let min = shape.min;
        let Some(label) = &shape.uniform_label else {
            let places = self.try_all(members, None, aside);
            return enough(places, min);
        };
        let values = match &shape.uniform_value {
            Some(value) => vec![value.clone()],
            None => self.fleet.label_values(label),
        };
        if values.is_empty() {
            return Err(Short::of(WaitingReason::NoUniformLabel));
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

    /// The value of the gang's uniform label on the nodes where members of it run already.
    pub(super) fn uniform_value(&self, gang: GangNo) -> Option<Token> {
        let label = self.gangs.uniform_label(gang)?;
        let hold = self
            .gangs
            .on_nodes(gang)
            .find_map(|no| self.live.get(&no)?.hold());
        self.fleet
            .capacity(hold?.node)
            .label(label.as_str())
            .cloned()
    }

    /// Places for as many members as find one, one after the other. Members of one class find none once one has not.
    fn try_all(
        &mut self,
        members: &[AllocationNo],
        uniform: Uniform<'_>,
        aside: &Aside,
    ) -> Vec<Place> {
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

    /// The placement as a fact, with the best few nodes as they stand just before it.
    pub(super) fn placed_event(&mut self, place: Place, aside: &Aside) -> Event {
        let best = self.best_nodes(place.allocation, None, aside, 1 + RUNNERS_UP);
        let named = |(node, value): (NodeNo, Value)| Candidate {
            node: self.fleet.node(node).name.clone(),
            score: value.score(),
        };
        // The node of a gang's member, or of a nominee, need not be the best of all.
        let chosen = best.iter().find(|(node, _)| *node == place.node).copied();
        let others = best.into_iter().filter(|(node, _)| *node != place.node);
        let candidates = chosen
            .into_iter()
            .chain(others)
            .take(1 + RUNNERS_UP)
            .map(named)
            .collect();
        let node = self.fleet.node(place.node);
        Event::AllocationPlaced {
            allocation: place.allocation,
            node: node.name.clone(),
            incarnation: node.incarnation,
            gpus: place.spot.gpus,
            zones: place.spot.zones,
            policy: place.policy,
            candidates,
        }
    }
}

/// Why there are no places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Short {
    pub reason: WaitingReason,
    /// So many members must find room.
    pub min: u32,
    /// How many of them could find room on which node, at the most.
    pub room: BTreeMap<NodeNo, u32>,
}

impl Short {
    pub fn of(reason: WaitingReason) -> Self {
        Self {
            reason,
            min: 1,
            room: BTreeMap::new(),
        }
    }

    /// The node has room for so many now; whether that may be enough, all in all.
    pub fn gained(&mut self, node: NodeNo, members: u32) -> bool {
        self.room.insert(node, members);
        let room: u64 = self.room.values().map(|members| u64::from(*members)).sum();
        room >= u64::from(self.min)
    }
}

fn enough(places: Vec<Place>, min: u32) -> Result<Vec<Place>, Short> {
    if !places.is_empty() && places.len() >= min as usize {
        return Ok(places);
    }
    let mut short = Short {
        min: min.max(1),
        ..Short::of(WaitingReason::GangNoRoom)
    };
    for place in places {
        *short.room.entry(place.node).or_default() += 1;
    }
    Err(short)
}
