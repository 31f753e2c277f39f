//! Leases: a node that has not been heard of for a whole lease is lost. Later is allowed, earlier is not.

use super::{Config, Effect, Nodes};
use ledger::Draft;
use std::collections::{BTreeMap, BTreeSet};
use vocab::fact::NodeLost;
use vocab::{
    Millis, Token,
    sabotage::{self, Bug},
};

/// Who was last heard of when; a tick costs only what is due.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    seen: BTreeMap<Token, (Millis, Millis)>,
    by_expiry: BTreeSet<(Millis, Token)>,
}

impl Leases {
    pub fn renew(&mut self, node: &Token, now: Millis, lease_ms: i64) {
        self.drop(node);
        let expiry = now.plus(lease_ms);
        self.seen.insert(node.clone(), (now, expiry));
        self.by_expiry.insert((expiry, node.clone()));
    }

    pub fn drop(&mut self, node: &Token) {
        if let Some((_, expiry)) = self.seen.remove(node) {
            self.by_expiry.remove(&(expiry, node.clone()));
        }
    }

    /// The first moment at which a lease is over.
    pub fn next_expiry(&self) -> Option<Millis> {
        self.by_expiry.first().map(|(expiry, _)| expiry.plus(1))
    }

    fn due(&self, now: Millis) -> Option<(Token, Millis)> {
        let (expiry, node) = self.by_expiry.first()?;
        let last_seen = self.seen.get(node)?.0;
        let early = if sabotage::armed(Bug::ExpiryEarly) {
            (expiry.0 - last_seen.0) / 2
        } else {
            0
        };
        (*expiry < now.plus(early)).then(|| (node.clone(), last_seen))
    }
}

/// Renews the lease of the current life of the node's agent. One whose node was lost or forgotten is told to register anew;
/// of an older one, or of one whose registration is still on its way, nothing is to be said.
pub(super) fn heartbeat(
    state: &mut Nodes,
    node: Token,
    boot: u64,
    revision: u64,
    config: &Config,
    now: Millis,
) {
    match state.nodes.get(&node) {
        Some(known) if known.ready && known.boot == boot => {
            let behind = known.revision > revision;
            state.leases.renew(&node, now, config.lease_ms);
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
    state.leases.seen.len() >= ready
}

/// Grants leases that are missing after a change of leader, then ends those that are over.
pub(super) fn expire(state: &mut Nodes, config: &Config, draft: &mut Draft) {
    if !all_granted(state) {
        for (name, node) in &state.nodes {
            if node.ready && !state.leases.seen.contains_key(name) {
                state.leases.renew(name, draft.now, config.lease_ms);
            }
        }
    }
    while let Some((node, last_seen)) = state.leases.due(draft.now) {
        if draft.full() {
            return;
        }
        let Some(incarnation) = state.nodes.get(&node).map(|known| known.incarnation) else {
            state.leases.drop(&node);
            continue;
        };
        let lost = NodeLost {
            node,
            incarnation,
            last_seen,
        };
        draft.emit(state, lost);
    }
}
