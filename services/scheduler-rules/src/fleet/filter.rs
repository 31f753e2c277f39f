//! Which nodes an allocation may go to at all, room left aside.

use super::{Fleet, KindNo, Node, NodeNo, node::zone_ask};
use crate::{class::Class, topology};
use std::collections::BTreeMap;
use vocab::{Filter, GroupTerm, NodeCapacity, NumaPolicy, Taint, Token};

/// What kind of node it must be: the first filter that keeps this kind off, whatever is free.
pub fn keeps_off(capacity: &NodeCapacity, class: &Class) -> Option<Filter> {
    let mut selector = class.rules.iter().flat_map(|rules| &rules.selector);
    if !selector.all(|wanted| wanted.is_met_by(capacity)) {
        return Some(Filter::Selector);
    }
    let mut forbids = capacity
        .taints
        .iter()
        .filter(|taint| taint.effect.forbids());
    if !forbids.all(|taint| tolerates(class, taint)) {
        return Some(Filter::Taint);
    }
    let asks_for_gpus = class.gpu.as_ref().is_some_and(|gpu| gpu.count > 0);
    if !class.allows_model(capacity.gpu_model.as_ref()) || asks_for_gpus && capacity.gpus == 0 {
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
    if !large_enough {
        return Some(Filter::Capacity);
    }
    if class.numa() == NumaPolicy::Single && !has_a_zone_for(capacity, class) {
        return Some(Filter::Numa);
    }
    lacks_a_label(capacity, class)
}

/// Returns whether a zone of the empty node could hold an allocation of the class.
fn has_a_zone_for(capacity: &NodeCapacity, class: &Class) -> bool {
    capacity.topology.as_deref().is_some_and(|topology| {
        let devices = vec![topology::DEVICE_MILLI; capacity.gpus.into()];
        let ask = zone_ask(class);
        topology::fits_a_zone(topology, &topology::empty(topology), &devices, &ask)
    })
}

/// Returns a rule that counts by a label which the node lacks: no allocation meets it there.
fn lacks_a_label(capacity: &NodeCapacity, class: &Class) -> Option<Filter> {
    let rules = class.rules.as_deref()?;
    let lacks = |label: &Option<Token>| {
        let label = label.as_ref();
        label.is_some_and(|label| capacity.label(label.as_str()).is_none())
    };
    if rules.affinity.iter().any(|term| lacks(&term.topology_key)) {
        return Some(Filter::Affinity);
    }
    let counts = rules.group.is_some();
    let spread = counts && rules.spread.iter().any(|rule| lacks(&rule.topology_key));
    spread.then_some(Filter::Spread)
}

pub fn tolerates(class: &Class, taint: &Taint) -> bool {
    let rules = class.rules.as_ref();
    rules.is_some_and(|rules| rules.tolerations.iter().any(|it| it.tolerates(taint)))
}

/// Whether the class goes to this kind of node only where there is no other room.
pub fn is_reluctant(capacity: &NodeCapacity, class: &Class) -> bool {
    let preferred = class.rules.iter().flat_map(|rules| &rules.preferred);
    let mut soft = capacity
        .taints
        .iter()
        .filter(|taint| !taint.effect.forbids());
    soft.any(|taint| !tolerates(class, taint))
        || preferred
            .into_iter()
            .any(|wanted| !wanted.is_met_by(capacity))
}

/// How many of the class an empty node of the kind takes, at the most: none where it may not go.
pub fn most_on(capacity: &NodeCapacity, class: &Class) -> u64 {
    if keeps_off(capacity, class).is_some() {
        return 0;
    }
    let by_cpu = capacity.cpu_milli / class.cpu_milli.max(1);
    let by_memory = capacity.memory_bytes / class.memory_bytes.max(1);
    let by_gpu = class.gpu.as_ref().map_or(u64::MAX, |gpu| {
        let shares = u64::from(capacity.gpus) * u64::from(1000 / gpu.milli.max(1));
        shares / u64::from(gpu.count.max(1))
    });
    let by_extended = class.extended.iter().map(|(name, amount)| {
        let at = capacity.extended.binary_search_by(|(has, _)| has.cmp(name));
        at.map_or(0, |at| capacity.extended[at].1 / amount.max(&1))
    });
    let by_runs = match capacity.max_runs {
        0 => u64::MAX,
        most => u64::from(most),
    };
    let by_zones = match (class.numa(), capacity.topology.as_deref()) {
        (NumaPolicy::Single, Some(topology)) => topology::most_in_zones(topology, &zone_ask(class)),
        _ => u64::MAX,
    };
    let most = by_extended.min().unwrap_or(u64::MAX).min(by_zones);
    most.min(by_cpu).min(by_memory).min(by_gpu).min(by_runs)
}

/// A place that a rule about others counts as one: a value of a label, or a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Domain {
    Node(NodeNo),
    Label(Token),
}

/// How many of a group are in each domain.
type Counts = BTreeMap<Domain, u32>;

