//! Resource types as small numbers, and what a request asks for in them.

use super::before::Before;
use ledger::Scratch;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::{collections::HashMap, hash::Hash};
use vocab::{AllocationSpec, ModelChoice, QuotaResource, ResourceKind, Token};

/// A resource type. Those with a name carry the name's number in the lower bits, so that all GPU models lie side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct ResourceId(u32);

/// GPUs that may be of one of several models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Choice {
    /// Which: in use by it.
    pub id: ResourceId,
    pub amount: u64,
    /// What it counts on while it holds quota. Each is in use by it.
    pub counts_on: Models,
    /// Some of those that it may choose from had limits when it was granted.
    pub by_model: bool,
}

impl Choice {
    fn new(id: ResourceId, amount: u64) -> Box<Self> {
        Box::new(Self {
            id,
            amount,
            counts_on: Models::new(),
            by_model: false,
        })
    }
}

/// What is asked for of each resource type, in the order of the types. Each named type is in use by it. Most ask for no more
/// than four, which takes no memory of its own.
pub(super) type Parts = SmallVec<[(ResourceId, u64); 4]>;

impl ResourceId {
    /// None comes before it.
    pub const FIRST: Self = Self::CPU;
    pub const CPU: Self = Self(0);
    pub const MEMORY: Self = Self(1);
    pub const GPU: Self = Self(2);
    /// GPUs of any model. What was granted when nobody limited any counts on each that is limited later.
    pub const ANY_MODEL: Self = Self(3);
    pub const STORAGE: Self = Self(4);
    pub const PODS: Self = Self(5);
    pub const LEASES: Self = Self(6);
    const MODELS: u32 = 1 << 30;
    const EXTENDED: u32 = 2 << 30;
    const CHOICES: u32 = 3 << 30;
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

    /// GPUs of one of several models, or of any. Nothing is counted on it but what is of any; one can wait for it.
    pub fn is_choice(self) -> bool {
        self == Self::ANY_MODEL || self.0 & !Self::NAME == Self::CHOICES
    }

    /// Without a limit ever set, a tenant has nothing of it.
    pub fn needs_limit(self) -> bool {
        self <= Self::GPU
    }

    fn name(self) -> Option<u32> {
        (self.0 > Self::NAME).then_some(self.0 & Self::NAME)
    }
}

/// Values with numbers, for as long as somebody uses them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored<T>")]
#[serde(bound(deserialize = "T: Deserialize<'de> + Clone + Eq + Hash"))]
struct Numbered<T: Clone + Eq + Hash> {
    slots: Vec<Option<(T, u32)>>,
    free: Vec<u32>,
    #[serde(skip)]
    index: HashMap<T, u32>,
}

#[derive(Deserialize)]
struct Stored<T> {
    slots: Vec<Option<(T, u32)>>,
    free: Vec<u32>,
}

impl<T: Clone + Eq + Hash> From<Stored<T>> for Numbered<T> {
    fn from(Stored { slots, free }: Stored<T>) -> Self {
        let valued = slots.iter().zip(0..);
        let index = valued
            .filter_map(|(slot, no)| slot.as_ref().map(|(value, _)| (value.clone(), no)))
            .collect();
        Self { slots, free, index }
    }
}

impl<T: Clone + Eq + Hash> Default for Numbered<T> {
    fn default() -> Self {
        let (slots, free, index) = (Vec::new(), Vec::new(), HashMap::new());
        Self { slots, free, index }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn acquire(&mut self, value: &T) -> u32 {
        if let Some(&number) = self.index.get(value) {
            self.retain(number);
            return number;
        }
        let slot = Some((value.clone(), 1));
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
        self.index.insert(value.clone(), number);
        number
    }

    fn retain(&mut self, number: u32) {
        if let Some(Some((_, users))) = self.slots.get_mut(number as usize) {
            *users += 1;
        }
    }

    /// One user less; the value when it was the last.
    fn release(&mut self, number: u32) -> Option<T> {
        let slot = self.slots.get_mut(number as usize)?;
        let (_, users) = slot.as_mut()?;
        *users -= 1;
        if *users > 0 {
            return None;
        }
        let (value, _) = slot.take()?;
        self.index.remove(&value);
        self.free.push(number);
        Some(value)
    }

    fn get(&self, number: u32) -> Option<&T> {
        let slot = self.slots.get(number as usize)?;
        slot.as_ref().map(|(value, _)| value)
    }
}

/// Several models. Each is in use by who has it.
pub(super) type Models = SmallVec<[ResourceId; 4]>;

/// Names of GPU models and extended resources, for as long as somebody uses them: tenants make them up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Names {
    names: Numbered<Token>,
    choices: Numbered<Models>,
    /// Where parts are put together.
    #[serde(skip)]
    scratch: Scratch<Vec<(ResourceId, u64)>>,
}

impl Names {
    /// One more user of a resource type.
    pub fn acquire(&mut self, resource: &QuotaResource) -> ResourceId {
        match resource {
            QuotaResource::GpuModel(name) => self.acquire_model(name),
            QuotaResource::Extended(name) => {
                ResourceId(ResourceId::EXTENDED | self.names.acquire(name))
            }
            fixed => fixed_id(fixed),
        }
    }

    pub fn acquire_model(&mut self, name: &Token) -> ResourceId {
        ResourceId(ResourceId::MODELS | self.names.acquire(name))
    }

