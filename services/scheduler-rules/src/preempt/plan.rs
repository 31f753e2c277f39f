//! A plan: which nodes are cleared for a unit, and who has to go from them.

use super::{
    super::{
        Scheduler,
        class::{Amounts, Class, ClassNo, add},
        fleet::{Moves, Node, NodeNo, Others, Spot, keeps_off},
        queues::QueueNo,
        sweep::Strength,
        work,
    },
    board::{Board, Seen},
    claim::{Claimant, Shares},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};
use vocab::{AllocationNo, Millis, PreemptionCause};

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

/// How bad a choice is: the highest priority that goes, how many go, and the oldest of them (younger is better).
type Badness = (Option<i32>, usize, Reverse<Millis>);

/// A node at a glance: how bad it is at least as far as priority goes, about how many have to go, and its precedence.
type Glance = Reverse<(Option<i32>, usize, Reverse<u32>, NodeNo)>;

/// Of the nodes that look good, so many are looked at closely, and the best of them is taken.
const LOOKS: usize = 16;
/// While none of them will do, others are looked at, up to so many.
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
}

impl<'a> Planner<'a> {
    pub fn new(
        state: &'a Scheduler,
        claimant: Claimant<'a>,
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
            Some((of, glances)) if of == alike && !self.hangs_on_others(no, class) => glances,
            _ => self.glance_at_all((no, class), plan),
        };
        let mut found: Vec<(Badness, Reverse<u32>, NodeNo, Victims)> = Vec::new();
        let mut passed = Vec::new();
        for looked in 0..LOOKS_MAX {
            if looked >= LOOKS && !found.is_empty() {
                break;
            }
            let Some(glance) = glances.pop() else {
                break;
            };
            let Reverse((_, _, precedence, node)) = glance;
            self.budget.spend(work::LOOK);
            if let Some(victims) = self.victims_on(node, (no, class), plan) {
                found.push((state.badness(&victims), precedence, node, victims));
                passed.push(glance);
            }
        }
        glances.extend(passed);
        self.glances = Some((alike, glances));
        let Some((_, _, node, victims)) = found.into_iter().min() else {
            return false;
        };
        for (victim, cause) in victims {
            state.let_go(victim, (cause, no), plan);
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
        let mut glances = Vec::new();
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
            let seen = self.board.look(state, no, self.budget);
            let by = (&self.claimant, self.shares);
            let glance = glance(seen, by, &class.amounts());
            glances.extend(
                glance.map(|(priority, count)| {
                    Reverse((priority, count, Reverse(node.precedence), no))
                }),
            );
        }
        glances.into()
    }

    /// The fewest who must leave this node for the claimant, if that is possible at all.
    fn victims_on(
        &self,
        no: NodeNo,
        (allocation, class): (AllocationNo, &Class),
        plan: &Plan,
    ) -> Option<Victims> {
        let state = self.state;
        let capacity = state.fleet.capacity(no);
        let there = state.fleet.node(no);
        let mut node = state.prospect(no, plan, &[])?;
        if node.check(capacity, class).is_ok() {
            // Where somebody is going already, there is room once he has gone. Where nobody is, there is no need to clear.
            let goes = |no: &AllocationNo| {
                let binding = state.allocations.get(no).and_then(|live| live.binding());
                binding.is_some_and(|binding| binding.stop.is_some())
                    || plan.victims.contains_key(no)
            };
            let coming = plan.places.iter().any(|(_, at)| *at == no);
            let waits = coming || there.holds.iter().any(goes);
            return waits.then(Vec::new);
        }
        let mut may_go: Vec<_> = there
            .holds
            .iter()
            .filter_map(|held| {
                let live = state.allocations.get(held)?;
                state.may_go(*held, &self.claimant, self.shares, plan)?;
                Some((
                    live.priority,
                    Reverse(live.binding()?.placed),
                    Reverse(*held),
                ))
            })
            .collect();
        may_go.sort_unstable();
        let mut gone = Vec::new();
        let mut so_far = Plan {
            victims: plan.victims.clone(),
            places: Vec::new(),
            less: plan.less.clone(),
        };
        for (_, _, Reverse(victim)) in may_go {
            if node.check(capacity, class).is_ok() {
                break;
            }
            // Those who went before may have brought its queue down to its fair share.
            let cause = state.may_go(victim, &self.claimant, self.shares, &so_far);
            let Some(cause) = cause else {
                continue;
            };
            let live = state.allocations.get(&victim)?;
            let held_class = state.allocations.class(live.class);
            node.give_back(capacity, (victim, held_class), &live.binding()?.taken);
            state.let_go(victim, (cause, allocation), &mut so_far);
            gone.push((victim, cause));
        }
        if node.check(capacity, class).is_err() {
            return None;
        }
        // Whoever turns out not to be in the way stays, the most valuable first.
        let mut needed = Vec::new();
        for (victim, cause) in gone.into_iter().rev() {
            let live = state.allocations.get(&victim)?;
            let mut with = node.clone();
            let binding = live.binding()?;
            let held_class = state.allocations.class(live.class);
            let spot = Spot::of(&binding.taken);
            let stays = with
                .take(capacity, (victim, held_class), spot.parts())
                .is_ok()
                && with.check(capacity, class).is_ok();
            if stays {
                node = with;
            } else {
                needed.push((victim, cause));
            }
        }
        // Without those who go the rules about others may say something else.
        let others = state.others_by_then(class, plan, &needed);
        let kept_off = others.iter().any(|others| others.keep_off(no).is_some());
        let minding = state.minding_by_then((allocation, class), plan, &needed);
        (!kept_off && minding.let_it_come_to(no)).then_some(needed)
    }
}

