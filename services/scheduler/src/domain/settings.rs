//! What operators set, and what becomes of the nodes.

use super::{Scheduler, allocation::Phase, blocked::Blocked, queues::Key};
use ledger::IllegalEvent;
use vocab::{AdminChange, Event, LineNo, NodeCapacity, Token, Validity};

impl Scheduler {
    pub(super) fn apply(&mut self, change: &AdminChange, version: u64) {
        match change {
            AdminChange::Queue { queue, settings } => {
                self.queues.set(queue, settings);
                self.order_anew();
                self.try_everything();
            }
            AdminChange::PriorityClass { class, settings } => {
                self.priority_classes
                    .insert(class.clone(), settings.clone());
                self.try_everything();
            }
            AdminChange::Scheduling(policy) => {
                self.policy = policy.clone();
                self.order_anew();
                self.try_everything();
            }
            AdminChange::Cordon { node, cordoned } => {
                self.fleet.set_cordon(node, *cordoned);
                self.blocked.preemption_untried = true;
            }
            AdminChange::Reservation {
                reservation,
                wanted,
            } => self.reservations.ask(reservation, version, wanted),
            AdminChange::Tenant { tenant, settings } => {
                self.queues.weigh(tenant, settings.weight_milli);
                self.blocked.preemption_untried = true;
            }
            AdminChange::Quota {
                account,
                resource,
                limits,
                validity,
            } => {
                // What holds from a later moment on, or until one, quota says when it does.
                if *validity == Validity::default() {
                    self.named.limit(account, resource, limits.as_ref());
                }
            }
            // Not the scheduler's business.
            AdminChange::Budget { .. } | AdminChange::Rate { .. } => {}
        }
    }

    pub(super) fn node_registered(
        &mut self,
        node: &Token,
        incarnation: u64,
        capacity: &NodeCapacity,
    ) {
        if let Some(known) = self.fleet.find(node) {
            let empty = self.fleet.empty_room(known);
            self.popularity.left(&empty);
        }
        self.fleet.register(node, incarnation, capacity);
        if let Some(known) = self.fleet.find(node) {
            let empty = self.fleet.empty_room(known);
            self.popularity.joined(&empty);
        }
        self.blocked.preemption_untried = true;
    }

    pub(super) fn node_ready(&mut self, node: &Token, event: &Event) -> Result<(), IllegalEvent> {
        let node = self.fleet.find(node);
        let node = node.ok_or_else(|| IllegalEvent::new("no such node", event))?;
        self.fleet.set_ready(node, true);
        self.blocked.preemption_untried = true;
        Ok(())
    }

    pub(super) fn node_lost(&mut self, node: &Token, event: &Event) -> Result<(), IllegalEvent> {
        let node = self.fleet.find(node);
        let node = node.ok_or_else(|| IllegalEvent::new("no such node", event))?;
        self.fleet.set_ready(node, false);
        self.blocked.preemption_untried = true;
        self.lost.extend(&self.fleet.node(node).holds);
        Ok(())
    }

    /// Whoever waits stands in line by new settings.
    fn order_anew(&mut self) {
        for (line, key) in self.queues.keys() {
            self.stand_anew(line, key);
        }
    }

    /// What stands there as `key` stands where it has to by now.
    pub(super) fn stand_anew(&mut self, line: LineNo, key: Key) {
        let asks = self.queues.line(line).map(|line| line.asks);
        let Some(live) = self.live.get(&key.allocation) else {
            return;
        };
        let new = self.key(key.allocation, live, asks.unwrap_or_default());
        self.queues.rekey(line, key, new);
        let stands = self.live.get_mut(&key.allocation);
        match stands.map(|live| (&mut live.phase, live.gang)) {
            Some((Phase::Queued(_, at), _)) => *at = new,
            Some((_, Some(gang))) => self.gangs.stands(gang, (line, new)),
            _ => {}
        }
    }

    fn try_everything(&mut self) {
        self.queues.free_all();
        *self.blocked = Blocked::default();
        self.blocked.preemption_untried = true;
    }
}
