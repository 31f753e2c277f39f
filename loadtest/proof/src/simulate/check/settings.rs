//! What operators have set, by position.

mod same;

use super::Place;
use schemas::v1::{self, event::Kind, request::Verb};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Settings {
    versions: BTreeMap<Key, u64>,
    /// What accepts nothing new, as admission knows it.
    closed: BTreeSet<Key>,
    tenants: BTreeMap<String, Vec<(u64, v1::TenantSettings)>>,
    /// As admission knows them.
    teams: BTreeMap<String, Vec<String>>,
    cordons: BTreeMap<String, Vec<(u64, v1::cordon_set::Change)>>,
    taints: BTreeMap<String, Vec<(u64, Vec<v1::Taint>)>>,
    /// What a node may be; none: it is forgotten.
    nodes: BTreeMap<String, Vec<(u64, Option<v1::NodeCapacity>)>>,
    classes: BTreeMap<String, Vec<(u64, v1::PriorityClass)>>,
    queues: BTreeMap<String, Vec<(u64, v1::QueueSettings)>>,
    policies: Vec<(u64, v1::SchedulingPolicy)>,
}

type Key = (&'static str, String);

fn seen<'a, T>(history: Option<&'a Vec<(u64, T)>>, at: &Place) -> Option<&'a T> {
    let set = history.into_iter().flatten().rev();
    set.map(|(lsn, value)| (*lsn, value))
        .find(|(lsn, _)| at.saw(*lsn))
        .map(|(_, value)| value)
}

fn latest<T>(history: Option<&Vec<(u64, T)>>) -> Option<&T> {
    history?.last().map(|(_, value)| value)
}

/// More queues than may be above one.
const DEPTH_MAX: usize = 16;

impl Settings {
    pub fn queue(&self, name: &str, at: &Place) -> Option<&v1::QueueSettings> {
        seen(self.queues.get(name), at)
    }

    /// The queue and those above it.
    pub fn up(&self, name: &str, at: &Place) -> Vec<String> {
        let parent = |name: &String| {
            let parent = self.queue(name, at)?.parent.clone();
            Some(parent).filter(|parent| !parent.is_empty())
        };
        std::iter::successors(Some(name.to_owned()), parent)
            .take(DEPTH_MAX)
            .collect()
    }

    /// As admission knows it.
    pub fn queue_is_set(&self, name: &str) -> bool {
        self.queues.contains_key(name)
    }

    /// As admission knows it; the kind is tenant, queue or class.
    pub fn is_closed(&self, kind: &'static str, name: &str) -> bool {
        self.closed.contains(&(kind, name.to_owned()))
    }

    pub fn backfills(&self, at: &Place) -> bool {
        seen(Some(&self.policies), at).is_some_and(|policy| policy.backfill)
    }

    /// As a writer knew it that had read up to its watermark.
    pub fn cordoned(&self, node: &str, at: &Place) -> bool {
        seen(self.cordons.get(node), at).is_some_and(|set| set.cordoned)
    }

    /// So many of its allocations may be on their way out at once, 0: all; none: it is not drained.
    pub fn drained(&self, node: &str, at: &Place) -> Option<u32> {
        let set = seen(self.cordons.get(node), at).filter(|set| set.drain);
        set.map(|set| set.at_once)
    }

    /// Those that a node has got from an operator.
    pub fn taints(&self, node: &str, at: &Place) -> &[v1::Taint] {
        seen(self.taints.get(node), at).map_or(&[], Vec::as_slice)
    }

