//! Who waits for whom before a gang can start. A gang starts once all its members can, so each of them waits for whatever
//! its fellows wait for: a member that comes to wait for a fellow, by however many others, would keep its gang from
//! starting for ever.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{AllocationNo, AllocationSpec, Dependency, Gang, Refusal, Rule, Token};

/// Unfinished allocations that one member of a gang may come to wait for. All of them are looked at.
const WAITED_FOR_MAX: usize = 10_000;

/// Of allocations that have not ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gangs {
    gangs: BTreeMap<GangNo, Members>,
    /// The latest gang of a tenant that has the name.
    names: BTreeMap<(Token, Token), GangNo>,
    member_of: BTreeMap<AllocationNo, GangNo>,
    /// What those with dependencies were asked to start after.
    after: BTreeMap<AllocationNo, Vec<AllocationNo>>,
}

/// The number of its first member.
type GangNo = AllocationNo;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Members {
    key: (Token, Token),
    size: u32,
    live: BTreeSet<AllocationNo>,
    /// A member was on a node: it was complete, and nobody joins it any more.
    ran: bool,
}

impl Members {
    /// Whether one more may join it. Where a member has ended without a run it is not known here whether the gang was
    /// complete before, and the answer is that it may.
    fn is_open(&self) -> bool {
        !self.ran && self.live.len() < self.size as usize
    }
}

impl Gangs {
    pub fn requested(&mut self, no: AllocationNo, tenant: &Token, spec: &AllocationSpec) {
        if !spec.depends_on.is_empty() {
            let after = spec.depends_on.iter().map(|one| one.allocation);
            self.after.insert(no, after.collect());
        }
        let Some(wanted) = &spec.gang else {
            return;
        };
        let gang = self.open(tenant, wanted).unwrap_or(no);
        let members = self.gangs.entry(gang).or_insert_with(|| Members {
            key: (tenant.clone(), wanted.name.clone()),
            size: wanted.size,
            live: BTreeSet::new(),
            ran: false,
        });
        members.live.insert(no);
        self.names.insert(members.key.clone(), gang);
        self.member_of.insert(no, gang);
    }

    pub fn ended(&mut self, no: AllocationNo, ran: bool) {
        self.after.remove(&no);
        let Some(gang) = self.member_of.remove(&no) else {
            return;
        };
        let Some(members) = self.gangs.get_mut(&gang) else {
            return;
        };
        members.ran |= ran;
        members.live.remove(&no);
        if members.live.is_empty()
            && let Some(members) = self.gangs.remove(&gang)
            && self.names.get(&members.key) == Some(&gang)
        {
            self.names.remove(&members.key);
        }
    }

    /// The gang that a member more would join; none if it would be the first of a new one.
    fn open(&self, tenant: &Token, wanted: &Gang) -> Option<GangNo> {
        let gang = self.names.get(&(tenant.clone(), wanted.name.clone()))?;
        self.gangs.get(gang)?.is_open().then_some(*gang)
    }

    /// A member of `wanted` that starts after `depends_on` does not come to wait for a fellow. Nobody waits for it yet,
    /// so a circle would have to go through what it waits for.
    pub fn check(
        &self,
        tenant: &Token,
        wanted: &Gang,
        depends_on: &[Dependency],
    ) -> Result<(), Refusal> {
        let field = "depends_on";
        let Some(own) = self.open(tenant, wanted) else {
            return Ok(());
        };
        let mut seen = BTreeSet::new();
        let mut next: Vec<AllocationNo> = depends_on.iter().map(|one| one.allocation).collect();
        while let Some(no) = next.pop() {
            if !seen.insert(no) {
                continue;
            }
            if seen.len() > WAITED_FOR_MAX {
                let (limit, actual) = (WAITED_FOR_MAX as u64, seen.len() as u64);
                return Err(Refusal::over(Rule::TooManyElements, field, limit, actual));
            }
            // Who has ended has no entries here.
            next.extend(self.after.get(&no).into_iter().flatten());
            let gang = self.member_of.get(&no);
            if gang == Some(&own) {
                return Err(Refusal::new(Rule::GangWaitsForItself, field));
            }
            let fellows = gang.and_then(|gang| self.gangs.get(gang));
            if let Some(fellows) = fellows.filter(|fellows| !fellows.ran) {
                next.extend(&fellows.live);
            }
        }
        Ok(())
    }
}
