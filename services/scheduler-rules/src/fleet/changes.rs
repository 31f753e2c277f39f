//! What has changed on the nodes, and the rankings that are brought up to date from it when they are asked for.

use super::{
    KindNo, Node, NodeNo,
    filter::{is_reluctant, keeps_off},
    ranking::{Ranking, Value},
};
use crate::{
    class::{Class, ClassNo},
    interner::Interner,
    scoring::{self, Popularity},
};
use vocab::{NodeCapacity, PlacementPolicy};

/// A class that looks for a node, and by which policy.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub no: ClassNo,
    pub class: &'a Class,
    pub policy: PlacementPolicy,
}

/// What a class looks for, by what is usually asked for.
pub struct Scored<'a> {
    pub wanted: &'a Wanted<'a>,
    pub popularity: &'a Popularity,
}

impl Scored<'_> {
    /// How good the node is now, whether or not it is of a kind that may be used.
    fn of_kind(&self, node: &Node, capacity: &NodeCapacity, reluctant: bool) -> Value {
        let Wanted { class, policy, .. } = *self.wanted;
        if node.check(capacity, class).is_err() {
            return Value::NONE;
        }
        match scoring::score(policy.into(), self.popularity, &node.room, &class.ask) {
            Some(score) => {
                let value = Value::new(score, node.precedence);
                if reluctant {
                    value.reluctantly()
                } else {
                    value
                }
            }
            None => Value::NONE,
        }
    }

    /// How good the node is now, whether or not it is open.
    pub fn value(&self, node: &Node, capacity: &NodeCapacity) -> Value {
        match keeps_off(capacity, self.wanted.class) {
            Some(_) => Value::NONE,
            None => self.of_kind(node, capacity, is_reluctant(capacity, self.wanted.class)),
        }
    }
}

#[derive(Debug, Default)]
pub struct Changes {
    /// Nodes in the order of their changes; `since` is the number of the first.
    log: Vec<NodeNo>,
    since: u64,
    /// Number of each node's last change; none without a change. The first change is number 0.
    last: Vec<Option<u64>>,
    /// Where there may be more room than before.
    pub gained: Vec<NodeNo>,
    /// By class and policy.
    rankings: Vec<[Option<Box<Ranked>>; PlacementPolicy::ALL.len()]>,
    /// Values in all rankings together.
    values: usize,
    clock: u64,
}

/// What a kind of node is for a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Unusable,
    Reluctant,
    Usable,
}

impl Kind {
    fn of(capacity: &NodeCapacity, class: &Class) -> Self {
        match keeps_off(capacity, class) {
            Some(_) => Self::Unusable,
            None if is_reluctant(capacity, class) => Self::Reluctant,
            None => Self::Usable,
        }
    }
}

#[derive(Debug, Default)]
pub struct Ranked {
    ranking: Ranking,
    popularity: u64,
    /// Changes before this one are in it.
    seen: u64,
    /// By kind; none when that was not asked yet.
    kinds: Vec<Option<Kind>>,
    used: u64,
}

/// Values that all rankings may hold together, 8 bytes each. Beyond, the one that was not used for longest goes.
const VALUES_MAX: usize = 16 << 20;

impl Changes {
    pub fn touch(&mut self, node: NodeNo, nodes: usize) {
        let at = node.0 as usize;
        if self.last.len() <= at {
            self.last.resize(at + 1, None);
        }
        self.last[at] = Some(self.now());
        self.log.push(node);
        // A ranking that has not seen so many changes is as quickly made anew.
        let most = nodes.max(1024);
        if self.log.len() > 2 * most {
            self.log.drain(..most);
            self.since += most as u64;
        }
    }

    /// Number of the next change.
    fn now(&self) -> u64 {
        self.since + self.log.len() as u64
    }

    pub fn version(&self, node: NodeNo) -> Option<u64> {
        self.last.get(node.0 as usize).copied().flatten()
    }

