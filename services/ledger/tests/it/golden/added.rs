//! What later versions added: new events, and new fields of old ones.

use crate::golden::samples::{operation, token};
use std::sync::Arc;
use vocab::fact::{
    AllocationEnded, AllocationNominated, AllocationPlaced, AllocationPreempted,
    AllocationReprioritised, AllocationRequested, AllocationRequeued, AllocationStopping,
    AllocationWaiting, Applied, BudgetSet, CordonSet, JobSetCancelDecided, JobSetCancelRequested,
    LeaseExpired, LimitsInForce, NodeForgotten, NodeJoined, NodeRegistered, NodeSet,
    OperationRefused, OperationsForgotten, PendingGroupExplained, PriorityClassSet,
    PriorityDecided, PriorityRequested, QueueSet, QuotaReclaimed, QuotaReserved, QuotaSet,
    QuotaWaiting, RateSet, ReservationDecided, ReservationSet, ResourceAsked, ResourceDecided,
    RunReported, SchedulingSet, TaintsSet, TenantSet,
};
use vocab::{
    Account, AdminChange, AdvanceReservation, AllocationNo, AllocationSpec, Budget, BudgetOf,
    Candidate, Candidates, Dependency, EndCause, Event, EventNo, Filter, Gang, GpuShare, GpuShares,
    GroupTerm, LeaseNo, Limits, Millis, NodeApproval, NodeCapacity, NumaPolicy, OnExceed,
    Operation, Operator, PendingGroupNo, Period, PlacementPolicy, PlacementRules, PreemptionCause,
    PriorityClass, PriorityTarget, QueueOrder, QueueSettings, QuotaFlags, QuotaResource, RateScope,
    ReclaimFrom, Refusal, Requirement, ResourceAnswer, ResourceAsk, ResourceKey, ResourceKind,
    Restart, Rule, RunExit, RunExitReason, RunLimits, RunState, RunUsage, SchedulingPolicy, Spread,
    Taint, TaintEffect, Team, TenantSettings, TimeBounds, Toleration, Topology, Validity, Verb,
    WaitingReason, Work, Zone,
};

fn requirement(label: &str, operator: Operator, values: &[&str]) -> Requirement {
    Requirement {
        label: token(label),
        operator,
        values: values.iter().map(|value| token(value)).collect(),
    }
}

fn term(group: &str, domain: Option<&str>) -> GroupTerm {
    GroupTerm {
        group: token(group),
        topology_key: domain.map(token),
    }
}

fn rules() -> PlacementRules {
    PlacementRules {
        selector: vec![
            requirement("disk", Operator::In, &["nvme", "ssd"]),
            requirement("old", Operator::Missing, &[]),
            requirement("rack", Operator::NotIn, &["r9"]),
            requirement("zone", Operator::Exists, &[]),
        ],
        tolerations: vec![
            Toleration {
                key: None,
                value: None,
            },
            Toleration {
                key: Some(token("reserved")),
                value: Some(token("research")),
            },
        ],
        group: Some(token("workers")),
        affinity: vec![term("store", Some("rack"))],
        anti_affinity: vec![term("workers", None)],
        spread: vec![Spread {
            topology_key: Some(token("zone")),
            max_skew: 2,
        }],
        numa: NumaPolicy::Single,
        preferred: Vec::new(),
    }
}

fn spec() -> AllocationSpec {
    AllocationSpec {
        queue: Some(token("research")),
        priority_class: Some(token("batch")),
        extended: vec![(token("fpga"), 2), (token("licence"), 1 << 40)],
        rules: Some(Box::new(rules())),
        gang: Some(Gang {
            name: token("mpi"),
            size: 64,
            min: 48,
            uniform_label: Some(token("rack")),
        }),
        depends_on: vec![
            Dependency {
                allocation: AllocationNo(70),
                success: false,
            },
            Dependency {
                allocation: AllocationNo(71),
                success: true,
            },
        ],
        restart: Restart {
            retries: 3,
            never: true,
        },
        run_time_ms: 7_200_000,
        ..AllocationSpec::plain(token("train"), 12_000, 1 << 34)
    }
}

