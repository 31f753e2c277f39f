//! Job sets: which allocations that have not ended are in which.

use super::interner::Interner;
use ledger::Scratch;
use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, ops::Range};
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
    /// Live members with a priority class.
    classed: usize,
}

/// A live allocation of a job set.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    pub no: AllocationNo,
    pub set: JobSetNo,
    /// True if it has a priority class.
    pub classed: bool,
}

/// Numbers of live members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub all: usize,
    pub classed: usize,
}

impl JobSets {
    /// Whether a job set that is in use is the tenant's of this name.
    pub fn is(&self, set: JobSetNo, tenant: &Token, name: &Token) -> bool {
        let (of, called) = self.names.get(set.0);
        (of, called) == (tenant, name)
    }

    pub fn join(
        &mut self,
        tenant: &Token,
        name: &Token,
        (no, classed): (AllocationNo, bool),
    ) -> JobSetNo {
        let set = self.names.acquire(&(tenant.clone(), name.clone()));
        if let Some(members) = &mut self.members.0 {
            of(members, set).join(no, classed);
        }
        JobSetNo(set)
    }

    /// It has ended, and does not live any more.
    pub fn leave(
        &mut self,
        Member { no, set, classed }: Member,
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
        members.classed -= usize::from(classed);
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

    /// Returns at most `most` members of the job set in this range, the lowest numbers first. Some may have ended. `all` are the
    /// live allocations.
    pub fn members(
        &mut self,
        (tenant, name): (&Token, &Token),
        range: Range<AllocationNo>,
        most: usize,
        all: impl Iterator<Item = Member>,
    ) -> Vec<AllocationNo> {
        let Some(members) = self.find(tenant, name, all) else {
            return Vec::new();
        };
        let first = members.numbers.partition_point(|no| *no < range.start);
        let members = members.numbers.range(first..).copied();
        members
            .take_while(|no| *no < range.end)
            .take(most)
            .collect()
    }

    /// Counts the live members of the job set with numbers below `before`. Members with higher numbers are read one by one with
    /// `member`, which returns `None` for one that has ended.
    pub fn count(
        &mut self,
        (tenant, name): (&Token, &Token),
        before: AllocationNo,
        member: impl Fn(&AllocationNo) -> Option<Member>,
        all: impl Iterator<Item = Member>,
    ) -> Count {
        let Some(members) = self.find(tenant, name, all) else {
            return Count::default();
        };
        let mut count = Count {
            all: members.numbers.len() - members.ended,
            classed: members.classed,
        };
        let later = members.numbers.iter().rev().take_while(|no| **no >= before);
        for later in later.filter_map(member) {
            count.all -= 1;
            count.classed -= usize::from(later.classed);
        }
        count
    }

    fn find(
        &mut self,
        tenant: &Token,
        name: &Token,
        all: impl Iterator<Item = Member>,
    ) -> Option<&Members> {
        let set = self.names.find(&(tenant.clone(), name.clone()))?;
        let members = self.members.0.get_or_insert_with(|| {
            let mut members = Vec::new();
            for member in all {
                of(&mut members, member.set.0).join(member.no, member.classed);
            }
            members
        });
        Some(of(members, set))
    }
}

impl Members {
    fn join(&mut self, no: AllocationNo, classed: bool) {
        self.numbers.push_back(no);
        self.classed += usize::from(classed);
    }
}

fn of(members: &mut Vec<Members>, set: u32) -> &mut Members {
    let at = set as usize;
    if members.len() <= at {
        members.resize_with(at + 1, Members::default);
    }
    &mut members[at]
}
