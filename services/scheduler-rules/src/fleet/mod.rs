//! The nodes, and the best of them for a class.

mod changes;
mod filter;
mod node;
mod owed;
mod ranking;
mod word;

pub use changes::Wanted;
pub use filter::{Moves, Others, keeps_off, most_on, tolerates};
pub use node::{Node, NodeNo, Spot, Taken};
pub use owed::Past;
pub use ranking::{Best, Value};
pub use word::Word;

use self::changes::{Changes, Scored};
use super::{
    class::{Amounts, Class, ClassNo, add, model_no, subtract},
    interner::Interner,
    scoring::{self, ModelNo, Popularity, Request},
};
use ledger::Scratch;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};
use vocab::{
    AllocationNo, AllocationSpec, Filter, GpuShare, NodeCapacity, PlacementPolicy, ResourceKind,
    Token, WaitingReason,
    sabotage::{self, Bug},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KindNo(pub u32);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    nodes: Vec<Node>,
    names: Interner<Token>,
    /// Nodes with equal capacity, labels and taints are of one kind.
    kinds: Interner<NodeCapacity>,
    models: Interner<Token>,
    /// What is usually asked for, which placement leaves room for.
    popularity: Popularity,
    /// Who has which precedence.
    precedences: BTreeMap<u32, NodeNo>,
    /// What operators say of nodes, and what holds of them.
    words: BTreeMap<Token, Word>,
    /// Members of each tenant's groups by node.
    groups: BTreeMap<(Token, Token), BTreeMap<NodeNo, Members>>,
    /// Nominees whose rules speak of a group.
    minding: BTreeMap<(Token, Token), BTreeSet<AllocationNo>>,
    /// Of the nodes that are ready.
    totals: Amounts,
    /// Set aside for somebody.
    #[serde(skip)]
    aside: Scratch<BTreeSet<NodeNo>>,
    #[serde(skip)]
    changes: Scratch<Changes>,
    /// Groups with members that came or went since that was last asked, one entry for each.
    #[serde(skip)]
    regrouped: Scratch<Vec<(Token, Token)>>,
    /// Groups that a nominee minded that is none any more, since that was last asked.
    #[serde(skip)]
    minded_less: Scratch<BTreeSet<(Token, Token)>>,
    /// Grows when nodes, or whether they may be used, change.
    #[serde(skip)]
    composition: Scratch<u64>,
    #[serde(skip)]
    prospects: Scratch<Prospects>,
}

/// What follows for each class from the kinds of nodes that there are, whatever is on them.
#[derive(Debug, Default)]
struct Prospects {
    /// The composition that it was found with.
    composition: u64,
    of: Vec<Prospect>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Prospect {
    could_hold: Option<bool>,
    lack: Option<WaitingReason>,
}

impl Prospects {
    fn of(&mut self, class: ClassNo, composition: u64) -> &mut Prospect {
        if self.composition != composition {
            self.composition = composition;
            self.of.clear();
        }
        let at = class.0 as usize;
        if self.of.len() <= at {
            self.of.resize(at + 1, Prospect::default());
        }
        &mut self.of[at]
    }
}

/// How many of a group are on a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    pub there: u32,
    /// The node is being cleared for them.
    pub coming: u32,
}

/// Groups for which where they may be, or where others may be because of them, has changed.
#[derive(Debug, Default)]
pub struct Regrouped {
    /// Members came or went.
    pub moved: BTreeSet<(Token, Token)>,
    /// Nominees may let more of them come than before.
    pub let_in: BTreeSet<(Token, Token)>,
}

impl Regrouped {
    pub fn is_empty(&self) -> bool {
        self.moved.is_empty() && self.let_in.is_empty()
    }
}

impl Fleet {
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn node(&self, node: NodeNo) -> &Node {
        &self.nodes[node.0 as usize]
    }

    pub fn kind(&self, kind: KindNo) -> &NodeCapacity {
        self.kinds.get(kind.0)
    }

    pub fn all(&self) -> impl Iterator<Item = NodeNo> + use<> {
        (0..self.nodes.len() as u32).map(NodeNo)
    }

    pub fn capacity(&self, node: NodeNo) -> &NodeCapacity {
        self.kind(self.node(node).kind)
    }

