//! Gangs: their members are granted quota all at once, or none.

use super::{
    Quota,
    claim::{Place, Stage},
    tree::AccountId,
};
use ledger::Draft;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::fact::QuotaWaiting;
use vocab::{AllocationNo, Refusal, Rule, Token};

/// A gang's name is its tenant's.
pub(super) type GangKey = (AccountId, Token);

/// The number of its first member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct GangNo(AllocationNo);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gang {
    key: GangKey,
    /// How many have to be there, as the first of them said.
    pub size: u32,
    /// Members that have not ended.
    live: u32,
    /// From then on a member is like anybody else.
    pub granted: bool,
    /// It was granted, and the scheduler waits for members all the same: one had ended before it knew.
    lacks: bool,
    /// A member was on a node.
    placed: bool,
    /// Members that have been told to wait.
    pub open: BTreeSet<AllocationNo>,
    /// All of them wait together for something, in the place of the first.
    pub queued: bool,
}

/// Gangs of which members have not ended. Members are told apart as the scheduler does it, or those who hold quota would
/// wait for others that it has in another gang.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gangs {
    gangs: BTreeMap<GangNo, Gang>,
    /// The gang of that name that members may still join.
    names: BTreeMap<GangKey, GangNo>,
}

impl Gangs {
    /// A member more. A gang that has all its members is joined by no more, nor is one that was granted: the next of the
    /// same name is a new gang.
    pub fn join(
        &mut self,
        tenant: AccountId,
        wanted: &vocab::Gang,
        member: AllocationNo,
    ) -> GangNo {
        let key = (tenant, wanted.name.clone());
        let open = self.names.get(&key).copied().filter(|no| {
            let gang = self.gangs.get(no);
            gang.is_some_and(|gang| gang.live < gang.size && (!gang.granted || gang.lacks))
        });
        let no = open.unwrap_or_else(|| {
            let gang = Gang {
                key: key.clone(),
                size: wanted.size.max(1),
                live: 0,
                granted: false,
                lacks: false,
                placed: false,
                open: BTreeSet::new(),
                queued: false,
            };
            let no = GangNo(member);
            self.gangs.insert(no, gang);
            self.names.insert(key, no);
            no
        });
        if let Some(gang) = self.gangs.get_mut(&no) {
            gang.live += 1;
        }
        no
    }

    /// A member less, which had joined it before.
    pub fn leave(&mut self, no: GangNo, member: AllocationNo) {
        let Some(gang) = self.gangs.get_mut(&no) else {
            return;
        };
        gang.live -= 1;
        gang.open.remove(&member);
        if gang.live == 0
            && let Some(gang) = self.gangs.remove(&no)
            && self.names.get(&gang.key) == Some(&no)
        {
            self.names.remove(&gang.key);
        }
    }

    /// The scheduler has put a member on a node, so that it had all of them.
    pub fn placed(&mut self, no: GangNo) {
        if let Some(gang) = self.gangs.get_mut(&no) {
            (gang.placed, gang.lacks) = (true, false);
        }
    }

    /// The scheduler has said whether a member that holds quota waits for fellows.
    pub fn lacks(&mut self, no: GangNo, fellows: bool) {
        if let Some(gang) = self.gangs.get_mut(&no) {
            gang.lacks = fellows && gang.granted && !gang.placed;
        }
    }

    pub fn numbers(&self) -> impl Iterator<Item = GangNo> {
        self.gangs.keys().copied()
    }

    fn get(&self, no: GangNo) -> Option<&Gang> {
        self.gangs.get(&no)
    }

    fn get_mut(&mut self, no: GangNo) -> Option<&mut Gang> {
        self.gangs.get_mut(&no)
    }
}

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
