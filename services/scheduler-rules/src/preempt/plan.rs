//! A plan: which nodes are cleared for a unit, and who has to go from them.

use super::{
    super::{
        Scheduler,
        class::{Amounts, Class, ClassNo, add, subtract},
        fleet::{Moves, Node, NodeNo, Others, Spot, keeps_off},
        gang::GangNo,
        queues::QueueNo,
        sweep::Strength,
        work,
    },
    board::{Board, free},
    claim::{Claimant, Shares},
    comers::Comers,
    units::{Badness, Gangs, Least, glance},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};
use vocab::{AllocationNo, Millis, PlacementPolicy, PreemptionCause};

/// What has been planned for one unit so far.
#[derive(Debug, Default)]
pub struct Plan {
    /// Who goes, why, and for whom.
    pub victims: BTreeMap<AllocationNo, (PreemptionCause, AllocationNo)>,
    /// Who comes where.
    pub places: Vec<(AllocationNo, NodeNo)>,
    /// What the victims' queues hold less.
    pub less: BTreeMap<QueueNo, Amounts>,
}

/// A node at a glance: the least that must be preempted there, and the node's precedence.
type Glance = Reverse<(Least, Reverse<u32>, NodeNo)>;

/// Of the nodes that look good, so many are looked at closely, and the best of them is taken.
const LOOKS: usize = 16;
/// Maximum number of nodes examined while none of them fits, or while the next one might need lower priorities only.
const LOOKS_MAX: usize = 256;

/// What is left for planning in a frame, in units of work.
#[derive(Debug)]
pub struct Budget(pub usize);

impl Budget {
    pub fn spend(&mut self, work: usize) {
        self.0 = self.0.saturating_sub(work);
    }

    pub fn is_spent(&self) -> bool {
        self.0 == 0
    }
}

/// What a plan is made with.
pub struct Planner<'a> {
    pub state: &'a Scheduler,
    pub claimant: Claimant<'a>,
    pub shares: &'a Shares,
    pub board: &'a mut Board,
    pub budget: &'a mut Budget,
    /// The nodes that look good for members of this class and strength, for the next of them.
    glances: Option<((ClassNo, Strength), BinaryHeap<Glance>)>,
    gangs: Gangs,
    /// The claimant is a single allocation.
    alone: bool,
    /// Nodes of the last member and of its victims. They may be better for the next member than their glance.
    changed: Vec<NodeNo>,
}

