//! A machine: what it has, what of it is free, and who may come.

use super::{
    KindNo, Past,
    owed::{Owed, balance, pay},
};
use crate::{
    class::Class,
    scoring::{self, Free},
    topology::{self, ZoneAsk, ZonePart, ZoneRoom},
};
use ledger::Scratch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use vocab::{
    AllocationNo, Filter, GpuShare, GpuShares, NodeCapacity, NumaPolicy, Token,
    sabotage::{self, Bug},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeNo(pub u32);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub name: Token,
    /// Grows each time the agent starts anew: a later one knows nothing of what an earlier one was given.
    pub incarnation: u64,
    pub ready: bool,
    /// Ready, but its agent was not heard for a while: whoever is there stays, and nobody comes.
    pub suspect: bool,
    pub past: Past,
    pub cordoned: bool,
    pub kind: KindNo,
    /// Among equals the highest goes first. Comes from the name alone.
    pub precedence: u32,
    pub room: Free,
    /// Free amounts, in the order of the capacity's extended resources.
    pub extended: Vec<u64>,
    /// Free amounts of the topology's zones; empty without a topology.
    pub zones: Vec<ZoneRoom>,
    pub holds: BTreeSet<AllocationNo>,
    /// Whom it is being cleared for, first come first. Nobody else may come meanwhile.
    pub nominees: Vec<AllocationNo>,
    /// Set aside for a reservation or the head of a pending group; found anew at each decision.
    #[serde(skip)]
    pub aside: Scratch<bool>,
}

/// What an allocation took of its node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub gpus: GpuShares,
    /// Of the node's zones; empty without a topology.
    pub parts: Vec<ZonePart>,
}

/// Where on a node an allocation goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    pub gpus: GpuShares,
    /// Bit n: zone n; 0 without a topology.
    pub zones: u8,
}

impl Spot {
    /// The devices and the zones.
    pub fn parts(&self) -> (&[GpuShare], u8) {
        (&self.gpus, self.zones)
    }

    /// The spot that something was taken of.
    pub fn of(taken: &Taken) -> Self {
        Self {
            gpus: taken.gpus.clone(),
            zones: taken
                .parts
                .iter()
                .fold(0, |zones, part| zones | 1 << part.zone),
        }
    }
}

impl Node {
    /// Its agent is heard.
    pub fn answers(&self) -> bool {
        self.ready && (!self.suspect || sabotage::armed(Bug::SuspectIgnored))
    }

    /// Whom it was granted to or is being cleared for waits for it, though it is silent for the moment.
    pub fn stays(&self) -> bool {
        self.ready && !self.cordoned
    }

    /// New ones may come, as far as the node itself is concerned.
    pub fn open(&self) -> bool {
        self.answers() && self.stays()
    }

    /// Open, and for everybody.
    pub fn free_for_all(&self) -> bool {
        self.open() && !*self.aside && self.nominees.is_empty()
    }

    /// Whether there is room now; the first filter that says no.
    pub fn check(&self, capacity: &NodeCapacity, class: &Class) -> Result<(), Filter> {
        if let Some(owed) = &self.past.owed {
            return Err(owed.lacks());
        }
        if self.room.cpu_milli() < class.cpu_milli {
            return Err(Filter::Cpu);
        }
        if self.room.memory_bytes() < class.memory_bytes {
            return Err(Filter::Memory);
        }
        if !scoring::fits(&self.room, &class.ask) {
            return Err(Filter::Gpu);
        }
        if !class.extended.is_empty() && !self.has_extended(capacity, class) {
            return Err(Filter::Extended);
        }
        if class.numa() == NumaPolicy::Single && !self.has_zone(capacity, class) {
            return Err(Filter::Numa);
        }
        if !capacity.takes_one_more(self.holds.len()) {
            return Err(Filter::MaxRuns);
        }
        Ok(())
    }

