//! Why a pending group waits: how many nodes each filter keeps off, and what would have to be freed.

use super::{
    Scheduler,
    allocation::{Live, Phase},
    class::{Amounts, Class, ClassNo},
    fair::Share,
    fleet::{Moves, NodeNo, Others, keeps_off},
    queues::QueueNo,
    waiting::AGAIN_MS,
    work,
};
use ledger::Draft;
use std::collections::BTreeMap;
use vocab::fact::{AllocationWaiting, PendingGroupExplained};
use vocab::{AllocationNo, Filter, Millis, PendingGroupNo, ResourceKind, WaitingReason};

/// What was found when all nodes were looked at for one class.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Findings {
    pub counts: BTreeMap<Filter, u32>,
    /// The least that is missing on one node, by the part of what is asked for.
    pub shortfall: Option<Amounts>,
}

impl Scheduler {
    /// Of a class, and the first who asks for it.
    pub(super) fn look_at_all_nodes(&self, no: AllocationNo, class: &Class) -> Findings {
        let mut findings = Findings::default();
        let mut kinds: Vec<Option<Option<Filter>>> = Vec::new();
        let others = class
            .looks_at_others()
            .then(|| Others::of(&self.fleet, class, &Moves::default()));
        let minding = self.minding(no, class);
        let mut least = u128::MAX;
        for (node, no) in self.fleet.nodes().iter().zip(0..) {
            if node.past.forgotten {
                continue;
            }
            let kind = node.kind.0 as usize;
            if kinds.len() <= kind {
                kinds.resize(kind + 1, None);
            }
            let capacity = self.fleet.kind(node.kind);
            let filter = if !node.answers() {
                Some(Filter::NotReady)
            } else if node.cordoned {
                Some(Filter::Cordoned)
            } else {
                *kinds[kind].get_or_insert_with(|| keeps_off(capacity, class))
            };
            let filter = match filter {
                Some(filter) => Some(filter),
                None => {
                    let missing = missing(class, node);
                    let part = part(&missing, &class.amounts());
                    if part < least {
                        least = part;
                        findings.shortfall = Some(missing);
                    }
                    let set_aside = self.kept_for_others(NodeNo(no), node);
                    let rule = || {
                        others
                            .as_ref()
                            .and_then(|others| others.keep_off(NodeNo(no)))
                    };
                    let minded = || {
                        let minded = !minding.let_it_come_to(NodeNo(no));
                        minded.then_some(Filter::Backfill)
                    };
                    set_aside
                        .or_else(|| node.check(capacity, class).err())
                        .or_else(rule)
                        .or_else(minded)
                }
            };
            if let Some(filter) = filter {
                *findings.counts.entry(filter).or_default() += 1;
            }
        }
        findings
    }

    /// Whether somebody else has the node to himself.
    fn kept_for_others(&self, no: NodeNo, node: &super::fleet::Node) -> Option<Filter> {
        if !node.nominees.is_empty() || self.waiting.promised(no) {
            Some(Filter::Backfill)
        } else {
            (*node.aside).then_some(Filter::Reserved)
        }
    }

    /// What is to be said of a pending group, unless it was said already; but for what its queue, which comes with it, is due.
    fn explanation(
        &mut self,
        pending_group: PendingGroupNo,
        known: &mut BTreeMap<ClassNo, Findings>,
        now: Millis,
    ) -> Option<(QueueNo, PendingGroupExplained)> {
        let pending_group = self.waiting.queues().pending_group(pending_group)?;
        let block = self.waiting.block_of(pending_group)?;
        let head = pending_group.head()?.allocation;
        let class = self.allocations.get(&head)?.class;
        // A gang is explained by its first member; whether the reason is room alone is said of the gang.
        let for_room = matches!(block, WaitingReason::NoRoomNow | WaitingReason::GangNoRoom);
        let lack = self.fleet.lack(class, self.allocations.class(class));
        let reason = match reason_of(block, lack) {
            // A gang is told that it does not fit, whatever that would take.
            WaitingReason::NoRoomNow if self.waiting.is_rate_limited(pending_group.no) => {
                WaitingReason::PreemptionLimit
            }
            reason => reason,
        };
        let said = pending_group.said.as_ref();
        let changed = said.is_none_or(|said| said.reason != reason);
        let old = said.is_none_or(|said| now.since(said.at) >= AGAIN_MS);
        if !changed && !old {
            return None;
        }
        let Findings { counts, shortfall } = if for_room {
            let look = || self.look_at_all_nodes(head, self.allocations.class(class));
            known.entry(class).or_insert_with(look).clone()
        } else {
            Findings::default()
        };
        let counts: Vec<_> = counts.into_iter().collect();
        if !changed && said.is_some_and(|said| said.counts == counts) {
            return None;
        }
        let queue = pending_group.key.queue;
        let held = *self.waiting.queues().own(queue);
        let share = Share::dominant(&held, self.fleet.totals());
        let shortfall = shortfall
            .into_iter()
            .flat_map(|amounts| ResourceKind::ALL.into_iter().zip(amounts));
        let explained = PendingGroupExplained {
            pending_group: pending_group.no,
            queue: self.waiting.queues().get(queue).name.clone(),
            reason,
            head,
            counts,
            shortfall: shortfall.filter(|(_, amount)| *amount > 0).collect(),
            share_ppm: share.ppm(),
            fair_share_ppm: 0,
        };
        Some((queue, explained))
    }