impl<'a> Planner<'a> {
    pub fn new(
        state: &'a Scheduler,
        (claimant, alone): (Claimant<'a>, bool),
        shares: &'a Shares,
        board: &'a mut Board,
        budget: &'a mut Budget,
    ) -> Self {
        Self {
            state,
            claimant,
            shares,
            board,
            budget,
            glances: None,
            gangs: Gangs::default(),
            alone,
            changed: Vec::new(),
        }
    }

    /// The node for one more of the unit, and who has to go from it; whether there is one.
    pub fn clear_for(&mut self, no: AllocationNo, plan: &mut Plan) -> bool {
        let state = self.state;
        let Some(class_no) = state.allocations.get(&no).map(|live| live.class) else {
            return false;
        };
        let class = state.allocations.class(class_no);
        self.claimant.stands_for(state, no, self.shares);
        let alike = (class_no, self.claimant.strength());
        let mut glances = match self.glances.take() {
            Some((of, mut glances)) if of == alike && !self.hangs_on_others(no, class) => {
                let changed = self
                    .changed
                    .drain(..)
                    .filter(|node| state.takes(*node, class));
                glances.extend(changed.map(|node| state.needs_nothing(node)));
                glances
            }
            _ => self.glance_at_all((no, class), plan),
        };
        let mut found: Option<(Badness, Reverse<u32>, NodeNo, Victims)> = None;
        let mut passed = Vec::new();
        let mut looked_at = BTreeSet::new();
        while looked_at.len() < LOOKS_MAX
            && let Some(glance) = glances.pop()
        {
            let Reverse(((least, _), precedence, node)) = glance;
            let good = found.as_ref().map(|((priority, ..), ..)| *priority);
            if looked_at.len() >= LOOKS && good.is_some_and(|priority| priority <= least) {
                glances.push(glance);
                break;
            }
            if !looked_at.insert(node) {
                continue;
            }
            self.budget.spend(work::LOOK);
            if let Some(victims) = self.victims_on(node, (no, class), plan) {
                let badness = state.badness(victims.iter().map(|(no, _)| *no));
                // The next member sees the victims that this look has found.
                let (priority, members, _) = badness;
                passed.push(Reverse(((priority, members), precedence, node)));
                let choice = (badness, precedence, node, victims);
                found = Some(match found.take() {
                    Some(other) => other.min(choice),
                    None => choice,
                });
            }
        }
        glances.extend(passed);
        self.glances = Some((alike, glances));
        let Some((_, _, node, victims)) = found else {
            return false;
        };
        self.changed.push(node);
        for (victim, cause) in victims {
            let left = state.let_go(victim, (cause, no), plan);
            self.changed.extend(left);
        }
        plan.places.push((no, node));
        true
    }

    /// Whether where one more may go depends on where those of the plan go.
    fn hangs_on_others(&self, no: AllocationNo, class: &Class) -> bool {
        class.looks_at_others() || !self.state.minding(no, class).nobody()
    }

    fn glance_at_all(
        &mut self,
        (allocation, class): (AllocationNo, &Class),
        plan: &Plan,
    ) -> BinaryHeap<Glance> {
        let state = self.state;
        let minding = state.minding_by_then((allocation, class), plan, &[]);
        let mut kinds: Vec<Option<bool>> = Vec::new();
        let others = state.others_by_then(class, plan, &[]);
        let changed = state.changed_by(plan);
        let mut glances = Vec::new();
        self.changed.clear();
        self.budget
            .spend(state.fleet.nodes().len() / work::WALKED_FOR_ONE);
        for (node, no) in state.fleet.nodes().iter().zip(0..) {
            let no = NodeNo(no);
            if !node.open() || *node.aside {
                continue;
            }
            let kind = node.kind.0 as usize;
            if kinds.len() <= kind {
                kinds.resize(kind + 1, None);
            }
            let usable = || keeps_off(state.fleet.kind(node.kind), class).is_none();
            if !*kinds[kind].get_or_insert_with(usable)
                || others.iter().any(|others| others.keep_off(no).is_some())
                || !minding.let_it_come_to(no)
            {
                continue;
            }
            if changed.contains(&no) {
                glances.push(state.needs_nothing(no));
                continue;
            }
            let seen = (state, self.board.look(state, no, self.budget));
            let by = (&self.claimant, self.shares);
            let asks = (&class.amounts(), self.alone);
            let least = glance(seen, by, asks, &mut self.gangs);
            glances.extend(least.map(|least| Reverse((least, Reverse(node.precedence), no))));
        }
        glances.into()
    }

    /// Returns the victims on this node that make room for the claimant, one for each unit; none if there cannot be room. They
    /// are of the lowest priorities, and each of them is in the way.
    fn victims_on(
        &self,
        no: NodeNo,
        (allocation, class): (AllocationNo, &Class),
        plan: &Plan,
    ) -> Option<Victims> {
        let state = self.state;
        let there = state.fleet.node(no);
        let comers = Comers::new(state, no, class, plan);
        let left = state.left_by_then(no, plan);
        if comers.fit(&left) {
            // A stopping allocation makes room without any victim. Otherwise a single allocation would have been placed there,
            // and a member of a gang waits for the other members.
            let coming = plan.places.iter().any(|(_, at)| *at == no);
            let waits = !self.alone || coming || left.holds.len() < there.holds.len();
            return waits.then(Vec::new);
        }
        let mut may_go = self.may_go_from(&left, plan);
        may_go.sort_by_key(|(order, _)| *order);
        let mut gone: Vec<Gone> = Vec::new();
        let mut so_far = Plan {
            victims: plan.victims.clone(),
            places: Vec::new(),
            less: plan.less.clone(),
        };
        let mut node = left.clone();
        let mut enough = false;
        for (_, members) in may_go {
            // Earlier victims may have brought the queue down to its fair share.
            let may_go = |no: AllocationNo| {
                let cause = state.may_go(no, &self.claimant, self.shares, &so_far);
                cause.map(|cause| (no, cause))
            };
            let Some((victim, cause)) = state.one_of_each_queue(&members).find_map(may_go) else {
                continue;
            };
            state.give_back_all(&mut node, (no, &members));
            state.let_go(victim, (cause, allocation), &mut so_far);
            gone.push((victim, cause, members));
            enough = comers.fit(&node);
            if enough {
                break;
            }
        }
        if !enough {
            return None;
        }
        self.spare(&mut gone, &left, (no, &comers));
        let needed: Vec<_> = gone
            .into_iter()
            .map(|(victim, cause, _)| (victim, cause))
            .collect();
        // Without those who go the rules about others may say something else.
        let others = state.others_by_then(class, plan, &needed);
        let kept_off = others.iter().any(|others| others.keep_off(no).is_some());
        let minding = state.minding_by_then((allocation, class), plan, &needed);
        (!kept_off && minding.let_it_come_to(no)).then_some(needed)
    }

    /// Spares units that are not in the way, the most valuable first. The last one is needed.
    fn spare(&self, gone: &mut Vec<Gone>, left: &Node, (no, comers): (NodeNo, &Comers<'_>)) {
        let state = self.state;
        let held = |(_, _, members): &Gone| {
            let mut held = Amounts::default();
            for live in members.iter().filter_map(|no| state.allocations.get(no)) {
                add(&mut held, &state.allocations.amounts(live));
            }
            held
        };
        let mut most = free(left);
        for unit in gone.iter() {
            add(&mut most, &held(unit));
        }
        for at in (0..gone.len().saturating_sub(1)).rev() {
            let mut without = most;
            subtract(&mut without, &held(&gone[at]));
            if !comers.might_fit(&without) {
                continue;
            }
            let mut node = left.clone();
            let others = gone.iter().enumerate().filter(|(other, _)| *other != at);
            for (_, (_, _, members)) in others {
                state.give_back_all(&mut node, (no, members));
            }
            if comers.fit(&node) {
                gone.remove(at);
                most = without;
            }
        }
    }

    /// Returns the units that may be preempted on a node, with their members there. They are ordered by the lowest priority, the
    /// fewest members, and the youngest.
    fn may_go_from(&self, node: &Node, plan: &Plan) -> Vec<(Order, Vec<AllocationNo>)> {
        let state = self.state;
        let mut parts: Vec<Vec<AllocationNo>> = Vec::new();
        let mut gangs: BTreeMap<GangNo, usize> = BTreeMap::new();
        for held in &node.holds {
            let gang = state.allocations.get(held).and_then(|live| live.gang);
            match gang.and_then(|gang| gangs.get(&gang)) {
                Some(at) => parts[*at].push(*held),
                None => {
                    gangs.extend(gang.map(|gang| (gang, parts.len())));
                    parts.push(vec![*held]);
                }
            }
        }
        let may_go = |no: AllocationNo| {
            let cause = state.may_go(no, &self.claimant, self.shares, plan);
            cause.is_some()
        };
        let units = parts.into_iter().filter_map(|members| {
            let first = *members.first()?;
            let unit = state.one_of_each_queue(&members).any(may_go);
            let unit = unit.then(|| state.unit_of(first)).flatten()?;
            let order = (
                unit.priority,
                unit.members,
                Reverse(unit.oldest),
                Reverse(first),
            );
            Some((order, members))
        });
        units.collect()
    }
}

/// Order in which units are preempted on a node.
type Order = (i32, usize, Reverse<Millis>, Reverse<AllocationNo>);

/// A victim, the cause, and all members of its unit on the node.
type Gone = (AllocationNo, PreemptionCause, Vec<AllocationNo>);

/// Victims, one for each unit, with the cause.
type Victims = Vec<(AllocationNo, PreemptionCause)>;

impl Scheduler {
    /// Returns whether the node is open to the class, rules about others aside.
    fn takes(&self, no: NodeNo, class: &Class) -> bool {
        let node = self.fleet.node(no);
        node.open() && !*node.aside && keeps_off(self.fleet.kind(node.kind), class).is_none()
    }

    /// Returns a glance that comes first: there may be room without further victims.
    fn needs_nothing(&self, no: NodeNo) -> Glance {
        Reverse(((None, 0), Reverse(self.fleet.node(no).precedence), no))
    }

    /// Returns the first of these members in each queue. Members of one queue are preempted for the same cause.
    fn one_of_each_queue<'a>(
        &'a self,
        members: &'a [AllocationNo],
    ) -> impl Iterator<Item = AllocationNo> + 'a {
        let mut queues = Vec::new();
        members.iter().copied().filter(move |no| {
            let queue = self.allocations.get(no).map(|live| live.queue);
            let new = !queues.contains(&queue);
            if new {
                queues.push(queue);
            }
            new
        })
    }

