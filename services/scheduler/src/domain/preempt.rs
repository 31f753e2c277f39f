//! Preemption: who has to go so that one who waits can come.
//!
//! By priority: an allocation whose class preempts takes from preemptible ones of lower priority. By fair share: a queue
//! takes from one that has more than its fair share, as long as that one then still exceeds its share by no less than the
//! taker does, and never from a higher priority. So shares come closer to the fair ones with each step, and come to rest. The
//! victims are of the lowest priority, the fewest, and the youngest; nobody goes for one who then does not fit.

use super::{
    Scheduler,
    allocation::{Live, Phase, PriorityNo},
    aside::Aside,
    class::{Amounts, add},
    fair::Share,
    fleet::{Node, NodeNo, Others, Wanted, keeps_off},
    queues::QueueNo,
    scoring,
};
use ledger::Draft;
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};
use vocab::{AllocationNo, Event, LineNo, Millis, PreemptionCause, PriorityClass, WaitingReason};

/// How many preemptions there were in the current minute of the ledger's clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    minute: i64,
    count: u32,
}

const MINUTE_MS: i64 = 60_000;
/// Units that nodes are looked for in one round: each look is at all nodes.
const TRIES_MAX: u32 = 256;

impl Rate {
    pub fn preempted(&mut self, now: Millis) {
        let minute = now.0.div_euclid(MINUTE_MS);
        if minute != self.minute {
            *self = Self { minute, count: 0 };
        }
        self.count = self.count.saturating_add(1);
    }

    fn left(&self, now: Millis, most: u32) -> u32 {
        if now.0.div_euclid(MINUTE_MS) == self.minute {
            most.saturating_sub(self.count)
        } else {
            most
        }
    }
}

/// Shares are rounded down by less than this.
const ROUNDING: u128 = 1 << 16;

/// A share of what the cell has none of is as large as can be.
fn sum(a: Share, b: Share) -> u128 {
    a.0.saturating_add(b.0)
}

/// What has been planned for one unit so far.
#[derive(Debug, Default)]
struct Plan {
    /// Who goes, and why.
    victims: BTreeMap<AllocationNo, PreemptionCause>,
    /// Who comes where.
    places: Vec<(AllocationNo, NodeNo)>,
    /// What the victims' queues hold less.
    less: BTreeMap<QueueNo, Amounts>,
}

/// How bad a choice is: the highest priority that goes, how many go, and the oldest of them (younger is better).
type Badness = (Option<i32>, usize, Reverse<Millis>);

/// One who waits, as far as preemption is concerned.
struct Claimant<'a> {
    live: &'a Live,
    /// It may take from lower priorities.
    preempts: bool,
    /// What its queue has with it, and is due.
    with_it: Share,
    own_due: Share,
    due: &'a [Share],
}

impl Scheduler {
    pub(super) fn priority_class(&self, live: &Live) -> Option<&PriorityClass> {
        let PriorityNo(no) = live.priority_class?;
        self.priority_classes.get(self.priorities.get(no))
    }

    fn held_share(&self, queue: QueueNo, more: &Amounts, less: &Amounts) -> Share {
        let mut held = self.queues.own(queue).0;
        add(&mut held, more);
        for (held, less) in held.iter_mut().zip(less) {
            *held = held.saturating_sub(*less);
        }
        Share::dominant(&held, self.fleet.totals())
    }

    /// Whether, and why, `no` may be made to go for the claimant.
    fn may_go(
        &self,
        no: AllocationNo,
        claimant: &Claimant<'_>,
        plan: &Plan,
    ) -> Option<PreemptionCause> {
        let live = self.live.get(&no)?;
        let goes_already = live.hold()?.stop.is_some() || plan.victims.contains_key(&no);
        if live.gang.is_some() && live.gang == claimant.live.gang {
            return None;
        }
        // Who is in a gang takes the others along: what holds for one has to hold for all.
        let fellows = || {
            self.fellows(no)
                .into_iter()
                .filter_map(|fellow| self.live.get(&fellow))
        };
        let preemptible = |live| {
            self.priority_class(live)
                .is_some_and(|class| class.preemptible)
        };
        if goes_already || !fellows().all(preemptible) {
            return None;
        }
        let priority = fellows().map(|live| live.priority).max()?;
        let due = *claimant.due.get(live.queue.0 as usize)?;
        let mut less = plan.less.get(&live.queue).copied().unwrap_or_default();
        let before = self.held_share(live.queue, &Amounts::default(), &less);
        if before.0 <= due.part(self.policy.protected_milli).0 && self.policy.protected_milli > 0 {
            return None;
        }
        if claimant.preempts && priority < claimant.live.priority {
            return Some(PreemptionCause::Priority);
        }
        for fellow in fellows() {
            add(&mut less, &self.amounts(fellow));
        }
        let after = self.held_share(live.queue, &Amounts::default(), &less);
        let fair = self.policy.fair_share_preemption
            && live.queue != claimant.live.queue
            && priority <= claimant.live.priority
            && before.0 > due.0.saturating_add(ROUNDING)
            && sum(after, claimant.own_due).saturating_add(ROUNDING) >= sum(claimant.with_it, due);
        fair.then_some(PreemptionCause::FairShare)
    }

