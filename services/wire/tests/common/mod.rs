//! Copies of the vocabulary's shapes, with the contract's names and numbers, and values of them at random.

// Each test uses what it needs of it.
#![allow(dead_code)]

use std::borrow::Cow;
use wire::{Text, Wire};

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
#[wire(text)]
pub struct Token(String);

impl Token {
    pub fn new(text: &str) -> Option<Self> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(plain);
        fits.then(|| Self(text.into()))
    }
}

impl Text for Token {
    fn as_text(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.0)
    }

    fn parse_text(text: &str) -> Option<Self> {
        Self::new(text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
#[wire(text)]
pub enum QuotaResource {
    Cpu,
    GpuModel(Token),
}

impl Text for QuotaResource {
    fn as_text(&self) -> Cow<'_, str> {
        match self {
            Self::Cpu => Cow::Borrowed("cpu"),
            Self::GpuModel(model) => Cow::Owned(format!("gpu:{}", model.0)),
        }
    }

    fn parse_text(text: &str) -> Option<Self> {
        match text.split_once(':') {
            Some(("gpu", model)) => Token::new(model).map(Self::GpuModel),
            _ => (text == "cpu").then_some(Self::Cpu),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
#[wire(transparent)]
pub struct AllocationNo(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
#[wire(transparent)]
pub struct LineNo(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
#[wire(transparent)]
pub struct ReservationNo(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
#[wire(transparent)]
pub struct Millis(pub i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
#[wire(via = [u8; 25])]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub flags: u8,
}

impl From<&TraceContext> for [u8; 25] {
    fn from(trace: &TraceContext) -> Self {
        let mut bytes = [trace.flags; 25];
        bytes[..16].copy_from_slice(&trace.trace_id);
        bytes[16..24].copy_from_slice(&trace.span_id);
        bytes
    }
}

impl From<[u8; 25]> for TraceContext {
    fn from(bytes: [u8; 25]) -> Self {
        Self {
            trace_id: std::array::from_fn(|at| bytes[at]),
            span_id: std::array::from_fn(|at| bytes[at + 16]),
            flags: bytes[24],
        }
    }
}

/// Who asked.
#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct Operation {
    /// A tenant, or `_operator`.
    #[wire(1)]
    pub tenant: Token,
    #[wire(2)]
    pub operation_id: Option<Token>,
    #[wire(3)]
    pub digest: [u8; 16],
    #[wire(4)]
    pub reply_to: Option<Token>,
    #[wire(5)]
    pub trace: Option<TraceContext>,
}

wire::pair! {
    /// A name and an amount.
    pub ExtendedAmount { name, amount }
}
wire::pair!(pub FilterCount { filter, nodes });
wire::pair!(pub ResourceAmount { resource, amount });
wire::pair!(pub DeviceLink { low, high });

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct AllocationSpec {
    // Not in the order of their numbers.
    #[wire(flatten(
        cpu_milli(18, name = "cpu_milli_most"),
        memory_bytes(19, name = "memory_bytes_most")
    ))]
    pub most: Most,
    #[wire(1)]
    pub job_set: Token,
    #[wire(2)]
    pub name: Option<Token>,
    #[wire(3)]
    pub priority: i32,
    #[wire(4)]
    pub cpu_milli: u64,
    #[wire(5)]
    pub memory_bytes: u64,
    #[wire(6)]
    pub gpu: Option<GpuRequest>,
    #[wire(7)]
    pub queue: Option<Token>,
    #[wire(8)]
    pub priority_class: Option<Token>,
    #[wire(9, with = wire::Pairs<ExtendedAmount>)]
    pub extended: Vec<(Token, u64)>,
    #[wire(10)]
    pub rules: Option<Box<PlacementRules>>,
    #[wire(11)]
    pub gang: Option<Gang>,
    #[wire(12)]
    pub depends_on: Vec<Dependency>,
    #[wire(flatten(retries = 13, never(14, name = "never_requeue")))]
    pub restart: Restart,
    #[wire(15)]
    pub run_time_ms: u64,
    #[wire(16)]
    pub team: Option<Token>,
    #[wire(17)]
    pub namespace: Option<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Most {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    pub retries: u32,
    pub never: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct GpuRequest {
    #[wire(1)]
    pub count: u16,
    #[wire(2)]
    pub milli: u16,
    #[wire(3)]
    pub models: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct Gang {
    #[wire(1)]
    pub name: Token,
    #[wire(2)]
    pub size: u32,
    #[wire(3)]
    pub min: u32,
    #[wire(4)]
    pub uniform_label: Option<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct Dependency {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub success: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct PlacementRules {
    #[wire(1)]
    pub selector: Vec<Requirement>,
    #[wire(2)]
    pub tolerations: Vec<Toleration>,
    #[wire(3)]
    pub group: Option<Token>,
    #[wire(4)]
    pub near: Vec<GroupTerm>,
    #[wire(5)]
    pub apart: Vec<GroupTerm>,
    #[wire(6)]
    pub spread: Vec<Spread>,
    #[wire(7)]
    pub numa: NumaPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct Requirement {
    #[wire(1)]
    pub label: Token,
    #[wire(2)]
    pub operator: Operator,
    #[wire(3)]
    pub values: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct Toleration {
    #[wire(1)]
    pub key: Option<Token>,
    #[wire(2)]
    pub value: Option<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct GroupTerm {
    #[wire(1)]
    pub group: Token,
    #[wire(2)]
    pub domain: Option<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct Spread {
    #[wire(1)]
    pub domain: Option<Token>,
    #[wire(2)]
    pub skew_max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
pub enum Operator {
    In = 1,
    NotIn = 2,
    Exists = 3,
    Missing = 4,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
pub enum NumaPolicy {
    None = 0,
    BestEffort = 1,
    Single = 2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
pub enum PlacementPolicy {
    Default = 0,
    BestFit = 1,
    Spread = 2,
    GpuPacking = 3,
    Fgd = 4,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
#[wire(name = "PriorityClass")]
pub struct ClassSettings {
    #[wire(1)]
    pub value: i32,
    #[wire(2)]
    pub preemptible: bool,
    #[wire(3)]
    pub preempts: bool,
    #[wire(4)]
    pub grace_ms: u64,
    #[wire(5, optional)]
    pub placement: Option<PlacementPolicy>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub tenant: Token,
    pub team: Option<Token>,
    pub namespace: Option<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validity {
    pub from: Option<Millis>,
    pub until: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct Limits {
    #[wire(1)]
    pub hard: u64,
    #[wire(2, optional)]
    pub soft: Option<u64>,
    #[wire(3, optional)]
    pub burst: Option<u64>,
    #[wire(4)]
    pub burst_ms: u64,
    #[wire(5, optional)]
    pub borrow: Option<u64>,
    #[wire(6, optional)]
    pub lend: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct QuotaSet {
    #[wire(1)]
    pub operation: Operation,
    #[wire(flatten(tenant = 2, team = 6, namespace = 7))]
    pub account: Account,
    #[wire(3)]
    pub resource: QuotaResource,
    #[wire(4)]
    pub limit: u64,
    #[wire(5)]
    pub version: u64,
    #[wire(8)]
    pub limits: Option<Limits>,
    #[wire(flatten(
        from(9, optional, name = "from_ms"),
        until(10, optional, name = "until_ms")
    ))]
    pub validity: Validity,
    #[wire(11)]
    pub unlimited: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct LimitsInForce {
    #[wire(flatten(tenant = 1, team = 2, namespace = 3))]
    pub account: Account,
    #[wire(4)]
    pub resource: QuotaResource,
    #[wire(5)]
    pub limits: Option<Limits>,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct TenantSet {
    #[wire(1)]
    pub operation: Operation,
    #[wire(2)]
    pub tenant: Token,
    #[wire(3)]
    pub version: u64,
    #[wire(4, default)]
    pub settings: TenantSettings,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct TenantSettings {
    #[wire(1)]
    pub cohort: Option<Token>,
    #[wire(2)]
    pub weight_milli: u32,
    #[wire(3)]
    pub preemptible: bool,
    #[wire(4)]
    pub on_exceed: OnExceed,
    #[wire(5)]
    pub reclaim: ReclaimFrom,
    #[wire(6)]
    pub rate_milli: u64,
    #[wire(7)]
    pub rate_burst: u64,
    #[wire(8)]
    pub allocations_max: u64,
    #[wire(9)]
    pub priority_classes: Vec<Token>,
    #[wire(10)]
    pub priority_max: i32,
    #[wire(11)]
    pub default_cpu_milli: u64,
    #[wire(12)]
    pub default_memory_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
pub enum OnExceed {
    Refuse = 0,
    Wait = 1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
pub enum ReclaimFrom {
    Any = 0,
    LowerPriority = 1,
    Never = 2,
}

impl Default for TenantSettings {
    fn default() -> Self {
        Self {
            cohort: None,
            weight_milli: 1000,
            preemptible: true,
            on_exceed: OnExceed::Refuse,
            reclaim: ReclaimFrom::Any,
            rate_milli: 0,
            rate_burst: 0,
            allocations_max: 0,
            priority_classes: Vec::new(),
            priority_max: 1_000_000,
            default_cpu_milli: 0,
            default_memory_bytes: 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
#[wire(prefix = "")]
pub enum WaitingReason {
    NoNodeReady = 1,
    // Called otherwise than in the contract.
    TenantQuota = 15,
    PreemptionLimit = 16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
pub enum Filter {
    NotReady = 1,
    Capacity = 6,
    /// Promised to another.
    Backfill = 16,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct LineExplained {
    #[wire(1)]
    pub line: LineNo,
    #[wire(2)]
    pub queue: Token,
    #[wire(3)]
    pub reason: WaitingReason,
    #[wire(4)]
    pub head: AllocationNo,
    #[wire(5, with = wire::Pairs<FilterCount>)]
    pub counts: Vec<(Filter, u32)>,
    #[wire(6, with = wire::Pairs<ResourceAmount>)]
    pub shortfall: Vec<(QuotaResource, u64)>,
    #[wire(7)]
    pub share_ppm: u32,
    #[wire(8)]
    pub fair_share_ppm: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct Topology {
    #[wire(1)]
    pub zones: Vec<Zone>,
    #[wire(2)]
    pub distances: Vec<u8>,
    #[wire(3, with = wire::Pairs<DeviceLink>)]
    pub links: Vec<(u8, u8)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct Zone {
    #[wire(1)]
    pub cpu_milli: u64,
    #[wire(2)]
    pub memory_bytes: u64,
    #[wire(3)]
    pub gpus: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
#[wire(oneof)]
pub enum PriorityTarget {
    #[wire(2)]
    Allocation(AllocationNo),
    #[wire(3)]
    JobSet(Token),
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
#[wire(oneof)]
pub enum ResourceAsk {
    #[wire(3, bare)]
    Create { resource: Token },
    #[wire(4, message = "ReserveAsk")]
    Reserve {
        #[wire(1)]
        resources: Vec<Token>,
        #[wire(2)]
        holder: Token,
        #[wire(3)]
        ttl_slots: u64,
    },
    #[wire(5, message = "HolderAsk")]
    Confirm {
        #[wire(1)]
        reservation: ReservationNo,
        #[wire(2)]
        holder: Token,
        #[wire(3)]
        epoch: u64,
    },
    #[wire(6, message = "HolderAsk")]
    Release {
        #[wire(1)]
        reservation: ReservationNo,
        #[wire(2)]
        holder: Token,
        #[wire(3)]
        epoch: u64,
    },
    #[wire(7, bare)]
    Revoke { reservation: ReservationNo },
    #[wire(8, bare)]
    Reclaim { reservation: ReservationNo },
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct Refusal {
    #[wire(1)]
    pub rule: Rule,
    #[wire(2)]
    pub subject: String,
    #[wire(3)]
    pub limit: u64,
    #[wire(4)]
    pub actual: u64,
}

macro_rules! rules {
    ($($name:ident = $number:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
        #[wire(prefix = "")]
        pub enum Rule { $($name = $number,)* }
    };
}

rules! {
    MalformedMessage = 1,
    NodeNameHeld = 69,
}

#[derive(Debug, Clone, PartialEq, Eq, Wire)]
#[wire(oneof)]
pub enum ResourceAnswer {
    #[wire(2, message = "ResourceDecided.Created")]
    Created,
    #[wire(3, bare)]
    Reserved { deadline: u64 },
    #[wire(4, message = "ResourceDecided.Confirmed")]
    Confirmed,
    #[wire(5, message = "ReservationEnd")]
    Released {
        #[wire(1)]
        epoch: u64,
        #[wire(2)]
        retire_after: u64,
    },
    #[wire(6, bare)]
    Revoked { epoch: u64 },
    #[wire(7, bare)]
    Reclaimed { retire_after: u64 },
    #[wire(8)]
    Refused(Refusal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire)]
#[wire(via = bool)]
pub enum CancelVerdict {
    WasLive,
    HadEnded,
}

impl From<&CancelVerdict> for bool {
    fn from(verdict: &CancelVerdict) -> Self {
        *verdict == CancelVerdict::WasLive
    }
}

impl From<bool> for CancelVerdict {
    fn from(was_live: bool) -> Self {
        match was_live {
            true => Self::WasLive,
            false => Self::HadEnded,
        }
    }
}

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq, Wire)]
#[wire(oneof = "kind", message)]
pub enum Event {
    #[wire(1)]
    TenantSet(TenantSet),
    #[wire(2)]
    QuotaSet(QuotaSet),
    #[wire(4)]
    AllocationRequested {
        #[wire(1)]
        operation: Operation,
        #[wire(2)]
        spec: AllocationSpec,
    },
    #[wire(16)]
    PriorityRequested {
        #[wire(4)]
        priority: i32,
        #[wire(1)]
        operation: Operation,
        #[wire(oneof(2, 3))]
        target: PriorityTarget,
    },
    #[wire(17)]
    ResourceAsked {
        #[wire(1)]
        operation: Operation,
        #[wire(2)]
        slot: u64,
        #[wire(9)]
        by_requests: bool,
        #[wire(oneof(3, 4, 5, 6, 7, 8))]
        ask: ResourceAsk,
    },
    #[wire(22)]
    QuotaReleased {
        #[wire(1)]
        allocation: AllocationNo,
    },
    #[wire(25)]
    LimitsInForce {
        #[wire(flatten(tenant = 1, team = 2, namespace = 3))]
        account: Account,
        #[wire(4)]
        resource: QuotaResource,
        #[wire(5)]
        limits: Option<Limits>,
    },
    #[wire(41)]
    AllocationWaiting {
        #[wire(1)]
        allocation: AllocationNo,
        #[wire(2)]
        reason: WaitingReason,
        #[wire(3)]
        line: Option<LineNo>,
    },
    #[wire(45)]
    CancelDecided {
        #[wire(1)]
        request: u64,
        #[wire(2)]
        allocation: AllocationNo,
        #[wire(3, name = "was_live")]
        verdict: CancelVerdict,
    },
    #[wire(46)]
    LineExplained(Box<LineExplained>),
    #[wire(54)]
    ResourceDecided {
        #[wire(1)]
        request: u64,
        #[wire(oneof(2, 3, 4, 5, 6, 7, 8))]
        answer: ResourceAnswer,
    },
}

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
        Self(
            "aZ09_-"
                .chars()
                .cycle()
                .take(1 + dice.below(64) as usize)
                .collect(),
        )
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

numbered!(OnExceed ReclaimFrom Operator NumaPolicy PlacementPolicy WaitingReason Filter Rule);

macro_rules! newtypes {
    ($($type:ident)*) => {$(
        impl Random for $type {
            fn random(dice: &mut Dice) -> Self {
                Self(Random::random(dice))
            }
        }

        // 0 is none where it may be missing.
        impl $type {
            pub fn is_nothing(&self) -> bool {
                self.0 == 0
            }
        }
    )*};
}

newtypes!(AllocationNo LineNo ReservationNo Millis);

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
    Most { cpu_milli memory_bytes }
    Restart { retries never }
    GpuRequest { count milli models }
    Gang { name size min uniform_label }
    Dependency { allocation success }
    Toleration { key value }
    GroupTerm { group domain }
    Spread { domain skew_max }
    Requirement { label operator values }
    PlacementRules { selector tolerations group near apart spread numa }
    AllocationSpec {
        job_set name priority cpu_milli memory_bytes gpu queue priority_class extended rules gang depends_on restart
        run_time_ms team namespace most
    }
    ClassSettings { value preemptible preempts grace_ms placement }
    Account { tenant team namespace }
    Validity { from until }
    Limits { hard soft burst burst_ms borrow lend }
    QuotaSet { operation account resource limit version limits validity unlimited }
    LimitsInForce { account resource limits }
    TenantSet { operation tenant version settings }
    LineExplained { line queue reason head counts shortfall share_ppm fair_share_ppm }
    Topology { zones distances links }
    Zone { cpu_milli memory_bytes gpus }
    Refusal { rule subject limit actual }
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
        |d| Self::GpuModel(any(d)),
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
    Event {
        |d| Self::QuotaReleased { allocation: any(d) },
        |d| Self::TenantSet(any(d)),
        |d| Self::QuotaSet(any(d)),
        |d| Self::AllocationRequested { operation: any(d), spec: any(d) },
        |d| Self::PriorityRequested { priority: any(d), operation: any(d), target: any(d) },
        |d| Self::ResourceAsked { operation: any(d), slot: any(d), by_requests: any(d), ask: any(d) },
        |d| Self::LimitsInForce { account: any(d), resource: any(d), limits: any(d) },
        |d| Self::AllocationWaiting {
            allocation: any(d),
            reason: any(d),
            line: any::<Option<LineNo>>(d).filter(|line| !line.is_nothing()),
        },
        |d| Self::CancelDecided { request: any(d), allocation: any(d), verdict: any(d) },
        |d| Self::LineExplained(any(d)),
        |d| Self::ResourceDecided { request: any(d), answer: any(d) },
    }
}
