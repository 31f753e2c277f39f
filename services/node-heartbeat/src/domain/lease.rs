//! Leases: a node that has not been heard of for a whole lease is lost. Later is allowed, earlier is not. After half of it the
//! node is suspected, if others were heard meanwhile: when nobody is, it is not the node that is silent.

use super::{Config, Effect, Nodes};
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
    hearing: Option<Hearing>,
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
        (self.ends.0 - self.seen.0) / 2
    }

    /// Agents beat every third of a lease. When not even one was heard for so long, nothing can be heard.
    fn gap_ms(self) -> i64 {
        (self.ends.0 - self.seen.0) * 5 / 12
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
        let going_on = self.hearing.filter(|it| now.0 - it.last.0 <= gap_ms);
        let since = going_on.map_or(now, |it| it.since);
        self.hearing = Some(Hearing { since, last: now });
    }

    pub fn drop(&mut self, node: &Token) {
        if let Some(lease) = self.held.remove(node) {
            self.by_due.remove(&(lease.due, node.clone()));
        }
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
        let hearing = hearing.filter(|it| now.0 - it.last.0 <= lease.gap_ms());
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
    if let Some(known) = state.nodes.get(node).filter(|known| known.suspect) {
        let ready = NodeReady {
            node: node.clone(),
            incarnation: known.incarnation,
        };
        draft.emit(state, ready);
    }
    renew(state, node, config, draft);
}

/// Renews the lease of the current life of the node's agent. One whose node was lost or forgotten is told to register anew;
/// of an older one, or of one whose registration is still on its way, nothing is to be said.
pub(super) fn heartbeat(
    state: &mut Nodes,
    node: Token,
    boot: u64,
    revision: u64,
    config: &Config,
    draft: &mut Draft,
) {
    match state.nodes.get(&node) {
        Some(known) if known.ready && known.boot == boot => {
            let behind = known.revision > revision;
            is_there(state, &node, config, draft);
            state.leases.heard(&node, draft.now);
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

/// Whether every ready node has a lease.
pub(super) fn all_granted(state: &Nodes) -> bool {
    let ready = state.nodes.values().filter(|node| node.ready).count();
    state.leases.held.len() >= ready
}

/// Grants leases that are missing after a change of leader, then says what is due: of whom nothing was heard for half a lease,
/// and whose is over.
pub(super) fn expire(state: &mut Nodes, config: &Config, draft: &mut Draft) {
    if !all_granted(state) {
        let lacks = |(name, node): &(&Token, &super::Node)| {
            node.ready && !state.leases.held.contains_key(*name)
        };
        let lacking = state.nodes.iter().filter(lacks);
        let lacking: Vec<Token> = lacking.map(|(name, _)| name.clone()).collect();
        for name in lacking {
            renew(state, &name, config, draft);
        }
    }
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
            let lost = NodeLost {
                node,
                incarnation,
                last_seen,
            };
            draft.emit(state, lost);
        } else if state.leases.suspects(&node, lease, draft.now) {
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
