//! Rules about others: near them, apart from them, spread among them.

use super::{Checker, Invariant, Place, Violation, allocations::Allocation, fit::value_of};
use schemas::v1;
use std::collections::{BTreeMap, BTreeSet};

/// Members of a group by domain.
type Members = BTreeMap<String, u64>;

fn group(a: &Allocation) -> Option<&str> {
    let rules = a.demand.rules.as_ref()?;
    Some(rules.group.as_str()).filter(|group| !group.is_empty())
}

/// Where an allocation is, or is taken to be.
pub struct At<'a> {
    pub no: u64,
    pub a: &'a Allocation,
    pub node: &'a str,
    pub incarnation: u64,
}

impl Checker {
    /// The domain that a node is in by a label; every node is one when there is none.
    fn domain(&self, (node, incarnation): (&str, u64), label: &str) -> Option<String> {
        if label.is_empty() {
            return Some(node.to_owned());
        }
        value_of(self.nodes.capacity(node, incarnation, u64::MAX), label)
    }

    /// Members of a tenant's group on nodes but for one, with those that are taken to be there; whether those that are
    /// told to go count.
    fn members(&self, of: &At, name: &str, domain: &str, going: bool, supposed: &[At]) -> Members {
        let mut members = Members::new();
        let mut count = |a: &Allocation, node| {
            if a.tenant == of.a.tenant
                && group(a) == Some(name)
                && let Some(domain) = self.domain(node, domain)
            {
                *members.entry(domain).or_default() += 1;
            }
        };
        for (no, a) in self.allocations.iter().filter(|(no, _)| *no != of.no) {
            if let Some(hold) = &a.hold
                && (going || hold.stop.is_none())
                && !supposed.iter().any(|it| it.no == no)
            {
                count(a, (&hold.node, hold.incarnation));
            }
        }
        for it in supposed.iter().filter(|it| it.no != of.no) {
            count(it.a, (it.node, it.incarnation));
        }
        members
    }

    /// What is on its way out may be counted or not, so a rule is broken only where it is in both ways of counting.
    pub(super) fn not_near(&self, of: &At, supposed: &[At]) -> Option<String> {
        let rules = of.a.demand.rules.as_ref()?;
        let broken = rules.affinity.iter().find(|term| {
            let here = self.domain((of.node, of.incarnation), &term.topology_key);
            let there = self.members(of, &term.group, &term.topology_key, true, supposed);
            let first = there.is_empty() && group(of.a) == Some(&term.group);
            !here.is_some_and(|here| first || there.contains_key(&here))
        });
        broken.map(|term| format!("{} on {} is not near {term:?}", of.no, of.node))
    }

    pub(super) fn not_apart(&self, of: &At, supposed: &[At]) -> Option<String> {
        let rules = of.a.demand.rules.as_ref()?;
        let broken = rules.anti_affinity.iter().find(|term| {
            let here = self.domain((of.node, of.incarnation), &term.topology_key);
            let there = self.members(of, &term.group, &term.topology_key, false, supposed);
            here.is_some_and(|here| there.contains_key(&here))
        });
        broken.map(|term| format!("{} on {} is not apart from {term:?}", of.no, of.node))
    }

    pub(super) fn not_spread(&self, at: &Place, of: &At, supposed: &[At]) -> Option<String> {
        let rules = of.a.demand.rules.as_ref()?;
        let own = group(of.a)?;
        let broken = rules.spread.iter().find(|rule| {
            let Some(here) = self.domain((of.node, of.incarnation), &rule.topology_key) else {
                return true;
            };
            let here = self
                .members(of, own, &rule.topology_key, false, supposed)
                .get(&here)
                .map_or(1, |others| others + 1);
            let mut all = self.members(of, own, &rule.topology_key, true, supposed);
            let own = self.domain((of.node, of.incarnation), &rule.topology_key);
            *all.entry(own.unwrap_or_default()).or_default() += 1;
            let fewest = self.domains(at, of.a, rule).into_iter();
            let fewest = fewest.map(|domain| all.get(&domain).copied().unwrap_or(0));
            here > fewest.min().unwrap_or(0) + u64::from(rule.max_skew)
        });
        broken.map(|rule| format!("{} on {} is not spread by {rule:?}", of.no, of.node))
    }

    /// The domains that it could go to.
    fn domains(&self, at: &Place, a: &Allocation, rule: &v1::Spread) -> BTreeSet<String> {
        let nodes = self.open_nodes(at);
        let nodes = nodes
            .into_iter()
            .filter(|(node, _, capacity)| self.suits(at, &a.demand, (node, capacity)));
        let domains = nodes
            .map(|(node, incarnation, _)| self.domain((node, incarnation), &rule.topology_key));
        domains.flatten().collect()
    }

    /// What was placed in a frame is near as all stands after it, or was when it came: members of a gang come together.
    pub(super) fn all_are_near(
        &self,
        frame: &Place,
        placed: &BTreeSet<u64>,
    ) -> Result<(), Violation> {
        for no in placed {
            let Some(a) = self.allocations.get(*no) else {
                continue;
            };
            let Some(hold) = a.hold.as_ref().filter(|hold| hold.far) else {
                continue;
            };
            let of = At {
                no: *no,
                a,
                node: &hold.node,
                incarnation: hold.incarnation,
            };
            let broken = self.not_near(&of, &[]);
            frame.rule(broken.is_none(), Invariant::Fit, || {
                broken.unwrap_or_default()
            })?;
        }
        Ok(())
    }
}
