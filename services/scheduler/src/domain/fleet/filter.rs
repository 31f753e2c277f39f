//! Which nodes an allocation may go to at all, room left aside.

use super::{Fleet, NodeNo};
use crate::domain::class::Class;
use std::collections::BTreeMap;
use vocab::{Filter, GroupTerm, NodeCapacity, Operator, Requirement, Token};

/// What kind of node it must be: the first filter that keeps this kind off, whatever is free.
pub fn keeps_off(capacity: &NodeCapacity, class: &Class) -> Option<Filter> {
    if let Some(rules) = &class.rules {
        if !rules.selector.iter().all(|wanted| meets(capacity, wanted)) {
            return Some(Filter::Selector);
        }
        let tolerated = |taint| rules.tolerations.iter().any(|t| t.tolerates(taint));
        if !capacity.taints.iter().all(tolerated) {
            return Some(Filter::Taint);
        }
    } else if !capacity.taints.is_empty() {
        return Some(Filter::Taint);
    }
    if let Some(gpu) = &class.gpu
        && !gpu.allows(capacity.gpu_model.as_ref())
    {
        return Some(Filter::GpuModel);
    }
    let extended = |(name, amount): &(Token, u64)| {
        let at = capacity.extended.binary_search_by(|(has, _)| has.cmp(name));
        at.is_ok_and(|at| capacity.extended[at].1 >= *amount)
    };
    let large_enough = capacity.cpu_milli >= class.cpu_milli
        && capacity.memory_bytes >= class.memory_bytes
        && class
            .gpu
            .as_ref()
            .is_none_or(|gpu| capacity.gpus >= gpu.count)
        && class.extended.iter().all(extended);
    (!large_enough).then_some(Filter::Capacity)
}

pub fn meets(capacity: &NodeCapacity, wanted: &Requirement) -> bool {
    let value = capacity.label(wanted.label.as_str());
    let among = |value: &Token| wanted.values.contains(value);
    match wanted.operator {
        Operator::In => value.is_some_and(among),
        Operator::NotIn => !value.is_some_and(among),
        Operator::Exists => value.is_some(),
        Operator::Missing => value.is_none(),
    }
}

/// A place that a rule about others counts as one: a value of a label, or a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Domain {
    Node(NodeNo),
    Label(Token),
}

/// How many of a group are in each domain.
type Members = BTreeMap<Domain, u32>;

/// Where the others are that a class's rules speak of, counted once for all nodes.
pub struct Others<'a> {
    fleet: &'a Fleet,
    /// Near: one of these must be there. None: anywhere will do.
    near: Vec<(Option<Token>, Option<Members>)>,
    apart: Vec<(Option<Token>, Members)>,
    /// Per rule: members by domain, and the most that a domain may have before one more comes.
    spread: Vec<(Option<Token>, Members, u32)>,
}

impl<'a> Others<'a> {
    pub fn of(fleet: &'a Fleet, class: &Class) -> Self {
        let mut others = Self {
            fleet,
            near: Vec::new(),
            apart: Vec::new(),
            spread: Vec::new(),
        };
        let (Some(rules), Some(tenant)) = (&class.rules, &class.tenant) else {
            return others;
        };
        let count = |term: &GroupTerm| others.count(tenant, &term.group, &term.domain);
        let near = rules.near.iter().map(|term| {
            let there = count(term);
            let first_of_its_own = there.is_empty() && rules.group.as_ref() == Some(&term.group);
            (term.domain.clone(), (!first_of_its_own).then_some(there))
        });
        let near = near.collect();
        let apart = rules
            .apart
            .iter()
            .map(|term| (term.domain.clone(), count(term)))
            .collect();
        let spread = rules.spread.iter().filter_map(|rule| {
            let group = rules.group.as_ref()?;
            let there = others.count(tenant, group, &rule.domain);
            let fewest = others.fewest(&there, &rule.domain, class);
            Some((
                rule.domain.clone(),
                there,
                fewest.saturating_add(rule.skew_max),
            ))
        });
        let spread = spread.collect();
        others.near = near;
        others.apart = apart;
        others.spread = spread;
        others
    }

    fn domain(&self, node: NodeNo, label: &Option<Token>) -> Option<Domain> {
        match label {
            None => Some(Domain::Node(node)),
            Some(label) => {
                let value = self.fleet.capacity(node).label(label.as_str());
                value.cloned().map(Domain::Label)
            }
        }
    }

    fn count(&self, tenant: &Token, group: &Token, label: &Option<Token>) -> BTreeMap<Domain, u32> {
        let mut counts = BTreeMap::new();
        for (node, members) in self.fleet.members(tenant, group) {
            if let Some(domain) = self.domain(node, label) {
                *counts.entry(domain).or_default() += members;
            }
        }
        counts
    }

    /// Of the domains that the class could go to, the fewest members in one.
    fn fewest(&self, there: &BTreeMap<Domain, u32>, label: &Option<Token>, class: &Class) -> u32 {
        let nodes = self.fleet.nodes().iter().zip(0..);
        let eligible = nodes.filter(|(node, _)| {
            node.open() && keeps_off(self.fleet.kind(node.kind), class).is_none()
        });
        let domains = eligible.filter_map(|(_, no)| self.domain(NodeNo(no), label));
        let members = domains.map(|domain| there.get(&domain).copied().unwrap_or(0));
        members.min().unwrap_or(0)
    }

    /// The first rule about others that keeps the node off.
    pub fn keep_off(&self, node: NodeNo) -> Option<Filter> {
        let there = |label, counts: &BTreeMap<Domain, u32>| {
            let domain = self.domain(node, label);
            domain.map(|domain| counts.get(&domain).copied().unwrap_or(0))
        };
        for (label, counts) in &self.near {
            let near = match counts {
                Some(counts) => there(label, counts).is_some_and(|members| members > 0),
                None => self.domain(node, label).is_some(),
            };
            if !near {
                return Some(Filter::Affinity);
            }
        }
        for (label, counts) in &self.apart {
            if there(label, counts).is_some_and(|members| members > 0) {
                return Some(Filter::Affinity);
            }
        }
        for (label, counts, most) in &self.spread {
            if there(label, counts).is_none_or(|members| members >= *most) {
                return Some(Filter::Spread);
            }
        }
        None
    }
}
