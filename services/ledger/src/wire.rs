//! The one place that converts between the ledger's words and its messages.

use schemas::v1;
use std::fmt;
use v1::event::Kind;
use vocab::{
    AdminChange, AllocationNo, AllocationSpec, CancelVerdict, EndCause, Event, EventNo, GpuRequest,
    GpuShare, Millis, NodeCapacity, Operation, Refusal, ResourceKey, ResourceKind, Rule, RunState,
    Token, TraceContext, WaitingReason,
};

/// The message has a value that no writer of this or an earlier version has put there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError(pub &'static str);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown or missing value: {}", self.0)
    }
}

impl std::error::Error for WireError {}

fn token(text: &str, field: &'static str) -> Result<Token, WireError> {
    Token::new(text).map_err(|_| WireError(field))
}

fn optional_token(text: &str, field: &'static str) -> Result<Option<Token>, WireError> {
    (!text.is_empty()).then(|| token(text, field)).transpose()
}

fn text(token: &Option<Token>) -> String {
    token.as_ref().map(Token::to_string).unwrap_or_default()
}

fn find<T: Copy>(
    all: &[T],
    number: i32,
    of: fn(T) -> i32,
    field: &'static str,
) -> Result<T, WireError> {
    all.iter()
        .copied()
        .find(|value| of(*value) == number)
        .ok_or(WireError(field))
}

/// The number that stands for the reason in messages.
pub fn waiting_number(reason: WaitingReason) -> i32 {
    reason as i32
}

/// The number that stands for the cause in messages.
pub fn cause_number(cause: EndCause) -> i32 {
    cause as i32
}

pub fn refusal_to_proto(refusal: &Refusal) -> v1::Refusal {
    v1::Refusal {
        rule: refusal.rule.number(),
        subject: refusal.subject.clone(),
        limit: refusal.limit,
        actual: refusal.actual,
    }
}

pub fn refusal_from_proto(refusal: Option<v1::Refusal>) -> Result<Refusal, WireError> {
    let refusal = refusal.ok_or(WireError("refusal"))?;
    Ok(Refusal {
        rule: Rule::from_number(refusal.rule).ok_or(WireError("refusal.rule"))?,
        subject: refusal.subject,
        limit: refusal.limit,
        actual: refusal.actual,
    })
}

pub fn spec_to_proto(spec: &AllocationSpec) -> v1::AllocationSpec {
    v1::AllocationSpec {
        job_set: spec.job_set.to_string(),
        name: text(&spec.name),
        priority: spec.priority,
        cpu_milli: spec.cpu_milli,
        memory_bytes: spec.memory_bytes,
        gpu: spec.gpu.as_ref().map(|gpu| v1::GpuRequest {
            count: gpu.count.into(),
            milli: gpu.milli.into(),
            models: gpu.models.iter().map(Token::to_string).collect(),
        }),
    }
}

pub fn spec_from_proto(spec: Option<v1::AllocationSpec>) -> Result<AllocationSpec, WireError> {
    let spec = spec.ok_or(WireError("spec"))?;
    let gpu = spec
        .gpu
        .map(|gpu| {
            Ok(GpuRequest {
                count: gpu.count.try_into().map_err(|_| WireError("gpu.count"))?,
                milli: gpu.milli.try_into().map_err(|_| WireError("gpu.milli"))?,
                models: gpu
                    .models
                    .iter()
                    .map(|model| token(model, "gpu.models"))
                    .collect::<Result<_, _>>()?,
            })
        })
        .transpose()?;
    Ok(AllocationSpec {
        job_set: token(&spec.job_set, "spec.job_set")?,
        name: optional_token(&spec.name, "spec.name")?,
        priority: spec.priority,
        cpu_milli: spec.cpu_milli,
        memory_bytes: spec.memory_bytes,
        gpu,
    })
}

pub fn shares_to_proto(gpus: &[GpuShare]) -> Vec<v1::GpuShare> {
    gpus.iter()
        .map(|share| v1::GpuShare {
            device: share.device.into(),
            milli: share.milli.into(),
        })
        .collect()
}

