//! An allocation as its tenant would ask for it again.

use super::allocation::{labels, models};
use schemas::{
    ToProst as _,
    v1::{DependencyRequest, ExtendedRequest, GangRequest, Submit},
};
use vocab::{
    AllocationSpec, CellNo, Gang, Operator, PlacementRules, QosClass, Requirement, Token, Work,
};

/// The request of which admission makes this specification: what it adds of its own is left out. With a priority class the
/// priority is the class's, whatever it was set to since.
pub fn request(spec: &AllocationSpec, cell: CellNo) -> Submit {
    let text = |token: &Option<Token>| token.as_ref().map_or_else(String::new, Token::to_string);
    let gpu = spec.gpu.as_ref();
    let extended = spec.extended.iter().map(|(name, amount)| ExtendedRequest {
        name: name.to_string(),
        amount: *amount as i64,
    });
    let depends_on = spec.depends_on.iter().map(|on| DependencyRequest {
        allocation_id: on.allocation.id(cell).to_string(),
        success: on.success,
        operation_id: String::new(),
    });
    Submit {
        job_set: spec.job_set.to_string(),
        name: text(&spec.name),
        priority: match spec.priority_class {
            Some(_) => 0,
            None => spec.priority,
        },
        cpu_milli: spec.cpu_milli as i64,
        memory_bytes: spec.memory_bytes as i64,
        gpu_count: gpu.map_or(0, |gpu| gpu.count.into()),
        gpu_milli: gpu.map_or(0, |gpu| gpu.milli.into()),
        gpu_models: models(gpu),
        queue: text(&spec.queue),
        priority_class: text(&spec.priority_class),
        extended: extended.collect(),
        rules: own_rules(spec).map(|rules| rules.to_prost()),
        gang: spec.gang.as_ref().map(gang),
        depends_on: depends_on.collect(),
        retries: spec.restart.retries.into(),
        never_requeue: spec.restart.never,
        run_time_ms: spec.run_time_ms as i64,
        team: text(&spec.team),
        namespace: text(&spec.namespace),
        cpu_milli_limit: spec.limits.cpu_milli as i64,
        memory_bytes_limit: spec.limits.memory_bytes as i64,
        best_effort: spec.qos() == QosClass::BestEffort,
        labels: labels(spec),
        work: spec.work.as_ref().map(|work| work.to_prost()),
        ttl_ms: spec.bounds.ttl_ms as i64,
        time_limit_ms: spec.bounds.time_limit_ms as i64,
        array_index: spec.array_index,
    }
}

fn gang(gang: &Gang) -> GangRequest {
    let label = gang.uniform_label.as_ref();
    GangRequest {
        name: gang.name.to_string(),
        size: gang.size.into(),
        min: gang.min.into(),
        uniform_label: label.map_or_else(String::new, Token::to_string),
    }
}

/// Without the one requirement that what it runs has of nodes.
fn own_rules(spec: &AllocationSpec) -> Option<PlacementRules> {
    let mut rules = spec.rules.as_deref()?.clone();
    if let Some(work) = &spec.work {
        rules.selector.retain(|one| !is_of_work(one, work));
    }
    (rules != PlacementRules::default()).then_some(rules)
}

/// Whether admission adds it for this work. Others about the same label are the tenant's own.
fn is_of_work(one: &Requirement, work: &Work) -> bool {
    let is_met_by = match work.image.is_empty() {
        true => one.operator == Operator::Exists,
        false => {
            let values = one.values.iter().map(Token::as_str);
            one.operator == Operator::In && values.eq([Work::BY_PLUGIN])
        }
    };
    is_met_by && one.label.as_str() == Work::NODE_LABEL
}