    /// Gives back on a copy of the node what these allocations hold there.
    fn give_back_all(&self, node: &mut Node, (no, held): (NodeNo, &[AllocationNo])) {
        let capacity = self.fleet.capacity(no);
        for no in held {
            if let Some(live) = self.allocations.get(no)
                && let Some(binding) = live.binding()
            {
                let class = self.allocations.class(live.class);
                node.give_back(capacity, (*no, class), &binding.taken);
            }
        }
    }

    /// Returns the nodes of the plan's victims and places.
    fn changed_by(&self, plan: &Plan) -> BTreeSet<NodeNo> {
        let of_victim = |no: &AllocationNo| Some(self.allocations.get(no)?.binding()?.node);
        let left = plan.victims.keys().filter_map(of_victim);
        left.chain(plan.places.iter().map(|(_, node)| *node))
            .collect()
    }

    /// Returns the node without stopping allocations and without the plan's victims.
    pub(super) fn left_by_then(&self, no: NodeNo, plan: &Plan) -> Node {
        let there = self.fleet.node(no);
        let mut node = there.clone();
        let goes = |held: &AllocationNo| {
            let binding = self.allocations.get(held).and_then(|live| live.binding());
            let stops = binding.is_some_and(|binding| binding.stop.is_some());
            stops || plan.victims.contains_key(held)
        };
        let gone: Vec<_> = there.holds.iter().copied().filter(goes).collect();
        self.give_back_all(&mut node, (no, &gone));
        node
    }

