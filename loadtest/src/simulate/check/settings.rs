//! What operators have set beside tenants and quotas, by position.

use super::{Place, doors::Admin};
use schemas::v1::{self, event::Kind, request::Verb};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Settings {
    versions: BTreeMap<(&'static str, String), u64>,
    cordons: BTreeMap<String, Vec<(u64, bool)>>,
    classes: BTreeMap<String, Vec<(u64, v1::PriorityClass)>>,
}

fn seen<'a, T>(history: Option<&'a Vec<(u64, T)>>, at: &Place) -> Option<&'a T> {
    let set = history.into_iter().flatten().rev();
    set.map(|(lsn, value)| (*lsn, value))
        .find(|(lsn, _)| at.saw(*lsn))
        .map(|(_, value)| value)
}

impl Settings {
    /// As a writer knew it that had read up to its watermark.
    pub fn cordoned(&self, node: &str, at: &Place) -> bool {
        seen(self.cordons.get(node), at).is_some_and(|cordoned| *cordoned)
    }

    pub fn class(&self, name: &str, at: &Place) -> Option<&v1::PriorityClass> {
        seen(self.classes.get(name), at)
    }

    /// As admission knows it, who sets it.
    pub fn class_value(&self, name: &str) -> Option<i32> {
        let set = self.classes.get(name).and_then(|history| history.last());
        set.map(|(_, class)| class.value)
    }

    /// The version that was asked for, and the one in force.
    pub fn versions(&self, verb: &Verb) -> Option<(Option<u64>, u64)> {
        let (key, expected) = asked(verb)?;
        Some((expected, self.versions.get(&key).copied().unwrap_or(0)))
    }

    /// Takes in a change. Whether it is what was asked for.
    pub fn set(&mut self, at: &Place, verb: &Verb, kind: &Kind) -> Admin {
        let Some((key, expected)) = asked(verb) else {
            return Admin::Other;
        };
        let before = self.versions.get(&key).copied().unwrap_or(0);
        let (same, version) = match (verb, kind) {
            (Verb::SetQueue(asked), Kind::QueueSet(e)) => {
                let settings = e.settings.clone().unwrap_or_default();
                let weight = asked.weight_milli.unwrap_or(1000);
                let same = e.queue == asked.queue
                    && settings.parent == asked.parent
                    && i64::from(settings.weight_milli) == weight
                    && settings.order == asked.order
                    && settings.limits.len() == asked.limits.len();
                (same, e.version)
            }
            (Verb::SetPriorityClass(asked), Kind::PriorityClassSet(e)) => {
                let settings = e.settings.unwrap_or_default();
                let class = v1::PriorityClass {
                    value: asked.value,
                    preemptible: asked.preemptible,
                    preempts: asked.preempts,
                    grace_ms: u64::try_from(asked.grace_ms).unwrap_or(0),
                    placement: asked.placement,
                };
                let same = e.priority_class == asked.priority_class && settings == class;
                let history = self.classes.entry(e.priority_class.clone()).or_default();
                history.push((at.lsn, settings));
                (same, e.version)
            }
            (Verb::SetScheduling(asked), Kind::SchedulingSet(e)) => {
                let policy = e.policy.unwrap_or_default();
                let same = policy.placement == asked.placement && policy.backfill == asked.backfill;
                (same, e.version)
            }
            (Verb::SetCordon(asked), Kind::CordonSet(e)) => {
                let history = self.cordons.entry(e.node.clone()).or_default();
                history.push((at.lsn, e.cordoned));
                let same = (&e.node, e.cordoned) == (&asked.node, asked.cordoned);
                (same, e.version)
            }
            _ => return Admin::Other,
        };
        self.versions.insert(key, before + 1);
        let expected = expected.is_none_or(|expected| expected == before);
        Admin::Set(same && expected && version == before + 1)
    }
}

type Key = (&'static str, String);

fn asked(verb: &Verb) -> Option<(Key, Option<u64>)> {
    Some(match verb {
        Verb::SetQueue(it) => (("queue", it.queue.clone()), it.expected_version),
        Verb::SetPriorityClass(it) => (("class", it.priority_class.clone()), it.expected_version),
        Verb::SetScheduling(it) => (("scheduling", String::new()), it.expected_version),
        Verb::SetCordon(it) => (("cordon", it.node.clone()), it.expected_version),
        Verb::SetReservation(_)
        | Verb::Submit(_)
        | Verb::Cancel(_)
        | Verb::SetTenant(_)
        | Verb::SetQuota(_)
        | Verb::SetRate(_) => return None,
    })
}