    /// What the request asks for, in the numbers that this fleet knows models by.
    pub fn class(&mut self, tenant: &Token, spec: &AllocationSpec) -> Class {
        Class::of(tenant, spec, |model| model_no(&mut self.models, model))
    }

    /// The same of a guest: models that nobody has named yet get the numbers that they would get.
    pub fn class_of_guest(&self, tenant: &Token, spec: &AllocationSpec) -> Class {
        // Models are never given back, so the next number is the number of all.
        let mut next = self.models.bound() as u32;
        Class::of(tenant, spec, |model| {
            let number = self.models.known(model).unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            ModelNo::new(number)
        })
    }

    pub fn popularity(&self) -> &Popularity {
        &self.popularity
    }

    /// Somebody may be placed who asks for this.
    pub fn arrived(&mut self, ask: &Request) {
        self.popularity.arrived(ask);
    }

    /// What is free on the node when nothing is on it.
    fn empty_room(&mut self, node: NodeNo) -> scoring::Free {
        let capacity = self.kinds.get(self.nodes[node.0 as usize].kind.0);
        empty_room(&mut self.models, capacity)
    }

    pub fn find(&mut self, name: &Token) -> Option<NodeNo> {
        self.names.find(name).map(NodeNo)
    }

    pub fn totals(&self) -> &Amounts {
        &self.totals
    }

    pub fn members(
        &self,
        tenant: &Token,
        group: &Token,
    ) -> impl Iterator<Item = (NodeNo, Members)> {
        let members = self.groups.get(&(tenant.clone(), group.clone()));
        members
            .into_iter()
            .flatten()
            .map(|(node, members)| (*node, *members))
    }

    /// A new node, or an old one whose agent has started anew with nothing on it: whoever it held has nothing to give back.
    pub fn register(&mut self, name: &Token, incarnation: u64, capacity: &NodeCapacity) {
        let capacity = &*self.as_said(name, capacity);
        let kind = KindNo(self.kinds.acquire(capacity));
        self.composition.0 += 1;
        let topology = capacity.topology.as_deref();
        let mut node = Node {
            name: name.clone(),
            incarnation,
            ready: true,
            suspect: false,
            past: Past::default(),
            cordoned: self.is_cordoned(name),
            kind,
            precedence: 0,
            room: empty_room(&mut self.models, capacity),
            extended: capacity
                .extended
                .iter()
                .map(|(_, amount)| *amount)
                .collect(),
            zones: topology.map_or_else(Vec::new, super::topology::empty),
            holds: Default::default(),
            // Whom it was being cleared for is to be judged anew: the caller nominates them again.
            nominees: Vec::new(),
            aside: Scratch::default(),
        };
        let no = match self.find(name) {
            Some(no) => {
                let empty = self.empty_room(no);
                self.popularity.left(&empty);
                self.leave_totals(no);
                let old = self.node(no);
                node.precedence = old.precedence;
                node.aside = Scratch(*old.aside);
                let old_kind = old.kind;
                for (group, members) in &mut self.groups {
                    if members.remove(&no).is_some() {
                        self.regrouped.0.push(group.clone());
                    }
                }
                self.groups.retain(|_, members| !members.is_empty());
                if self.kinds.release(old_kind.0).is_some() {
                    self.changes.distrust();
                }
                self.nodes[no.0 as usize] = node;
                no
            }
            None => {
                let no = NodeNo(self.names.acquire(name));
                self.nodes.push(node);
                self.give_precedence(no);
                no
            }
        };
        let empty = self.empty_room(no);
        self.popularity.joined(&empty);
        self.join_totals(no);
        self.gained(no);
    }

    /// The node has other amounts, and what runs there stays.
    pub fn resize(&mut self, no: NodeNo, capacity: &NodeCapacity) {
        let name = self.node(no).name.clone();
        let capacity = &*self.as_said(&name, capacity);
        let empty = self.empty_room(no);
        self.popularity.left(&empty);
        self.leave_totals(no);
        let kind = KindNo(self.kinds.acquire(capacity));
        let node = &mut self.nodes[no.0 as usize];
        let old = std::mem::replace(&mut node.kind, kind);
        node.resize(self.kinds.get(old.0), capacity);
        if self.kinds.release(old.0).is_some() {
            self.changes.distrust();
        }
        let empty = self.empty_room(no);
        self.popularity.joined(&empty);
        self.join_totals(no);
        self.composition.0 += 1;
        self.gained(no);
    }