fn capacity() -> NodeCapacity {
    let zone = |gpus| Zone {
        cpu_milli: 32_000,
        memory_bytes: 1 << 37,
        gpus,
    };
    NodeCapacity {
        cpu_milli: 64_000,
        memory_bytes: 1 << 38,
        gpus: 2,
        gpu_model: Some(token("P100")),
        labels: vec![(token("rack"), token("r1")), (token("zone"), token("z1"))],
        taints: vec![
            Taint {
                key: token("maintenance"),
                value: None,
                effect: vocab::TaintEffect::NoSchedule,
            },
            Taint {
                key: token("reserved"),
                value: Some(token("research")),
                effect: vocab::TaintEffect::NoSchedule,
            },
        ],
        extended: vec![(token("fpga"), 4)],
        topology: Some(Box::new(Topology {
            zones: vec![zone(1), zone(2)],
            distances: vec![10, 21, 21, 10],
            links: vec![(0, 1)],
        })),
        max_runs: 0,
    }
}

fn admin(change: AdminChange) -> Event {
    change.applied(operation(), 3).into()
}

fn changes() -> Vec<(&'static str, Event)> {
    let queue = |settings| {
        admin(AdminChange::Queue(QueueSet {
            queue: token("research"),
            closed: false,
            settings,
        }))
    };
    let class = |placement| {
        admin(AdminChange::PriorityClass(PriorityClassSet {
            class: token("batch"),
            closed: false,
            settings: PriorityClass {
                value: -5,
                preemptible: true,
                preempts: true,
                grace_ms: 30_000,
                placement,
            },
        }))
    };
    let reservation = |wanted| {
        admin(AdminChange::Reservation(ReservationSet {
            reservation: token("demo"),
            wanted,
        }))
    };
    vec![
        (
            "queue_set",
            queue(QueueSettings {
                parent: Some(token("science")),
                weight_milli: 2500,
                limits: vec![(ResourceKind::Cpu, 0), (ResourceKind::Gpu, 8000)],
                tenants: vec![token("team-a"), token("team-b")],
                order: QueueOrder::SmallestArea,
                placement: Some(PlacementPolicy::Default),
            }),
        ),
        ("queue_set_plain", queue(QueueSettings::default())),
        ("priority_class_set", class(Some(PlacementPolicy::Fgd))),
        ("priority_class_set_plain", class(None)),
        (
            "scheduling_set",
            admin(AdminChange::Scheduling(SchedulingSet {
                policy: SchedulingPolicy {
                    placement: PlacementPolicy::BestFit,
                    half_life_ms: 86_400_000,
                    fair_share_preemption: true,
                    protected_milli: 500,
                    preemptions_per_minute: 60,
                    aging_ms: 60_000,
                    backfill: true,
                    backoff_ms: 500,
                    backoff_ms_max: 60_000,
                },
            })),
        ),
        (
            "cordon_set",
            admin(AdminChange::Cordon(CordonSet {
                node: token("node-1"),
                cordoned: true,
                drain: false,
                at_once: 0,
            })),
        ),
        (
            "reservation_set",
            reservation(Some(AdvanceReservation {
                queue: token("research"),
                from: Millis(1_704_067_200_000),
                until: Millis(1_704_070_800_000),
                nodes: 12,
                selector: vec![requirement("zone", Operator::In, &["z1"])],
            })),
        ),
        ("reservation_taken_back", reservation(None)),
        (
            "node_set",
            admin(AdminChange::Node(NodeSet {
                node: token("node-1"),
                approval: Some(Box::new(NodeApproval {
                    capacity: NodeCapacity {
                        taints: Vec::new(),
                        topology: None,
                        ..capacity()
                    },
                    token: [7; 32],
                    until: Millis(1_704_067_200_000),
                })),
            })),
        ),
        (
            "node_set_2",
            admin(AdminChange::Node(NodeSet {
                node: token("node-1"),
                approval: None,
            })),
        ),
    ]
}

