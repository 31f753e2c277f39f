//! Leases: a node that has not been heard of for a whole lease is lost. Later is allowed, earlier is not. After half of it the
//! node is suspected, if others were heard meanwhile: when nobody is, it is not the node that is silent. A node that is suspected
//! again and again is ready only when it was heard for a whole lease (flap damping). When more than half of the nodes are
//! silent at once, the network is suspected first: the nodes are lost slowly (mass loss), so that it may come back meanwhile.

use super::{
    Config, Effect, Nodes,
    condition::{self, Conditions},
};
use ledger::{Draft, IllegalEvent};
use std::collections::{BTreeMap, BTreeSet};
use vocab::fact::{NodeLost, NodeReady, NodeSuspected};
use vocab::{
    EventKind, Millis, Token,
    sabotage::{self, Bug},
};

/// Who was last heard of when; a tick costs only what is due.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    held: BTreeMap<Token, Lease>,
    /// When something may have to be said of whom.
    by_due: BTreeSet<(Millis, Token)>,
    /// Ready nodes that have no lease yet; none: nobody has looked, as after a change of leader. To look takes all nodes, so it is
    /// not done again for each heartbeat.
    lacking: Option<BTreeSet<Token>>,
    hearing: Option<Hearing>,
    /// When an agent has last asked for its lease.
    asked: Option<Millis>,
    mass_loss: Option<MassLoss>,
    flaps: BTreeMap<Token, Flaps>,
}

/// More than half of so many nodes or more are silent at once: that is the network's doing more often than theirs. So few are
/// lost in a lease then, at least one.
const MASS_LOSS_MIN: usize = 10;
const MASS_LOSS_PART: usize = 20;

/// A mass loss that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MassLoss {
    since: Millis,
    /// How many were silent then, and of how many.
    pub silent: usize,
    pub all: usize,
    /// How many more may be lost in a lease from then on.
    pub left: usize,
}

/// A node that was suspected so often, each time within so many leases of the time before, is ready only when it was heard for a
/// whole lease.
const FLAPS_MAX: u32 = 3;
const FLAPS_LEASES: i64 = 10;

/// How often a node was silent and came back.
#[derive(Debug, Clone, Copy)]
struct Flaps {
    times: u32,
    last: Millis,
    /// It is heard again since then.
    back: Option<Millis>,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    seen: Millis,
    ends: Millis,
    /// Before its end: when the node may be suspected.
    due: Millis,
}

impl Lease {
    fn half_ms(self) -> i64 {
        self.ends.since(self.seen) / 2
    }

    /// Agents beat every third of a lease. When not even one was heard for so long, nothing can be heard.
    fn gap_ms(self) -> i64 {
        self.ends.since(self.seen) * 5 / 12
    }
}

/// Heartbeats of any nodes, without a long gap.
#[derive(Debug, Clone, Copy)]
struct Hearing {
    since: Millis,
    last: Millis,
}

impl Leases {
    /// `may_suspect`: something is due before the lease's end.
    fn renew(&mut self, node: &Token, now: Millis, lease_ms: i64, may_suspect: bool) {
        self.drop(node);
        let ends = now.plus(lease_ms);
        let mut lease = Lease {
            seen: now,
            ends,
            due: ends,
        };
        if may_suspect {
            lease.due = now.plus(lease.half_ms());
        }
        self.by_due.insert((lease.due, node.clone()));
        self.held.insert(node.clone(), lease);
    }

    fn heard(&mut self, node: &Token, now: Millis) {
        let gap_ms = self.held.get(node).map_or(0, |lease| lease.gap_ms());
        let going_on = self.hearing.filter(|it| now.since(it.last) <= gap_ms);
        let since = going_on.map_or(now, |it| it.since);
        self.hearing = Some(Hearing { since, last: now });
    }

    /// Some agent has asked for its lease lately.
    pub fn are_asked_for(&self) -> bool {
        self.asked.is_some()
    }

    /// The node has become ready.
    pub fn lacks(&mut self, node: &Token) {
        if let Some(lacking) = &mut self.lacking
            && !self.held.contains_key(node)
        {
            lacking.insert(node.clone());
        }
    }

    pub fn drop(&mut self, node: &Token) {
        if let Some(lacking) = &mut self.lacking {
            lacking.remove(node);
        }
        if let Some(lease) = self.held.remove(node) {
            self.by_due.remove(&(lease.due, node.clone()));
        }
    }

    /// Nothing is known of the node any more.
    pub fn forget(&mut self, node: &Token) {
        self.flaps.remove(node);
    }

