//! A small reference of preemption by priority.

use super::*;
use crate::{fleet::Node, gang::Gang as FormedGang};
use vocab::PreemptionCause;

/// Returns the nodes that are open to the class.
fn nodes_for(state: &Scheduler, class: &crate::class::Class) -> Vec<NodeNo> {
    let may = |no: &NodeNo| {
        let node = state.fleet.node(*no);
        node.free_for_all() && keeps_off(state.fleet.capacity(*no), class).is_none()
    };
    state.fleet.all().filter(may).collect()
}

/// Returns the allocation and, for a member of a gang, all members on nodes.
fn unit(state: &Scheduler, no: AllocationNo) -> Vec<AllocationNo> {
    let gang = state.allocations.get(&no).and_then(|live| live.gang);
    match gang {
        Some(gang) => state.waiting.gangs().on_nodes(gang).collect(),
        None => vec![no],
    }
}

/// Returns the node without stopping allocations and without all preemptible units below the priority.
fn without_lower(state: &Scheduler, no: NodeNo, below: i32, now: Millis) -> Node {
    let stopping = |live: &Live| live.binding().is_none_or(|it| it.stop.is_some());
    let may_go = |no: &AllocationNo| {
        unit(state, *no).iter().all(|fellow| {
            let live = &state.allocations.all()[fellow];
            let settled = live.binding().is_some_and(|it| it.placed < now);
            state.settings.preemptible(live.priority_class) && live.priority < below && settled
        })
    };
    let holds = &state.fleet.node(no).holds;
    let goes = holds.iter().copied().filter(|no| {
        let live = &state.allocations.all()[no];
        stopping(live) || may_go(no)
    });
    without(state, no, goes)
}

fn without(state: &Scheduler, no: NodeNo, goes: impl Iterator<Item = AllocationNo>) -> Node {
    let capacity = state.fleet.capacity(no);
    let mut node = state.fleet.node(no).clone();
    for held in goes {
        let live = &state.allocations.all()[&held];
        let binding = live.binding().unwrap();
        if binding.node == no {
            let class = state.allocations.class(live.class);
            node.give_back(capacity, (held, class), &binding.taken);
        }
    }
    node
}

/// Places up to `most` allocations of the class and returns their number.
fn room(state: &Scheduler, node: &mut Node, no: NodeNo, live: &Live, most: usize) -> usize {
    let capacity = state.fleet.capacity(no);
    let class = state.allocations.class(live.class);
    let policy = state.placement_policy(live);
    for found in 0..most {
        let spot = state.fleet.spot(node, capacity, class, policy);
        let Some(spot) = spot.filter(|_| node.check(capacity, class).is_ok()) else {
            return found;
        };
        let number = AllocationNo(u64::MAX - found as u64);
        node.take(capacity, (number, class), spot.parts()).unwrap();
    }
    most
}

/// Checks progress: no pending group would find room after removing all units that it may preempt by priority.
pub fn are_found(state: &Scheduler) {
    if state.settings.policy().preemptions_per_minute == 0 || state.fleet.any_minding() {
        return;
    }
    for pending_group in state.waiting.queues().pending_groups() {
        let queues = state.waiting.queues();
        let limited = queues.limited_by(pending_group.key.queue, &pending_group.asks);
        let head = pending_group.head().unwrap().allocation;
        let live = &state.allocations.all()[&head];
        let key = state
            .waiting
            .scheduling_key(pending_group.key.scheduling_key);
        let class = state.allocations.class(live.class);
        let [(_, count)] = key.members[..] else {
            continue;
        };
        let alone_of_gang = live.gang.is_some() && !matches!(live.phase, Phase::InGang);
        let mut members = Vec::new();
        state
            .waiting
            .unit(head, 1, &state.allocations, &mut members);
        let alike = members.iter().all(|no| {
            let member = &state.allocations.all()[no];
            member.priority == live.priority && state.preempts(*no, member)
        });
        if limited.is_some()
            || class.looks_at_others()
            || key.uniform_label.is_some()
            || alone_of_gang
            || !alike
        {
            continue;
        }
        let nodes = nodes_for(state, class).into_iter();
        let room: usize = nodes
            .map(|no| {
                let mut node = without_lower(state, no, live.priority, Millis(i64::MAX));
                room(state, &mut node, no, live, count as usize)
            })
            .sum();
        assert!(
            room < key.min.max(1) as usize,
            "{head:?} @{} waits though {room} could be made room for",
            live.priority
        );
    }
}