fn shares_from_proto(gpus: &[v1::GpuShare]) -> Result<Vec<GpuShare>, WireError> {
    gpus.iter()
        .map(|share| {
            Ok(GpuShare {
                device: share
                    .device
                    .try_into()
                    .map_err(|_| WireError("gpus.device"))?,
                milli: share
                    .milli
                    .try_into()
                    .map_err(|_| WireError("gpus.milli"))?,
            })
        })
        .collect()
}

pub fn capacity_to_proto(capacity: &NodeCapacity) -> v1::NodeCapacity {
    v1::NodeCapacity {
        cpu_milli: capacity.cpu_milli,
        memory_bytes: capacity.memory_bytes,
        gpus: capacity.gpus.into(),
        gpu_model: text(&capacity.gpu_model),
    }
}

pub fn capacity_from_proto(capacity: Option<v1::NodeCapacity>) -> Result<NodeCapacity, WireError> {
    let capacity = capacity.ok_or(WireError("capacity"))?;
    Ok(NodeCapacity {
        cpu_milli: capacity.cpu_milli,
        memory_bytes: capacity.memory_bytes,
        gpus: capacity
            .gpus
            .try_into()
            .map_err(|_| WireError("capacity.gpus"))?,
        gpu_model: optional_token(&capacity.gpu_model, "capacity.gpu_model")?,
    })
}

fn trace_to_proto(trace: &Option<TraceContext>) -> Vec<u8> {
    trace.as_ref().map_or_else(Vec::new, |t| {
        let mut bytes = Vec::with_capacity(25);
        bytes.extend_from_slice(&t.trace_id);
        bytes.extend_from_slice(&t.span_id);
        bytes.push(t.flags);
        bytes
    })
}

fn trace_from_proto(bytes: &[u8]) -> Result<Option<TraceContext>, WireError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let error = WireError("operation.trace");
    let (trace_id, rest) = bytes.split_first_chunk::<16>().ok_or(error.clone())?;
    let (span_id, rest) = rest.split_first_chunk::<8>().ok_or(error.clone())?;
    let [flags] = rest else { return Err(error) };
    Ok(Some(TraceContext {
        trace_id: *trace_id,
        span_id: *span_id,
        flags: *flags,
    }))
}

fn operation_to_proto(operation: &Operation) -> Option<v1::Operation> {
    Some(v1::Operation {
        tenant: operation.tenant.to_string(),
        operation_id: text(&operation.operation_id),
        digest: operation.digest.to_vec(),
        reply_to: text(&operation.reply_to),
        trace: trace_to_proto(&operation.trace),
    })
}

fn operation_from_proto(operation: Option<v1::Operation>) -> Result<Operation, WireError> {
    let operation = operation.ok_or(WireError("operation"))?;
    Ok(Operation {
        tenant: token(&operation.tenant, "operation.tenant")?,
        operation_id: optional_token(&operation.operation_id, "operation.operation_id")?,
        digest: operation
            .digest
            .try_into()
            .map_err(|_| WireError("operation.digest"))?,
        reply_to: optional_token(&operation.reply_to, "operation.reply_to")?,
        trace: trace_from_proto(&operation.trace)?,
    })
}

fn admin_to_proto(operation: &Operation, change: &AdminChange, version: u64) -> Kind {
    let operation = operation_to_proto(operation);
    match change {
        AdminChange::Tenant { tenant } => Kind::TenantSet(v1::TenantSet {
            operation,
            tenant: tenant.to_string(),
            version,
        }),
        AdminChange::Quota {
            tenant,
            resource,
            limit,
        } => Kind::QuotaSet(v1::QuotaSet {
            operation,
            tenant: tenant.to_string(),
            resource: resource.name().to_owned(),
            limit: *limit,
            version,
        }),
        AdminChange::Rate {
            resource,
            micro_per_unit_hour,
            effective_from,
        } => Kind::RateSet(v1::RateSet {
            operation,
            resource: resource.to_string(),
            micro_per_unit_hour: *micro_per_unit_hour,
            effective_from_ms: effective_from.0,
            version,
        }),
    }
}

