//! Gangs: which allocations are members of which, and how far each gang has come.

use super::account::AccountId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{AllocationNo, Token};

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

    pub fn get(&self, no: GangNo) -> Option<&Gang> {
        self.gangs.get(&no)
    }

    pub fn get_mut(&mut self, no: GangNo) -> Option<&mut Gang> {
        self.gangs.get_mut(&no)
    }
}
