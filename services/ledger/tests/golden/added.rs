//! What later versions added: new events, and new fields of old ones.

use crate::samples::{operation, token};
use vocab::{
    AdminChange, AdvanceReservation, AllocationNo, AllocationSpec, Candidate, Dependency, EndCause,
    Event, Filter, Gang, GpuShare, GroupTerm, LineNo, Millis, NodeCapacity, NumaPolicy, Operator,
    PlacementPolicy, PlacementRules, PreemptionCause, PriorityClass, QueueOrder, QueueSettings,
    Requirement, ResourceKind, Restart, SchedulingPolicy, Spread, Taint, Toleration, Topology,
    WaitingReason, Zone,
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
        domain: domain.map(token),
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
        near: vec![term("store", Some("rack"))],
        apart: vec![term("workers", None)],
        spread: vec![Spread {
            domain: Some(token("zone")),
            skew_max: 2,
        }],
        numa: NumaPolicy::Single,
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
            },
            Taint {
                key: token("reserved"),
                value: Some(token("research")),
            },
        ],
        extended: vec![(token("fpga"), 4)],
        topology: Some(Box::new(Topology {
            zones: vec![zone(1), zone(2)],
            distances: vec![10, 21, 21, 10],
            links: vec![(0, 1)],
        })),
    }
}

fn admin(change: AdminChange) -> Event {
    Event::AdminApplied {
        operation: operation(),
        change,
        version: 3,
    }
}

fn changes() -> Vec<(&'static str, Event)> {
    let queue = |settings| {
        admin(AdminChange::Queue {
            queue: token("research"),
            settings,
        })
    };
    let class = |placement| {
        admin(AdminChange::PriorityClass {
            class: token("batch"),
            settings: PriorityClass {
                value: -5,
                preemptible: true,
                preempts: true,
                grace_ms: 30_000,
                placement,
            },
        })
    };
    let reservation = |wanted| {
        admin(AdminChange::Reservation {
            reservation: token("demo"),
            wanted,
        })
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
            admin(AdminChange::Scheduling(SchedulingPolicy {
                placement: PlacementPolicy::BestFit,
                half_life_ms: 86_400_000,
                fair_share_preemption: true,
                protected_milli: 500,
                preemptions_per_minute: 60,
                aging_ms: 60_000,
                backfill: true,
                backoff_ms: 500,
                backoff_ms_max: 60_000,
            })),
        ),
        (
            "cordon_set",
            admin(AdminChange::Cordon {
                node: token("node-1"),
                cordoned: true,
            }),
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
    ]
}

pub fn samples() -> Vec<(&'static str, Event)> {
    let allocation = AllocationNo(77);
    let node = token("node-1");
    let mut samples = changes();
    samples.extend([
        (
            "allocation_requested_2",
            Event::AllocationRequested {
                operation: operation(),
                spec: spec(),
            },
        ),
        (
            "allocation_placed_2",
            Event::AllocationPlaced {
                allocation,
                node: node.clone(),
                incarnation: 4,
                gpus: vec![GpuShare {
                    device: 1,
                    milli: 1000,
                }],
                zones: 0b1000_0001,
                policy: PlacementPolicy::GpuPacking,
                candidates: vec![
                    Candidate {
                        node: node.clone(),
                        score: 900,
                    },
                    Candidate {
                        node: token("node-2"),
                        score: 0,
                    },
                ],
            },
        ),
        (
            "allocation_waiting_2",
            Event::AllocationWaiting {
                allocation,
                reason: WaitingReason::FairShare,
                line: Some(LineNo(12)),
            },
        ),
        (
            "line_explained",
            Event::LineExplained {
                line: LineNo(12),
                queue: token("research"),
                reason: WaitingReason::NoRoomNow,
                head: allocation,
                counts: vec![(Filter::NotReady, 3), (Filter::Backfill, 4000)],
                shortfall: vec![(ResourceKind::Cpu, 500), (ResourceKind::Memory, 1 << 30)],
                share_ppm: 250_000,
                fair_share_ppm: 333_333,
            },
        ),
        (
            "allocation_preempted",
            Event::AllocationPreempted {
                allocation,
                cause: PreemptionCause::FairShare,
                by: Some(AllocationNo(80)),
                grace_until: Millis(31_000),
            },
        ),
        (
            "allocation_preempted_for_a_reservation",
            Event::AllocationPreempted {
                allocation,
                cause: PreemptionCause::Reservation,
                by: None,
                grace_until: Millis(31_000),
            },
        ),
        (
            "allocation_nominated",
            Event::AllocationNominated {
                allocation,
                node: node.clone(),
                incarnation: 4,
            },
        ),
        (
            "allocation_requeued",
            Event::AllocationRequeued {
                allocation,
                cause: EndCause::Preempted,
                at: Millis(7),
                not_before: Millis(1007),
            },
        ),
        (
            "allocation_ended_2",
            Event::AllocationEnded {
                allocation,
                cause: EndCause::DependencyFailed,
                at: Millis(6),
            },
        ),
        (
            "reservation_decided",
            Event::ReservationDecided {
                reservation: token("demo"),
                version: 3,
                nodes: vec![node.clone(), token("node-2")],
            },
        ),
        (
            "node_registered_2",
            Event::NodeRegistered {
                node,
                incarnation: 4,
                capacity: capacity(),
            },
        ),
    ]);
    samples
}