    /// How many of the class it can take now, at the most.
    pub fn room_for(&self, capacity: &NodeCapacity, class: &Class) -> u32 {
        if self.check(capacity, class).is_err() {
            return 0;
        }
        let by_cpu = self.room.cpu_milli() / class.cpu_milli.max(1);
        let by_memory = self.room.memory_bytes() / class.memory_bytes.max(1);
        let by_gpu = class.gpu.as_ref().map_or(u64::MAX, |gpu| {
            let per_device = self
                .room
                .gpu_milli()
                .iter()
                .map(|free| free / gpu.milli.max(1));
            per_device.map(u64::from).sum::<u64>() / u64::from(gpu.count.max(1))
        });
        let by_runs = match capacity.max_runs {
            0 => u64::MAX,
            most => u64::from(most).saturating_sub(self.holds.len() as u64),
        };
        let most = by_cpu.min(by_memory).min(by_gpu).min(by_runs);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    fn has_extended(&self, capacity: &NodeCapacity, class: &Class) -> bool {
        class.extended.iter().all(|(name, amount)| {
            let at = capacity.extended.binary_search_by(|(has, _)| has.cmp(name));
            at.is_ok_and(|at| self.extended.get(at).is_some_and(|free| free >= amount))
        })
    }

    /// A node without a topology has no zones to choose from.
    fn has_zone(&self, capacity: &NodeCapacity, class: &Class) -> bool {
        capacity.topology.as_deref().is_some_and(|topology| {
            let gpu_milli = self.room.gpu_milli();
            topology::fits_a_zone(topology, &self.zones, gpu_milli, &zone_ask(class))
        })
    }

    fn spot_in_zones(&self, capacity: &NodeCapacity, class: &Class) -> Option<Spot> {
        let topology = capacity.topology.as_deref()?;
        let ask = zone_ask(class);
        let choice = topology::choose(
            topology,
            &self.zones,
            self.room.gpu_milli(),
            &ask,
            class.numa(),
        )?;
        let share = |device: &u8| GpuShare {
            device: u16::from(*device),
            milli: ask.gpu_milli,
        };
        Some(Spot {
            gpus: choice.devices().iter().map(share).collect(),
            zones: choice.zones(),
        })
    }

    /// Where on the node it goes: the policy's choice of devices unless the node has zones.
    pub fn spot(
        &self,
        capacity: &NodeCapacity,
        class: &Class,
        devices: impl FnOnce(&Free) -> Option<GpuShares>,
    ) -> Option<Spot> {
        if capacity.topology.is_some() {
            return self.spot_in_zones(capacity, class);
        }
        Some(Spot {
            gpus: devices(&self.room)?,
            zones: 0,
        })
    }

    /// Takes all of it for the allocation or, naming what is missing, nothing.
    pub fn take(
        &mut self,
        capacity: &NodeCapacity,
        (allocation, class): (AllocationNo, &Class),
        (gpus, zones_taken): (&[GpuShare], u8),
    ) -> Result<Taken, &'static str> {
        let mut extended = self.extended.clone();
        for (name, amount) in &class.extended {
            let at = capacity.extended.binary_search_by(|(has, _)| has.cmp(name));
            let free = at.ok().and_then(|at| extended.get_mut(at));
            let free = free.ok_or("no such extended resource")?;
            *free = free.checked_sub(*amount).ok_or("extended resource taken")?;
        }
        let mut zones = self.zones.clone();
        let parts = match capacity.topology.as_deref() {
            None => Vec::new(),
            Some(topology) => {
                let parts = topology::parts(topology, &zones, &zone_ask(class), zones_taken);
                let parts = parts.ok_or("zone taken")?;
                for part in &parts {
                    // The parts are of these zones and no larger than what is free of them.
                    let zone = &mut zones[usize::from(part.zone)];
                    zone.cpu_milli -= part.cpu_milli;
                    zone.memory_bytes -= part.memory_bytes;
                }
                parts
            }
        };
        self.room.take(class.cpu_milli, class.memory_bytes, gpus)?;
        self.extended = extended;
        self.zones = zones;
        self.holds.insert(allocation);
        Ok(Taken {
            gpus: gpus.into(),
            parts,
        })
    }