    pub fn take_ranked(&mut self, wanted: &Wanted<'_>) -> Box<Ranked> {
        let slot = self.rankings.get_mut(wanted.no.0 as usize);
        let ranked = slot.and_then(|slots| slots[wanted.policy as usize].take());
        let ranked = ranked.unwrap_or_default();
        self.values -= ranked.ranking.len();
        ranked
    }

    pub fn put_ranked(&mut self, wanted: &Wanted<'_>, mut ranked: Box<Ranked>) {
        self.values += ranked.ranking.len();
        self.clock += 1;
        ranked.used = self.clock;
        let class = wanted.no.0 as usize;
        if self.rankings.len() <= class {
            self.rankings.resize_with(class + 1, Default::default);
        }
        if self.values > VALUES_MAX {
            self.drop_oldest();
        }
        self.rankings[class][wanted.policy as usize] = Some(ranked);
    }

    pub fn ranking(&self, wanted: &Wanted<'_>) -> Option<&Ranking> {
        let slots = self.rankings.get(wanted.no.0 as usize)?;
        slots[wanted.policy as usize]
            .as_ref()
            .map(|ranked| &ranked.ranking)
    }

    fn drop_oldest(&mut self) {
        let slots = self.rankings.iter_mut().flatten();
        let oldest = slots
            .filter(|slot| slot.is_some())
            .min_by_key(|slot| slot.as_ref().map_or(0, |ranked| ranked.used));
        if let Some(ranked) = oldest.and_then(Option::take) {
            self.values -= ranked.ranking.len();
        }
    }

    pub fn forget(&mut self, class: ClassNo) {
        if let Some(slots) = self.rankings.get_mut(class.0 as usize) {
            for ranked in slots.iter_mut().filter_map(Option::take) {
                self.values -= ranked.ranking.len();
            }
        }
    }

    pub fn bring_up_to_date(
        &self,
        ranked: &mut Ranked,
        scored: &Scored<'_>,
        nodes: &[Node],
        kinds: &Interner<NodeCapacity>,
    ) {
        let usable = ranked.popularity == scored.popularity.version()
            && ranked.seen >= self.since
            && ranked.ranking.len() == nodes.len();
        // A kind's number may have come to mean another kind since then; new kinds come with node changes that a ranking
        // made anew has seen.
        if usable {
            let unseen = (ranked.seen - self.since) as usize;
            for (node, number) in self.log[unseen..].iter().zip(ranked.seen..) {
                if self.last[node.0 as usize] == Some(number) {
                    let value = value(&nodes[node.0 as usize], scored, kinds, &mut ranked.kinds);
                    ranked.ranking.set(*node, value);
                }
            }
        } else {
            ranked.kinds.clear();
            let of = |node| value(node, scored, kinds, &mut ranked.kinds);
            ranked.ranking = Ranking::new(nodes.iter().map(of).collect());
            ranked.popularity = scored.popularity.version();
        }
        ranked.seen = self.now();
    }

    /// After this no ranking trusts what it knows of kinds and nodes.
    pub fn distrust(&mut self) {
        self.since = self.now() + 1;
        self.log.clear();
    }
}

/// Of a node that is closed, or set aside for somebody: none.
pub fn value(
    node: &Node,
    scored: &Scored<'_>,
    kinds: &Interner<NodeCapacity>,
    usable: &mut Vec<Option<Kind>>,
) -> Value {
    if !node.free_for_all() {
        return Value::NONE;
    }
    let KindNo(kind) = node.kind;
    let at = kind as usize;
    if usable.len() <= at {
        usable.resize(kinds.bound().max(at + 1), None);
    }
    let capacity = kinds.get(kind);
    let of = || Kind::of(capacity, scored.wanted.class);
    match *usable[at].get_or_insert_with(of) {
        Kind::Unusable => Value::NONE,
        kind => scored.of_kind(node, capacity, kind == Kind::Reluctant),
    }
}
