//! Checks at rest: promises can be kept, and members of gangs have a reason.

use super::*;

/// Checks that the promised allocation may start on its node at the promised moment, by estimates and reservations.
pub fn promises_can_be_kept(world: &World) {
    let state = &world.state;
    let Some(promise) = Aside::of(state, world.now).promise() else {
        return;
    };
    let live = state.allocations.get(&promise.to).unwrap();
    let class = state.allocations.class(live.class);
    let node = state.fleet.node(promise.node);
    assert!(node.open() && node.nominees.is_empty(), "{promise:?}");
    let capacity = state.fleet.capacity(promise.node);
    assert_eq!(keeps_off(capacity, class), None, "{promise:?}");
    // At rest it would have been placed, unless an allocation is estimated to end at this moment.
    let mut ends = (state.allocations.all().keys()).filter_map(|no| state.estimated_end(*no));
    let ends_now = ends.any(|end| end == world.now);
    assert!(promise.from != world.now || ends_now, "{promise:?}");
    let ended = |no: &AllocationNo| {
        let end = state.estimated_end(*no);
        end.is_some_and(|end| end <= promise.from)
    };
    let held = state.allocations.all().iter();
    let gone = held.filter_map(|(no, live)| {
        let binding = live.binding().filter(|_| ended(no))?;
        Some((binding.node, state.allocations.class(live.class)))
    });
    let moves = Moves {
        gone: gone.collect(),
        ..Moves::default()
    };
    let others = Others::of(&state.fleet, class, &moves);
    assert_eq!(others.keep_off(promise.node), None, "{promise:?}");
    let starts = promise.from.max(world.now);
    let ends = (live.run_time_ms > 0).then(|| starts.plus(live.run_time_ms as i64));
    let queues = state.waiting.queues();
    let seeker = state.seeker(promise.to, live);
    let let_in = state
        .reservations
        .let_in(queues, &seeker, promise.node, starts, ends);
    assert!(let_in, "{promise:?}");
    let group = state.waiting.pending_group_of(live).unwrap();
    let key = state.waiting.scheduling_key(group.key.scheduling_key);
    let value = key
        .uniform_label
        .as_ref()
        .map(|it| capacity.label(it.as_str()));
    if let Some(wanted) = &key.uniform_value {
        assert_eq!(value, Some(Some(wanted)), "{promise:?}");
    }
}

/// Checks the last report on each waiting allocation: its pending group with the present reason of that group, or why it has
/// no pending group.
pub fn waiting_allocations_have_a_reason(world: &World) {
    let state = &world.state;
    for (no, live) in state.allocations.all().iter() {
        let pending_group = state.waiting.pending_group_of(live);
        let expected = match (&live.phase, live.gang) {
            (Phase::Held(_) | Phase::AwaitingQuota(_), _) => continue,
            (Phase::AwaitingOthers, _) => Some(WaitingReason::Dependency),
            (Phase::Pausing(_), _) => Some(WaitingReason::Backoff),
            (Phase::Nominated(_), _) => Some(WaitingReason::Nominated),
            (Phase::InGang, Some(gang)) if pending_group.is_none() => {
                Some(state.gang_waits_for(gang))
            }
            (Phase::Queued(..) | Phase::InGang, _) => None,
        };
        let said = world.said.iter().rev();
        let mut of_it = said.filter(|event| {
            let explained = matches!(event, Event::PendingGroupExplained(_));
            event.allocation(EventNo(0)) == Some(*no) && !explained
        });
        let told = match of_it.next() {
            // Reported before the first event that the world recorded.
            None => continue,
            Some(Event::AllocationWaiting(told)) => (Some(told.reason), told.pending_group),
            Some(Event::AllocationNominated(_)) => (Some(WaitingReason::Nominated), None),
            Some(Event::AllocationRequeued(told)) if told.not_before > world.now => {
                (Some(WaitingReason::Backoff), None)
            }
            Some(other) => panic!("{no:?} waits, and its last event is {other:?}"),
        };
        match (expected, pending_group) {
            // Nodes are being cleared for its fellows: its earlier reason still holds.
            (Some(WaitingReason::GangNoRoom), _) => {}
            (Some(reason), _) => assert_eq!(told, (Some(reason), None), "{no:?}"),
            (None, pending_group) => {
                let pending_group = pending_group.unwrap();
                assert_eq!(told.1, Some(pending_group.no), "{no:?}: {told:?}");
                let said = pending_group.said.as_ref().map(|said| said.reason);
                let block = state.waiting.block_of(pending_group);
                assert!(
                    said.is_some() && block.is_some(),
                    "{no:?}: {said:?} {block:?}"
                );
            }
        }
    }
}