/// Taints with effects, drains, bounds and preferences.
fn of_level_6() -> Vec<(&'static str, Event)> {
    let allocation = AllocationNo(77);
    let taint = |key: &str, effect| Taint {
        key: token(key),
        value: None,
        effect,
    };
    let preempted = |cause| {
        Event::AllocationPreempted(AllocationPreempted {
            allocation,
            cause,
            by: None,
            grace_until: Millis(31_000),
        })
    };
    vec![
        (
            "cordon_set_drain",
            admin(AdminChange::Cordon(CordonSet {
                node: token("node-1"),
                cordoned: true,
                drain: true,
                at_once: 2,
            })),
        ),
        (
            "taints_set",
            admin(AdminChange::Taints(TaintsSet {
                node: token("node-1"),
                taints: vec![
                    taint("maintenance", TaintEffect::NoExecute),
                    taint("slow", TaintEffect::PreferNoSchedule),
                ],
            })),
        ),
        (
            "node_registered_bounded",
            Event::NodeRegistered(NodeRegistered {
                node: token("node-1"),
                incarnation: 4,
                boot: 5,
                capacity: NodeCapacity {
                    max_runs: 110,
                    taints: vec![taint("slow", TaintEffect::PreferNoSchedule)],
                    ..capacity()
                },
            }),
        ),
        (
            "allocation_requested_prefers",
            Event::AllocationRequested(AllocationRequested {
                operation: operation(),
                spec: AllocationSpec {
                    rules: Some(Box::new(PlacementRules {
                        preferred: vec![requirement("cluster", Operator::In, &["c1"])],
                        ..rules()
                    })),
                    ..AllocationSpec::plain(token("train"), 1000, 1 << 30)
                },
            }),
        ),
        (
            "allocation_preempted_by_drain",
            preempted(PreemptionCause::Drain),
        ),
        (
            "allocation_preempted_by_taint",
            preempted(PreemptionCause::Taint),
        ),
        (
            "pending_group_explained_max_runs",
            Event::PendingGroupExplained(PendingGroupExplained {
                pending_group: PendingGroupNo(12),
                queue: token("research"),
                reason: WaitingReason::NoRoomNow,
                head: allocation,
                counts: vec![(Filter::MaxRuns, 9)],
                shortfall: Vec::new(),
                share_ppm: 0,
                fair_share_ppm: 0,
            }),
        ),
    ]
}

/// What came with feature level 10.
fn of_level_10() -> Vec<(&'static str, Event)> {
    let team = |text| Team::parse(text).unwrap();
    vec![
        (
            "tenant_set_teams",
            admin(AdminChange::Tenant(TenantSet {
                tenant: token("team-a"),
                settings: TenantSettings::default(),
                closed: false,
                teams: vec![team("ml"), team("web/front")],
            })),
        ),
        (
            "operation_refused_verb",
            Event::OperationRefused(OperationRefused {
                operation: operation(),
                job_set: None,
                refusal: Refusal::new(Rule::TeamUnknown, "team"),
                verb: Some(Verb::SetPriorityClass),
            }),
        ),
    ]
}

/// What is closed.
fn closed() -> Vec<(&'static str, Event)> {
    let closed = true;
    vec![
        (
            "tenant_set_closed",
            admin(AdminChange::Tenant(TenantSet {
                tenant: token("team-a"),
                settings: TenantSettings::default(),
                closed,
                teams: Vec::new(),
            })),
        ),
        (
            "queue_set_closed",
            admin(AdminChange::Queue(QueueSet {
                queue: token("research"),
                settings: QueueSettings::default(),
                closed,
            })),
        ),
        (
            "priority_class_set_closed",
            admin(AdminChange::PriorityClass(PriorityClassSet {
                class: token("batch"),
                settings: PriorityClass {
                    value: 3,
                    preemptible: true,
                    preempts: false,
                    grace_ms: 0,
                    placement: None,
                },
                closed,
            })),
        ),
    ]
}

