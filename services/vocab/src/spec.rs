//! What an allocation asks for, what a node has, and the resource types that quota and bill speak of.

use crate::{Account, AllocationNo, Label, PlacementRules, Refusal, Rule, Token, Work};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

wire::pair! {
    /// A resource of the operator's own kind, and how much of it.
    pub ExtendedAmount { name, amount }
}

wire::pair! {
    /// In the unit of the type.
    pub ResourceAmount { resource, amount }
}

/// What one allocation asks for; all of it on one node.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct AllocationSpec {
    #[wire(1)]
    pub job_set: Token,
    #[wire(2)]
    pub name: Option<Token>,
    /// Higher goes first. With a priority class it is the class's value.
    #[wire(3)]
    pub priority: i32,
    #[wire(4)]
    pub cpu_milli: u64,
    #[wire(5)]
    pub memory_bytes: u64,
    #[wire(6)]
    pub gpu: Option<GpuRequest>,
    /// None: the tenant's own, which has the tenant's name.
    #[wire(7)]
    pub queue: Option<Token>,
    /// None: not preemptible, and preempts nothing.
    #[wire(8)]
    pub priority_class: Option<Token>,
    /// Extended resources by name, sorted, none of them 0.
    #[wire(9, with = wire::Pairs<ExtendedAmount>)]
    pub extended: Vec<(Token, u64)>,
    /// Where it may run; none: anywhere.
    #[wire(10)]
    pub rules: Option<Box<PlacementRules>>,
    #[wire(11)]
    pub gang: Option<Gang>,
    /// Starts only after these, which are the same tenant's.
    #[wire(12)]
    pub depends_on: Vec<Dependency>,
    #[wire(flatten(retries = 13, never(14, name = "never_requeue")))]
    pub restart: Restart,
    /// How long it will run at the most, as the tenant believes; 0: not known. Never a limit.
    #[wire(15)]
    pub run_time_ms: u64,
    /// The account below the tenant that its quota is of.
    #[wire(16)]
    pub team: Option<Token>,
    /// Only with a team.
    #[wire(17)]
    pub namespace: Option<Token>,
    /// What a run may take at the most where there is some left; not below what is asked for.
    #[wire(flatten(
        cpu_milli(18, name = "cpu_milli_limit"),
        memory_bytes(19, name = "memory_bytes_limit")
    ))]
    pub limits: RunLimits,
    /// The tenant's own words about it, for its reports, by name. Nothing is decided by them.
    #[wire(20, with = wire::Pairs<Label>)]
    pub labels: Vec<(Token, Token)>,
    /// Nothing is decided by it either.
    #[wire(21)]
    pub work: Option<Arc<Work>>,
    #[wire(flatten(ttl_ms = 22, time_limit_ms = 23))]
    pub bounds: TimeBounds,
    /// Which element of an array it is; none: it is of none. Its run is told, and nothing is decided by it.
    #[wire(24, optional)]
    pub array_index: Option<u32>,
}

/// Bounds of an allocation's time; 0: none.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct TimeBounds {
    /// It ends if it has not been placed so long after its request. Once it was placed, it counts no more.
    pub ttl_ms: u64,
    /// A run that has gone on for so long since its start is stopped, and ends for good.
    pub time_limit_ms: u64,
}

/// Amounts that a run may take beyond what it asks for; 0: no more than that.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RunLimits {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

/// What a run can count on, derived from what it asks for. Stable numbers, the same as the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QosClass {
    /// All that it may take.
    Guaranteed = 1,
    /// What it asks for, and more while there is some left.
    Burstable = 2,
    /// Nothing: it asks for nothing.
    BestEffort = 3,
}

impl QosClass {
    pub const ALL: [Self; 3] = [Self::Guaranteed, Self::Burstable, Self::BestEffort];

    pub fn name(self) -> &'static str {
        match self {
            Self::Guaranteed => "guaranteed",
            Self::Burstable => "burstable",
            Self::BestEffort => "best_effort",
        }
    }
}

