//! Gangs: their members are granted quota all at once, or none.

use super::{
    Quota,
    claim::{Place, Stage},
    tree::AccountId,
};
use ledger::Draft;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use vocab::{AllocationNo, Event, Refusal, Rule, Token};

/// A gang's name is its tenant's.
pub(super) type GangKey = (AccountId, Token);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gang {
    /// How many have to be there, as the first of them said.
    pub size: u32,
    /// Members that have not ended.
    pub live: u32,
    /// From then on a member is like anybody else.
    pub granted: bool,
    /// Members that have been told to wait.
    pub open: BTreeSet<AllocationNo>,
    /// The first `size` of them wait together for something, in the place of the first.
    pub queued: bool,
}

impl Quota {
    pub(super) fn gang_key(&self, allocation: AllocationNo) -> Option<GangKey> {
        let claim = self.claims.get(&allocation)?;
        Some((claim.path.tenant(), claim.gang.clone()?))
    }

    /// Its gang, as long as that has not been granted.
    pub(super) fn open_gang(&self, allocation: AllocationNo) -> Option<(GangKey, &Gang)> {
        if self.gangs.is_empty() {
            return None;
        }
        let claim = self.claims.get(&allocation)?;
        claim.gang.as_ref()?;
        let key = self.gang_key(allocation)?;
        let gang = self.gangs.get(&key)?;
        (!gang.granted && !claim.again).then_some((key, gang))
    }

    /// Those who are granted together with the one who leads.
    pub(super) fn unit(&self, lead: AllocationNo) -> Vec<AllocationNo> {
        match self.open_gang(lead) {
            Some((_, gang)) if gang.queued => {
                gang.open.iter().copied().take(gang.size as usize).collect()
            }
            _ => vec![lead],
        }
    }

    /// A member has asked: the gang is tried if it is complete now.
    pub(super) fn ask_in_gang(&mut self, allocation: AllocationNo, draft: &mut Draft) {
        let Some((_, gang)) = self.open_gang(allocation) else {
            return self.attempt(&[allocation], None, draft);
        };
        let mut members = gang.open.clone();
        members.insert(allocation);
        let (size, there) = (gang.size, members.len() as u64);
        if there < u64::from(size) || gang.queued {
            let refusal = incomplete(size, there);
            draft.emit(
                self,
                Event::QuotaWaiting {
                    allocation,
                    refusal,
                },
            );
            return;
        }
        let unit: Vec<AllocationNo> = members.into_iter().take(size as usize).collect();
        self.attempt(&unit, None, draft);
    }

    /// Something about the gang has changed: its members go on, or are told that they wait for others.
    pub(super) fn look_at_gang(&mut self, key: &GangKey, draft: &mut Draft) {
        let Some(gang) = self.gangs.get(key) else {
            return;
        };
        let (size, there) = (gang.size, gang.open.len());
        let open: Vec<AllocationNo> = gang.open.iter().copied().collect();
        if gang.granted {
            for member in open {
                self.attempt(&[member], None, draft);
            }
        } else if !gang.queued && there >= size as usize {
            self.attempt(&open[..size as usize], None, draft);
        } else if !gang.queued {
            for allocation in open {
                let told = self.claims.get(&allocation).map(|claim| claim.place());
                if told != Some(Place::Gang) {
                    let refusal = incomplete(size, there as u64);
                    draft.emit(
                        self,
                        Event::QuotaWaiting {
                            allocation,
                            refusal,
                        },
                    );
                }
            }
        }
    }

    /// The member waits at a place; true when the place's queue has to know of it.
    pub(super) fn wait_in_gang(&mut self, allocation: AllocationNo, place: Place) -> bool {
        let Some(key) = self.gang_key(allocation) else {
            return true;
        };
        let again = self
            .claims
            .get(&allocation)
            .is_some_and(|claim| claim.again);
        let Some(gang) = self.gangs.get_mut(&key) else {
            return true;
        };
        if gang.granted || again {
            gang.open.remove(&allocation);
            return true;
        }
        gang.open.insert(allocation);
        let leads = gang.open.first() == Some(&allocation);
        match place {
            Place::At(_) => {
                gang.queued |= leads;
                leads
            }
            Place::Gang | Place::Nowhere => false,
        }
    }

    /// The member has been granted quota, and so have the others.
    pub(super) fn grant_in_gang(&mut self, allocation: AllocationNo) {
        if self.gangs.is_empty() {
            return;
        }
        let Some(key) = self.gang_key(allocation) else {
            return;
        };
        if let Some(gang) = self.gangs.get_mut(&key) {
            gang.open.remove(&allocation);
            if !gang.granted {
                gang.granted = true;
                gang.queued = false;
                self.books.marks.gangs.insert(key);
            }
        }
    }

    /// The member leaves without having been granted anything: the others wait for each other again.
    pub(super) fn leave_gang(&mut self, allocation: AllocationNo) {
        let Some(key) = self.gang_key(allocation) else {
            return;
        };
        let Some(gang) = self.gangs.get_mut(&key) else {
            return;
        };
        let unit: Vec<AllocationNo> = gang.open.iter().copied().take(gang.size as usize).collect();
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
        self.books.marks.gangs.insert(key);
    }
}

fn incomplete(size: u32, there: u64) -> Refusal {
    Refusal::over(Rule::IncompleteGang, "gang", size.into(), there)
}