pub fn samples() -> Vec<(&'static str, Event)> {
    let allocation = AllocationNo(77);
    let node = token("node-1");
    let exit = RunExit {
        code: 0,
        signal: 9,
        reason: Some(RunExitReason::OutOfMemory),
        usage: None,
    };
    let mut samples = changes();
    samples.extend(of_level_6());
    samples.extend(closed());
    samples.extend(of_level_10());
    samples.push((
        "rate_set_withdrawn",
        Event::RateSet(Applied {
            operation: operation(),
            change: RateSet {
                resource: ResourceKey::parse("gpu:T4").unwrap(),
                micro_per_unit_hour: 0,
                effective_from: Millis(1_704_067_200_001),
                scope: RateScope {
                    pool: Some(token("spot")),
                    ..RateScope::default()
                },
                withdrawn: true,
            },
            version: 4,
        }),
    ));
    samples.extend([
        (
            "rate_set_by",
            Event::RateSet(Applied {
                operation: Operation {
                    by: Some(Box::new(token("alice"))),
                    ..operation()
                },
                change: RateSet {
                    resource: ResourceKey::parse("gpu").unwrap(),
                    micro_per_unit_hour: 1_250_000,
                    effective_from: Millis(1_704_067_200_001),
                    scope: RateScope::default(),
                    withdrawn: false,
                },
                version: 3,
            }),
        ),
        (
            "rate_set_2",
            Event::RateSet(Applied {
                operation: operation(),
                change: RateSet {
                    resource: ResourceKey::parse("gpu:T4").unwrap(),
                    micro_per_unit_hour: 1_250_000,
                    effective_from: Millis(1_704_067_200_001),
                    scope: RateScope {
                        tenant: Some(token("team-a")),
                        priority_class: Some(token("low")),
                        pool: Some(token("spot")),
                        cluster: Some(token("east")),
                    },
                    withdrawn: false,
                },
                version: 3,
            }),
        ),
        (
            "allocation_requested_2",
            Event::AllocationRequested(AllocationRequested {
                operation: operation(),
                spec: spec(),
            }),
        ),
        (
            "allocation_requested_labels",
            Event::AllocationRequested(AllocationRequested {
                operation: operation(),
                spec: AllocationSpec {
                    labels: vec![
                        (token("grant"), token("7")),
                        (token("model"), token("bert")),
                    ],
                    ..AllocationSpec::plain(token("train"), 1000, 1 << 30)
                },
            }),
        ),
        (
            "allocation_requested_work",
            Event::AllocationRequested(AllocationRequested {
                operation: operation(),
                spec: AllocationSpec {
                    work: Some(Arc::new(Work {
                        command: "/bin/sh".into(),
                        args: vec!["-c".into(), "exec train".into()],
                        env: vec![("A".into(), "1".into()), ("B".into(), String::new())],
                        working_dir: "/data".into(),
                        image: "train:7".into(),
                        payload: vec![0, 255, 10].into(),
                    })),
                    ..AllocationSpec::plain(token("train"), 1000, 1 << 30)
                },
            }),
        ),
        (
            "run_reported_exit",
            Event::RunReported(RunReported {
                allocation,
                node: node.clone(),
                state: RunState::Failed,
                at: Millis(6),
                exit: Some(RunExit {
                    usage: Some(RunUsage {
                        cpu_us: 1_500_000,
                        memory_peak_bytes: 1 << 20,
                        log_bytes: 12,
                    }),
                    ..exit
                }),
            }),
        ),
        (
            "allocation_requeued_exit",
            Event::AllocationRequeued(AllocationRequeued {
                allocation,
                cause: EndCause::Failed,
                at: Millis(7),
                not_before: Millis(1007),
                exit: Some(RunExit {
                    code: 3,
                    ..RunExit::default()
                }),
            }),
        ),
        (
            "allocation_ended_exit",
            Event::AllocationEnded(AllocationEnded {
                allocation,
                cause: EndCause::Failed,
                at: Millis(6),
                exit: Some(exit),
            }),
        ),
        (
            "allocation_placed_2",
            Event::AllocationPlaced(AllocationPlaced {
                allocation,
                node: node.clone(),
                incarnation: 4,
                gpus: GpuShares::from_iter([GpuShare {
                    device: 1,
                    milli: 1000,
                }]),
                zones: 0b1000_0001,
                policy: PlacementPolicy::GpuPacking,
                candidates: Candidates::from_iter([
                    Candidate {
                        node: node.clone(),
                        score: 900,
                    },
                    Candidate {
                        node: token("node-2"),
                        score: 0,
                    },
                ]),
            }),
        ),
        (
            "allocation_waiting_2",
            Event::AllocationWaiting(AllocationWaiting {
                allocation,
                reason: WaitingReason::FairShare,
                pending_group: Some(PendingGroupNo(12)),
            }),
        ),
        (
            "pending_group_explained",
            Event::PendingGroupExplained(PendingGroupExplained {
                pending_group: PendingGroupNo(12),
                queue: token("research"),
                reason: WaitingReason::NoRoomNow,
                head: allocation,
                counts: vec![(Filter::NotReady, 3), (Filter::Backfill, 4000)],
                shortfall: vec![(ResourceKind::Cpu, 500), (ResourceKind::Memory, 1 << 30)],
                share_ppm: 250_000,
                fair_share_ppm: 333_333,
            }),
        ),
        (
            "allocation_preempted",
            Event::AllocationPreempted(AllocationPreempted {
                allocation,
                cause: PreemptionCause::FairShare,
                by: Some(AllocationNo(80)),
                grace_until: Millis(31_000),
            }),
        ),
        (
            "allocation_preempted_for_a_reservation",
            Event::AllocationPreempted(AllocationPreempted {
                allocation,
                cause: PreemptionCause::Reservation,
                by: None,
                grace_until: Millis(31_000),
            }),
        ),
        (
            "allocation_nominated",
            Event::AllocationNominated(AllocationNominated {
                allocation,
                node: node.clone(),
                incarnation: 4,
            }),
        ),
        (
            "allocation_requeued",
            Event::AllocationRequeued(AllocationRequeued {
                allocation,
                cause: EndCause::Preempted,
                at: Millis(7),
                not_before: Millis(1007),
                exit: None,
            }),
        ),
        (
            "allocation_ended_2",
            Event::AllocationEnded(AllocationEnded {
                allocation,
                cause: EndCause::DependencyFailed,
                at: Millis(6),
                exit: None,
            }),
        ),
        (
            "allocation_requested_with_bounds",
            Event::AllocationRequested(AllocationRequested {
                operation: operation(),
                spec: AllocationSpec {
                    bounds: TimeBounds {
                        ttl_ms: 3_600_000,
                        time_limit_ms: 7_200_000,
                    },
                    ..spec()
                },
            }),
        ),
        (
            "allocation_requested_of_an_array",
            Event::AllocationRequested(AllocationRequested {
                operation: operation(),
                spec: AllocationSpec {
                    array_index: Some(0),
                    ..spec()
                },
            }),
        ),
        (
            "allocation_stopping_at_its_time_limit",
            Event::AllocationStopping(AllocationStopping {
                allocation,
                time_limit: true,
            }),
        ),
        (
            "allocation_ended_expired",
            Event::AllocationEnded(AllocationEnded {
                allocation,
                cause: EndCause::Expired,
                at: Millis(6),
                exit: None,
            }),
        ),
        (
            "allocation_ended_at_its_time_limit",
            Event::AllocationEnded(AllocationEnded {
                allocation,
                cause: EndCause::TimeLimit,
                at: Millis(6),
                exit: None,
            }),
        ),
        (
            "reservation_decided",
            Event::ReservationDecided(ReservationDecided {
                reservation: token("demo"),
                version: 3,
                nodes: vec![node.clone(), token("node-2")],
            }),
        ),
        (
            "tenant_set_2",
            admin(AdminChange::Tenant(TenantSet {
                tenant: token("team-a"),
                closed: false,
                teams: Vec::new(),
                settings: TenantSettings {
                    cohort: Some(token("research")),
                    weight_milli: 2500,
                    preemptible: false,
                    on_exceed: OnExceed::Wait,
                    reclaim: ReclaimFrom::LowerPriority,
                    rate_milli: 50_000,
                    rate_burst: 200,
                    allocations_max: 10_000,
                    priority_classes: vec![token("batch"), token("high")],
                    priority_max: -7,
                    default_cpu_milli: 250,
                    default_memory_bytes: 1 << 28,
                },
            })),
        ),
        (
            "quota_set_2",
            admin(AdminChange::Quota(QuotaSet {
                account: Account::parse("team-a/vision/train").unwrap(),
                resource: QuotaResource::GpuModel(token("T4")),
                limits: Some(Limits {
                    hard: 8000,
                    soft: Some(6000),
                    burst: Some(16_000),
                    burst_ms: 60_000,
                    borrow: Some(0),
                    lend: Some(4000),
                }),
                validity: Validity {
                    from: Some(Millis(3_600_000)),
                    until: Some(Millis(7_200_000)),
                },
            })),
        ),
        (
            "quota_set_3",
            admin(AdminChange::Quota(QuotaSet {
                account: Account::tenant(token("team-a")),
                resource: QuotaResource::Leases,
                limits: None,
                validity: Validity::default(),
            })),
        ),
        (
            "budget_set",
            admin(AdminChange::Budget(BudgetSet {
                account: Account::parse("team-a/vision").unwrap(),
                of: BudgetOf::Money,
                budget: Some(Budget {
                    amount: 5_000_000_000,
                    period: Period::Month,
                }),
            })),
        ),
        (
            "budget_set_2",
            admin(AdminChange::Budget(BudgetSet {
                account: Account::tenant(token("team-a")),
                of: BudgetOf::Use(ResourceKind::Gpu),
                budget: None,
            })),
        ),
        (
            "allocation_requested_3",
            Event::AllocationRequested(AllocationRequested {
                operation: operation(),
                spec: AllocationSpec {
                    team: Some(token("vision")),
                    namespace: Some(token("train")),
                    limits: RunLimits {
                        cpu_milli: 8000,
                        memory_bytes: 1 << 34,
                    },
                    ..AllocationSpec::plain(token("default"), 4000, 1 << 33)
                },
            }),
        ),
        (
            "job_set_cancel_requested",
            Event::JobSetCancelRequested(JobSetCancelRequested {
                operation: operation(),
                job_set: token("nightly"),
            }),
        ),
        (
            "priority_requested",
            Event::PriorityRequested(PriorityRequested {
                operation: operation(),
                target: PriorityTarget::Allocation(allocation),
                priority: -12,
            }),
        ),
        (
            "priority_requested_2",
            Event::PriorityRequested(PriorityRequested {
                operation: operation(),
                target: PriorityTarget::JobSet(token("nightly")),
                priority: 12,
            }),
        ),
        (
            "operations_forgotten_2",
            Event::OperationsForgotten(OperationsForgotten {
                through: EventNo(9),
                slots_of: Some(token("team-a")),
                ended_through: EventNo(0),
                denied_through: EventNo(0),
            }),
        ),
        (
            "operations_forgotten_3",
            Event::OperationsForgotten(OperationsForgotten {
                through: EventNo(9),
                slots_of: None,
                ended_through: EventNo(300),
                denied_through: EventNo(7),
            }),
        ),
        (
            "quota_reserved_2",
            Event::QuotaReserved(QuotaReserved {
                allocation,
                flags: QuotaFlags::SOFT.with(QuotaFlags::BORROWED),
                models: None,
            }),
        ),
        (
            "quota_reserved_models",
            Event::QuotaReserved(QuotaReserved {
                allocation,
                flags: QuotaFlags::default(),
                models: Some(Box::new(vocab::ModelGrant {
                    counts_on: vec![token("a100"), token("t4")],
                    except: vec![token("h100")],
                })),
            }),
        ),
        (
            "quota_waiting",
            Event::QuotaWaiting(QuotaWaiting {
                allocation,
                refusal: Refusal::over(Rule::QuotaExceeded, "team-a/vision gpu", 8000, 9000),
            }),
        ),
        (
            "quota_reclaimed",
            Event::QuotaReclaimed(QuotaReclaimed {
                allocation,
                by: Some(AllocationNo(99)),
            }),
        ),
        (
            "quota_reclaimed_2",
            Event::QuotaReclaimed(QuotaReclaimed {
                allocation,
                by: None,
            }),
        ),
        (
            "limits_in_force",
            Event::LimitsInForce(LimitsInForce {
                account: Account::parse("team-a/vision").unwrap(),
                resource: QuotaResource::Extended(token("fpga")),
                limits: Some(Limits::hard(3)),
            }),
        ),
        (
            "limits_in_force_2",
            Event::LimitsInForce(LimitsInForce {
                account: Account::tenant(token("team-a")),
                resource: QuotaResource::Pods,
                limits: None,
            }),
        ),
        (
            "allocation_waiting_for_quota",
            Event::AllocationWaiting(AllocationWaiting {
                allocation,
                reason: WaitingReason::Quota,
                pending_group: None,
            }),
        ),
        (
            "allocation_preempted_for_quota",
            Event::AllocationPreempted(AllocationPreempted {
                allocation,
                cause: PreemptionCause::Quota,
                by: Some(AllocationNo(80)),
                grace_until: Millis(31_000),
            }),
        ),
        (
            "job_set_cancel_decided",
            Event::JobSetCancelDecided(JobSetCancelDecided {
                request: EventNo(5),
                allocations: 70_000,
            }),
        ),
        (
            "allocation_reprioritised",
            Event::AllocationReprioritised(AllocationReprioritised {
                allocation,
                priority: -1,
            }),
        ),
        (
            "priority_decided",
            Event::PriorityDecided(PriorityDecided {
                request: EventNo(5),
                allocations: 2,
                refusal: None,
            }),
        ),
        (
            "priority_decided_2",
            Event::PriorityDecided(PriorityDecided {
                request: EventNo(5),
                allocations: 0,
                refusal: Some(Refusal::new(Rule::AllocationEnded, "allocation_id")),
            }),
        ),
        (
            "lease_expired",
            Event::LeaseExpired(LeaseExpired {
                tenant: token("team-a"),
                lease: LeaseNo(300),
                slot: 1 << 40,
                fencing_token: 2,
                retire_after: u64::MAX,
            }),
        ),
        (
            "node_registered_2",
            Event::NodeRegistered(NodeRegistered {
                node: node.clone(),
                incarnation: 4,
                boot: 4,
                capacity: capacity(),
            }),
        ),
        (
            "node_registered_3",
            Event::NodeRegistered(NodeRegistered {
                node: node.clone(),
                incarnation: 300,
                boot: u64::MAX,
                capacity: capacity(),
            }),
        ),
        (
            "node_joined",
            Event::NodeJoined(NodeJoined {
                node: node.clone(),
                key: token("UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"),
                version: 300,
            }),
        ),
        (
            "node_forgotten",
            Event::NodeForgotten(NodeForgotten { node }),
        ),
    ]);
    samples.extend(asked());
    samples.extend(answered());
    samples
}

