//! What operators set, and what becomes of the nodes.

use super::{
    Scheduler,
    allocation::{Live, Phase},
    preempt::Epoch,
    queues::Key,
};
use ledger::{IllegalEvent, Scratch};
use vocab::fact::{
    CordonSet, NodeCapacityChanged, NodeConditionChanged, NodeLost, NodeReady, NodeSuspected,
    PriorityClassSet, QueueSet, ReservationSet, TaintsSet, TenantSet,
};
use vocab::{NodeCapacity, PendingGroupNo, SchedulingPolicy, Token};

impl Scheduler {
    pub(super) fn queue_set(&mut self, set: &QueueSet) {
        self.waiting.set_queue(&set.queue, &set.settings);
        self.order_anew();
        self.try_everything();
    }

    pub(super) fn class_set(&mut self, set: &PriorityClassSet) {
        self.settings.set_class(&set.class, &set.settings);
        self.recount_firm();
        self.try_everything();
    }

    pub(super) fn policy_set(&mut self, policy: &SchedulingPolicy) {
        self.settings.set_policy(policy);
        self.order_anew();
        self.try_everything();
    }

    pub(super) fn cordon_set(&mut self, set: &CordonSet) {
        self.fleet.set_cordon(set);
        self.try_anew();
    }

    pub(super) fn taints_set(&mut self, set: &TaintsSet) {
        self.fleet.set_taints(set);
        self.try_anew();
    }

    pub(super) fn reservation_set(&mut self, set: &ReservationSet, version: u64) {
        self.reservations
            .ask(&set.reservation, version, &set.wanted);
        self.epoch = Epoch::default();
    }

    pub(super) fn tenant_set(&mut self, set: &TenantSet) {
        self.waiting.weigh(&set.tenant, set.settings.weight_milli);
        self.try_anew();
    }

    pub(super) fn node_registered(
        &mut self,
        node: &Token,
        incarnation: u64,
        capacity: &NodeCapacity,
    ) {
        let mut nominees = Vec::new();
        if let Some(known) = self.fleet.find(node) {
            nominees.clone_from(&self.fleet.node(known).nominees);
            for nominee in &nominees {
                if let Some(live) = self.allocations.get(nominee) {
                    let class = self.allocations.class(live.class);
                    self.fleet.denominate(known, *nominee, class);
                }
            }
        }
        self.fleet.register(node, incarnation, capacity);
        if let Some(known) = self.fleet.find(node) {
            // They are judged anew: the node may be another by now.
            for nominee in nominees {
                if let Some(live) = self.allocations.get(&nominee) {
                    let class = self.allocations.class(live.class);
                    self.fleet.nominate(known, nominee, class);
                }
            }
        }
        self.try_anew();
    }

    pub(super) fn node_ready(&mut self, fact: &NodeReady) -> Result<(), IllegalEvent> {
        let node = self.fleet.find(&fact.node);
        let node = node.ok_or_else(|| IllegalEvent::new("no such node", fact))?;
        self.fleet.set_ready(node, true);
        self.try_anew();
        Ok(())
    }

    /// It counts among the ready ones: nobody's share changes because it may be gone in a moment.
    pub(super) fn node_suspected(&mut self, fact: &NodeSuspected) -> Result<(), IllegalEvent> {
        let node = self.fleet.find(&fact.node);
        let node = node.ok_or_else(|| IllegalEvent::new("no such node", fact))?;
        self.fleet.set_suspect(node);
        self.try_anew();
        Ok(())
    }

    pub(super) fn node_condition_changed(&mut self, fact: &NodeConditionChanged) {
        if self.fleet.set_condition(fact) {
            self.try_anew();
        }
    }

    /// What runs there stays. Whom it is being cleared for is judged anew like everybody else.
    pub(super) fn node_capacity_changed(
        &mut self,
        fact: &NodeCapacityChanged,
    ) -> Result<(), IllegalEvent> {
        let node = self.fleet.find(&fact.node);
        let node = node.filter(|no| self.fleet.node(*no).incarnation == fact.incarnation);
        let node = node.ok_or_else(|| IllegalEvent::new("no such node", fact))?;
        self.fleet.resize(node, &fact.capacity);
        self.try_anew();
        Ok(())
    }

    pub(super) fn node_lost(&mut self, fact: &NodeLost) -> Result<(), IllegalEvent> {
        let node = self.fleet.find(&fact.node);
        let node = node.ok_or_else(|| IllegalEvent::new("no such node", fact))?;
        self.fleet.set_ready(node, false);
        self.try_anew();
        self.allocations.lose(&self.fleet.node(node).holds);
        Ok(())
    }

    /// A priority class may have become preemptible, or not preemptible any more.
    fn recount_firm(&mut self) {
        let counts = |live: &&Live| match &live.phase {
            Phase::Held(binding) => !binding.preempted(),
            Phase::Nominated(_) => true,
            _ => false,
        };
        let held = self.allocations.all().values().filter(counts);
        let used = held.map(|live| (live.queue, self.allocations.used(live, &self.settings)));
        let firm = used.filter(|(_, used)| used.firm);
        let firm: Vec<_> = firm.map(|(queue, used)| (queue, used.amounts)).collect();
        self.waiting.recount_firm(firm.into_iter());
    }

    /// Whoever waits stands in line by new settings.
    fn order_anew(&mut self) {
        for (pending_group, key) in self.waiting.queues().keys() {
            self.stand_anew(pending_group, key);
        }
    }

    /// What stands there as `key` stands where it has to by now.
    pub(super) fn stand_anew(&mut self, pending_group: PendingGroupNo, key: Key) {
        let asks = self
            .waiting
            .queues()
            .pending_group(pending_group)
            .map(|pending_group| pending_group.asks);
        let Some(live) = self.allocations.get(&key.allocation) else {
            return;
        };
        let asks = asks.unwrap_or_default();
        let new = self.waiting.key(key.allocation, live, asks, &self.settings);
        self.waiting.rekey(pending_group, key, new);
        let stands = self.allocations.get_mut(&key.allocation);
        match stands.map(|live| (&mut live.phase, live.gang)) {
            Some((Phase::Queued(_, at), _)) => *at = new,
            Some((_, Some(gang))) => self.waiting.gangs_mut().stands(gang, (pending_group, new)),
            _ => {}
        }
    }

    fn try_anew(&mut self) {
        self.epoch = Epoch::default();
        self.waiting.sweep_anew();
    }

    fn try_everything(&mut self) {
        self.epoch = Epoch::default();
        self.waiting.try_everything();
        self.pace = Scratch::default();
        self.board = Scratch::default();
    }
}
