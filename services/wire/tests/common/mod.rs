//! Values of the vocabulary's types at random.

use vocab::fact::*;
use vocab::*;

/// What values are made of; when it is used up, they are as small as can be.
pub struct Dice<'a>(pub std::slice::Iter<'a, u64>);

impl Dice<'_> {
    fn throw(&mut self) -> u64 {
        self.0.next().copied().unwrap_or(0)
    }

    fn below(&mut self, sides: u64) -> u64 {
        self.throw() % sides
    }
}

pub trait Random: Sized {
    fn random(dice: &mut Dice) -> Self;
}

impl Random for u64 {
    fn random(dice: &mut Dice) -> Self {
        match dice.below(4) {
            0 => 0,
            1 => dice.below(300),
            2 => u64::MAX,
            _ => dice.throw(),
        }
    }
}

macro_rules! cut {
    ($($type:ty)*) => {$(
        impl Random for $type {
            fn random(dice: &mut Dice) -> Self {
                u64::random(dice) as $type
            }
        }
    )*};
}

cut!(u8 u16 u32 i32 i64);

impl Random for bool {
    fn random(dice: &mut Dice) -> Self {
        dice.below(2) == 1
    }
}

impl Random for String {
    fn random(dice: &mut Dice) -> Self {
        "grün "
            .chars()
            .cycle()
            .take(dice.below(9) as usize)
            .collect()
    }
}

impl<const N: usize> Random for [u8; N] {
    fn random(dice: &mut Dice) -> Self {
        std::array::from_fn(|_| dice.throw() as u8)
    }
}

impl<T: Random> Random for Option<T> {
    fn random(dice: &mut Dice) -> Self {
        bool::random(dice).then(|| T::random(dice))
    }
}

impl<T: Random> Random for Vec<T> {
    fn random(dice: &mut Dice) -> Self {
        (0..dice.below(4)).map(|_| T::random(dice)).collect()
    }
}

impl<T: Random> Random for Box<T> {
    fn random(dice: &mut Dice) -> Self {
        Self::new(T::random(dice))
    }
}

impl<A: Random, B: Random> Random for (A, B) {
    fn random(dice: &mut Dice) -> Self {
        (A::random(dice), B::random(dice))
    }
}

impl Random for Token {
    fn random(dice: &mut Dice) -> Self {
        let letters = "aZ09_-".chars().cycle();
        let text: String = letters.take(1 + dice.below(64) as usize).collect();
        Self::new(&text).expect("a token")
    }
}

macro_rules! numbered {
    ($($type:ident)*) => {$(
        impl Random for $type {
            fn random(dice: &mut Dice) -> Self {
                Self::ALL[dice.below(Self::ALL.len() as u64) as usize]
            }
        }
    )*};
}

numbered! {
    OnExceed ReclaimFrom Period Operator NumaPolicy QueueOrder PlacementPolicy WaitingReason Filter EndCause
    PreemptionCause RunState ResourceKind Rule
}

macro_rules! numbers {
    ($($type:ident)*) => {$(
        impl Random for $type {
            /// Not 0, which is none where the number may be missing.
            fn random(dice: &mut Dice) -> Self {
                Self(u64::random(dice).max(1))
            }
        }
    )*};
}

numbers!(AllocationNo EventNo LineNo ReservationNo);

macro_rules! newtypes {
    ($($type:ident)*) => {$(
        impl Random for $type {
            fn random(dice: &mut Dice) -> Self {
                Self(Random::random(dice))
            }
        }
    )*};
}

newtypes!(Millis QuotaFlags);

macro_rules! structs {
    ($($type:ident { $($field:ident)* })*) => {$(
        impl Random for $type {
            fn random(dice: &mut Dice) -> Self {
                $(let $field = Random::random(dice);)*
                Self { $($field),* }
            }
        }
    )*};
}

structs! {
    TraceContext { trace_id span_id flags }
    Operation { tenant operation_id digest reply_to trace }
    RunLimits { cpu_milli memory_bytes }
    Restart { retries never }
    GpuRequest { count milli models }
    GpuShare { device milli }
    Gang { name size min uniform_label }
    Dependency { allocation success }
    Toleration { key value }
    Taint { key value }
    GroupTerm { group topology_key }
    Spread { topology_key max_skew }
    Requirement { label operator values }
    PlacementRules { selector tolerations group affinity anti_affinity spread numa }
    AllocationSpec {
        job_set name priority cpu_milli memory_bytes gpu queue priority_class extended rules gang depends_on restart
        run_time_ms team namespace limits
    }
    QueueSettings { parent weight_milli limits tenants order placement }
    PriorityClass { value preemptible preempts grace_ms placement }
    SchedulingPolicy {
        placement half_life_ms fair_share_preemption protected_milli preemptions_per_minute aging_ms backfill
        backoff_ms backoff_ms_max
    }
    AdvanceReservation { queue from until nodes selector }
    Account { tenant team namespace }
    Validity { from until }
    Limits { hard soft burst burst_ms borrow lend }
    Budget { amount period }
    Topology { zones distances links }
    Zone { cpu_milli memory_bytes gpus }
    NodeCapacity { cpu_milli memory_bytes gpus gpu_model labels taints extended topology }
    NodeApproval { capacity token until }
    Candidate { node score }
    ModelGrant { counts_on except }
    Refusal { rule subject limit actual }
    TenantSet { tenant settings }
    QuotaSet { account resource limits validity }
    BudgetSet { account of budget }
    RateSet { resource micro_per_unit_hour effective_from }
    QueueSet { queue settings }
    PriorityClassSet { class settings }
    SchedulingSet { policy }
    CordonSet { node cordoned }
    ReservationSet { reservation wanted }
    NodeSet { node approval }
    AllocationRequested { operation spec }
    CancelRequested { operation allocation }
    JobSetCancelRequested { operation job_set }
    PriorityRequested { operation target priority }
    ResourceAsked { operation slot by_requests ask }
    OperationRefused { operation job_set refusal }
    OperationRepeated { tenant original reply_to }
    OperationsForgotten { through slots_of ended_through denied_through }
    QuotaReserved { allocation flags models }
    QuotaDenied { allocation refusal }
    QuotaReleased { allocation }
    QuotaWaiting { allocation refusal }
    QuotaReclaimed { allocation by }
    LimitsInForce { account resource limits }
    AllocationPlaced { allocation node incarnation gpus zones policy candidates }
    AllocationWaiting { allocation reason line }
    AllocationStarted { allocation at }
    AllocationStopping { allocation }
    AllocationEnded { allocation cause at }
    CancelDecided { request allocation verdict }
    LineExplained { line queue reason head counts shortfall share_ppm fair_share_ppm }
    AllocationPreempted { allocation cause by grace_until }
    AllocationNominated { allocation node incarnation }
    AllocationRequeued { allocation cause at not_before }
    ReservationDecided { reservation version nodes }
    JobSetCancelDecided { request allocations }
    AllocationReprioritised { allocation priority }
    PriorityDecided { request allocations refusal }
    ResourceDecided { request answer }
    ReservationExpired { tenant reservation slot epoch retire_after }
    NodeRegistered { node incarnation boot capacity }
    NodeReady { node incarnation }
    NodeLost { node incarnation last_seen }
    RunReported { allocation node state at }
    NodeJoined { node key version }
    NodeForgotten { node }
}