/// What is asked about named resources.
fn asked() -> Vec<(&'static str, Event)> {
    let lease = LeaseNo(300);
    let holder = || token("worker-7");
    let asked = |ask| {
        Event::ResourceAsked(ResourceAsked {
            operation: operation(),
            slot: 12,
            by_requests: matches!(ask, ResourceAsk::Create { .. }),
            ask,
        })
    };
    vec![
        (
            "resource_asked_create",
            asked(ResourceAsk::Create {
                resource: token("licence-1"),
            }),
        ),
        (
            "resource_asked_acquire",
            asked(ResourceAsk::Acquire {
                resources: vec![token("licence-1"), token("licence-2")],
                holder: holder(),
                ttl_slots: 60,
            }),
        ),
        (
            "resource_asked_confirm",
            asked(ResourceAsk::Confirm {
                lease,
                holder: holder(),
                fencing_token: 1,
            }),
        ),
        (
            "resource_asked_release",
            asked(ResourceAsk::Release {
                lease,
                holder: holder(),
                fencing_token: 1,
            }),
        ),
        (
            "resource_asked_revoke",
            asked(ResourceAsk::Revoke { lease }),
        ),
        (
            "resource_asked_reclaim",
            asked(ResourceAsk::Reclaim { lease }),
        ),
    ]
}

/// What is answered to it.
fn answered() -> Vec<(&'static str, Event)> {
    let decided = |answer| {
        Event::ResourceDecided(ResourceDecided {
            request: EventNo(8),
            answer,
        })
    };
    let retire_after = 3672;
    vec![
        ("resource_decided_created", decided(ResourceAnswer::Created)),
        (
            "resource_decided_granted",
            decided(ResourceAnswer::Granted { deadline: 72 }),
        ),
        (
            "resource_decided_confirmed",
            decided(ResourceAnswer::Confirmed),
        ),
        (
            "resource_decided_released",
            decided(ResourceAnswer::Released {
                fencing_token: 2,
                retire_after,
            }),
        ),
        (
            "resource_decided_revoked",
            decided(ResourceAnswer::Revoked { fencing_token: 2 }),
        ),
        (
            "resource_decided_reclaimed",
            decided(ResourceAnswer::Reclaimed { retire_after }),
        ),
        (
            "resource_decided_refused",
            decided(ResourceAnswer::Refused(Refusal::over(
                Rule::StaleFencingToken,
                "fencing_token",
                2,
                1,
            ))),
        ),
    ]
}
