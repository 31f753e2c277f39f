//! What an allocation asks for, in the checker's words.

use schemas::v1;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    pub job_set: String,
    pub name: String,
    pub priority: i32,
    pub class: String,
    pub queue: String,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpus: u64,
    pub gpu_milli: u64,
    pub models: BTreeSet<String>,
    /// Models that its quota leaves out.
    pub except: BTreeSet<String>,
    pub extended: BTreeMap<String, u64>,
    pub rules: Option<v1::PlacementRules>,
    pub gang: Option<Gang>,
    /// By number, and whether it must have finished.
    pub depends_on: BTreeMap<u64, bool>,
    pub retries: u64,
    pub never_requeue: bool,
    pub run_time_ms: u64,
    pub ttl_ms: u64,
    pub time_limit_ms: u64,
    pub array_index: Option<u32>,
    pub team: String,
    pub namespace: String,
    /// Of cpu and memory; 0: no more than it asks for.
    pub most: (u64, u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gang {
    pub name: String,
    pub size: u64,
    pub min: u64,
    pub label: String,
}

pub fn gang_asked(gang: &v1::GangRequest) -> Gang {
    Gang {
        name: gang.name.clone(),
        size: positive(gang.size),
        min: positive(if gang.min == 0 { gang.size } else { gang.min }),
        label: gang.uniform_label.clone(),
    }
}

fn positive(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Rules that say nothing are none; requirements and values are sets.
fn rules(given: Option<&v1::PlacementRules>) -> Option<v1::PlacementRules> {
    let mut rules = given
        .filter(|given| **given != v1::PlacementRules::default())?
        .clone();
    for requirement in &mut rules.selector {
        requirement.values.sort_unstable();
        requirement.values.dedup();
    }
    let order = |it: &v1::Requirement| (it.label.clone(), it.operator, it.values.clone());
    rules.selector.sort_by_key(order);
    Some(rules)
}

impl Demand {
    /// Of a sound request of `tenant`, whose class has the value `class_value`.
    pub fn asked(
        tenant: &str,
        submit: &v1::Submit,
        class_value: Option<i32>,
        settings: Option<&v1::TenantSettings>,
    ) -> Self {
        let named_or_default = |named: i64, default: fn(&v1::TenantSettings) -> u64| match named {
            0 if !submit.best_effort => settings.map_or(0, default),
            named => positive(named),
        };
        let cpu_milli = named_or_default(submit.cpu_milli, |it| it.default_cpu_milli);
        let memory_bytes = named_or_default(submit.memory_bytes, |it| it.default_memory_bytes);
        let beyond = |most: i64, asked| Some(positive(most)).filter(|it| *it != asked);
        let job_set = match submit.job_set.as_str() {
            "" => "default",
            name => name,
        };
        let queue = Some(&submit.queue).filter(|queue| *queue != tenant);
        let gpus = positive(submit.gpu_count);
        Self {
            job_set: job_set.to_owned(),
            name: submit.name.clone(),
            priority: class_value.unwrap_or(submit.priority),
            class: submit.priority_class.clone(),
            queue: queue.cloned().unwrap_or_default(),
            cpu_milli,
            memory_bytes,
            gpus,
            gpu_milli: match positive(submit.gpu_milli) {
                0 if gpus > 0 => 1000,
                milli => milli,
            },
            models: submit.gpu_models.iter().cloned().collect(),
            except: BTreeSet::new(),
            extended: submit
                .extended
                .iter()
                .map(|asked| (asked.name.clone(), positive(asked.amount)))
                .collect(),
            rules: rules(submit.rules.as_ref()),
            gang: submit.gang.as_ref().map(gang_asked),
            depends_on: submit
                .depends_on
                .iter()
                .map(|on| (number(&on.allocation_id), on.success))
                .collect(),
            retries: positive(submit.retries),
            never_requeue: submit.never_requeue,
            run_time_ms: positive(submit.run_time_ms),
            ttl_ms: positive(submit.ttl_ms),
            time_limit_ms: positive(submit.time_limit_ms),
            array_index: submit.array_index,
            team: submit.team.clone(),
            namespace: submit.namespace.clone(),
            most: (
                beyond(submit.cpu_milli_limit, cpu_milli).unwrap_or(0),
                beyond(submit.memory_bytes_limit, memory_bytes).unwrap_or(0),
            ),
        }
    }

    pub fn may_use(&self, model: &str) -> bool {
        let asked = self.models.is_empty() || self.models.contains(model);
        self.gpus == 0 || asked && !self.except.contains(model)
    }

    pub fn specified(spec: &v1::AllocationSpec) -> Self {
        let gpu = spec.gpu.clone().unwrap_or_default();
        Self {
            job_set: spec.job_set.clone(),
            name: spec.name.clone(),
            priority: spec.priority,
            class: spec.priority_class.clone(),
            queue: spec.queue.clone(),
            cpu_milli: spec.cpu_milli,
            memory_bytes: spec.memory_bytes,
            gpus: gpu.count.into(),
            gpu_milli: gpu.milli.into(),
            models: gpu.models.into_iter().collect(),
            except: BTreeSet::new(),
            extended: spec
                .extended
                .iter()
                .map(|asked| (asked.name.clone(), asked.amount))
                .collect(),
            rules: rules(spec.rules.as_ref()),
            gang: spec.gang.as_ref().map(|gang| Gang {
                name: gang.name.clone(),
                size: gang.size.into(),
                min: gang.min.into(),
                label: gang.uniform_label.clone(),
            }),
            depends_on: spec
                .depends_on
                .iter()
                .map(|on| (on.allocation, on.success))
                .collect(),
            retries: spec.retries.into(),
            never_requeue: spec.never_requeue,
            run_time_ms: spec.run_time_ms,
            ttl_ms: spec.ttl_ms,
            time_limit_ms: spec.time_limit_ms,
            array_index: spec.array_index,
            team: spec.team.clone(),
            namespace: spec.namespace.clone(),
            most: (spec.cpu_milli_limit, spec.memory_bytes_limit),
        }
    }
}

/// The low half of a UUID.
pub(super) fn number(id: &str) -> u64 {
    let hex: String = id.chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&hex, 16).map_or(0, |value| value as u64)
}