    /// Precedence comes from the name's rank; where two want the same, the higher rank, then the lower name, has it and the
    /// other the next below. So who has which depends on the names alone, and not on who came first.
    fn give_precedence(&mut self, node: NodeNo) {
        let rank = |no: NodeNo, fleet: &Self| {
            let name = &fleet.node(no).name;
            (
                scoring::rank(name.as_str()),
                std::cmp::Reverse(name.clone()),
            )
        };
        let mut moving = node;
        let mut at = (scoring::rank(self.node(node).name.as_str()) >> 32) as u32;
        loop {
            match self.precedences.get(&at).copied() {
                None => {
                    self.precedences.insert(at, moving);
                    self.nodes[moving.0 as usize].precedence = at;
                    self.touch(moving);
                    return;
                }
                Some(there) => {
                    if rank(moving, self) > rank(there, self) {
                        self.precedences.insert(at, moving);
                        self.nodes[moving.0 as usize].precedence = at;
                        self.touch(moving);
                        moving = there;
                    }
                    at = at.wrapping_sub(1);
                }
            }
        }
    }

    pub fn set_ready(&mut self, node: NodeNo, ready: bool) {
        if self.node(node).ready == ready && !self.node(node).suspect {
            return;
        }
        self.composition.0 += 1;
        self.leave_totals(node);
        self.nodes[node.0 as usize].ready = ready;
        self.nodes[node.0 as usize].suspect = false;
        self.join_totals(node);
        self.gained(node);
    }

    pub fn set_suspect(&mut self, node: NodeNo) {
        self.composition.0 += 1;
        self.nodes[node.0 as usize].suspect = true;
        self.gained(node);
    }

    /// One that was never placed on has nothing to forget.
    pub fn forget_node(&mut self, name: &Token) {
        if let Some(node) = self.find(name) {
            self.nodes[node.0 as usize].past.forgotten = true;
        }
    }

    fn join_totals(&mut self, node: NodeNo) {
        if self.node(node).ready {
            let amounts = amounts(self.capacity(node));
            add(&mut self.totals, &amounts);
        }
    }

    fn leave_totals(&mut self, node: NodeNo) {
        if self.node(node).ready {
            let amounts = amounts(self.capacity(node));
            subtract(&mut self.totals, &amounts);
        }
    }