    /// Whether one more node may be lost now. If not, it is looked at again a little later.
    fn may_lose(
        &mut self,
        node: &Token,
        silent: Option<usize>,
        config: &Config,
        now: Millis,
    ) -> bool {
        let Some(silent) = silent else {
            self.mass_loss = None;
            return true;
        };
        let all = self.held.len();
        let mut mass = self.mass_loss.unwrap_or(MassLoss {
            since: now,
            silent,
            all,
            left: (all / MASS_LOSS_PART).max(1),
        });
        let may = mass.left > 0;
        mass.left -= usize::from(may);
        self.mass_loss = Some(mass);
        if !may && let Some(mut lease) = self.held.remove(node) {
            self.by_due.remove(&(lease.due, node.clone()));
            lease.ends = now.plus((config.lease_ms / MASS_LOSS_PART as i64).max(1));
            lease.due = lease.ends;
            self.by_due.insert((lease.due, node.clone()));
            self.held.insert(node.clone(), lease);
        }
        may
    }

    /// So many nodes are silent that it is the network rather than they; none: not so many.
    fn silent_together(&self, config: &Config, now: Millis) -> Option<usize> {
        let all = self.held.len();
        let half = config.lease_ms / 2;
        let silent = self.held.values();
        let silent = silent.filter(|lease| lease.seen.plus(half) < now);
        let silent = silent.count();
        (all >= MASS_LOSS_MIN && silent * 2 > all).then_some(silent)
    }

    /// The node was suspected.
    fn flaps(&mut self, node: &Token, config: &Config, now: Millis) {
        let before = self.flaps.get(node).copied();
        let lately =
            |it: &Flaps| now.since(it.last) <= FLAPS_LEASES.saturating_mul(config.lease_ms);
        let times = before.filter(lately).map_or(0, |it| it.times);
        let flaps = Flaps {
            times: times + 1,
            last: now,
            back: None,
        };
        self.flaps.insert(node.clone(), flaps);
    }

    /// A suspected node is heard: whether it is to be ready again.
    fn is_steady(&mut self, node: &Token, config: &Config, now: Millis) -> bool {
        let Some(flaps) = self.flaps.get_mut(node).filter(|it| it.times >= FLAPS_MAX) else {
            return true;
        };
        let seen = self.held.get(node).map(|lease| lease.seen);
        let gap = seen.is_none_or(|seen| now.since(seen) > config.lease_ms / 2);
        let back = flaps.back.filter(|_| !gap).unwrap_or(now);
        flaps.back = Some(back);
        now.since(back) >= config.lease_ms
    }

    /// The first moment at which something is to be looked at.
    pub fn next_due(&self) -> Option<Millis> {
        self.by_due.first().map(|(due, _)| due.plus(1))
    }

    fn due(&self, now: Millis) -> Option<(Token, Lease)> {
        let (due, node) = self.by_due.first()?;
        let lease = *self.held.get(node)?;
        let early = match sabotage::armed(Bug::ExpiryEarly) && lease.due == lease.ends {
            true => lease.half_ms(),
            false => 0,
        };
        (*due < now.plus(early)).then(|| (node.clone(), lease))
    }

    /// Whether the node was silent for half a lease in which others were heard; if not, it is looked at again when it may have
    /// been, or when the lease is over.
    fn suspects(&mut self, node: &Token, mut lease: Lease, now: Millis) -> bool {
        self.drop(node);
        let hearing = self.hearing;
        let hearing = hearing.filter(|it| now.since(it.last) <= lease.gap_ms());
        let silent_for_half = hearing.map(|it| lease.seen.max(it.since).plus(lease.half_ms()));
        let suspected = silent_for_half.is_some_and(|moment| moment < now);
        lease.due = match silent_for_half {
            Some(moment) if !suspected => moment.min(lease.ends),
            _ => lease.ends,
        };
        self.by_due.insert((lease.due, node.clone()));
        self.held.insert(node.clone(), lease);
        suspected
    }
}

/// Grants the node a full lease.
pub(super) fn renew(state: &mut Nodes, node: &Token, config: &Config, draft: &Draft) {
    let suspect = state.nodes.get(node).is_some_and(|known| known.suspect);
    let may_suspect = !suspect && draft.allows(EventKind::NodeSuspected);
    state
        .leases
        .renew(node, draft.now, config.lease_ms, may_suspect);
}

/// The node's agent lives.
pub(super) fn is_there(state: &mut Nodes, node: &Token, config: &Config, draft: &mut Draft) {
    if let Some(known) = state.nodes.get(node).filter(|known| known.suspect)
        && state.leases.is_steady(node, config, draft.now)
    {
        let ready = NodeReady {
            node: node.clone(),
            incarnation: known.incarnation,
        };
        draft.emit(state, ready);
    }
    renew(state, node, config, draft);
}

/// A heartbeat as it was sent.
pub(super) struct Beat {
    pub boot: u64,
    pub revision: u64,
    pub request: Option<u64>,
    pub conditions: Conditions,
}

