//! When what is passed over is tried again, and what is passed over at once.

use super::{
    Scheduler,
    aside::Aside,
    class::{Amounts, ClassNo, SchedulingKey, add},
    fair::Share,
    fleet::Regrouped,
    queues::QueueNo,
    waiting::{Counted, could_ever_fit},
    work,
};
use ledger::Draft;
use vocab::{
    Millis,
    sabotage::{self, Bug},
};

impl Scheduler {
    /// What each queue is due, for what is in it itself.
    pub(super) fn fair_shares(&mut self) -> Vec<Share> {
        self.waiting.fair_shares(&self.fleet, &self.allocations)
    }

    /// It may be placed from now on. What no node and no limit will ever let in says nothing about what room is worth.
    pub(super) fn arrives(&mut self, class_no: ClassNo, queue: QueueNo) {
        let class = self.allocations.class(class_no);
        if self.waiting.queues().ever(queue, &class.amounts())
            && self.fleet.could_hold(class_no, class)
            && self.fleet.could_be_near(class)
        {
            self.fleet.arrived(&class.ask);
        }
    }

    /// The same of a gang.
    pub(super) fn gang_arrives(&mut self, scheduling_key: &SchedulingKey, queue: QueueNo) {
        let mut asks = Amounts::default();
        for (class, count) in scheduling_key.members.iter() {
            let amounts = self.allocations.class(*class).amounts();
            add(
                &mut asks,
                &amounts.map(|amount| amount.wrapping_mul((*count).into())),
            );
        }
        let known = Counted {
            kinds: self.fleet.known_kinds(),
            counts: |_| true,
        };
        if !self.waiting.queues().ever(queue, &asks)
            || !could_ever_fit(scheduling_key, &known, &self.fleet, &self.allocations)
        {
            return;
        }
        for (class, count) in scheduling_key.members.iter() {
            for _ in 0..*count {
                self.fleet.arrived(&self.allocations.class(*class).ask);
            }
        }
    }

    /// Closes what there is no room for before anybody is asked whose turn it is: so whose turn it is does not depend on
    /// what was found out earlier.
    pub(super) fn close_hopeless(&mut self, aside: &Aside, draft: &mut Draft) {
        self.waiting.block_all_limited(draft.now);
        let mut members = Vec::new();
        for (no, scheduling_key) in self.waiting.scheduling_keys_to_try() {
            let pending_group = self.waiting.queues().pending_group(no);
            let Some((key, head)) = pending_group
                .and_then(|pending_group| Some((&pending_group.key, pending_group.head()?)))
            else {
                continue;
            };
            let policy = self.placement_policy_of(key.queue, key.priority_class);
            draft.spend(work::TRY);
            let room = self.has_room_by_numbers(scheduling_key, policy);
            let room = room.unwrap_or_else(|| {
                let classes = self.waiting.scheduling_key(scheduling_key).members.len();
                self.waiting
                    .unit(head.allocation, classes, &self.allocations, &mut members);
                self.has_room(&members, scheduling_key, aside)
            });
            if let Err(short) = room {
                self.waiting.block(no, scheduling_key, short, draft.now);
            }
        }
    }

    pub(super) fn set_aside(&mut self, aside: &Aside) {
        self.fleet.set_aside(aside.nodes(&self.reservations));
        let one_by_one = self.reservations.any() || aside.promise().is_some();
        // Nominees, too, may go where the promise kept them from.
        self.pace.room_gained |= self.waiting.promise(aside.promise(), one_by_one);
    }

    /// What there may be room for now is tried again.
    pub(super) fn unblock(&mut self, now: Millis) {
        let decided = self.pace.decided.replace(now);
        let passed =
            |moment: Millis| decided.is_none_or(|decided| decided < moment) && moment <= now;
        let mut gained = self.fleet.take_gained();
        let reserved_anew = std::mem::take(&mut self.pace.reserved_anew);
        if reserved_anew || self.reservations.moments().any(passed) {
            gained = self.fleet.all().collect();
        }
        gained.sort_unstable();
        gained.dedup();
        if sabotage::armed(Bug::WakeUpLost) {
            gained.clear();
        }
        let regrouped = self.fleet.take_regrouped();
        let composition = Some(self.fleet.composition());
        let composed = self.pace.tried_with != composition;
        let room_gained = composed || !gained.is_empty() || !regrouped.is_empty();
        self.pace.room_gained |= room_gained;
        self.waiting.open_concerned(&regrouped, &self.allocations);
        if composed {
            self.pace.tried_with = composition;
            self.waiting.open_all();
        } else if !gained.is_empty() {
            self.waiting
                .open_on(&gained, &self.fleet, &self.allocations);
        }
        self.waiting
            .free_pending_groups(room_gained, &self.fleet, &self.allocations);
    }

    /// Somebody was placed: whoever looks at its group is tried again, wherever there is room.
    pub(super) fn reopen(&mut self, regrouped: &Regrouped, aside: &Aside, draft: &mut Draft) {
        self.pace.room_gained = true;
        self.waiting.free_concerned(regrouped, &self.allocations);
        self.waiting.open_concerned(regrouped, &self.allocations);
        self.close_hopeless(aside, draft);
    }
}
