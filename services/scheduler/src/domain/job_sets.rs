//! Job sets: which allocations that have not ended are in which.

use super::{Scheduler, interner::Interner};
use ledger::Scratch;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vocab::{AllocationNo, Token};

/// A tenant's job set with allocations that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobSetNo(pub u32);

/// Millions may wait: beside the number of its job set, each takes 8 bytes here, and not more than twice that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSets {
    names: Interner<(Token, Token)>,
    /// By number; made anew when it is not there.
    #[serde(skip)]
    members: Scratch<Option<Vec<Members>>>,
}

/// In order of number. Those that have ended are taken out at the front, and elsewhere once they are the most.
#[derive(Debug, Clone, Default)]
struct Members {
    numbers: VecDeque<AllocationNo>,
    ended: usize,
}

impl JobSets {
    /// Whether a job set that is in use is the tenant's of this name.
    pub fn is(&self, set: JobSetNo, tenant: &Token, name: &Token) -> bool {
        let (of, called) = self.names.get(set.0);
        (of, called) == (tenant, name)
    }
}

impl Scheduler {
    pub(super) fn join_job_set(
        &mut self,
        tenant: &Token,
        name: &Token,
        no: AllocationNo,
    ) -> JobSetNo {
        let set = self.job_sets.names.acquire(&(tenant.clone(), name.clone()));
        if let Some(members) = &mut self.job_sets.members.0 {
            of(members, set).numbers.push_back(no);
        }
        JobSetNo(set)
    }

    /// It has ended, and is not in `live` any more.
    pub(super) fn leave_job_set(&mut self, set: JobSetNo, no: AllocationNo) {
        let last = self.job_sets.names.release(set.0).is_some();
        let Some(members) = &mut self.job_sets.members.0 else {
            return;
        };
        let members = of(members, set.0);
        if last {
            *members = Members::default();
            return;
        }
        members.ended += 1;
        if members.numbers.front() == Some(&no) {
            let lives = |no: &AllocationNo| self.live.contains_key(no);
            while members.numbers.front().is_some_and(|no| !lives(no)) {
                members.numbers.pop_front();
                members.ended -= 1;
            }
        } else if members.ended * 2 > members.numbers.len() {
            members.numbers.retain(|no| self.live.contains_key(no));
            members.numbers.shrink_to_fit();
            members.ended = 0;
        }
    }

    /// Those of the tenant's job set that were requested before `before` and have not ended.
    pub(super) fn in_job_set(
        &mut self,
        tenant: &Token,
        name: &Token,
        before: AllocationNo,
    ) -> Vec<AllocationNo> {
        let set = self.job_sets.names.find(&(tenant.clone(), name.clone()));
        let Some(set) = set else {
            return Vec::new();
        };
        let live = &self.live;
        let members = self.job_sets.members.0.get_or_insert_with(|| {
            let mut members = Vec::new();
            for (no, one) in live {
                of(&mut members, one.job_set.0).numbers.push_back(*no);
            }
            members
        });
        let numbers = of(members, set).numbers.iter();
        let older = numbers.take_while(|no| **no < before);
        older.filter(|no| live.contains_key(no)).copied().collect()
    }
}

fn of(members: &mut Vec<Members>, set: u32) -> &mut Members {
    let at = set as usize;
    if members.len() <= at {
        members.resize_with(at + 1, Members::default);
    }
    &mut members[at]
}