/// Renews the lease of the current life of the node's agent. One whose node was lost or forgotten is told to register anew;
/// of an older one, or of one whose registration is still on its way, nothing is to be said.
pub(super) fn heartbeat(
    state: &mut Nodes,
    node: Token,
    Beat {
        boot,
        revision,
        request,
        conditions,
    }: Beat,
    config: &Config,
    draft: &mut Draft,
) {
    match state.nodes.get(&node) {
        // Its agent ends what runs, and is not known when it comes again.
        Some(known) if known.boot == boot && state.is_to_go(&node) => {
            state.effects.push(Effect::RegisterAgain { node, boot });
        }
        Some(known) if known.ready && known.boot == boot => {
            let behind = known.revision > revision;
            is_there(state, &node, config, draft);
            condition::decide(state, &node, &conditions, config, draft);
            state.leases.heard(&node, draft.now);
            if request.is_some() {
                state.leases.asked = Some(draft.now);
            }
            if let Some((request, lease_ms)) = request.zip(promised(config, draft)) {
                state.effects.push(Effect::Renewed {
                    request,
                    boot,
                    lease_ms,
                    now: draft.now,
                });
            }
            if behind {
                state.push_since(&node, revision);
            }
        }
        Some(known) if known.boot == boot => {
            state.effects.push(Effect::RegisterAgain { node, boot });
        }
        None if state.was_forgotten(&node, boot) => {
            state.effects.push(Effect::RegisterAgain { node, boot });
        }
        Some(_) | None => {}
    }
}

/// How often a leader proves that it leads. Half as often would still do.
pub(super) fn proof_ms(config: &Config) -> i64 {
    config.lease_ms / 16
}

/// How long what the agent runs is surely placed nowhere else. Whoever leads then has heard the heartbeat and grants a full lease,
/// or has begun to lead after the last proof of this one, and has granted a full one since. None: it is too long ago that this
/// one has proved it, so that even clocks that run at different rates could make that too much.
fn promised(config: &Config, draft: &Draft) -> Option<i64> {
    let unsure_ms = draft.now.since(draft.led?);
    (unsure_ms <= 2 * proof_ms(config)).then(|| config.lease_ms - unsure_ms)
}

/// Whether every ready node has a lease.
pub(super) fn all_granted(state: &Nodes) -> bool {
    match &state.leases.lacking {
        Some(lacking) => lacking.is_empty(),
        None => lacking(state).next().is_none(),
    }
}

/// By a look at all nodes.
fn lacking(state: &Nodes) -> impl Iterator<Item = &Token> {
    let nodes = state.nodes.iter();
    let lacking = nodes.filter(|(name, node)| node.ready && !state.leases.held.contains_key(*name));
    lacking.map(|(name, _)| name)
}

/// Grants leases that are missing after a change of leader, then says what is due: of whom nothing was heard for half a lease,
/// and whose is over.
pub(super) fn expire(state: &mut Nodes, config: &Config, draft: &mut Draft) {
    // The leader before it may still promise leases.
    if draft.led.is_none() {
        return;
    }
    let asked = state.leases.asked;
    state.leases.asked = asked.filter(|at| draft.now.since(*at) <= config.lease_ms);
    let known = state.leases.lacking.take();
    let lacking = known.unwrap_or_else(|| lacking(state).cloned().collect());
    state.leases.lacking = Some(BTreeSet::new());
    for name in lacking {
        renew(state, &name, config, draft);
    }
    let before = state.leases.mass_loss;
    // One that still goes on after a lease begins anew.
    let goes_on = before.filter(|it| draft.now.since(it.since) < config.lease_ms);
    state.leases.mass_loss = goes_on;
    lose(state, config, draft);
    let after = state.leases.mass_loss;
    if before.map(|it| it.since) != after.map(|it| it.since) {
        state.effects.push(Effect::MassLoss(after));
    }
}

/// Says what is due.
fn lose(state: &mut Nodes, config: &Config, draft: &mut Draft) {
    let mut together = None;
    while let Some((node, lease)) = state.leases.due(draft.now) {
        if draft.full() {
            return;
        }
        let Some(incarnation) = state.nodes.get(&node).map(|known| known.incarnation) else {
            state.leases.drop(&node);
            continue;
        };
        let last_seen = lease.seen;
        if lease.due == lease.ends {
            let now = draft.now;
            let leases = &mut state.leases;
            let silent = *together.get_or_insert_with(|| leases.silent_together(config, now));
            if !leases.may_lose(&node, silent, config, now) {
                continue;
            }
            let lost = NodeLost {
                node,
                incarnation,
                last_seen,
            };
            draft.emit(state, lost);
        } else if state.leases.suspects(&node, lease, draft.now) {
            state.leases.flaps(&node, config, draft.now);
            let suspected = NodeSuspected {
                node,
                incarnation,
                last_seen,
            };
            draft.emit(state, suspected);
        }
    }
}

impl Nodes {
    pub(super) fn suspected(&mut self, fact: &NodeSuspected) -> Result<(), IllegalEvent> {
        match self.nodes.get_mut(&fact.node) {
            Some(known)
                if known.ready && !known.suspect && known.incarnation == fact.incarnation =>
            {
                known.suspect = true;
                Ok(())
            }
            _ => Err(IllegalEvent::new("not ready in this incarnation", fact)),
        }
    }
}