pub fn event_to_proto(event: &Event) -> v1::Event {
    let kind = match event {
        Event::AdminApplied {
            operation,
            change,
            version,
        } => admin_to_proto(operation, change, *version),
        Event::AllocationRequested { operation, spec } => {
            Kind::AllocationRequested(v1::AllocationRequested {
                operation: operation_to_proto(operation),
                spec: Some(spec_to_proto(spec)),
            })
        }
        Event::CancelRequested {
            operation,
            allocation,
        } => Kind::CancelRequested(v1::CancelRequested {
            operation: operation_to_proto(operation),
            allocation: allocation.0,
        }),
        Event::OperationRefused {
            operation,
            job_set,
            refusal,
        } => Kind::OperationRefused(v1::OperationRefused {
            operation: operation_to_proto(operation),
            job_set: text(job_set),
            refusal: Some(refusal_to_proto(refusal)),
        }),
        Event::OperationRepeated {
            tenant,
            original,
            reply_to,
        } => Kind::OperationRepeated(v1::OperationRepeated {
            tenant: tenant.to_string(),
            original: original.0,
            reply_to: text(reply_to),
        }),
        Event::OperationsForgotten { through } => {
            Kind::OperationsForgotten(v1::OperationsForgotten { through: through.0 })
        }
        Event::QuotaReserved { allocation } => Kind::QuotaReserved(v1::QuotaReserved {
            allocation: allocation.0,
        }),
        Event::QuotaDenied {
            allocation,
            refusal,
        } => Kind::QuotaDenied(v1::QuotaDenied {
            allocation: allocation.0,
            refusal: Some(refusal_to_proto(refusal)),
        }),
        Event::QuotaReleased { allocation } => Kind::QuotaReleased(v1::QuotaReleased {
            allocation: allocation.0,
        }),
        Event::AllocationPlaced {
            allocation,
            node,
            incarnation,
            gpus,
        } => Kind::AllocationPlaced(v1::AllocationPlaced {
            allocation: allocation.0,
            node: node.to_string(),
            incarnation: *incarnation,
            gpus: shares_to_proto(gpus),
        }),
        Event::AllocationWaiting { allocation, reason } => {
            Kind::AllocationWaiting(v1::AllocationWaiting {
                allocation: allocation.0,
                reason: waiting_number(*reason),
            })
        }
        Event::AllocationStarted { allocation, at } => {
            Kind::AllocationStarted(v1::AllocationStarted {
                allocation: allocation.0,
                at_ms: at.0,
            })
        }
        Event::AllocationStopping { allocation } => {
            Kind::AllocationStopping(v1::AllocationStopping {
                allocation: allocation.0,
            })
        }
        Event::AllocationEnded {
            allocation,
            cause,
            at,
        } => Kind::AllocationEnded(v1::AllocationEnded {
            allocation: allocation.0,
            cause: cause_number(*cause),
            at_ms: at.0,
        }),
        Event::CancelDecided {
            request,
            allocation,
            verdict,
        } => Kind::CancelDecided(v1::CancelDecided {
            request: request.0,
            allocation: allocation.0,
            was_live: *verdict == CancelVerdict::WasLive,
        }),
        Event::NodeRegistered {
            node,
            incarnation,
            capacity,
        } => Kind::NodeRegistered(v1::NodeRegistered {
            node: node.to_string(),
            incarnation: *incarnation,
            capacity: Some(capacity_to_proto(capacity)),
        }),
        Event::NodeReady { node, incarnation } => Kind::NodeReady(v1::NodeReady {
            node: node.to_string(),
            incarnation: *incarnation,
        }),
        Event::NodeLost {
            node,
            incarnation,
            last_seen,
        } => Kind::NodeLost(v1::NodeLost {
            node: node.to_string(),
            incarnation: *incarnation,
            last_seen_ms: last_seen.0,
        }),
        Event::RunReported {
            allocation,
            node,
            state,
            at,
        } => Kind::RunReported(v1::RunReported {
            allocation: allocation.0,
            node: node.to_string(),
            state: *state as i32,
            at_ms: at.0,
        }),
    };
    v1::Event { kind: Some(kind) }
}