    /// It and, for a member of a gang, all members that are on nodes.
    fn fellows(&self, no: AllocationNo) -> Vec<AllocationNo> {
        match self.live.get(&no).and_then(|live| live.gang) {
            Some(gang) => self.gangs.on_nodes(gang).collect(),
            None => vec![no],
        }
    }

    /// The node as it will be once those who are going have gone and those it is promised to have come.
    fn prospect(&self, no: NodeNo, plan: &Plan) -> Option<Node> {
        let capacity = self.fleet.capacity(no);
        let mut node = self.fleet.node(no).clone();
        for held in self.fleet.node(no).holds.iter() {
            let live = self.live.get(held)?;
            let hold = live.hold()?;
            if hold.stop.is_some() || plan.victims.contains_key(held) {
                node.give_back(capacity, self.classes.get(live.class.0), &hold.taken);
            }
        }
        let planned = plan
            .places
            .iter()
            .filter(|(_, at)| *at == no)
            .map(|(coming, _)| coming);
        for coming in node.nominees.clone().iter().chain(planned) {
            let live = self.live.get(coming)?;
            let class = self.classes.get(live.class.0);
            let spot = node.spot(capacity, class, |room| {
                scoring::devices(
                    self.placement_policy(live).into(),
                    &self.popularity,
                    room,
                    &class.ask,
                )
            })?;
            node.take(capacity, class, &spot).ok()?;
        }
        Some(node)
    }