    /// One more user of a choice among several models.
    fn acquire_choice(&mut self, models: &[Token]) -> ResourceId {
        let ids: Models = models.iter().map(|it| self.acquire_model(it)).collect();
        let known = self.choices.index.contains_key(&ids);
        let number = self.choices.acquire(&ids);
        if known {
            // One use for the choice, however many have it.
            ids.iter().for_each(|id| self.release(*id));
        }
        ResourceId(ResourceId::CHOICES | number)
    }

    /// One more user of a resource type that is in use.
    pub fn retain(&mut self, id: ResourceId) {
        match id.name() {
            Some(number) if id.is_choice() => self.choices.retain(number),
            Some(number) => self.names.retain(number),
            None => {}
        }
    }

    /// One user less.
    pub fn release(&mut self, id: ResourceId) {
        match id.name() {
            Some(number) if id.is_choice() => {
                let models = self.choices.release(number);
                models.iter().flatten().for_each(|it| self.release(*it));
            }
            Some(number) => drop(self.names.release(number)),
            None => {}
        }
    }

    /// The models of a choice; none: any.
    pub fn models(&self, choice: ResourceId) -> Option<&[ResourceId]> {
        choice
            .name()
            .and_then(|no| self.choices.get(no))
            .map(|it| &**it)
    }

    /// The model's name.
    pub fn model(&self, id: ResourceId) -> Option<&Token> {
        id.name().and_then(|number| self.names.get(number))
    }

    /// None when nobody uses it.
    pub fn find(&self, resource: &QuotaResource) -> Option<ResourceId> {
        let named = |name: &Token, kind| {
            let number = self.names.index.get(name);
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
        let name = id.name().filter(|_| !id.is_choice());
        let name = name.and_then(|number| self.names.get(number).cloned());
        match (id, name) {
            (_, Some(name)) if id.is_model() => QuotaResource::GpuModel(name),
            (_, Some(name)) => QuotaResource::Extended(name),
            (ResourceId::CPU, None) => QuotaResource::Cpu,
            (ResourceId::MEMORY, None) => QuotaResource::Memory,
            (ResourceId::STORAGE, None) => QuotaResource::Storage,
            (ResourceId::PODS, None) => QuotaResource::Pods,
            (ResourceId::LEASES, None) => QuotaResource::Leases,
            // GPUs of whatever model; a name in use is always there.
            (_, None) => QuotaResource::Gpu,
        }
    }

    /// As refusals name it.
    pub fn text(&self, id: ResourceId) -> String {
        if !id.is_choice() {
            return self.resource(id).to_string();
        }
        let models = self.models(id).into_iter().flatten();
        let names = models.filter_map(|id| self.model(*id).cloned());
        ModelChoice(names.collect()).to_string()
    }

    /// The resource type, or the choice of models, that a refusal names.
    pub fn find_text(&self, text: &str) -> Option<ResourceId> {
        let Some(ModelChoice(models)) = ModelChoice::parse(text) else {
            return self.find(&QuotaResource::parse(text)?);
        };
        if models.is_empty() {
            return Some(ResourceId::ANY_MODEL);
        }
        let ids = models
            .into_iter()
            .map(|model| self.find(&QuotaResource::GpuModel(model)));
        let ids: Models = ids.collect::<Option<_>>()?;
        let number = self.choices.index.get(&ids);
        number.map(|number| ResourceId(ResourceId::CHOICES | number))
    }

    /// Before a guest has so many names, and a choice.
    pub fn before(&self, names: usize) -> (Before<u32>, Before<u32>) {
        let Self {
            names: known,
            choices,
            ..
        } = self;
        (
            Before::of(&known.slots, &known.free, names),
            Before::of(&choices.slots, &choices.free, 1),
        )
    }

    /// The guest has none of them any more.
    pub fn restore(&mut self, (names, choices): (Before<u32>, Before<u32>)) {
        names.restore(&mut self.names.slots, &mut self.names.free);
        choices.restore(&mut self.choices.slots, &mut self.choices.free);
    }

    /// How many names are in use.
    pub fn len(&self) -> usize {
        self.names.index.len()
    }

    /// What the request asks for but for GPUs of several models, each type once and in the order of the types; and those.
    pub fn parts(&mut self, spec: &AllocationSpec) -> (Parts, Option<Box<Choice>>) {
        let mut choice = None;
        let mut parts = std::mem::take(&mut self.scratch.0);
        for kind in ResourceKind::ALL {
            add(&mut parts, ResourceId::of(kind), spec.amount(kind));
        }
        if let Some(gpu) = &spec.gpu {
            let amount = gpu.total_milli();
            // Named twice is named once.
            let mut models = gpu.models.clone();
            models.sort_unstable();
            models.dedup();
            match &*models {
                _ if amount == 0 => {}
                [] => choice = Some(Choice::new(ResourceId::ANY_MODEL, amount)),
                [model] => parts.push((self.acquire_model(model), amount)),
                several => choice = Some(Choice::new(self.acquire_choice(several), amount)),
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
            let id = ResourceId(ResourceId::EXTENDED | self.names.acquire(name));
            if !add(&mut parts, id, *amount) {
                self.release(id);
            }
        }
        let all = Parts::from(&parts[..]);
        parts.clear();
        self.scratch.0 = parts;
        (all, choice)
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
        QuotaResource::Leases | QuotaResource::Extended(_) => ResourceId::LEASES,
    }
}