pub fn event_from_proto(event: v1::Event) -> Result<Event, WireError> {
    Ok(match event.kind.ok_or(WireError("event kind"))? {
        Kind::TenantSet(e) => Event::AdminApplied {
            operation: operation_from_proto(e.operation)?,
            change: AdminChange::Tenant {
                tenant: token(&e.tenant, "tenant")?,
            },
            version: e.version,
        },
        Kind::QuotaSet(e) => Event::AdminApplied {
            operation: operation_from_proto(e.operation)?,
            change: AdminChange::Quota {
                tenant: token(&e.tenant, "tenant")?,
                resource: ResourceKind::parse(&e.resource).ok_or(WireError("resource"))?,
                limit: e.limit,
            },
            version: e.version,
        },
        Kind::RateSet(e) => Event::AdminApplied {
            operation: operation_from_proto(e.operation)?,
            change: AdminChange::Rate {
                resource: ResourceKey::parse(&e.resource).ok_or(WireError("resource"))?,
                micro_per_unit_hour: e.micro_per_unit_hour,
                effective_from: Millis(e.effective_from_ms),
            },
            version: e.version,
        },
        Kind::AllocationRequested(e) => Event::AllocationRequested {
            operation: operation_from_proto(e.operation)?,
            spec: spec_from_proto(e.spec)?,
        },
        Kind::CancelRequested(e) => Event::CancelRequested {
            operation: operation_from_proto(e.operation)?,
            allocation: AllocationNo(e.allocation),
        },
        Kind::OperationRefused(e) => Event::OperationRefused {
            operation: operation_from_proto(e.operation)?,
            job_set: optional_token(&e.job_set, "job_set")?,
            refusal: refusal_from_proto(e.refusal)?,
        },
        Kind::OperationRepeated(e) => Event::OperationRepeated {
            tenant: token(&e.tenant, "tenant")?,
            original: EventNo(e.original),
            reply_to: optional_token(&e.reply_to, "reply_to")?,
        },
        Kind::OperationsForgotten(e) => Event::OperationsForgotten {
            through: EventNo(e.through),
        },
        Kind::QuotaReserved(e) => Event::QuotaReserved {
            allocation: AllocationNo(e.allocation),
        },
        Kind::QuotaDenied(e) => Event::QuotaDenied {
            allocation: AllocationNo(e.allocation),
            refusal: refusal_from_proto(e.refusal)?,
        },
        Kind::QuotaReleased(e) => Event::QuotaReleased {
            allocation: AllocationNo(e.allocation),
        },
        Kind::AllocationPlaced(e) => Event::AllocationPlaced {
            allocation: AllocationNo(e.allocation),
            node: token(&e.node, "node")?,
            incarnation: e.incarnation,
            gpus: shares_from_proto(&e.gpus)?,
        },
        Kind::AllocationWaiting(e) => Event::AllocationWaiting {
            allocation: AllocationNo(e.allocation),
            reason: find(&WaitingReason::ALL, e.reason, waiting_number, "reason")?,
        },
        Kind::AllocationStarted(e) => Event::AllocationStarted {
            allocation: AllocationNo(e.allocation),
            at: Millis(e.at_ms),
        },
        Kind::AllocationStopping(e) => Event::AllocationStopping {
            allocation: AllocationNo(e.allocation),
        },
        Kind::AllocationEnded(e) => Event::AllocationEnded {
            allocation: AllocationNo(e.allocation),
            cause: find(&EndCause::ALL, e.cause, cause_number, "cause")?,
            at: Millis(e.at_ms),
        },
        Kind::CancelDecided(e) => Event::CancelDecided {
            request: EventNo(e.request),
            allocation: AllocationNo(e.allocation),
            verdict: if e.was_live {
                CancelVerdict::WasLive
            } else {
                CancelVerdict::HadEnded
            },
        },
        Kind::NodeRegistered(e) => Event::NodeRegistered {
            node: token(&e.node, "node")?,
            incarnation: e.incarnation,
            capacity: capacity_from_proto(e.capacity)?,
        },
        Kind::NodeReady(e) => Event::NodeReady {
            node: token(&e.node, "node")?,
            incarnation: e.incarnation,
        },
        Kind::NodeLost(e) => Event::NodeLost {
            node: token(&e.node, "node")?,
            incarnation: e.incarnation,
            last_seen: Millis(e.last_seen_ms),
        },
        Kind::RunReported(e) => Event::RunReported {
            allocation: AllocationNo(e.allocation),
            node: token(&e.node, "node")?,
            state: find(&RunState::ALL, e.state, |state| state as i32, "state")?,
            at: Millis(e.at_ms),
        },
    })
}