    /// The fewest who must leave this node for the claimant, if that is possible at all.
    fn victims_on(
        &self,
        no: NodeNo,
        wanted: &Wanted<'_>,
        claimant: &Claimant<'_>,
        plan: &Plan,
    ) -> Option<Vec<(AllocationNo, PreemptionCause)>> {
        let capacity = self.fleet.capacity(no);
        let mut node = self.prospect(no, plan)?;
        if node.check(capacity, wanted.class).is_ok() {
            // Where somebody is going already, there is room once he has gone. Where nobody is, there is no need to clear.
            let goes = |no: &AllocationNo| {
                let hold = self.live.get(no).and_then(|live| live.hold());
                hold.is_some_and(|hold| hold.stop.is_some()) || plan.victims.contains_key(no)
            };
            let waits = self.fleet.node(no).holds.iter().any(goes);
            return waits.then(Vec::new);
        }
        let holds = self.fleet.node(no).holds.iter().copied();
        let mut may_go: Vec<_> = holds
            .filter_map(|held| {
                let live = self.live.get(&held)?;
                let cause = self.may_go(held, claimant, plan)?;
                Some((
                    live.priority,
                    Reverse(live.hold()?.placed),
                    Reverse(held),
                    cause,
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
        for (_, _, Reverse(victim), _) in may_go {
            if node.check(capacity, wanted.class).is_ok() {
                break;
            }
            // Those who went before may have brought its queue down to its fair share.
            let Some(cause) = self.may_go(victim, claimant, &so_far) else {
                continue;
            };
            let live = self.live.get(&victim)?;
            node.give_back(
                capacity,
                self.classes.get(live.class.0),
                &live.hold()?.taken,
            );
            self.let_go(victim, cause, &mut so_far);
            gone.push((victim, cause));
        }
        if node.check(capacity, wanted.class).is_err() {
            return None;
        }
        // Whoever turns out not to be in the way stays, the most valuable first.
        let mut needed = Vec::new();
        for (victim, cause) in gone.into_iter().rev() {
            let live = self.live.get(&victim)?;
            let mut with = node.clone();
            let hold = live.hold()?;
            let class = self.classes.get(live.class.0);
            let spot = super::fleet::Spot::of(&hold.taken);
            let stays = with.take(capacity, class, &spot).is_ok()
                && with.check(capacity, wanted.class).is_ok();
            if stays {
                node = with;
            } else {
                needed.push((victim, cause));
            }
        }
        Some(needed)
    }

    fn let_go(&self, victim: AllocationNo, cause: PreemptionCause, plan: &mut Plan) {
        for fellow in self.fellows(victim) {
            let Some(live) = self.live.get(&fellow) else {
                continue;
            };
            if live.hold().is_some_and(|hold| hold.stop.is_some()) {
                continue;
            }
            let cause = if fellow == victim {
                cause
            } else {
                PreemptionCause::Gang
            };
            if plan.victims.insert(fellow, cause).is_none() {
                add(
                    plan.less.entry(live.queue).or_default(),
                    &self.amounts(live),
                );
            }
        }
    }

    fn badness(&self, victims: &[(AllocationNo, PreemptionCause)]) -> Badness {
        let all: BTreeSet<_> = victims
            .iter()
            .flat_map(|(no, _)| self.fellows(*no))
            .collect();
        let lives = || all.iter().filter_map(|no| self.live.get(no));
        let placed = lives().filter_map(|live| live.hold().map(|hold| hold.placed));
        (
            lives().map(|live| live.priority).max(),
            all.len(),
            Reverse(placed.min().unwrap_or(Millis(i64::MAX))),
        )
    }

    /// The node for one more of the unit, and who has to go from it.
    fn clear_for(
        &self,
        no: AllocationNo,
        due: &[Share],
        asks: &Amounts,
        plan: &mut Plan,
    ) -> Option<()> {
        let live = self.live.get(&no)?;
        let class = self.classes.get(live.class.0);
        let own_due = *due.get(live.queue.0 as usize)?;
        let claimant = Claimant {
            live,
            preempts: self
                .priority_class(live)
                .is_some_and(|class| class.preempts),
            with_it: self.held_share(live.queue, asks, &Amounts::default()),
            own_due,
            due,
        };
        let wanted = Wanted {
            no: live.class,
            class,
            policy: self.placement_policy(live),
            popularity: &self.popularity,
        };
        let others = class
            .looks_at_others()
            .then(|| Others::of(&self.fleet, class));
        let choices = self.fleet.all().filter_map(|node| {
            let there = self.fleet.node(node);
            let usable = there.open()
                && !*there.aside
                && keeps_off(self.fleet.capacity(node), class).is_none()
                && others
                    .as_ref()
                    .is_none_or(|others| others.keep_off(node).is_none());
            if !usable {
                return None;
            }
            let victims = self.victims_on(node, &wanted, &claimant, plan)?;
            Some((
                self.badness(&victims),
                Reverse(there.precedence),
                node,
                victims,
            ))
        });
        let (_, _, node, victims) = choices.min()?;
        for (victim, cause) in victims {
            self.let_go(victim, cause, plan);
        }
        plan.places.push((no, node));
        Some(())
    }

    /// Whether preemption could help the line at all; cheap, and never wrong when it says no.
    fn may_preempt(
        &self,
        line: LineNo,
        due: &[Share],
    ) -> Option<(Vec<AllocationNo>, Amounts, u32)> {
        let line = self.queues.line(line)?;
        let block = self.block_of(line)?;
        if !matches!(block, WaitingReason::NoRoomNow | WaitingReason::GangNoRoom) {
            return None;
        }
        let head = line.head()?.allocation;
        let live = self.live.get(&head)?;
        let by_priority = self
            .priority_class(live)
            .is_some_and(|class| class.preempts);
        let beyond = |(queue, due): (QueueNo, &Share)| {
            let held = self.held_share(queue, &Amounts::default(), &Amounts::default());
            queue != line.key.queue && held.0 > due.0.saturating_add(ROUNDING)
        };
        let queues = self.queues.all().map(|(no, _)| no).zip(due);
        let by_share = self.policy.fair_share_preemption && queues.into_iter().any(beyond);
        let shape = self.shapes.get(line.key.shape.0);
        // A gang that wants a uniform label waits until there is room.
        if !(by_priority || by_share) || shape.uniform_label.is_some() {
            return None;
        }
        Some((self.unit(head, shape.members.len()), line.asks, shape.min))
    }
}

/// Clears nodes for those who wait and may have others go, the highest priority first.
pub(super) fn decide(state: &mut Scheduler, draft: &mut Draft) {
    let any = state
        .priority_classes
        .values()
        .any(|class| class.preemptible);
    let again = state
        .blocked
        .preempt_again_at
        .is_some_and(|at| at <= draft.now);
    let due = std::mem::take(&mut state.blocked.preemption_untried) || again || !draft.is_empty();
    if !any || state.policy.preemptions_per_minute == 0 || !due {
        return;
    }
    state.blocked.preempt_again_at = None;
    let next_minute = (draft.now.0.div_euclid(MINUTE_MS) + 1).saturating_mul(MINUTE_MS);
    let mut tries = 0;
    let mut lines: Vec<_> = state
        .queues
        .lines()
        .filter(|line| state.block_of(line).is_some())
        .filter_map(|line| Some((line.head()?, line.no)))
        .collect();
    lines.sort_unstable();
    for (_, line) in lines {
        loop {
            // What a queue is due depends on what waits in it, and that has just changed.
            let due = state.queues.fair_shares(state.fleet.totals());
            tries += 1;
            if draft.full() || tries > TRIES_MAX {
                state.blocked.preempt_again_at = Some(Millis(next_minute));
                return;
            }
            let Some((members, asks, min)) = state.may_preempt(line, &due) else {
                break;
            };
            let mut plan = Plan::default();
            for no in &members {
                if state.clear_for(*no, &due, &asks, &mut plan).is_none() {
                    break;
                }
            }
            let left = state
                .rate
                .left(draft.now, state.policy.preemptions_per_minute);
            if plan.places.len() < min as usize {
                break;
            }
            if plan.victims.len() > left as usize {
                state.blocked.preempt_again_at = Some(Millis(next_minute));
                break;
            }
            carry_out(state, plan, draft);
        }
    }
}

fn carry_out(state: &mut Scheduler, plan: Plan, draft: &mut Draft) {
    // It may let another have his way who was looked at before.
    state.blocked.preemption_untried = true;
    let first = plan.places.first().map(|(no, _)| *no);
    for (victim, cause) in &plan.victims {
        state.evict(*victim, *cause, first, draft);
    }
    for (allocation, node) in plan.places {
        let there = state.fleet.node(node);
        let nominated = Event::AllocationNominated {
            allocation,
            node: there.name.clone(),
            incarnation: there.incarnation,
        };
        draft.emit(state, nominated);
    }
}

/// Places those whose nodes have been cleared; those whose node has gone go back to their line.
pub(super) fn decide_nominated(state: &mut Scheduler, aside: &Aside, draft: &mut Draft) {
    let nominated: Vec<_> = state.nominated.iter().copied().collect();
    let mut looked_at = BTreeSet::new();
    for no in nominated {
        if draft.full() {
            return;
        }
        // The first of a gang may have placed it, or sent it back, with all others.
        let nominated = |live: &&Live| matches!(live.phase, Phase::Nominated(_));
        let Some(live) = state.live.get(&no).filter(nominated) else {
            continue;
        };
        let gang = live.gang.filter(|gang| !state.gangs.runs(*gang));
        let members: Vec<_> = match gang {
            Some(gang) => state.nominated_of(gang),
            None => vec![no],
        };
        if !looked_at.insert(members.first().copied()) {
            continue;
        }
        let enough = gang.is_none_or(|gang| state.gangs.enough(gang, members.len()));
        let open = enough
            && members.iter().all(|no| {
                let node = state.live.get(no).map(|live| &live.phase);
                matches!(node, Some(Phase::Nominated(node)) if state.fleet.node(*node).open())
            });
        if !open {
            for allocation in members {
                let (reason, line) = (WaitingReason::NoRoomNow, None);
                draft.emit(
                    state,
                    Event::AllocationWaiting {
                        allocation,
                        reason,
                        line,
                    },
                );
            }
            continue;
        }
        if let Some(places) = state.places_of_nominees(&members) {
            for place in places {
                let event = state.placed_event(place, aside);
                draft.emit(state, event);
            }
            if let Some(gang) = gang {
                let rest = state.gangs.ready_members(gang);
                state.tell_the_rest(&rest, draft);
            }
        }
    }
}

impl Scheduler {
    fn nominated_of(&self, gang: super::gang::GangNo) -> Vec<AllocationNo> {
        let of_gang = |no: &&AllocationNo| {
            self.live
                .get(no)
                .is_some_and(|live| live.gang == Some(gang))
        };
        self.nominated.iter().filter(of_gang).copied().collect()
    }
}