/// All or nothing: at least `min` of its `size` members are placed at once, or none.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Gang {
    /// Names the gang among the tenant's.
    #[wire(1)]
    pub name: Token,
    /// Members to wait for before the first try, 1..=1024.
    #[wire(2)]
    pub size: u32,
    /// 1..=size.
    #[wire(3)]
    pub min: u32,
    /// All members run on nodes with one value of this label.
    #[wire(4)]
    pub uniform_label: Option<Token>,
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Dependency {
    #[wire(1)]
    pub allocation: AllocationNo,
    /// It must have finished; otherwise any end will do.
    #[wire(2)]
    pub success: bool,
}

/// What becomes of a run that did not finish.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Restart {
    /// How often it is queued again after it failed, or was rejected by its node.
    pub retries: u32,
    /// It is not even queued again when its node was lost or it was preempted, which does not count as a retry.
    pub never: bool,
}

impl AllocationSpec {
    pub const PRIORITY_MAX: i32 = 1_000_000;
    pub const CPU_MILLI_MAX: u64 = 1_000_000_000;
    pub const MEMORY_BYTES_MAX: u64 = 1 << 50;
    pub const GPUS_MAX: u64 = 16;
    pub const GPU_MODELS_MAX: usize = 16;
    pub const EXTENDED_MAX: usize = 8;
    pub const EXTENDED_AMOUNT_MAX: u64 = 1 << 40;
    pub const DEPENDENCIES_MAX: usize = 16;
    pub const GANG_SIZE_MAX: u32 = 1024;
    pub const LABELS_MAX: usize = 16;
    pub const RETRIES_MAX: u32 = 16;
    /// A year.
    pub const RUN_TIME_MS_MAX: u64 = 366 * 24 * 3_600_000;

    /// Asks for these amounts and nothing else.
    pub fn plain(job_set: Token, cpu_milli: u64, memory_bytes: u64) -> Self {
        Self {
            job_set,
            name: None,
            priority: 0,
            cpu_milli,
            memory_bytes,
            gpu: None,
            queue: None,
            priority_class: None,
            extended: Vec::new(),
            rules: None,
            gang: None,
            depends_on: Vec::new(),
            restart: Restart::default(),
            run_time_ms: 0,
            team: None,
            namespace: None,
            limits: RunLimits::default(),
            labels: Vec::new(),
            work: None,
            bounds: TimeBounds::default(),
            array_index: None,
        }
    }

    /// Reads one that a client sends back. What the inbox would not let in is refused: by whom it was made is not known.
    pub fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        let spec = <Self as wire::Message>::decode(bytes);
        let spec = spec.map_err(|_| Refusal::new(Rule::MalformedMessage, "spec"))?;
        let gpu = spec.gpu.as_ref();
        let gpu_is = |is: fn(&GpuRequest) -> bool| gpu.is_none_or(is);
        let rules = spec.rules.as_deref();
        let terms = rules.map_or(0, |rules| {
            let groups = rules.affinity.len().max(rules.anti_affinity.len());
            groups.max(rules.spread.len())
        });
        let requirements = rules.map_or(0, |rules| rules.selector.len());
        let tolerations = rules.map_or(0, |rules| rules.tolerations.len());
        let preferred = rules.map_or(0, |rules| rules.preferred.len());
        let bounded = spec.priority.unsigned_abs() <= Self::PRIORITY_MAX.unsigned_abs()
            && spec.cpu_milli <= Self::CPU_MILLI_MAX
            && spec.memory_bytes <= Self::MEMORY_BYTES_MAX
            && gpu_is(|gpu| (1..=Self::GPUS_MAX).contains(&gpu.count.into()))
            && gpu_is(|gpu| (1..=1000).contains(&gpu.milli))
            && gpu_is(|gpu| gpu.models.len() <= Self::GPU_MODELS_MAX)
            && spec.extended.len() <= Self::EXTENDED_MAX
            && (spec.extended.iter()).all(|(_, amount)| *amount <= Self::EXTENDED_AMOUNT_MAX)
            && spec.depends_on.len() <= Self::DEPENDENCIES_MAX
            && spec.run_time_ms <= Self::RUN_TIME_MS_MAX
            && spec.bounds.ttl_ms <= Self::RUN_TIME_MS_MAX
            && spec.bounds.time_limit_ms <= Self::RUN_TIME_MS_MAX
            && terms <= PlacementRules::TERMS_MAX
            // The inbox adds what the work needs.
            && requirements <= 2 * PlacementRules::REQUIREMENTS_MAX
            && tolerations <= PlacementRules::TOLERATIONS_MAX
            && preferred <= PlacementRules::PREFERRED_MAX;
        match bounded {
            true => Ok(spec),
            false => Err(Refusal::new(Rule::SettingInvalid, "spec")),
        }
    }

    /// The account that its quota is of.
    pub fn account(&self, tenant: &Token) -> Account {
        Account {
            tenant: tenant.clone(),
            team: self.team.clone(),
            namespace: self.namespace.clone(),
        }
    }

    /// For how long a run goes on at the most, as far as that is known: no longer than it may. 0: not known.
    pub fn estimate_ms(&self) -> u64 {
        match (self.run_time_ms, self.bounds.time_limit_ms) {
            (0, bound) | (bound, 0) => bound,
            (believed, bound) => believed.min(bound),
        }
    }

    pub fn is_bounded(&self) -> bool {
        self.bounds != TimeBounds::default()
    }

    /// Whether it goes to some nodes rather than to others.
    pub fn prefers(&self) -> bool {
        let rules = self.rules.as_ref();
        rules.is_some_and(|rules| !rules.preferred.is_empty())
    }

    pub fn qos(&self) -> QosClass {
        if self.cpu_milli == 0 && self.memory_bytes == 0 {
            QosClass::BestEffort
        } else if self.limits == RunLimits::default() {
            QosClass::Guaranteed
        } else {
            QosClass::Burstable
        }
    }

    /// The requested amount in the unit of `kind`.
    pub fn amount(&self, kind: ResourceKind) -> u64 {
        match kind {
            ResourceKind::Cpu => self.cpu_milli,
            ResourceKind::Memory => self.memory_bytes,
            ResourceKind::Gpu => self.gpu.as_ref().map_or(0, GpuRequest::total_milli),
        }
    }
}