/// What will have changed by the time that is asked about.
#[derive(Debug, Clone, Default)]
pub struct Moves<'a> {
    /// Held now, and gone by then.
    pub gone: Vec<(NodeNo, &'a Class)>,
    /// There by then.
    pub come: Vec<(NodeNo, &'a Class)>,
    /// Coming by then, as nominees are: they may not come.
    pub may_come: Vec<(NodeNo, &'a Class)>,
    /// Nominees that are not to be counted as coming.
    pub not_coming: Vec<(NodeNo, &'a Class)>,
}

/// Where the others are that a class's rules speak of, counted once for all nodes.
pub struct Others<'a> {
    fleet: &'a Fleet,
    /// Near: one of these must be there. None: anywhere will do.
    affinity: Vec<(Option<Token>, Option<Counts>)>,
    /// Apart from those that are there, and from those that are coming.
    anti_affinity: Vec<(Option<Token>, Counts)>,
    /// Per rule: members by domain, and the most that a domain may have before one more comes.
    spread: Vec<(Option<Token>, Counts, u32)>,
}

impl<'a> Others<'a> {
    pub fn of(fleet: &'a Fleet, class: &Class, moves: &Moves<'_>) -> Self {
        let mut others = Self {
            fleet,
            affinity: Vec::new(),
            anti_affinity: Vec::new(),
            spread: Vec::new(),
        };
        let (Some(rules), Some(tenant)) = (&class.rules, &class.tenant) else {
            return others;
        };
        let count = |term: &GroupTerm, coming: bool| {
            others.count((tenant, &term.group), &term.topology_key, moves, coming)
        };
        let affinity = rules.affinity.iter().map(|term| {
            // Who is coming may not come.
            let there = count(term, false);
            let first_of_its_own = there.is_empty() && rules.group.as_ref() == Some(&term.group);
            (
                term.topology_key.clone(),
                (!first_of_its_own).then_some(there),
            )
        });
        let affinity = affinity.collect();
        let anti_affinity = rules
            .anti_affinity
            .iter()
            .map(|term| (term.topology_key.clone(), count(term, true)))
            .collect();
        let spread = rules.spread.iter().filter_map(|rule| {
            let group = rules.group.as_ref()?;
            let count = |coming| others.count((tenant, group), &rule.topology_key, moves, coming);
            // Who is coming may not come: that makes a domain fuller, and none full enough.
            let there = count(true);
            let fewest = others.fewest(&count(false), &rule.topology_key, class);
            Some((
                rule.topology_key.clone(),
                there,
                fewest.saturating_add(rule.max_skew),
            ))
        });
        let spread = spread.collect();
        others.affinity = affinity;
        others.anti_affinity = anti_affinity;
        others.spread = spread;
        others
    }

    /// Only the rules that keep a class away even if all others made room: affinity to a group that must be there already, and
    /// anti-affinity to the same group. Fellows come along, and may be those members.
    fn near(fleet: &'a Fleet, class: &Class, fellows: &[&Class]) -> Self {
        let mut others = Self::of(fleet, class, &Moves::default());
        let (Some(rules), Some(tenant)) = (&class.rules, &class.tenant) else {
            return others;
        };
        let comes_along = |term: &GroupTerm| {
            let group = Some((tenant, &term.group));
            fellows.iter().any(|fellow| fellow.group() == group)
        };
        for (term, near) in rules.affinity.iter().zip(&mut others.affinity) {
            if comes_along(term) {
                near.1 = None;
            }
        }
        let wanted = |group: &Token| rules.affinity.iter().any(|term| term.group == *group);
        let apart = rules.anti_affinity.iter().zip(others.anti_affinity);
        let apart = apart.filter(|(term, _)| wanted(&term.group));
        others.anti_affinity = apart.map(|(_, counts)| counts).collect();
        others.spread.clear();
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

    /// Members of the tenant's group by domain; with those that are coming, or without.
    fn count(
        &self,
        (tenant, group): (&Token, &Token),
        label: &Option<Token>,
        moves: &Moves<'_>,
        coming: bool,
    ) -> Counts {
        let of_group = |class: &Class| class.group() == Some((tenant, group));
        let mut nodes: BTreeMap<NodeNo, i64> = BTreeMap::new();
        for (node, members) in self.fleet.members(tenant, group) {
            let coming = if coming { members.coming } else { 0 };
            nodes.insert(node, i64::from(members.there) + i64::from(coming));
        }
        let mut shift = |moved: &[(NodeNo, &Class)], by: i64| {
            for (node, class) in moved {
                if of_group(class) {
                    *nodes.entry(*node).or_default() += by;
                }
            }
        };
        shift(&moves.gone, -1);
        shift(&moves.come, 1);
        if coming {
            shift(&moves.may_come, 1);
            shift(&moves.not_coming, -1);
        }
        let mut counts = Counts::new();
        for (node, members) in nodes {
            let members = u32::try_from(members).unwrap_or(0);
            if let Some(domain) = self.domain(node, label).filter(|_| members > 0) {
                *counts.entry(domain).or_default() += members;
            }
        }
        counts
    }

    /// Of the domains that the class could go to, the fewest members in one.
    fn fewest(&self, there: &Counts, label: &Option<Token>, class: &Class) -> u32 {
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
        let there = |label, counts: &Counts| {
            let domain = self.domain(node, label);
            domain.map(|domain| counts.get(&domain).copied().unwrap_or(0))
        };
        for (label, counts) in &self.affinity {
            let affinity = match counts {
                Some(counts) => there(label, counts).is_some_and(|members| members > 0),
                None => self.domain(node, label).is_some(),
            };
            if !affinity {
                return Some(Filter::Affinity);
            }
        }
        for (label, counts) in &self.anti_affinity {
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

impl Fleet {
    /// Returns by kind how many `counted` nodes a class may use if all others made room; `None` if it has no affinity, and so
    /// all of them.
    pub fn near_by_kind(
        &self,
        class: &Class,
        fellows: &[&Class],
        counted: impl Fn(&Node) -> bool,
    ) -> Option<BTreeMap<KindNo, u32>> {
        class.affinity().next()?;
        let near = Others::near(self, class, fellows);
        let mut by_kind = BTreeMap::new();
        for (node, no) in self.nodes().iter().zip(0..) {
            if counted(node) && near.keep_off(NodeNo(no)).is_none() {
                *by_kind.entry(node.kind).or_default() += 1;
            }
        }
        Some(by_kind)
    }
}