/// Checks that the frame has no needless victim: none of a higher priority than necessary, and none that is not in the way.
/// `state` is the state before the frame, and `first` the number of its first event.
pub fn are_needed(mut state: Scheduler, first: u64, now: Millis, events: &[Event]) {
    if !events
        .iter()
        .any(|event| matches!(event, Event::AllocationNominated(_)))
    {
        return;
    }
    let mut victims = Vec::new();
    let mut before = None;
    let by_plan =
        |fact: &AllocationPreempted| fact.by.is_some() && fact.cause != PreemptionCause::Quota;
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::AllocationPreempted(fact) if by_plan(fact) => {
                if victims.is_empty() {
                    before = Some(state.clone());
                }
                victims.push(fact.allocation);
            }
            Event::AllocationStopping(_) => {}
            Event::AllocationNominated(fact) => {
                let alone = state.allocations.all()[&fact.allocation].gang.is_none();
                if let Some(before) = before.take_if(|_| alone) {
                    check(&before, fact, &victims, now);
                }
                (victims, before) = (Vec::new(), None);
            }
            _ => (victims, before) = (Vec::new(), None),
        }
        evolve(&mut state, (first, at), now, event);
    }
}

/// Checks that fellows of a gang's member follow it only where too few stay. Those whom a plan clears for another go by the
/// plan.
pub fn fellows_follow_if_they_are_too_few(
    mut state: Scheduler,
    first: u64,
    now: Millis,
    events: &[Event],
) {
    let follower = |event: &Event| match event {
        Event::AllocationPreempted(fact) => {
            (fact.cause == PreemptionCause::Gang && fact.by.is_none()).then_some(fact.allocation)
        }
        _ => None,
    };
    if !events.iter().any(|event| follower(event).is_some()) {
        return;
    }
    let mut broken = BTreeSet::new();
    for (at, event) in events.iter().enumerate() {
        if let Some(no) = follower(event)
            && let Some(gang) = state.allocations.all()[&no].gang
            && broken.insert(gang)
        {
            let stays = |no: &AllocationNo| {
                let binding = state.allocations.get(no).and_then(Live::binding);
                binding.is_some_and(Binding::stays)
            };
            let gangs = state.waiting.gangs();
            let stay = gangs.on_nodes(gang).filter(stays).count();
            let needed = gangs.get(gang).map_or(0, FormedGang::needed);
            assert!(stay < needed, "{stay} stay of {needed}: {event:?}");
        }
        evolve(&mut state, (first, at), now, event);
    }
}

fn evolve(state: &mut Scheduler, (first, index): (u64, usize), now: Millis, event: &Event) {
    let at = At {
        lsn: Lsn(0),
        index: index as u32,
        no: EventNo(first + index as u64),
        now,
    };
    state.evolve_event(&at, event).unwrap();
}

/// Checks the victims of a single allocation.
fn check(state: &Scheduler, fact: &AllocationNominated, victims: &[AllocationNo], now: Millis) {
    let live = &state.allocations.all()[&fact.allocation];
    let class = state.allocations.class(live.class);
    let policy = state.settings.policy();
    // Nodes that are set aside are not part of the recorded state.
    let set_aside = policy.backfill || state.reservations.any();
    let by_rules = class.looks_at_others() || state.fleet.any_minding();
    if by_rules || set_aside || policy.protected_milli > 0 {
        return;
    }
    let text = |what: &str| format!("{victims:?} go for {:?}: {what}", fact.allocation);
    let highest = victims
        .iter()
        .map(|no| state.allocations.all()[no].priority)
        .max();
    let highest = highest.unwrap_or(i32::MIN);
    if state.preempts(fact.allocation, live) {
        for no in nodes_for(state, class) {
            let mut node = without_lower(state, no, highest, now);
            let place = room(state, &mut node, no, live, 1);
            assert_eq!(place, 0, "{}", text("lower ones would do"));
        }
    }
    let there = state
        .fleet
        .all()
        .find(|no| state.fleet.node(*no).name == fact.node);
    let there = there.unwrap();
    if !state.fleet.node(there).nominees.is_empty() {
        return;
    }
    for stays in victims {
        let stays = unit(state, *stays);
        let holds = state.fleet.node(there).holds.iter().copied();
        let goes = holds.filter(|no| {
            let stopping = state.allocations.all()[no]
                .binding()
                .unwrap()
                .stop
                .is_some();
            stopping || victims.contains(no) && !stays.contains(no)
        });
        let mut node = without(state, there, goes);
        let place = room(state, &mut node, there, live, 1);
        assert_eq!(place, 0, "{}", text("one is not in the way"));
    }
}