/// Who has to go, and why.
type Victims = Vec<(AllocationNo, PreemptionCause)>;

/// The highest priority that has to go at least, and about how many; none if there cannot be room.
fn glance(
    seen: &Seen,
    (claimant, shares): (&Claimant<'_>, &Shares),
    asks: &Amounts,
) -> Option<(Option<i32>, usize)> {
    let mut room = seen.prospect;
    let enough = |room: &Amounts| room.iter().zip(asks).all(|(room, asks)| room >= asks);
    let mut highest = None;
    let mut count = 0;
    for entry in &seen.may_go {
        if highest.is_some() && enough(&room) {
            break;
        }
        if entry.priority > claimant.live.priority {
            break;
        }
        if !claimant.might_take(entry, shares) {
            continue;
        }
        if !claimant.spares(entry.placed) {
            add(&mut room, &entry.amounts);
            highest = Some(entry.priority);
            count += 1;
        }
    }
    // Where somebody is going already, nobody else may have to.
    if enough(&seen.prospect) && seen.clears {
        return Some((None, 0));
    }
    (enough(&room) && highest.is_some()).then_some((highest, count))
}

impl Scheduler {
    /// The node as it will be once those who are going have gone and those it is promised to have come, but for some.
    pub(super) fn prospect(
        &self,
        no: NodeNo,
        plan: &Plan,
        without: &[AllocationNo],
    ) -> Option<Node> {
        let capacity = self.fleet.capacity(no);
        let there = self.fleet.node(no);
        let mut node = there.clone();
        for held in &there.holds {
            let live = self.allocations.get(held)?;
            let binding = live.binding()?;
            if binding.stop.is_some() || plan.victims.contains_key(held) {
                let class = self.allocations.class(live.class);
                node.give_back(capacity, (*held, class), &binding.taken);
            }
        }
        let planned = plan.places.iter().filter(|(_, at)| *at == no);
        let planned = planned.map(|(coming, _)| coming);
        let nominees = there.nominees.iter().filter(|no| !without.contains(no));
        for coming in nominees.chain(planned) {
            self.come(&mut node, no, *coming)?;
        }
        Some(node)
    }

    /// Takes on the node what the allocation will.
    pub(super) fn come(&self, node: &mut Node, no: NodeNo, coming: AllocationNo) -> Option<()> {
        let capacity = self.fleet.capacity(no);
        let live = self.allocations.get(&coming)?;
        let class = self.allocations.class(live.class);
        node.check(capacity, class).ok()?;
        let policy = self.placement_policy(live);
        let spot = self.fleet.spot(node, capacity, class, policy)?;
        node.take(capacity, (coming, class), spot.parts()).ok()?;
        Some(())
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
            let binding = live.binding().filter(|binding| binding.stop.is_none())?;
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

    fn let_go(
        &self,
        victim: AllocationNo,
        (cause, by): (PreemptionCause, AllocationNo),
        plan: &mut Plan,
    ) {
        for fellow in self.fellows(victim) {
            let Some(live) = self.allocations.get(&fellow) else {
                continue;
            };
            if live.binding().is_some_and(|binding| binding.stop.is_some()) {
                continue;
            }
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
    }

    fn badness(&self, victims: &[(AllocationNo, PreemptionCause)]) -> Badness {
        let all: BTreeSet<_> = victims
            .iter()
            .flat_map(|(no, _)| self.fellows(*no))
            .collect();
        let lives = || all.iter().filter_map(|no| self.allocations.get(no));
        let placed = lives().filter_map(|live| live.binding().map(|binding| binding.placed));
        (
            lives().map(|live| live.priority).max(),
            all.len(),
            Reverse(placed.min().unwrap_or(Millis(i64::MAX))),
        )
    }
}
