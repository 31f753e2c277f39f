//! Advance reservations: whole nodes for one queue in an interval of time. A node that is lost or cordoned before that is over
//! is replaced by another, if there is one.

use super::{
    Scheduler,
    allocation::Allocations,
    fleet::{Fleet, NodeNo},
    interval::Intervals,
    queues::Queues,
    seeker::Seeker,
    settings::Settings,
};
use ledger::Draft;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::fact::ReservationDecided;
use vocab::{AdvanceReservation, AllocationNo, Millis, PreemptionCause, Token};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservations {
    /// What was granted.
    granted: BTreeMap<Token, Granted>,
    /// To be decided, with the version of the change.
    asked: BTreeMap<Token, (u64, Option<AdvanceReservation>)>,
    /// Each node of each reservation, by its interval.
    taken: Intervals<(NodeNo, Token)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Granted {
    version: u64,
    terms: AdvanceReservation,
    nodes: Vec<NodeNo>,
}

impl Reservations {
    pub fn ask(&mut self, name: &Token, version: u64, wanted: &Option<AdvanceReservation>) {
        self.asked.insert(name.clone(), (version, wanted.clone()));
    }

    /// All nodes that are reserved now or later.
    pub fn nodes(&self) -> impl Iterator<Item = NodeNo> {
        self.granted
            .values()
            .flat_map(|granted| granted.nodes.iter().copied())
    }

    /// Returns whether a run of the seeker may be on the node from `now` until `ends`; `None` if the end is unknown.
    pub fn let_in(
        &self,
        queues: &Queues,
        seeker: &Seeker<'_>,
        node: NodeNo,
        now: Millis,
        ends: Option<Millis>,
    ) -> bool {
        let until = ends.unwrap_or(Millis(i64::MAX));
        let overlapping = self.taken.overlapping(now, until);
        let here = overlapping.filter(|(at, _)| *at == node);
        let mut names = here.filter_map(|(_, name)| self.granted.get(name));
        names.all(|granted| {
            granted.terms.from <= now && seeker.is_below(queues, &granted.terms.queue)
        })
    }

    pub fn any(&self) -> bool {
        !self.granted.is_empty()
    }

    /// Returns the moments at which a reservation of the node begins or ends.
    pub fn moments_of(&self, node: NodeNo) -> impl Iterator<Item = Millis> {
        let granted = self.granted.values();
        let here = granted.filter(move |granted| granted.nodes.contains(&node));
        here.flat_map(|granted| [granted.terms.from, granted.terms.until])
    }

    /// The moments at which something begins or is over.
    pub fn moments(&self) -> impl Iterator<Item = Millis> {
        let terms = self.granted.values().map(|granted| &granted.terms);
        terms.flat_map(|terms| [terms.from, terms.until])
    }
}

impl Reservations {
    pub fn decided(&mut self, fact: &ReservationDecided, fleet: &mut Fleet) {
        let (name, version, nodes) = (&fact.reservation, fact.version, &fact.nodes);
        let wanted = match self.asked.get(name) {
            Some((asked, _)) if *asked == version => self.asked.remove(name),
            _ => None,
        };
        if nodes.is_empty() && matches!(wanted, Some((_, Some(_)))) {
            // The new terms are refused: an earlier grant stays as it is.
            return;
        }
        // Without a request it is over, or has other nodes in the place of some that are gone.
        let terms = match wanted {
            Some((version, terms)) => terms.map(|terms| (version, terms)),
            None => {
                let granted = self.granted.get(name);
                granted.map(|granted| (granted.version, granted.terms.clone()))
            }
        };
        self.drop_granted(name);
        if nodes.is_empty() {
            return;
        }
        let nodes: Vec<_> = nodes.iter().filter_map(|node| fleet.find(node)).collect();
        if let Some((version, terms)) = terms {
            for node in &nodes {
                let key = (*node, name.clone());
                self.taken.insert(terms.from, terms.until, key, 1);
            }
            let granted = Granted {
                version,
                terms,
                nodes,
            };
            self.granted.insert(name.clone(), granted);
        }
    }

    fn drop_granted(&mut self, name: &Token) {
        if let Some(granted) = self.granted.remove(name) {
            for node in granted.nodes {
                let key = (node, name.clone());
                self.taken
                    .remove(granted.terms.from, granted.terms.until, &key);
            }
        }
    }

    /// Nodes for a reservation: all that meet the terms and are in no other reservation then, the emptiest first.
    fn nodes_for(&self, name: &Token, terms: &AdvanceReservation, fleet: &Fleet) -> Vec<NodeNo> {
        let overlapping = self.taken.overlapping(terms.from, terms.until);
        let others = overlapping.filter(|(_, other)| other != name);
        let busy: BTreeSet<_> = others.map(|(node, _)| *node).collect();
        let mut nodes: Vec<_> = fleet
            .nodes()
            .iter()
            .zip(0..)
            .map(|(node, no)| (node, NodeNo(no)))
            .collect();
        nodes.retain(|(node, no)| {
            let capacity = fleet.kind(node.kind);
            node.open()
                && !busy.contains(no)
                && terms
                    .selector
                    .iter()
                    .all(|wanted| wanted.is_met_by(capacity))
        });
        nodes.sort_by_key(|(node, _)| {
            let there = node.holds.len() + node.nominees.len();
            (there, std::cmp::Reverse(node.precedence))
        });
        nodes.into_iter().map(|(_, no)| no).collect()
    }

    /// The nodes of a reservation with others in the place of those that are lost or cordoned, as far as there are others;
    /// none if nothing is to be replaced.
    fn replaced(&self, name: &Token, granted: &Granted, fleet: &Fleet) -> Option<Vec<NodeNo>> {
        let (stay, gone): (Vec<_>, Vec<_>) = granted
            .nodes
            .iter()
            .partition(|no| fleet.node(**no).stays());
        if gone.is_empty() {
            return None;
        }
        let others = self.nodes_for(name, &granted.terms, fleet);
        let mut others = others.into_iter().filter(|no| !granted.nodes.contains(no));
        let mut nodes = stay;
        let mut found = false;
        for gone in gone {
            let other = others.next();
            found |= other.is_some();
            nodes.push(other.unwrap_or(gone));
        }
        found.then_some(nodes)
    }

    /// Of those on a reservation's nodes, whoever is not of its queue and may be made to go.
    fn in_the_way(
        &self,
        name: &Token,
        fleet: &Fleet,
        allocations: &Allocations,
        (queues, settings): (&Queues, &Settings),
    ) -> Vec<AllocationNo> {
        let Some(granted) = self.granted.get(name) else {
            return Vec::new();
        };
        let nodes = granted.nodes.iter();
        let holds = nodes.flat_map(|node| &fleet.node(*node).holds);
        let goes = holds.filter(|no| {
            allocations.get(no).is_some_and(|live| {
                let for_queue = |no| queues.get(no).name == granted.terms.queue;
                let preemptible = settings.preemptible(live.priority_class);
                let stays = live.binding().is_none_or(|binding| binding.stop.is_some());
                preemptible && !stays && !queues.up(live.queue).any(for_queue)
            })
        });
        goes.copied().collect()
    }
}

/// Grants or refuses what was asked for, ends what is over, and clears the nodes of what has begun.
pub(super) fn decide(state: &mut Scheduler, draft: &mut Draft) {
    while let Some((name, (version, wanted))) = state.reservations.asked.first_key_value() {
        if draft.full() {
            return;
        }
        let (name, version) = (name.clone(), *version);
        let nodes = match wanted {
            Some(terms) if terms.until > draft.now => {
                let mut nodes = state.reservations.nodes_for(&name, terms, &state.fleet);
                if nodes.len() >= terms.nodes as usize {
                    nodes.truncate(terms.nodes as usize);
                    nodes
                } else {
                    Vec::new()
                }
            }
            Some(_) | None => Vec::new(),
        };
        let nodes = nodes
            .into_iter()
            .map(|no| state.fleet.node(no).name.clone())
            .collect();
        let decided = ReservationDecided {
            reservation: name,
            version,
            nodes,
        };
        draft.emit(state, decided);
    }
    let granted = &state.reservations.granted;
    let over = granted
        .iter()
        .filter(|(_, granted)| granted.terms.until <= draft.now);
    let over: Vec<_> = over
        .map(|(name, granted)| (name.clone(), granted.version))
        .collect();
    for (reservation, version) in over {
        let decided = ReservationDecided {
            reservation,
            version,
            nodes: Vec::new(),
        };
        draft.emit(state, decided);
    }
    let granted = &state.reservations.granted;
    let replaced = granted.iter().filter_map(|(name, granted)| {
        let nodes = state.reservations.replaced(name, granted, &state.fleet)?;
        let name_of = |no: NodeNo| state.fleet.node(no).name.clone();
        Some(ReservationDecided {
            reservation: name.clone(),
            version: granted.version,
            nodes: nodes.into_iter().map(name_of).collect(),
        })
    });
    for decided in replaced.collect::<Vec<_>>() {
        draft.emit(state, decided);
    }
    let granted = &state.reservations.granted;
    let begun = granted
        .iter()
        .filter(|(_, granted)| granted.terms.from <= draft.now);
    let begun: Vec<_> = begun.map(|(name, _)| name.clone()).collect();
    for name in begun {
        let by = (state.waiting.queues(), &state.settings);
        let in_the_way = state
            .reservations
            .in_the_way(&name, &state.fleet, &state.allocations, by);
        for no in in_the_way {
            if !draft.full() {
                state.evict(no, PreemptionCause::Reservation, None, draft);
            }
        }
    }
}
