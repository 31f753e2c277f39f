//! Resource types as small numbers, and what a request asks for in them.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use vocab::{AllocationSpec, QuotaResource, ResourceKind, Token};

/// A resource type. Those with a name carry the name's number in the lower bits, so that all GPU models lie side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct ResourceId(u32);

/// What is asked for of each resource type, in the order of the types. Each named type is in use by it.
pub(super) type Parts = Box<[(ResourceId, u64)]>;

impl ResourceId {
    /// None comes before it.
    pub const FIRST: Self = Self::CPU;
    pub const CPU: Self = Self(0);
    pub const MEMORY: Self = Self(1);
    pub const GPU: Self = Self(2);
    /// GPUs of a request that names no model: they count on every model that has a limit.
    pub const ANY_MODEL: Self = Self(3);
    pub const STORAGE: Self = Self(4);
    pub const PODS: Self = Self(5);
    pub const RESERVATIONS: Self = Self(6);
    const MODELS: u32 = 1 << 30;
    const EXTENDED: u32 = 2 << 30;
    const NAME: u32 = (1 << 30) - 1;

    pub fn of(kind: ResourceKind) -> Self {
        match kind {
            ResourceKind::Cpu => Self::CPU,
            ResourceKind::Memory => Self::MEMORY,
            ResourceKind::Gpu => Self::GPU,
        }
    }

    pub fn is_model(self) -> bool {
        self.0 & !Self::NAME == Self::MODELS
    }

    /// Without a limit ever set, a tenant has nothing of it.
    pub fn needs_limit(self) -> bool {
        self <= Self::GPU
    }

    fn name(self) -> Option<u32> {
        (self.0 > Self::NAME).then_some(self.0 & Self::NAME)
    }
}

/// Names of GPU models and extended resources, for as long as somebody uses them: tenants make them up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub(super) struct Names {
    slots: Vec<Option<(Token, u32)>>,
    free: Vec<u32>,
    #[serde(skip)]
    index: HashMap<Token, u32>,
}

#[derive(Deserialize)]
struct Stored {
    slots: Vec<Option<(Token, u32)>>,
    free: Vec<u32>,
}

impl From<Stored> for Names {
    fn from(Stored { slots, free }: Stored) -> Self {
        let named = slots.iter().zip(0..);
        let index = named
            .filter_map(|(slot, no)| slot.as_ref().map(|(name, _)| (name.clone(), no)))
            .collect();
        Self { slots, free, index }
    }
}