    /// Takes the spot for the allocation; what was taken is to be given back with it.
    pub fn take(
        &mut self,
        no: NodeNo,
        allocation: AllocationNo,
        class: &Class,
        spot: (&[GpuShare], u8),
    ) -> Result<Taken, &'static str> {
        let node = &mut self.nodes[no.0 as usize];
        let taken = node.take(self.kinds.get(node.kind.0), (allocation, class), spot)?;
        self.regroup(no, class, |members| members.there += 1);
        self.touch(no);
        Ok(taken)
    }

    /// Changes how many of the class's group are on the node.
    fn regroup(&mut self, no: NodeNo, class: &Class, change: impl FnOnce(&mut Members)) {
        let Some((tenant, group)) = class.group() else {
            return;
        };
        let key = (tenant.clone(), group.clone());
        let of_group = self.groups.entry(key.clone()).or_default();
        let members = of_group.entry(no).or_default();
        change(members);
        if *members == Members::default() {
            of_group.remove(&no);
        }
        if of_group.is_empty() {
            self.groups.remove(&key);
        }
        self.regrouped.push(key);
    }

    pub fn give_back(
        &mut self,
        no: NodeNo,
        allocation: AllocationNo,
        class: &Class,
        taken: &Taken,
    ) {
        if sabotage::armed(Bug::DoubleRelease) {
            let node = &mut self.nodes[no.0 as usize];
            node.give_back(self.kinds.get(node.kind.0), (allocation, class), taken);
            node.holds.insert(allocation);
        }
        self.put_back(no, allocation, class, taken);
    }

    fn put_back(&mut self, no: NodeNo, allocation: AllocationNo, class: &Class, taken: &Taken) {
        let node = &mut self.nodes[no.0 as usize];
        if !node.holds.contains(&allocation) {
            return;
        }
        node.give_back(self.kinds.get(node.kind.0), (allocation, class), taken);
        self.regroup(no, class, |members| members.there -= 1);
        self.gained(no);
    }

    /// Undoes a `take` that was only a trial: there is no more room than before it.
    pub fn give_back_trial(
        &mut self,
        no: NodeNo,
        allocation: AllocationNo,
        class: &Class,
        taken: &Taken,
    ) {
        self.put_back(no, allocation, class, taken);
        self.changes.gained.pop();
        if class.group().is_some() {
            let before = self.regrouped.len().saturating_sub(2);
            self.regrouped.truncate(before);
        }
    }

    pub fn composition(&self) -> u64 {
        *self.composition
    }

    /// How many nodes of each kind answer, and how many of these are open.
    pub fn by_kind(&self) -> Vec<(KindNo, u32, u32)> {
        let mut counts = vec![(0, 0); self.kinds.bound()];
        for node in &self.nodes {
            let (ready, open) = &mut counts[node.kind.0 as usize];
            *ready += u32::from(node.answers());
            *open += u32::from(node.open());
        }
        let all = counts.into_iter().zip(0..);
        all.map(|((ready, open), kind)| (KindNo(kind), ready, open))
            .collect()
    }

    /// The kinds of all nodes that are known, as if all were open.
    pub fn known_kinds(&self) -> Vec<(KindNo, u32, u32)> {
        let kinds = self.kinds.users();
        kinds
            .map(|(kind, nodes)| (KindNo(kind), nodes, nodes))
            .collect()
    }

    /// Whether a node that is known could hold one of the class if it were empty and open.
    pub fn could_hold(&mut self, no: ClassNo, class: &Class) -> bool {
        let prospect = self.prospects.0.of(no, *self.composition);
        let kinds = &self.kinds;
        *prospect
            .could_hold
            .get_or_insert_with(|| could_hold(kinds, class))
    }

    /// The same of a class that has no number.
    pub fn could_hold_guest(&self, class: &Class) -> bool {
        could_hold(&self.kinds, class)
    }

    /// Returns whether a known node could hold the class and meets its affinity.
    pub fn could_be_near(&self, class: &Class) -> bool {
        let near = self.near_by_kind(class, &[], |_| true);
        near.is_none_or(|near| {
            let mut kinds = near.keys();
            kinds.any(|kind| most_on(self.kind(*kind), class) > 0)
        })
    }

    /// In one word, why there is no room for the class.
    pub fn lack(&mut self, no: ClassNo, class: &Class) -> WaitingReason {
        let composition = *self.composition;
        if let Some(lack) = self.prospects.of(no, composition).lack {
            return lack;
        }
        let lack = self.lack_of(class);
        self.prospects.of(no, composition).lack = Some(lack);
        lack
    }

    /// The same, found anew.
    pub fn lack_of(&self, class: &Class) -> WaitingReason {
        let kinds = self.by_kind();
        if kinds.iter().all(|(_, ready, _)| *ready == 0) {
            WaitingReason::NoNodeReady
        } else {
            let open = kinds.iter().filter(|(_, _, open)| *open > 0);
            let filters = open.map(|(kind, _, _)| keeps_off(self.kind(*kind), class));
            let filters: BTreeSet<_> = filters.collect();
            if filters.contains(&None) {
                WaitingReason::NoRoomNow
            } else if filters.contains(&Some(Filter::Capacity)) {
                WaitingReason::LargerThanAnyNode
            } else if filters.contains(&Some(Filter::GpuModel)) {
                WaitingReason::NoNodeOfModel
            } else {
                WaitingReason::NoNodeMatches
            }
        }
    }

    /// All values of a label on nodes that may be used, sorted.
    pub fn label_values(&self, label: &Token) -> Vec<Token> {
        let open = self.nodes.iter().filter(|node| node.open());
        let values = open.filter_map(|node| self.kind(node.kind).label(label.as_str()));
        let values: BTreeSet<_> = values.collect();
        values.into_iter().cloned().collect()
    }

    pub fn nominate(&mut self, no: NodeNo, allocation: AllocationNo, class: &Class) {
        self.nodes[no.0 as usize].nominees.push(allocation);
        for (tenant, group) in class.groups_looked_at() {
            let group = (tenant.clone(), group.clone());
            self.minding.entry(group).or_default().insert(allocation);
        }
        self.regroup(no, class, |members| members.coming += 1);
        self.touch(no);
    }

    pub fn denominate(&mut self, no: NodeNo, allocation: AllocationNo, class: &Class) {
        self.nodes[no.0 as usize]
            .nominees
            .retain(|nominee| *nominee != allocation);
        for (tenant, group) in class.groups_looked_at() {
            let group = (tenant.clone(), group.clone());
            if let Some(minding) = self.minding.get_mut(&group) {
                minding.remove(&allocation);
                if minding.is_empty() {
                    self.minding.remove(&group);
                }
                self.minded_less.insert(group);
            }
        }
        self.regroup(no, class, |members| members.coming -= 1);
        self.gained(no);
    }

    /// Nodes that are set aside now, instead of those before: whoever wants to go there is looked at one by one.
    pub fn set_aside(&mut self, nodes: BTreeSet<NodeNo>) {
        let before = std::mem::replace(&mut self.aside.0, nodes);
        let changed: Vec<_> = before.symmetric_difference(&self.aside).copied().collect();
        for no in changed {
            self.nodes[no.0 as usize].aside.0 = self.aside.contains(&no);
            self.gained(no);
        }
    }

    pub fn aside(&self) -> &BTreeSet<NodeNo> {
        &self.aside
    }

    fn touch(&mut self, node: NodeNo) {
        self.changes.touch(node, self.nodes.len());
    }

    fn gained(&mut self, node: NodeNo) {
        self.touch(node);
        self.changes.gained.push(node);
    }

    /// Something on the node has changed that its room does not show.
    pub fn touched(&mut self, node: NodeNo) {
        self.touch(node);
    }

    /// The number of the node's last change, if it has changed; grows.
    pub fn version(&self, node: NodeNo) -> Option<u64> {
        self.changes.version(node)
    }

    /// Somebody on the node was told to stop: nominees do not count it any more.
    pub fn stops(&mut self, node: NodeNo, class: &Class) {
        self.touch(node);
        if let Some((tenant, group)) = class.group() {
            let group = (tenant.clone(), group.clone());
            if self.minding.contains_key(&group) {
                self.regrouped.push(group);
            }
        }
    }

    /// Nominees whose rules speak of the class's group.
    pub fn minding(&self, class: &Class) -> impl Iterator<Item = AllocationNo> {
        let group = class.group().filter(|_| !self.minding.is_empty());
        let minding = group.and_then(|(tenant, group)| {
            let group = (tenant.clone(), group.clone());
            self.minding.get(&group)
        });
        minding.into_iter().flatten().copied()
    }

    pub fn any_minding(&self) -> bool {
        !self.minding.is_empty()
    }

    /// What has changed for groups since the last call.
    pub fn take_regrouped(&mut self) -> Regrouped {
        let moved: BTreeSet<_> = std::mem::take(&mut self.regrouped.0).into_iter().collect();
        let mut let_in = std::mem::take(&mut self.minded_less.0);
        if !self.minding.is_empty() {
            let minded = moved
                .iter()
                .filter(|group| self.minding.contains_key(group));
            let_in.extend(minded.cloned());
        }
        Regrouped { moved, let_in }
    }

    pub fn any_regrouped(&self) -> bool {
        !self.regrouped.is_empty()
    }

    /// The nodes with more room since the last call.
    pub fn take_gained(&mut self) -> Vec<NodeNo> {
        std::mem::take(&mut self.changes.gained)
    }

    /// Nobody asks for the class any more; its number may soon mean another.
    pub fn forget(&mut self, class: ClassNo) {
        self.changes.forget(class);
        if let Some(prospect) = self.prospects.of.get_mut(class.0 as usize) {
            *prospect = Prospect::default();
        }
    }

    /// How good the node is for what is wanted now, closed or not.
    pub fn value(&self, no: NodeNo, wanted: &Wanted<'_>) -> Value {
        self.value_of(self.node(no), self.capacity(no), wanted)
    }

    /// The same, if so much were usual.
    pub fn value_if(&self, no: NodeNo, wanted: &Wanted<'_>, popularity: &Popularity) -> Value {
        Scored { wanted, popularity }.value(self.node(no), self.capacity(no))
    }

    /// The best nodes by what would be usual, each looked at anew. Nodes that are closed or set aside have no value.
    pub fn best_if(
        &self,
        (wanted, popularity): (&Wanted<'_>, &Popularity),
        best: &mut Best,
        mut allowed: impl FnMut(NodeNo) -> bool,
    ) {
        let scored = Scored { wanted, popularity };
        let mut usable = Vec::new();
        for (node, no) in self.nodes.iter().zip(0..) {
            let value = changes::value(node, &scored, &self.kinds, &mut usable);
            if value > best.least() && allowed(NodeNo(no)) {
                best.offer(NodeNo(no), value);
            }
        }
    }

    /// How many of a class that has no number find room, up to `most`, where the amounts that are free on each node tell. None: a
    /// node that there is room on has zones.
    pub fn room_for_guests(&self, class: &Class, most: u32) -> Option<u32> {
        let mut usable: Vec<Option<bool>> = vec![None; self.kinds.bound()];
        let mut room = 0u32;
        for node in self.nodes.iter().filter(|node| node.free_for_all()) {
            let capacity = self.kinds.get(node.kind.0);
            let usable = usable.get_mut(node.kind.0 as usize)?;
            if !*usable.get_or_insert_with(|| keeps_off(capacity, class).is_none()) {
                continue;
            }
            let there = node.room_for(capacity, class);
            if there > 0 && capacity.topology.is_some() {
                return None;
            }
            room = room.saturating_add(there);
            if room >= most {
                return Some(most);
            }
        }
        Some(room)
    }

    /// How good a node with this capacity would be.
    pub fn value_of(&self, node: &Node, capacity: &NodeCapacity, wanted: &Wanted<'_>) -> Value {
        let popularity = &self.popularity;
        Scored { wanted, popularity }.value(node, capacity)
    }

    /// Where on a node with this capacity one of the class goes, if it fits.
    pub fn spot(
        &self,
        node: &Node,
        capacity: &NodeCapacity,
        class: &Class,
        policy: PlacementPolicy,
    ) -> Option<Spot> {
        node.spot(capacity, class, |room| {
            scoring::devices(policy.into(), &self.popularity, room, &class.ask)
        })
    }

    /// Takes all changes into the ranking of what is wanted.
    pub fn rank(&mut self, wanted: &Wanted<'_>) {
        let mut changes = std::mem::take(&mut self.changes.0);
        let mut ranked = changes.take_ranked(wanted);
        let popularity = &self.popularity;
        let scored = Scored { wanted, popularity };
        changes.bring_up_to_date(&mut ranked, &scored, &self.nodes, &self.kinds);
        changes.put_ranked(wanted, ranked);
        self.changes.0 = changes;
    }

    /// Adds the best nodes for what is wanted, by the ranking as it was last brought up to date. Nodes that are closed or set
    /// aside have no value in it.
    pub fn best(&self, wanted: &Wanted<'_>, best: &mut Best, allowed: impl FnMut(NodeNo) -> bool) {
        if let Some(ranking) = self.changes.ranking(wanted) {
            ranking.best(best, allowed);
        }
    }

    /// All nodes that there is room on, by the same ranking, until `each` has seen enough.
    pub fn fitting(&self, wanted: &Wanted<'_>, each: impl FnMut(NodeNo) -> ControlFlow<()>) {
        if let Some(ranking) = self.changes.ranking(wanted) {
            ranking.fitting(each);
        }
    }
}

fn could_hold(kinds: &Interner<NodeCapacity>, class: &Class) -> bool {
    let mut users = kinds.users();
    users.any(|(kind, _)| most_on(kinds.get(kind), class) > 0)
}

fn empty_room(models: &mut Interner<Token>, capacity: &NodeCapacity) -> scoring::Free {
    let model = capacity
        .gpu_model
        .as_ref()
        .map(|model| model_no(models, model));
    scoring::Free::new(
        capacity.cpu_milli,
        capacity.memory_bytes,
        capacity.gpus,
        model,
    )
}

/// The resource types of a node.
fn amounts(capacity: &NodeCapacity) -> Amounts {
    ResourceKind::ALL.map(|kind| capacity.amount(kind))
}
