//! What an allocation asks for.

use super::{
    WireError, extended_from_proto, extended_to_proto, narrow, optional_token, rules_from_proto,
    rules_to_proto, text, texts, token, tokens,
};
use schemas::v1;
use vocab::{AllocationNo, AllocationSpec, Dependency, Gang, GpuRequest, Most, Restart};

pub fn spec_to_proto(spec: &AllocationSpec) -> v1::AllocationSpec {
    let dependency = |dependency: &Dependency| v1::Dependency {
        allocation: dependency.allocation.0,
        success: dependency.success,
    };
    v1::AllocationSpec {
        job_set: spec.job_set.to_string(),
        name: text(&spec.name),
        priority: spec.priority,
        cpu_milli: spec.cpu_milli,
        memory_bytes: spec.memory_bytes,
        gpu: spec.gpu.as_ref().map(gpu_to_proto),
        queue: text(&spec.queue),
        priority_class: text(&spec.priority_class),
        extended: extended_to_proto(&spec.extended),
        rules: spec.rules.as_deref().map(rules_to_proto),
        gang: spec.gang.as_ref().map(gang_to_proto),
        depends_on: spec.depends_on.iter().map(dependency).collect(),
        retries: spec.restart.retries,
        never_requeue: spec.restart.never,
        run_time_ms: spec.run_time_ms,
        team: text(&spec.team),
        namespace: text(&spec.namespace),
        cpu_milli_most: spec.most.cpu_milli,
        memory_bytes_most: spec.most.memory_bytes,
    }
}

pub fn spec_from_proto(spec: Option<v1::AllocationSpec>) -> Result<AllocationSpec, WireError> {
    let spec = spec.ok_or(WireError("spec"))?;
    let dependency = |given: &v1::Dependency| Dependency {
        allocation: AllocationNo(given.allocation),
        success: given.success,
    };
    let rules = spec.rules.as_ref().map(rules_from_proto).transpose()?;
    Ok(AllocationSpec {
        job_set: token(&spec.job_set, "spec.job_set")?,
        name: optional_token(&spec.name, "spec.name")?,
        priority: spec.priority,
        cpu_milli: spec.cpu_milli,
        memory_bytes: spec.memory_bytes,
        gpu: spec.gpu.as_ref().map(gpu_from_proto).transpose()?,
        queue: optional_token(&spec.queue, "spec.queue")?,
        priority_class: optional_token(&spec.priority_class, "spec.priority_class")?,
        extended: extended_from_proto(&spec.extended, "spec.extended")?,
        rules: rules.map(Box::new),
        gang: spec.gang.as_ref().map(gang_from_proto).transpose()?,
        depends_on: spec.depends_on.iter().map(dependency).collect(),
        restart: Restart {
            retries: spec.retries,
            never: spec.never_requeue,
        },
        run_time_ms: spec.run_time_ms,
        team: optional_token(&spec.team, "spec.team")?,
        namespace: optional_token(&spec.namespace, "spec.namespace")?,
        most: Most {
            cpu_milli: spec.cpu_milli_most,
            memory_bytes: spec.memory_bytes_most,
        },
    })
}

fn gpu_to_proto(gpu: &GpuRequest) -> v1::GpuRequest {
    v1::GpuRequest {
        count: gpu.count.into(),
        milli: gpu.milli.into(),
        models: texts(&gpu.models),
    }
}

fn gpu_from_proto(gpu: &v1::GpuRequest) -> Result<GpuRequest, WireError> {
    Ok(GpuRequest {
        count: narrow(gpu.count, "gpu.count")?,
        milli: narrow(gpu.milli, "gpu.milli")?,
        models: tokens(&gpu.models, "gpu.models")?,
    })
}

fn gang_to_proto(gang: &Gang) -> v1::Gang {
    v1::Gang {
        name: gang.name.to_string(),
        size: gang.size,
        min: gang.min,
        uniform_label: text(&gang.uniform_label),
    }
}

fn gang_from_proto(gang: &v1::Gang) -> Result<Gang, WireError> {
    Ok(Gang {
        name: token(&gang.name, "gang.name")?,
        size: gang.size,
        min: gang.min,
        uniform_label: optional_token(&gang.uniform_label, "gang.uniform_label")?,
    })
}