    /// Where an allocation that was never told stands; none when that is not known yet.
    fn stands(&self, live: &Live) -> Option<(WaitingReason, Option<PendingGroupNo>)> {
        let in_line = |pending_group: PendingGroupNo| {
            let pending_group = self.waiting.queues().pending_group(pending_group)?;
            let block = self.waiting.block_of(pending_group)?;
            let reason = pending_group
                .said
                .as_ref()
                .map_or(block, |said| said.reason);
            Some((reason, Some(pending_group.no)))
        };
        match &live.phase {
            Phase::Queued(pending_group, _) => in_line(*pending_group),
            Phase::InGang => {
                let gang = live.gang?;
                match self.waiting.gangs().pending_group(gang) {
                    Some(pending_group) => in_line(pending_group),
                    None => Some((self.gang_waits_for(gang), None)),
                }
            }
            Phase::AwaitingOthers => Some((WaitingReason::Dependency, None)),
            Phase::Nominated(_) => Some((WaitingReason::Nominated, None)),
            Phase::Pausing(_) => Some((WaitingReason::Backoff, None)),
            Phase::AwaitingQuota(_) | Phase::Held(_) => None,
        }
    }
}

/// What is said of one that is passed over for `block`, when `lack` is why there is no room.
pub(super) fn reason_of(block: WaitingReason, lack: WaitingReason) -> WaitingReason {
    let for_room = matches!(block, WaitingReason::NoRoomNow | WaitingReason::GangNoRoom);
    match lack {
        WaitingReason::NoRoomNow => block,
        other if for_room => other,
        _ => block,
    }
}

/// What of the request is not free on the node.
fn missing(class: &Class, node: &super::fleet::Node) -> Amounts {
    let free = [
        node.room.cpu_milli(),
        node.room.memory_bytes(),
        node.room.gpu_milli_total(),
    ];
    let owed = node.past.owed.as_deref();
    let owed = owed.map_or([0; 3], |owed| [owed.cpu_milli, owed.memory_bytes, 0]);
    let mut missing = class.amounts();
    for ((missing, free), owed) in missing.iter_mut().zip(free).zip(owed) {
        *missing = missing.saturating_add(owed).saturating_sub(free);
    }
    missing
}

/// The largest part of the request that is missing, in millionths.
fn part(missing: &Amounts, asked: &Amounts) -> u128 {
    let part = |(missing, asked): (&u64, &u64)| {
        // A node that owes something lacks it whatever is asked for.
        u128::from(*missing) * 1_000_000 / u128::from(*asked.max(&1))
    };
    let parts = missing.iter().zip(asked).map(part);
    parts.max().unwrap_or(0)
}

/// Explains the pending groups that were blocked since the last time, and then tells each allocation that is new where it stands.
/// `due`, if that is known already, is what each queue is due. Whether something is left for the next frame.
pub(super) fn decide(
    state: &mut Scheduler,
    mut due: Option<Vec<Share>>,
    draft: &mut Draft,
) -> bool {
    let composition = Some(state.fleet.composition());
    if state.pace.explained_with != composition {
        // Other nodes may be another reason.
        state.pace.explained_with = composition;
        state.waiting.explain_all();
    }
    let put_off = &mut state.pace.explaining_put_off;
    if !put_off.is_due(work::EXPLAINING_LEAST, draft) {
        return state.waiting.first_unexplained().is_some() || !state.waiting.fresh().is_empty();
    }
    let look = state.fleet.nodes().len() / work::COUNTED_FOR_ONE;
    let mut known = BTreeMap::new();
    while let Some(pending_group) = state.waiting.first_unexplained() {
        if draft.full() {
            return true;
        }
        draft.spend(1);
        state.waiting.is_explained(pending_group);
        let looked = known.len();
        let explained = state.explanation(pending_group, &mut known, draft.now);
        draft.spend((known.len() - looked) * look);
        if let Some((queue, mut explained)) = explained {
            let due = due.get_or_insert_with(|| state.fair_shares());
            let share = due.get(queue.0 as usize);
            explained.fair_share_ppm = share.map_or(0, |share| share.ppm());
            draft.emit(state, explained);
        }
    }
    // From where the last frame was full, so that nobody waits for those of whom nothing is known yet.
    let from = std::mem::take(&mut state.pace.told_from);
    let fresh = state
        .waiting
        .fresh()
        .range(from..)
        .chain(state.waiting.fresh().range(..from));
    // One more than there can be time for.
    let fresh: Vec<_> = fresh.take(draft.work_left() + 1).copied().collect();
    for allocation in fresh {
        if draft.full() {
            state.pace.told_from = allocation;
            return true;
        }
        draft.spend(1);
        let stands = state
            .allocations
            .get(&allocation)
            .and_then(|live| state.stands(live));
        if let Some((reason, pending_group)) = stands {
            draft.emit(
                state,
                AllocationWaiting {
                    allocation,
                    reason,
                    pending_group,
                },
            );
        }
    }
    false
}