impl Names {
    fn acquire_name(&mut self, name: &Token) -> u32 {
        if let Some(&number) = self.index.get(name) {
            self.retain_name(number);
            return number;
        }
        let slot = Some((name.clone(), 1));
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                // Memory runs out long before the numbers do.
                (self.slots.len() - 1) as u32
            }
        };
        self.index.insert(name.clone(), number);
        number
    }

    fn retain_name(&mut self, number: u32) {
        if let Some(Some((_, users))) = self.slots.get_mut(number as usize) {
            *users += 1;
        }
    }

    /// One more user of a resource type.
    pub fn acquire(&mut self, resource: &QuotaResource) -> ResourceId {
        match resource {
            QuotaResource::GpuModel(name) => {
                ResourceId(ResourceId::MODELS | self.acquire_name(name))
            }
            QuotaResource::Extended(name) => {
                ResourceId(ResourceId::EXTENDED | self.acquire_name(name))
            }
            fixed => fixed_id(fixed),
        }
    }

    /// One more user of a resource type that is in use.
    pub fn retain(&mut self, id: ResourceId) {
        if let Some(number) = id.name() {
            self.retain_name(number);
        }
    }

    /// One user less.
    pub fn release(&mut self, id: ResourceId) {
        let Some(number) = id.name() else { return };
        let Some(slot) = self.slots.get_mut(number as usize) else {
            return;
        };
        if let Some((name, users)) = slot {
            *users -= 1;
            if *users == 0 {
                self.index.remove(name);
                *slot = None;
                self.free.push(number);
            }
        }
    }

    /// None when nobody uses it.
    pub fn find(&self, resource: &QuotaResource) -> Option<ResourceId> {
        let named = |name: &Token, kind| {
            let number = self.index.get(name);
            number.map(|number| ResourceId(kind | number))
        };
        match resource {
            QuotaResource::GpuModel(name) => named(name, ResourceId::MODELS),
            QuotaResource::Extended(name) => named(name, ResourceId::EXTENDED),
            fixed => Some(fixed_id(fixed)),
        }
    }

    /// The resource type of an id in use.
    pub fn resource(&self, id: ResourceId) -> QuotaResource {
        let name = id.name().and_then(|number| {
            let slot = self.slots.get(number as usize)?;
            slot.as_ref().map(|(name, _)| name.clone())
        });
        match (id, name) {
            (_, Some(name)) if id.is_model() => QuotaResource::GpuModel(name),
            (_, Some(name)) => QuotaResource::Extended(name),
            (ResourceId::CPU, None) => QuotaResource::Cpu,
            (ResourceId::MEMORY, None) => QuotaResource::Memory,
            (ResourceId::STORAGE, None) => QuotaResource::Storage,
            (ResourceId::PODS, None) => QuotaResource::Pods,
            (ResourceId::RESERVATIONS, None) => QuotaResource::Reservations,
            // GPUs of whatever model; a name in use is always there.
            (_, None) => QuotaResource::Gpu,
        }
    }

    /// How many names are in use.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// What the request asks for, each type once and in the order of the types.
    pub fn parts(&mut self, spec: &AllocationSpec) -> Parts {
        let mut parts = Vec::with_capacity(8);
        for kind in ResourceKind::ALL {
            add(&mut parts, ResourceId::of(kind), spec.amount(kind));
        }
        if let Some(gpu) = &spec.gpu {
            let amount = gpu.total_milli();
            if gpu.models.is_empty() {
                add(&mut parts, ResourceId::ANY_MODEL, amount);
            }
            for (at, model) in gpu.models.iter().enumerate() {
                // Named twice is named once.
                if amount > 0 && !gpu.models[..at].contains(model) {
                    let id = ResourceId(ResourceId::MODELS | self.acquire_name(model));
                    parts.push((id, amount));
                }
            }
        }
        let is_storage = |name: &Token| name.as_str() == QuotaResource::STORAGE;
        for (name, amount) in &spec.extended {
            if is_storage(name) {
                add(&mut parts, ResourceId::STORAGE, *amount);
            }
        }
        add(&mut parts, ResourceId::PODS, 1);
        for (name, amount) in &spec.extended {
            if *amount == 0 || is_storage(name) {
                continue;
            }
            let id = ResourceId(ResourceId::EXTENDED | self.acquire_name(name));
            if !add(&mut parts, id, *amount) {
                self.release(id);
            }
        }
        parts.into()
    }
}

/// False when the type was there already, and the amount was added to it.
fn add(parts: &mut Vec<(ResourceId, u64)>, id: ResourceId, amount: u64) -> bool {
    if let Some((_, sum)) = parts.iter_mut().find(|(known, _)| *known == id) {
        *sum = sum.saturating_add(amount);
        return false;
    }
    if amount > 0 {
        parts.push((id, amount));
    }
    true
}

fn fixed_id(resource: &QuotaResource) -> ResourceId {
    match resource {
        QuotaResource::Cpu => ResourceId::CPU,
        QuotaResource::Memory => ResourceId::MEMORY,
        QuotaResource::Gpu | QuotaResource::GpuModel(_) => ResourceId::GPU,
        QuotaResource::Storage => ResourceId::STORAGE,
        QuotaResource::Pods => ResourceId::PODS,
        QuotaResource::Reservations | QuotaResource::Extended(_) => ResourceId::RESERVATIONS,
    }
}