    /// Whether an operator has ever said what the node may be.
    pub fn was_approved(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// The most that the node may register with.
    pub fn approval(&self, node: &str, at: &Place) -> Option<&v1::NodeCapacity> {
        seen(self.nodes.get(node), at)?.as_ref()
    }

    /// Returns whether an operator forgot the node and has not approved it since.
    pub fn is_forgotten(&self, node: &str, at: &Place) -> bool {
        seen(self.nodes.get(node), at).is_some_and(Option::is_none)
    }

    /// Each node that was to be forgotten, and where that stands last, as a writer knew it that had read up to its watermark.
    pub fn forgotten(&self, at: &Place) -> impl Iterator<Item = (&str, u64)> {
        self.nodes.iter().filter_map(|(node, history)| {
            let mut forgets = history.iter().rev().filter(|(_, set)| set.is_none());
            let (lsn, _) = forgets.find(|(lsn, _)| at.saw(*lsn))?;
            Some((node.as_str(), *lsn))
        })
    }

    pub fn class(&self, name: &str, at: &Place) -> Option<&v1::PriorityClass> {
        seen(self.classes.get(name), at)
    }

    /// As admission knows it, who sets it.
    pub fn class_value(&self, name: &str) -> Option<i32> {
        latest(self.classes.get(name)).map(|class| class.value)
    }

    /// As admission knows it; none for who was never set.
    pub fn tenant(&self, name: &str) -> Option<&v1::TenantSettings> {
        latest(self.tenants.get(name))
    }

    /// Whether the tenant lets an account of its own be of this team and namespace, as admission knows it.
    pub fn has_team(&self, tenant: &str, team: &str, namespace: &str) -> bool {
        let listed = self.teams.get(tenant).map_or(&[][..], Vec::as_slice);
        let whole = format!("{team}/{namespace}");
        let lets_in = |it: &String| match namespace {
            "" => it == team || it.starts_with(&whole),
            _ => it == team || *it == whole,
        };
        team.is_empty() || listed.is_empty() || listed.iter().any(lets_in)
    }

    /// The version in force; 0 for what was never set.
    pub fn version(&self, verb: &Verb) -> u64 {
        let version = asked(verb).and_then(|(key, _)| self.versions.get(&key));
        version.copied().unwrap_or(0)
    }

    pub fn expected_version(&self, verb: &Verb) -> Option<u64> {
        asked(verb).and_then(|(_, expected)| expected)
    }

    /// Takes in a change. Whether it is what was asked for; none when it is no change at all, or another one.
    pub fn set(&mut self, at: &Place, verb: &Verb, kind: &Kind) -> Option<bool> {
        let (key, _) = asked(verb)?;
        let (same, version) = same::same(at, verb, kind)?;
        match kind {
            Kind::TenantSet(e) => {
                let change = e.change.clone().unwrap_or_default();
                let settings = change.settings.unwrap_or_else(usual);
                self.teams.insert(change.tenant.clone(), change.teams);
                let history = self.tenants.entry(change.tenant).or_default();
                history.push((at.lsn, settings));
            }
            Kind::PriorityClassSet(e) => {
                let change = e.change.clone().unwrap_or_default();
                let history = self.classes.entry(change.priority_class).or_default();
                history.push((at.lsn, change.settings.unwrap_or_default()));
            }
            Kind::QueueSet(e) => {
                let change = e.change.clone().unwrap_or_default();
                let history = self.queues.entry(change.queue).or_default();
                history.push((at.lsn, change.settings.unwrap_or_default()));
            }
            Kind::SchedulingSet(e) => {
                let change = e.change.unwrap_or_default();
                let policy = change.policy.unwrap_or_default();
                self.policies.push((at.lsn, policy));
            }
            Kind::CordonSet(e) => {
                let change = e.change.clone().unwrap_or_default();
                let history = self.cordons.entry(change.node.clone()).or_default();
                history.push((at.lsn, change));
            }
            Kind::TaintsSet(e) => {
                let change = e.change.clone().unwrap_or_default();
                let history = self.taints.entry(change.node).or_default();
                history.push((at.lsn, change.taints));
            }
            Kind::NodeSet(e) => {
                let change = e.change.clone().unwrap_or_default();
                let approval = change.approval;
                let capacity = approval.map(|it| it.capacity.unwrap_or_default());
                let history = self.nodes.entry(change.node).or_default();
                history.push((at.lsn, capacity));
            }
            _ => {}
        }
        let closed = match verb {
            Verb::SetTenant(it) => it.closed,
            Verb::SetQueue(it) => it.closed,
            Verb::SetPriorityClass(it) => it.closed,
            _ => false,
        };
        match closed {
            true => self.closed.insert(key.clone()),
            false => self.closed.remove(&key),
        };
        let before = self.versions.entry(key).or_default();
        *before += 1;
        Some(same && version == *before)
    }
}

/// How a tenant is treated of whom nothing is said.
pub fn usual() -> v1::TenantSettings {
    v1::TenantSettings {
        weight_milli: 1000,
        preemptible: true,
        priority_max: 1_000_000,
        ..v1::TenantSettings::default()
    }
}

/// An account as one word.
pub fn account(tenant: &str, team: &str, namespace: &str) -> String {
    let below = [team, namespace]
        .into_iter()
        .filter(|name| !name.is_empty());
    below.fold(tenant.to_owned(), |path, name| path + "/" + name)
}

fn asked(verb: &Verb) -> Option<(Key, Option<u64>)> {
    Some(match verb {
        Verb::SetTenant(it) => (("tenant", it.tenant.clone()), it.expected_version),
        Verb::SetQuota(it) => {
            let account = account(&it.tenant, &it.team, &it.namespace);
            let key = ("quota", format!("{account} {}", it.resource));
            (key, it.expected_version)
        }
        Verb::SetBudget(it) => {
            let account = account(&it.tenant, &it.team, &it.namespace);
            (
                ("budget", format!("{account} {}", it.of)),
                it.expected_version,
            )
        }
        Verb::SetRate(it) => {
            let scope = [&it.tenant, &it.priority_class, &it.pool, &it.cluster];
            let key = ("rate", format!("{} {scope:?}", it.resource));
            (key, it.expected_version)
        }
        Verb::SetQueue(it) => (("queue", it.queue.clone()), it.expected_version),
        Verb::SetPriorityClass(it) => (("class", it.priority_class.clone()), it.expected_version),
        Verb::SetScheduling(it) => (("scheduling", String::new()), it.expected_version),
        Verb::SetCordon(it) => (("cordon", it.node.clone()), it.expected_version),
        Verb::SetTaints(it) => (("taints", it.node.clone()), it.expected_version),
        Verb::SetNode(it) => (("node", it.node.clone()), it.expected_version),
        Verb::ClosePeriod(it) => (("period", String::new()), it.expected_version),
        Verb::SetReservation(it) => (("reservation", it.reservation.clone()), it.expected_version),
        _ => return None,
    })
}
