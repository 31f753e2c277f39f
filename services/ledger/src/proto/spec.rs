//! What an allocation asks for.

use super::{extended_to_proto, rules_to_proto, text, texts};
use schemas::v1;
use vocab::{AllocationSpec, Dependency, Gang, GpuRequest};

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

fn gpu_to_proto(gpu: &GpuRequest) -> v1::GpuRequest {
    v1::GpuRequest {
        count: gpu.count.into(),
        milli: gpu.milli.into(),
        models: texts(&gpu.models),
    }
}

fn gang_to_proto(gang: &Gang) -> v1::Gang {
    v1::Gang {
        name: gang.name.to_string(),
        size: gang.size,
        min: gang.min,
        uniform_label: text(&gang.uniform_label),
    }
}
