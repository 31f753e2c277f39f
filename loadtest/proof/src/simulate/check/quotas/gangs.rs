//! Gangs: their members are granted together, or denied together. Which gang a request belongs to depends on who was there
//! when it was read: one that has all its members, or was granted, is joined by no more.

use super::{Claim, Leaves, Quotas, Stage};
use crate::simulate::check::{Invariant, Place, Violation};
use schemas::v1::event::Kind;
use std::collections::BTreeMap;

/// By the number of the first member.
pub type Gangs = BTreeMap<u64, Gang>;

#[derive(Debug, Clone)]
pub struct Gang {
    tenant: String,
    name: String,
    size: u64,
    /// Members of it were granted quota.
    pub granted: bool,
    /// The scheduler waits for more of them than it has.
    lacks: bool,
    placed: bool,
}

impl Quotas {
    fn live(&self, gang: u64) -> u64 {
        let over = |claim: &Claim| match claim.stage {
            Stage::Holds(hold) => hold.leaves == Some(Leaves::Ended),
            Stage::Over => true,
            Stage::Asked | Stage::Waits => false,
        };
        let of = |claim: &&Claim| claim.gang == Some(gang) && !over(claim);
        self.claims.values().filter(of).count() as u64
    }

    /// The gang that a request joins, by its first member.
    pub(super) fn join(&mut self, no: u64, tenant: &str, name: &str, size: u64) -> u64 {
        let of_name = |gang: &Gang| gang.tenant == tenant && gang.name == name;
        let latest = self.gangs.iter().rfind(|(_, gang)| of_name(gang));
        let open = latest.filter(|(first, gang)| {
            let live = self.live(**first);
            live > 0 && live < gang.size && (!gang.granted || gang.lacks)
        });
        if let Some((first, _)) = open {
            return *first;
        }
        let gang = Gang {
            tenant: tenant.to_owned(),
            name: name.to_owned(),
            size,
            granted: false,
            lacks: false,
            placed: false,
        };
        self.gangs.insert(no, gang);
        no
    }

    fn gang_of(&mut self, no: u64) -> Option<&mut Gang> {
        let claim = self.claims.get(&no)?;
        let holds = claim.holds().is_some();
        self.gangs.get_mut(&claim.gang?).filter(|_| holds)
    }

    pub(super) fn is_placed(&mut self, no: u64) {
        if let Some(gang) = self.gang_of(no) {
            (gang.placed, gang.lacks) = (true, false);
        }
    }

    pub(super) fn may_lack(&mut self, no: u64, fellows: bool) {
        if let Some(gang) = self.gang_of(no) {
            gang.lacks = fellows && gang.granted && !gang.placed;
        }
    }

    /// What is answered together, by the first of them: one allocation, or the members of a gang. Nobody, as long as that
    /// is not complete or another one comes first.
    pub(super) fn unit(&self, no: u64, claim: &Claim) -> Vec<u64> {
        let gang = claim.gang.and_then(|first| self.gangs.get(&first));
        let Some(gang) = gang.filter(|gang| !gang.granted) else {
            return vec![no];
        };
        let unit = self.members_that_ask(claim);
        let complete = unit.len() as u64 == gang.size && unit.first() == Some(&no);
        if complete { unit } else { Vec::new() }
    }

    /// The members of its gang that have no quota yet.
    pub(super) fn members_that_ask(&self, claim: &Claim) -> Vec<u64> {
        let is_member = |(_, other): &(&u64, &Claim)| {
            let asks = matches!(other.stage, Stage::Asked | Stage::Waits);
            asks && !other.again && other.gang == claim.gang
        };
        let members = self.claims.iter().filter(is_member);
        members.map(|(no, _)| *no).collect()
    }

    /// The members of a gang are granted in one frame, as many as it has, or none.
    pub(super) fn gangs_are_granted_whole(
        &self,
        frame: &Place,
        kinds: &[(Place, &Kind)],
        before: &Gangs,
    ) -> Result<(), Violation> {
        let mut granted: BTreeMap<u64, u64> = BTreeMap::new();
        for (_, kind) in kinds {
            if let Kind::QuotaReserved(e) = kind
                && let Some(gang) = self.claims.get(&e.allocation).and_then(|it| it.gang)
                && before.get(&gang).is_some_and(|gang| !gang.granted)
            {
                *granted.entry(gang).or_default() += 1;
            }
        }
        let whole = |(gang, members): &(&u64, &u64)| before[gang].size == **members;
        let part = granted.iter().find(|it| !whole(it));
        frame.rule(part.is_none(), Invariant::Quota, || {
            format!("of a gang, only some are granted quota: {part:?}")
        })
    }

    pub(super) fn gangs_are_denied_whole(&self, frame: &Place) -> Result<(), Violation> {
        let left = &self.denied_too;
        frame.rule(left.is_empty(), Invariant::Quota, || {
            format!("of a gang, only some are denied quota; left are {left:?}")
        })
    }
}
