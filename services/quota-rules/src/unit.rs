//! A unit: one allocation, or the members of a gang, which are granted quota all at once, or none.

use super::{
    Quota,
    claim::{Place, Stage},
    gang::{Gang, GangNo},
};
use ledger::Draft;
use vocab::fact::QuotaWaiting;
use vocab::{AllocationNo, Refusal, Rule};

impl Quota {
    /// Its gang, as long as that has not been granted.
    pub(super) fn open_gang(&self, allocation: AllocationNo) -> Option<&Gang> {
        let claim = self.claims.get(&allocation)?;
        let gang = self.gangs.get(claim.gang?)?;
        (!gang.granted && !claim.again).then_some(gang)
    }

    /// Those who are granted together with the one who leads.
    pub(super) fn unit(&self, lead: AllocationNo) -> Vec<AllocationNo> {
        match self.open_gang(lead) {
            Some(gang) if gang.queued => gang.open.iter().copied().collect(),
            _ => vec![lead],
        }
    }

    /// A member has asked: the gang is tried if it is complete now.
    pub(super) fn ask_in_gang(&mut self, allocation: AllocationNo, draft: &mut Draft) {
        let Some(gang) = self.open_gang(allocation) else {
            return self.attempt(&[allocation], None, draft);
        };
        let mut members = gang.open.clone();
        members.insert(allocation);
        let (size, there) = (gang.size, members.len() as u64);
        if there < u64::from(size) {
            let refusal = incomplete(size, there);
            draft.emit(
                self,
                QuotaWaiting {
                    allocation,
                    refusal,
                },
            );
            return;
        }
        let unit: Vec<AllocationNo> = members.into_iter().collect();
        self.attempt(&unit, None, draft);
    }

    /// Something about the gang has changed: its members are told that they wait for others, if they are not told so yet.
    pub(super) fn look_at_gang(&mut self, no: GangNo, draft: &mut Draft) {
        let Some(gang) = self.gangs.get(no).filter(|gang| !gang.queued) else {
            return;
        };
        let (size, there) = (gang.size, gang.open.len());
        let open: Vec<AllocationNo> = gang.open.iter().copied().collect();
        for allocation in open {
            let told = self.claims.get(&allocation).map(|claim| claim.place());
            if told != Some(Place::Gang) {
                let refusal = incomplete(size, there as u64);
                draft.emit(
                    self,
                    QuotaWaiting {
                        allocation,
                        refusal,
                    },
                );
            }
        }
    }

    /// The member waits at a place; true when the place's queue has to know of it.
    pub(super) fn wait_in_gang(&mut self, allocation: AllocationNo, place: Place) -> bool {
        let Some(claim) = self.claims.get(&allocation) else {
            return true;
        };
        let again = claim.again;
        let Some(gang) = claim.gang.and_then(|no| self.gangs.get_mut(no)) else {
            return true;
        };
        if gang.granted || again {
            return true;
        }
        gang.open.insert(allocation);
        let leads = gang.open.first() == Some(&allocation);
        match place {
            Place::At(_) | Place::Aside { .. } => {
                gang.queued |= leads;
                leads
            }
            Place::Gang | Place::Others | Place::Nowhere => false,
        }
    }

    /// The member has been granted quota, and so have the others.
    pub(super) fn grant_in_gang(&mut self, allocation: AllocationNo) {
        let gang = self.claims.get(&allocation).and_then(|claim| claim.gang);
        if let Some(gang) = gang.and_then(|no| self.gangs.get_mut(no)) {
            gang.open.remove(&allocation);
            gang.granted = true;
            gang.queued = false;
        }
    }

    /// The member has ended, or was denied.
    pub(super) fn leave_its_gang(&mut self, allocation: AllocationNo) {
        let claim = self.claims.get_mut(&allocation);
        if let Some(gang) = claim.and_then(|claim| claim.gang.take()) {
            self.gangs.leave(gang, allocation);
        }
    }

    /// The member leaves without having been granted anything: the others wait for each other again.
    pub(super) fn leave_gang(&mut self, allocation: AllocationNo) {
        let Some(no) = self.claims.get(&allocation).and_then(|claim| claim.gang) else {
            return;
        };
        let Some(gang) = self.gangs.get_mut(no) else {
            return;
        };
        let unit: Vec<AllocationNo> = gang.open.iter().copied().collect();
        gang.open.remove(&allocation);
        if gang.queued && unit.contains(&allocation) {
            gang.queued = false;
            for member in unit {
                self.step_out(member);
                if let Some(claim) = self.claims.get_mut(&member)
                    && let Stage::Waits { place, .. } = &mut claim.stage
                {
                    *place = Place::Nowhere;
                }
            }
        }
        self.books.marks.gangs.insert(no);
    }
}

fn incomplete(size: u32, there: u64) -> Refusal {
    Refusal::over(Rule::IncompleteGang, "gang", size.into(), there)
}
