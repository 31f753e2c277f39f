//! What requests ask for, without who asks: requests of one class fit and fail alike.

use super::{
    interner::Interner,
    scoring::{DEVICE_MILLI, ModelNo, Request},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, ops::Deref};
use vocab::{
    AllocationSpec, GpuRequest, NumaPolicy, PlacementRules, ResourceKind, Token,
    sabotage::{self, Bug},
};

/// Amounts of the resource types, in the order of `ResourceKind::ALL`: millicores, bytes, thousandths of a device.
pub type Amounts = [u64; ResourceKind::ALL.len()];

/// What thousands wait for can be more than a number holds. It wraps then, so that what was added can be subtracted again
/// exactly: in particular what is impossible, which is all that is so large.
pub fn add(to: &mut Amounts, amounts: &Amounts) {
    for (to, amount) in to.iter_mut().zip(amounts) {
        *to = to.wrapping_add(*amount);
    }
}

/// The caller took what it subtracts from what it added before.
pub fn subtract(from: &mut Amounts, amounts: &Amounts) {
    for (from, amount) in from.iter_mut().zip(amounts) {
        *from = from.wrapping_sub(*amount);
    }
}

/// The number that the scoring policies know a model by.
pub fn model_no(models: &mut Interner<Token>, model: &Token) -> ModelNo {
    // Models are few and are never given back.
    let number = models.find(model).unwrap_or_else(|| models.acquire(model));
    ModelNo::new(number)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClassNo(pub u32);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Class {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpu: Option<GpuRequest>,
    /// Models that it has no quota of. Sorted.
    pub except_models: Vec<Token>,
    pub extended: Vec<(Token, u64)>,
    pub rules: Option<Box<PlacementRules>>,
    /// The numbers of it, as the scoring policies want them.
    pub ask: Request,
    /// Whose groups the rules speak of; none when they speak of none.
    pub tenant: Option<Token>,
}

impl Class {
    /// With models by the numbers that `model_no` says.
    pub fn of(
        tenant: &Token,
        spec: &AllocationSpec,
        model_no: impl FnMut(&Token) -> ModelNo,
    ) -> Self {
        let gpu = spec.gpu.as_ref();
        let allowed = gpu.map_or(&[][..], |gpu| &gpu.models);
        let ask = Request::new(
            spec.cpu_milli,
            spec.memory_bytes,
            gpu.map_or(0, |gpu| gpu.count),
            gpu.map_or(0, |gpu| gpu.milli),
            allowed.iter().map(model_no),
        );
        let class = Self {
            ask,
            cpu_milli: spec.cpu_milli,
            memory_bytes: spec.memory_bytes,
            gpu: spec.gpu.clone(),
            except_models: Vec::new(),
            extended: spec.extended.clone(),
            rules: spec.rules.clone(),
            tenant: None,
        };
        let grouped = class
            .rules
            .as_ref()
            .is_some_and(|rules| rules.group.is_some());
        let tenant = (grouped || class.looks_at_others()).then(|| tenant.clone());
        Self { tenant, ..class }
    }

    pub fn amounts(&self) -> Amounts {
        let gpu = self.gpu.as_ref().map_or(0, GpuRequest::total_milli);
        [self.cpu_milli, self.memory_bytes, gpu]
    }

    pub fn allows_model(&self, model: Option<&Token>) -> bool {
        let asked = self.gpu.as_ref().is_none_or(|gpu| gpu.allows(model));
        if sabotage::armed(Bug::ExceptedModelUsed) {
            return asked;
        }
        asked && model.is_none_or(|model| !self.except_models.contains(model))
    }

    /// Where it may go depends on where others are.
    pub fn looks_at_others(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| {
            !rules.affinity.is_empty()
                || !rules.anti_affinity.is_empty()
                || !rules.spread.is_empty()
        })
    }

    /// Whether the amounts that are free on a node tell how many of it the node takes, wherever others are. Several shares of one
    /// request need as many devices, and who asks for nothing needs no room.
    pub fn is_counted(&self) -> bool {
        let gpus = self.gpu.as_ref().map(|gpu| (gpu.count, gpu.milli));
        matches!(gpus, None | Some((1, 1..) | (2.., DEVICE_MILLI)))
            && self.cpu_milli > 0
            && self.memory_bytes > 0
            && self.extended.is_empty()
            && !self.looks_at_others()
    }

    /// The tenant's group that it counts for.
    pub fn group(&self) -> Option<(&Token, &Token)> {
        let group = self.rules.as_ref()?.group.as_ref()?;
        Some((self.tenant.as_ref()?, group))
    }

    /// The groups that it has to be near to.
    pub fn affinity(&self) -> impl Iterator<Item = (&Token, &Token)> {
        let rules = self.rules.iter().flat_map(|rules| &rules.affinity);
        rules.filter_map(|term| Some((self.tenant.as_ref()?, &term.group)))
    }

    /// The groups that where it may go depends on.
    pub fn groups_looked_at(&self) -> impl Iterator<Item = (&Token, &Token)> {
        let rules = self.rules.iter();
        let groups = rules.flat_map(|rules| {
            let terms = rules.affinity.iter().chain(&rules.anti_affinity);
            let own = rules.group.iter().filter(|_| !rules.spread.is_empty());
            terms.map(|term| &term.group).chain(own)
        });
        groups.filter_map(|group| Some((self.tenant.as_ref()?, group)))
    }

    /// Whether it depends on one of these.
    pub fn looks_at(&self, groups: &BTreeSet<(Token, Token)>) -> bool {
        let mut looked_at = self.groups_looked_at();
        looked_at.any(|(tenant, group)| groups.contains(&(tenant.clone(), group.clone())))
    }

    pub fn numa(&self) -> NumaPolicy {
        self.rules
            .as_ref()
            .map_or(NumaPolicy::None, |rules| rules.numa)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SchedulingKeyNo(pub u32);

/// What is placed at once: a single allocation, or a gang with so many members of these classes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SchedulingKey {
    /// By class number.
    pub members: Members,
    /// So many have to find a place.
    pub min: u32,
    /// On nodes with one value of this label.
    pub uniform_label: Option<Token>,
    /// The value, where others of the gang run already.
    pub uniform_value: Option<Token>,
    /// Bits of the run-time estimate in milliseconds; 0: not known. Where it matters how long one stays, those of like
    /// length fit and fail alike.
    pub run_time_bits: u8,
}

/// Classes, and how many are of each. Most often all are of one, which takes no memory of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<(ClassNo, u32)>", into = "Vec<(ClassNo, u32)>")]
pub enum Members {
    Alike((ClassNo, u32)),
    /// None, or several.
    Several(Vec<(ClassNo, u32)>),
}

impl From<Vec<(ClassNo, u32)>> for Members {
    fn from(members: Vec<(ClassNo, u32)>) -> Self {
        match members[..] {
            [alike] => Self::Alike(alike),
            _ => Self::Several(members),
        }
    }
}

impl From<Members> for Vec<(ClassNo, u32)> {
    fn from(members: Members) -> Self {
        members.to_vec()
    }
}

impl FromIterator<(ClassNo, u32)> for Members {
    fn from_iter<I: IntoIterator<Item = (ClassNo, u32)>>(members: I) -> Self {
        members.into_iter().collect::<Vec<_>>().into()
    }
}

impl Deref for Members {
    type Target = [(ClassNo, u32)];

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Alike(alike) => std::slice::from_ref(alike),
            Self::Several(members) => members,
        }
    }
}

impl SchedulingKey {
    pub fn single(class: ClassNo, run_time_ms: u64) -> Self {
        Self {
            run_time_bits: run_time_bits(run_time_ms),
            members: Members::Alike((class, 1)),
            min: 1,
            uniform_label: None,
            uniform_value: None,
        }
    }
}

pub fn run_time_bits(run_time_ms: u64) -> u8 {
    // At most 64.
    (u64::BITS - run_time_ms.leading_zeros()) as u8
}
