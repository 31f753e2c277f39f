//! Job sets: which allocations that have not ended are in which.

use super::interner::Interner;
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

    pub fn join(&mut self, tenant: &Token, name: &Token, no: AllocationNo) -> JobSetNo {
        let set = self.names.acquire(&(tenant.clone(), name.clone()));
        if let Some(members) = &mut self.members.0 {
            of(members, set).numbers.push_back(no);
        }
        JobSetNo(set)
    }

    /// It has ended, and does not live any more.
    pub fn leave(
        &mut self,
        set: JobSetNo,
        no: AllocationNo,
        lives: impl Fn(&AllocationNo) -> bool,
    ) {
        let last = self.names.release(set.0).is_some();
        let Some(members) = &mut self.members.0 else {
            return;
        };
        let members = of(members, set.0);
        if last {
            *members = Members::default();
            return;
        }
        members.ended += 1;
        if members.numbers.front() == Some(&no) {
            while members.numbers.front().is_some_and(|no| !lives(no)) {
                members.numbers.pop_front();
                members.ended -= 1;
            }
        } else if members.ended * 2 > members.numbers.len() {
            members.numbers.retain(lives);
            members.numbers.shrink_to_fit();
            members.ended = 0;
        }
    }

    /// Those of the tenant's job set with numbers below `before`, some of whom may have ended. `all` are those who live.
    pub fn members(
        &mut self,
        (tenant, name): (&Token, &Token),
        before: AllocationNo,
        all: impl Iterator<Item = (AllocationNo, JobSetNo)>,
    ) -> impl Iterator<Item = AllocationNo> {
        let set = self.names.find(&(tenant.clone(), name.clone()));
        let numbers = set.map(|set| {
            let members = self.members.0.get_or_insert_with(|| {
                let mut members = Vec::new();
                for (no, JobSetNo(set)) in all {
                    of(&mut members, set).numbers.push_back(no);
                }
                members
            });
            of(members, set).numbers.iter()
        });
        let numbers = numbers.into_iter().flatten();
        numbers.take_while(move |no| **no < before).copied()
    }
}

fn of(members: &mut Vec<Members>, set: u32) -> &mut Members {
    let at = set as usize;
    if members.len() <= at {
        members.resize_with(at + 1, Members::default);
    }
    &mut members[at]
}