impl<C: Random> Random for Applied<C> {
    fn random(dice: &mut Dice) -> Self {
        Self {
            operation: Random::random(dice),
            change: Random::random(dice),
            version: Random::random(dice),
        }
    }
}

macro_rules! variants {
    ($($type:ident { $($make:expr,)* })*) => {$(
        impl Random for $type {
            fn random(dice: &mut Dice) -> Self {
                let make: &[fn(&mut Dice) -> Self] = &[$($make),*];
                make[dice.below(make.len() as u64) as usize](dice)
            }
        }
    )*};
}

impl Random for TenantSettings {
    fn random(dice: &mut Dice) -> Self {
        match dice.below(2) {
            0 => Self::default(),
            _ => Self {
                cohort: Random::random(dice),
                weight_milli: Random::random(dice),
                preemptible: Random::random(dice),
                on_exceed: Random::random(dice),
                reclaim: Random::random(dice),
                rate_milli: Random::random(dice),
                rate_burst: Random::random(dice),
                allocations_max: Random::random(dice),
                priority_classes: Random::random(dice),
                priority_max: Random::random(dice),
                default_cpu_milli: Random::random(dice),
                default_memory_bytes: Random::random(dice),
            },
        }
    }
}

fn any<T: Random>(dice: &mut Dice) -> T {
    T::random(dice)
}

variants! {
    QuotaResource {
        |_| Self::Cpu,
        |_| Self::Memory,
        |_| Self::Gpu,
        |d| Self::GpuModel(any(d)),
        |_| Self::Storage,
        |_| Self::Pods,
        |d| Self::Extended(any(d)),
        |_| Self::Reservations,
    }
    BudgetOf {
        |_| Self::Money,
        |d| Self::Use(any(d)),
    }
    ResourceKey {
        |d| Self { kind: any(d), model: None },
        |d| Self { kind: ResourceKind::Gpu, model: Some(any(d)) },
    }
    PriorityTarget {
        |d| Self::Allocation(any(d)),
        |d| Self::JobSet(any(d)),
    }
    ResourceAsk {
        |d| Self::Create { resource: any(d) },
        |d| Self::Reserve { resources: any(d), holder: any(d), ttl_slots: any(d) },
        |d| Self::Confirm { reservation: any(d), holder: any(d), epoch: any(d) },
        |d| Self::Release { reservation: any(d), holder: any(d), epoch: any(d) },
        |d| Self::Revoke { reservation: any(d) },
        |d| Self::Reclaim { reservation: any(d) },
    }
    ResourceAnswer {
        |_| Self::Created,
        |d| Self::Reserved { deadline: any(d) },
        |_| Self::Confirmed,
        |d| Self::Released { epoch: any(d), retire_after: any(d) },
        |d| Self::Revoked { epoch: any(d) },
        |d| Self::Reclaimed { retire_after: any(d) },
        |d| Self::Refused(any(d)),
    }
    CancelVerdict {
        |_| Self::WasLive,
        |_| Self::HadEnded,
    }
}

/// Any kind as often as any other.
macro_rules! events {
    ($($kind:ident)*) => {
        variants! { Event { $(|d| Self::$kind(any(d)),)* } }
        pub const KINDS: &[EventKind] = &[$(EventKind::$kind),*];
    };
}

events! {
    QuotaReleased TenantSet QuotaSet BudgetSet RateSet QueueSet PriorityClassSet SchedulingSet CordonSet ReservationSet
    NodeSet AllocationRequested CancelRequested JobSetCancelRequested PriorityRequested ResourceAsked OperationRefused
    OperationRepeated OperationsForgotten QuotaReserved QuotaDenied QuotaWaiting QuotaReclaimed LimitsInForce
    AllocationPlaced AllocationWaiting AllocationStarted AllocationStopping AllocationEnded CancelDecided LineExplained
    AllocationPreempted AllocationNominated AllocationRequeued ReservationDecided JobSetCancelDecided
    AllocationReprioritised PriorityDecided ResourceDecided ReservationExpired NodeRegistered NodeReady NodeLost
    RunReported NodeJoined NodeForgotten
}