    /// What `take` took of this incarnation for the allocation. What the node owes is paid first.
    pub fn give_back(
        &mut self,
        capacity: &NodeCapacity,
        (allocation, class): (AllocationNo, &Class),
        taken: &Taken,
    ) {
        self.holds.remove(&allocation);
        let owed = self.past.owed.take();
        let owed = owed.filter(|_| !sabotage::armed(Bug::DebtForgotten));
        // Nearly no node owes anything, and no box is made for that.
        let mut owed = owed.map_or_else(Owed::default, |owed| *owed);
        let cpu_milli = pay(class.cpu_milli, Some(&mut owed.cpu_milli));
        let memory_bytes = pay(class.memory_bytes, Some(&mut owed.memory_bytes));
        self.room.give_back(cpu_milli, memory_bytes, &taken.gpus);
        for (name, amount) in &class.extended {
            let at = capacity.extended.binary_search_by(|(has, _)| has.cmp(name));
            if let Ok(at) = at
                && let Some(free) = self.extended.get_mut(at)
            {
                *free += pay(*amount, owed.extended.get_mut(at));
            }
        }
        for part in &taken.parts {
            let at = usize::from(part.zone);
            if let Some(zone) = self.zones.get_mut(at) {
                let debt = owed.zones.get_mut(at);
                let (cpu, memory) = debt
                    .map(|debt| (&mut debt.cpu_milli, &mut debt.memory_bytes))
                    .unzip();
                zone.cpu_milli += pay(part.cpu_milli, cpu);
                zone.memory_bytes += pay(part.memory_bytes, memory);
            }
        }
        self.past.owed = owed.unless_nothing();
    }

    /// The node has other amounts. What runs there and fits no more is owed, and nobody comes before it is paid.
    pub fn resize(&mut self, before: &NodeCapacity, now: &NodeCapacity) {
        let owed = self.past.owed.take();
        let mut owed = owed.map_or_else(Owed::default, |owed| *owed);
        let cpu_milli = balance(
            (self.room.cpu_milli(), &mut owed.cpu_milli),
            (before.cpu_milli, now.cpu_milli),
        );
        let memory_bytes = balance(
            (self.room.memory_bytes(), &mut owed.memory_bytes),
            (before.memory_bytes, now.memory_bytes),
        );
        self.room.resize(now, cpu_milli, memory_bytes);
        let (mut free, mut debts) = (Vec::new(), Vec::new());
        for (name, amount) in &now.extended {
            let at = before.extended.binary_search_by(|(had, _)| had.cmp(name));
            let had = at.map_or(0, |at| before.extended[at].1);
            let of = |list: &[u64]| at.ok().and_then(|at| list.get(at).copied()).unwrap_or(0);
            let mut debt = of(&owed.extended);
            free.push(balance((of(&self.extended), &mut debt), (had, *amount)));
            debts.push(debt);
        }
        self.extended = free;
        owed.extended = debts;
        owed.zones.resize_with(self.zones.len(), Default::default);
        let zones = |of: &NodeCapacity| {
            let topology = of.topology.as_deref();
            topology.map_or_else(Vec::new, topology::empty)
        };
        let sizes = zones(before).into_iter().zip(zones(now));
        let rooms = self.zones.iter_mut().zip(&mut owed.zones);
        for ((room, debt), (had, has)) in rooms.zip(sizes) {
            room.cpu_milli = balance(
                (room.cpu_milli, &mut debt.cpu_milli),
                (had.cpu_milli, has.cpu_milli),
            );
            room.memory_bytes = balance(
                (room.memory_bytes, &mut debt.memory_bytes),
                (had.memory_bytes, has.memory_bytes),
            );
        }
        self.past.owed = owed.unless_nothing();
    }
}

/// Returns the class's demand on zones.
pub(super) fn zone_ask(class: &Class) -> ZoneAsk {
    let gpu = class.gpu.as_ref();
    ZoneAsk {
        cpu_milli: class.cpu_milli,
        memory_bytes: class.memory_bytes,
        gpus: gpu.map_or(0, |gpu| gpu.count),
        gpu_milli: gpu.map_or(0, |gpu| gpu.milli),
    }
}
