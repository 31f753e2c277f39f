//! Which allocations are members of which gang, and which allocations a gang waits for before it can start. A gang starts
//! once all its members can, so each of them waits for whatever its fellows wait for: a member that comes to wait for a
//! fellow, by however many others, would keep its gang from starting for ever.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{
    AllocationNo, AllocationSpec, Dependency, Gang, Refusal, Rule, Token,
    sabotage::{self, Bug},
};

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
    past: Past,
}

/// State of a gang in addition to its members. In snapshots up to version 12 it is a `bool`: whether the gang ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
struct Past {
    /// A member was on a node: the gang was complete, and no more members join it.
    ran: bool,
    /// `None` if the first member was requested before version 13 kept them.
    terms: Option<Terms>,
}

/// Fields that all members of a gang must request alike, in addition to the size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Terms {
    min: u32,
    uniform_label: Option<Token>,
}

/// Encoding of [`Past`] in a snapshot: the first two variants read as `false` and `true`.
#[derive(Serialize, Deserialize)]
enum Stored {
    Waits,
    Ran,
    Known { ran: bool, terms: Terms },
}

impl From<Stored> for Past {
    fn from(stored: Stored) -> Self {
        let (ran, terms) = match stored {
            Stored::Waits => (false, None),
            Stored::Ran => (true, None),
            Stored::Known { ran, terms } => (ran, Some(terms)),
        };
        Self { ran, terms }
    }
}

impl From<Past> for Stored {
    fn from(Past { ran, terms }: Past) -> Self {
        match (terms, ran) {
            (Some(terms), ran) => Self::Known { ran, terms },
            (None, true) => Self::Ran,
            (None, false) => Self::Waits,
        }
    }
}

impl Terms {
    fn of(gang: &Gang) -> Self {
        Self {
            min: gang.min,
            uniform_label: gang.uniform_label.clone(),
        }
    }
}

impl Members {
    /// Whether one more may join it. Where a member has ended without a run it is not known here whether the gang was
    /// complete before, and the answer is that it may.
    fn is_open(&self) -> bool {
        !self.past.ran && self.live.len() < self.size as usize
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
            past: Past {
                ran: false,
                terms: Some(Terms::of(wanted)),
            },
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
        members.past.ran |= ran;
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

    /// Rejects a member that requests another size, minimum or uniform label than the earlier members of its gang.
    pub fn check_terms(&self, tenant: &Token, wanted: &Gang) -> Result<(), Refusal> {
        let open = self.open(tenant, wanted);
        let open = open.filter(|_| !sabotage::armed(Bug::GangTermsIgnored));
        let Some(members) = open.and_then(|gang| self.gangs.get(&gang)) else {
            return Ok(());
        };
        let same = |field, limit: u32, actual: u32| match limit == actual {
            true => Ok(()),
            false => {
                let (limit, actual) = (limit.into(), actual.into());
                Err(Refusal::over(Rule::GangInvalid, field, limit, actual))
            }
        };
        same("gang.size", members.size, wanted.size)?;
        let Some(terms) = &members.past.terms else {
            return Ok(());
        };
        same("gang.min", terms.min, wanted.min)?;
        match terms.uniform_label == wanted.uniform_label {
            true => Ok(()),
            false => Err(Refusal::new(Rule::GangInvalid, "gang.uniform_label")),
        }
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
            if let Some(fellows) = fellows.filter(|fellows| !fellows.past.ran) {
                next.extend(&fellows.live);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Chain, Snapshot};

    fn gang(size: u32, min: u32) -> Gang {
        Gang {
            name: Token::new("g").unwrap(),
            size,
            min,
            uniform_label: None,
        }
    }

    #[test]
    fn a_snapshot_up_to_version_12_has_only_whether_a_gang_ran() {
        for ran in [false, true] {
            let stored = Snapshot::of(1, Chain::default(), &ran);
            let past = Past { ran, terms: None };
            assert_eq!(stored.state(1), Some(past.clone()));
            assert_eq!(Snapshot::of(1, Chain::default(), &past), stored);
            let known = Past {
                ran,
                terms: Some(Terms {
                    min: 2,
                    uniform_label: Some(Token::new("zone").unwrap()),
                }),
            };
            let stored = Snapshot::of(1, Chain::default(), &known);
            assert_eq!(stored.state(1), Some(known));
        }
    }

    #[test]
    fn a_gang_of_a_snapshot_up_to_version_12_is_checked_by_size_only() {
        let tenant = Token::new("t").unwrap();
        let wanted = gang(3, 3);
        let members = Members {
            key: (tenant.clone(), wanted.name.clone()),
            size: wanted.size,
            live: BTreeSet::from([AllocationNo(1)]),
            past: Past {
                ran: false,
                terms: Some(Terms::of(&wanted)),
            },
        };
        let mut gangs = Gangs::default();
        gangs.names.insert(members.key.clone(), AllocationNo(1));
        gangs.gangs.insert(AllocationNo(1), members);
        let check = |gangs: &Gangs, size, min, expected: Option<&str>| {
            let refused = gangs.check_terms(&tenant, &gang(size, min)).err();
            let field = refused.map(|it| it.subject);
            assert_eq!(field.as_deref(), expected, "{size} {min}");
        };
        check(&gangs, 3, 3, None);
        check(&gangs, 3, 2, Some("gang.min"));
        check(&gangs, 2, 2, Some("gang.size"));
        for members in gangs.gangs.values_mut() {
            members.past.terms = None;
        }
        check(&gangs, 3, 3, None);
        check(&gangs, 3, 2, None);
        check(&gangs, 2, 2, Some("gang.size"));
    }
}
