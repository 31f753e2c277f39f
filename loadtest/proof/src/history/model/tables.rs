//! What the model remembers, and for how long.

use super::{Lease, Model, Ruled, demand};
use crate::history::Found;
use vocab::{LeaseState, Rule, Slot, Token};

impl Model {
    /// What a read at this slot finds.
    pub fn look(&self, slot: Slot, number: u64) -> Found {
        let gone = |lease: &&Lease| lease.is_forgotten(slot);
        match self.leases.get(&number) {
            Some(found) if !found.is_forgotten(slot) => Found::Lease {
                state: found.state,
                fencing_token: found.fencing_token,
                holder: found.holder.clone(),
                deadline: found.deadline,
            },
            Some(_) => refused(Rule::LeaseRetired),
            None => {
                let later = self.leases.range(number..);
                let retired = later.map(|(_, other)| other).any(|other| gone(&other));
                refused(self.rule_of_absent(number, retired))
            }
        }
    }

    pub(super) fn find(&mut self, number: u64) -> Ruled<&mut Lease> {
        let rule = self.rule_of_absent(number, false);
        self.leases.get_mut(&number).ok_or(rule)
    }

    pub(super) fn rule_of_absent(&self, number: u64, below_a_retired_one: bool) -> Rule {
        if self.watermark > 0 && number <= self.watermark || below_a_retired_one {
            Rule::LeaseRetired
        } else {
            Rule::LeaseNotFound
        }
    }

    pub(super) fn held_by(
        &mut self,
        number: u64,
        holder: &Token,
        fencing_token: u64,
    ) -> Ruled<&mut Lease> {
        let found = self.find(number)?;
        demand(found.holder == *holder, Rule::HolderMismatch)?;
        demand(
            found.fencing_token == fencing_token,
            Rule::StaleFencingToken,
        )?;
        Ok(found)
    }

    pub(super) fn expiring_at(&self, deadline: Slot) -> usize {
        let waiting = |r: &&Lease| r.state == LeaseState::Granted && r.deadline == deadline;
        self.leases.values().filter(waiting).count()
    }

    pub(super) fn end(&mut self, slot: Slot, number: u64, state: LeaseState) -> Ruled<Slot> {
        let retire_after = slot
            .checked_add(self.bounds.history_slots)
            .ok_or(Rule::SlotOverflow)?;
        let found = self.find(number)?;
        found.state = state;
        found.retire_after = Some(retire_after);
        let members = found.members.clone();
        self.hold(&members, None);
        Ok(retire_after)
    }

    pub(super) fn hold(&mut self, members: &[Token], by: Option<u64>) {
        for member in members {
            self.resources.insert(member.clone(), by);
        }
    }

    pub(super) fn retire(&mut self, slot: Slot) {
        let mut watermark = self.watermark;
        self.leases.retain(|number, lease| {
            let gone = lease.is_forgotten(slot);
            watermark = watermark.max(if gone { *number } else { 0 });
            !gone
        });
        self.watermark = watermark;
    }
}

impl Lease {
    fn is_forgotten(&self, slot: Slot) -> bool {
        self.retire_after.is_some_and(|last| last < slot)
    }
}

fn refused(rule: Rule) -> Found {
    Found::Refused { rule }
}