/// `count` devices of one node, `milli` thousandths of each.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct GpuRequest {
    #[wire(1)]
    pub count: u16,
    /// 1..=1000; below 1000 only when `count` is 1.
    #[wire(2)]
    pub milli: u16,
    /// Allowed models, sorted; empty means any.
    #[wire(3)]
    pub models: Vec<Token>,
}

impl GpuRequest {
    pub fn total_milli(&self) -> u64 {
        u64::from(self.count) * u64::from(self.milli)
    }

    pub fn allows(&self, model: Option<&Token>) -> bool {
        self.models.is_empty() || model.is_some_and(|m| self.models.contains(m))
    }
}

/// A resource type of quotas and bills.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
#[wire(text)]
pub enum ResourceKind {
    /// In millicores.
    Cpu,
    /// In bytes.
    Memory,
    /// In thousandths of a device.
    Gpu,
}

impl ResourceKind {
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Gpu];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Gpu => "gpu",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text)
    }

    /// How much of the resource's unit makes one billed unit (a core, a GiB, a GPU).
    pub fn per_billed_unit(self) -> u64 {
        match self {
            Self::Cpu | Self::Gpu => 1000,
            Self::Memory => 1 << 30,
        }
    }
}

/// What a rate is for: a resource type, or one GPU model.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
#[wire(text)]
pub struct ResourceKey {
    pub kind: ResourceKind,
    /// Only with `ResourceKind::Gpu`.
    pub model: Option<Token>,
}

impl ResourceKey {
    /// `cpu`, `memory`, `gpu` or `gpu:<model>`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None => ResourceKind::parse(text).map(|kind| Self { kind, model: None }),
            Some(("gpu", model)) => Some(Self {
                kind: ResourceKind::Gpu,
                model: Some(Token::new(model).ok()?),
            }),
            Some(_) => None,
        }
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.model {
            None => f.write_str(self.kind.name()),
            Some(model) => write!(f, "{}:{model}", self.kind.name()),
        }
    }
}

impl wire::Text for ResourceKind {
    fn as_text(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.name())
    }

    fn parse_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

impl wire::Text for ResourceKey {
    fn as_text(&self) -> Cow<'_, str> {
        Cow::Owned(self.to_string())
    }

    fn parse_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_key_reads_what_it_writes() {
        for text in ["cpu", "memory", "gpu", "gpu:V100M32"] {
            assert_eq!(ResourceKey::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "disk", "cpu:x", "gpu:", "gpu:a.b"] {
            assert_eq!(ResourceKey::parse(bad), None, "{bad}");
        }
    }
}