    /// Returns whether the class fits on the node in this condition.
    pub(super) fn has_spot(&self, node: &Node, no: NodeNo, class: &Class) -> bool {
        let capacity = self.fleet.capacity(no);
        // Without zones, free amounts suffice.
        let spot = || {
            self.fleet
                .spot(node, capacity, class, PlacementPolicy::Default)
        };
        node.check(capacity, class).is_ok() && (capacity.topology.is_none() || spot().is_some())
    }

    /// Places the allocation on a copy of the node and returns the spot.
    pub(super) fn come(&self, node: &mut Node, no: NodeNo, coming: AllocationNo) -> Option<Spot> {
        let capacity = self.fleet.capacity(no);
        let live = self.allocations.get(&coming)?;
        let class = self.allocations.class(live.class);
        node.check(capacity, class).ok()?;
        let policy = self.placement_policy(live);
        let spot = self.fleet.spot(node, capacity, class, policy)?;
        node.take(capacity, (coming, class), spot.parts()).ok()?;
        Some(spot)
    }

    /// Where the others are that the class's rules speak of, once all who go have gone and all who come have come; none if
    /// they speak of none. Who is the first of those that it wants to be near, as long as nominees have not come, is not once
    /// they have: then there are two answers.
    fn others_by_then(
        &self,
        class: &Class,
        plan: &Plan,
        victims: &[(AllocationNo, PreemptionCause)],
    ) -> Vec<Others<'_>> {
        if !class.looks_at_others() {
            return Vec::new();
        }
        let mut moves = Moves {
            gone: self.going(class),
            ..Moves::default()
        };
        self.moves_of_plan(plan, victims, &mut moves);
        let mut others = vec![Others::of(&self.fleet, class, &moves)];
        if class.affinity().any(|group| class.group() == Some(group)) {
            let coming = self.coming_of_its_own(class);
            if !coming.is_empty() {
                moves.come.extend(&coming);
                moves.not_coming.extend(coming);
                others.push(Others::of(&self.fleet, class, &moves));
            }
        }
        others
    }

    /// Nominees of the class's own group.
    fn coming_of_its_own(&self, class: &Class) -> Vec<(NodeNo, &Class)> {
        let members = class
            .group()
            .into_iter()
            .flat_map(|(tenant, group)| self.fleet.members(tenant, group));
        let nominees = members
            .filter(|(_, members)| members.coming > 0)
            .flat_map(|(node, _)| {
                let nominees = self.fleet.node(node).nominees.iter();
                nominees.map(move |no| (node, no))
            });
        let coming = nominees.filter_map(|(node, no)| {
            let of = self.allocations.class(self.allocations.get(no)?.class);
            (of.group() == class.group()).then_some((node, of))
        });
        coming.collect()
    }

    /// Adds those who go and come by the plan.
    pub(super) fn moves_of_plan<'a>(
        &'a self,
        plan: &Plan,
        victims: &[(AllocationNo, PreemptionCause)],
        moves: &mut Moves<'a>,
    ) {
        let fellows = victims.iter().flat_map(|(victim, _)| self.fellows(*victim));
        let all: BTreeSet<_> = plan.victims.keys().copied().chain(fellows).collect();
        moves.gone.extend(all.iter().filter_map(|no| {
            let live = self.allocations.get(no)?;
            let binding = live.binding().filter(|binding| binding.stays())?;
            Some((binding.node, self.allocations.class(live.class)))
        }));
        moves
            .come
            .extend(plan.places.iter().filter_map(|(no, node)| {
                let class = self.allocations.get(no)?.class;
                Some((*node, self.allocations.class(class)))
            }));
    }

    /// Members of the groups that the class looks at that have been told to stop and are still there.
    pub(super) fn going(&self, class: &Class) -> Vec<(NodeNo, &Class)> {
        let mut nodes = BTreeSet::new();
        for (tenant, group) in class.groups_looked_at() {
            nodes.extend(self.fleet.members(tenant, group).map(|(node, _)| node));
        }
        let holds = nodes
            .into_iter()
            .flat_map(|node| self.fleet.node(node).holds.iter().map(move |no| (node, no)));
        let going = holds.filter_map(|(node, no)| {
            let live = self.allocations.get(no)?;
            live.binding()?.stop?;
            Some((node, self.allocations.class(live.class)))
        });
        going.collect()
    }

    /// Adds the victim and its gang to the plan, and returns their nodes.
    fn let_go(
        &self,
        victim: AllocationNo,
        (cause, by): (PreemptionCause, AllocationNo),
        plan: &mut Plan,
    ) -> BTreeSet<NodeNo> {
        let mut left = BTreeSet::new();
        for fellow in self.fellows(victim) {
            let Some(live) = self.allocations.get(&fellow) else {
                continue;
            };
            let Some(binding) = live.binding().filter(|binding| binding.stays()) else {
                continue;
            };
            left.insert(binding.node);
            let cause = if fellow == victim {
                cause
            } else {
                PreemptionCause::Gang
            };
            if plan.victims.insert(fellow, (cause, by)).is_none() {
                add(
                    plan.less.entry(live.queue).or_default(),
                    &self.allocations.amounts(live),
                );
            }
        }
        left
    }
}
