//! The events of the first version, as it filled them. What a sample does not name is what its bytes do not have.

use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationRequested, AllocationStarted, AllocationStopping,
    AllocationWaiting, CancelDecided, CancelRequested, NodeLost, NodeReady, NodeRegistered,
    OperationRefused, OperationRepeated, OperationsForgotten, QuotaDenied, QuotaReleased,
    QuotaReserved, QuotaSet, RateSet, RunReported, TenantSet,
};
use vocab::{
    Account, AdminChange, AllocationNo, AllocationSpec, CancelVerdict, EndCause, Event, EventNo,
    GpuRequest, GpuShare, GpuShares, Limits, Millis, NodeCapacity, Operation, PlacementPolicy,
    QuotaResource, Refusal, ResourceKey, Rule, RunState, Token, TraceContext, Validity,
    WaitingReason,
};

pub fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

pub fn operation() -> Operation {
    Operation {
        tenant: token("team-a"),
        operation_id: Some(token("op-1")),
        digest: [7; 16],
        reply_to: Some(token("r1")),
        trace: Some(TraceContext {
            trace_id: [1; 16],
            span_id: [2; 8],
            flags: 1,
        }),
        by: None,
    }
}

fn bare_operation() -> Operation {
    Operation {
        operation_id: None,
        reply_to: None,
        trace: None,
        ..operation()
    }
}

fn spec() -> AllocationSpec {
    AllocationSpec {
        name: Some(token("pod-1")),
        priority: -3,
        gpu: Some(GpuRequest {
            count: 1,
            milli: 460,
            models: vec![token("T4"), token("V100M32")],
        }),
        ..AllocationSpec::plain(token("train"), 12_000, 1 << 34)
    }
}

pub fn samples() -> Vec<(&'static str, Event)> {
    let allocation = AllocationNo(77);
    let node = token("node-1");
    let refusal = Refusal::over(Rule::QuotaExceeded, "gpu", 8000, 9000);
    let admin = |change: AdminChange| Event::from(change.applied(operation(), 3));
    vec![
        (
            "tenant_set",
            admin(AdminChange::Tenant(TenantSet {
                tenant: token("team-a"),
                closed: false,
                teams: Vec::new(),
                settings: vocab::TenantSettings::default(),
            })),
        ),
        (
            "quota_set",
            admin(AdminChange::Quota(QuotaSet {
                account: Account::tenant(token("team-a")),
                resource: QuotaResource::Gpu,
                limits: Some(Limits::hard(8000)),
                validity: Validity::default(),
            })),
        ),
        (
            "rate_set",
            admin(AdminChange::Rate(RateSet {
                resource: ResourceKey::parse("gpu:T4").unwrap(),
                micro_per_unit_hour: 2_500_000,
                effective_from: Millis(1_704_067_200_000),
                scope: vocab::RateScope::default(),
                withdrawn: false,
            })),
        ),
        (
            "allocation_requested",
            Event::AllocationRequested(AllocationRequested {
                operation: operation(),
                spec: spec(),
            }),
        ),
        (
            "allocation_requested_bare",
            Event::AllocationRequested(AllocationRequested {
                operation: bare_operation(),
                spec: AllocationSpec {
                    name: None,
                    gpu: None,
                    ..spec()
                },
            }),
        ),
        (
            "cancel_requested",
            Event::CancelRequested(CancelRequested {
                operation: operation(),
                allocation,
            }),
        ),
        (
            "operation_refused",
            Event::OperationRefused(OperationRefused {
                operation: bare_operation(),
                job_set: None,
                refusal: refusal.clone(),
                verb: None,
            }),
        ),
        (
            "operation_repeated",
            Event::OperationRepeated(OperationRepeated {
                tenant: token("team-a"),
                original: EventNo(5),
                reply_to: Some(token("r2")),
            }),
        ),
        (
            "operations_forgotten",
            Event::OperationsForgotten(OperationsForgotten {
                through: EventNo(9),
                slots_of: None,
                ended_through: EventNo(0),
                denied_through: EventNo(0),
            }),
        ),
        (
            "quota_reserved",
            Event::QuotaReserved(QuotaReserved {
                allocation,
                flags: vocab::QuotaFlags::default(),
                models: None,
            }),
        ),
        (
            "quota_denied",
            Event::QuotaDenied(QuotaDenied {
                allocation,
                refusal,
            }),
        ),
        (
            "quota_released",
            Event::QuotaReleased(QuotaReleased { allocation }),
        ),
        (
            "allocation_placed",
            Event::AllocationPlaced(AllocationPlaced {
                allocation,
                node: node.clone(),
                incarnation: 4,
                gpus: GpuShares::from_iter([
                    GpuShare {
                        device: 0,
                        milli: 460,
                    },
                    GpuShare {
                        device: 3,
                        milli: 1000,
                    },
                ]),
                zones: 0,
                policy: PlacementPolicy::Default,
                candidates: Default::default(),
            }),
        ),
        (
            "allocation_waiting",
            Event::AllocationWaiting(AllocationWaiting {
                allocation,
                reason: WaitingReason::NoRoomNow,
                pending_group: None,
            }),
        ),
        (
            "allocation_started",
            Event::AllocationStarted(AllocationStarted {
                allocation,
                at: Millis(5),
            }),
        ),
        (
            "allocation_stopping",
            Event::AllocationStopping(AllocationStopping {
                allocation,
                time_limit: false,
            }),
        ),
        (
            "allocation_ended",
            Event::AllocationEnded(AllocationEnded {
                allocation,
                cause: EndCause::NodeLost,
                at: Millis(6),
                exit: None,
            }),
        ),
        (
            "cancel_decided",
            Event::CancelDecided(CancelDecided {
                request: EventNo(8),
                allocation,
                verdict: CancelVerdict::WasLive,
            }),
        ),
        (
            "node_registered",
            Event::NodeRegistered(NodeRegistered {
                node: node.clone(),
                incarnation: 4,
                boot: 4,
                capacity: NodeCapacity {
                    cpu_milli: 64_000,
                    memory_bytes: 1 << 38,
                    gpus: 2,
                    gpu_model: Some(token("P100")),
                    ..NodeCapacity::default()
                },
            }),
        ),
        (
            "node_ready",
            Event::NodeReady(NodeReady {
                node: node.clone(),
                incarnation: 4,
            }),
        ),
        (
            "node_lost",
            Event::NodeLost(NodeLost {
                node: node.clone(),
                incarnation: 4,
                last_seen: Millis(1),
            }),
        ),
        (
            "run_reported",
            Event::RunReported(RunReported {
                allocation,
                node,
                state: RunState::Failed,
                at: Millis(9),
                exit: None,
            }),
        ),
    ]
}
