//! What of a node is free: all that a policy may look at.

use super::Request;
use serde::{Deserialize, Serialize};
use vocab::{GpuShare, NodeCapacity};

/// Thousandths of a whole device.
pub const DEVICE_MILLI: u16 = 1000;

/// A GPU model by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModelNo(u8);

impl ModelNo {
    /// Models beyond the 63rd share a number: to the policies they are one, which costs quality. Whether a model is
    /// allowed is decided by its name, elsewhere.
    pub fn new(number: u32) -> Self {
        Self(number.min(u64::BITS - 1) as u8)
    }
}

/// Allowed models; the empty set allows any.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ModelSet(u64);

impl ModelSet {
    pub fn allows(self, model: Option<ModelNo>) -> bool {
        self.0 == 0 || model.is_some_and(|model| self.0 >> model.0 & 1 == 1)
    }
}

impl FromIterator<ModelNo> for ModelSet {
    fn from_iter<I: IntoIterator<Item = ModelNo>>(models: I) -> Self {
        Self(models.into_iter().fold(0, |set, model| set | 1 << model.0))
    }
}

/// Free amounts that are equal are the same to every policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Free {
    cpu_milli: u64,
    memory_bytes: u64,
    cpu_milli_capacity: u64,
    memory_bytes_capacity: u64,
    gpu_milli: [u16; Free::GPUS_MAX],
    gpus: u8,
    model: Option<ModelNo>,
    /// Requests on the node, by kind.
    hosted: [u16; GpuKind::COUNT],
}

impl Free {
    pub const GPUS_MAX: usize = 16;

    /// Of an empty node. Devices beyond the sixteenth are not used.
    pub fn new(cpu_milli: u64, memory_bytes: u64, gpus: u16, model: Option<ModelNo>) -> Self {
        let gpus = usize::from(gpus).min(Self::GPUS_MAX);
        let mut gpu_milli = [0; Self::GPUS_MAX];
        gpu_milli[..gpus].fill(DEVICE_MILLI);
        Self {
            cpu_milli,
            memory_bytes,
            cpu_milli_capacity: cpu_milli,
            memory_bytes_capacity: memory_bytes,
            gpu_milli,
            // At most GPUS_MAX: see above.
            gpus: gpus as u8,
            model,
            hosted: [0; GpuKind::COUNT],
        }
    }

    pub fn cpu_milli(&self) -> u64 {
        self.cpu_milli
    }

    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    pub fn cpu_milli_capacity(&self) -> u64 {
        self.cpu_milli_capacity
    }

    pub fn memory_bytes_capacity(&self) -> u64 {
        self.memory_bytes_capacity
    }

    /// Free thousandths of each device.
    pub fn gpu_milli(&self) -> &[u16] {
        &self.gpu_milli[..usize::from(self.gpus)]
    }

    pub fn gpu_milli_total(&self) -> u64 {
        self.gpu_milli().iter().map(|free| u64::from(*free)).sum()
    }

    pub fn model(&self) -> Option<ModelNo> {
        self.model
    }

    pub fn hosts(&self, kind: GpuKind) -> bool {
        self.hosted[kind as usize] > 0
    }

    /// Devices that have so much free.
    pub fn fitting(&self, milli: u16) -> impl Iterator<Item = (u16, u16)> {
        let devices = (0..).zip(self.gpu_milli().iter().copied());
        devices.filter(move |(_, free)| *free >= milli)
    }

    /// Takes all of it or, naming what is missing, nothing.
    pub fn take(
        &mut self,
        cpu_milli: u64,
        memory_bytes: u64,
        gpus: &[GpuShare],
    ) -> Result<(), &'static str> {
        let cpu = self.cpu_milli.checked_sub(cpu_milli).ok_or("cpu taken")?;
        let memory = self
            .memory_bytes
            .checked_sub(memory_bytes)
            .ok_or("memory taken")?;
        let mut free = self.gpu_milli;
        for share in gpus {
            let device = free[..usize::from(self.gpus)].get_mut(usize::from(share.device));
            let device = device.ok_or("no such device")?;
            *device = device.checked_sub(share.milli).ok_or("device taken")?;
        }
        self.cpu_milli = cpu;
        self.memory_bytes = memory;
        self.gpu_milli = free;
        if let Some(kind) = GpuKind::of(gpus) {
            let count = &mut self.hosted[kind as usize];
            *count = count.saturating_add(1);
        }
        Ok(())
    }

    /// What `take` took before.
    pub fn give_back(&mut self, cpu_milli: u64, memory_bytes: u64, gpus: &[GpuShare]) {
        self.cpu_milli += cpu_milli;
        self.memory_bytes += memory_bytes;
        for share in gpus {
            if let Some(device) = self.gpu_milli.get_mut(usize::from(share.device)) {
                *device += share.milli;
            }
        }
        if let Some(kind) = GpuKind::of(gpus) {
            let count = &mut self.hosted[kind as usize];
            *count = count.saturating_sub(1);
        }
    }

    /// The node has other amounts from here on, and so much of them is free.
    pub fn resize(&mut self, capacity: &NodeCapacity, cpu_milli: u64, memory_bytes: u64) {
        self.cpu_milli_capacity = capacity.cpu_milli;
        self.memory_bytes_capacity = capacity.memory_bytes;
        self.cpu_milli = cpu_milli;
        self.memory_bytes = memory_bytes;
    }

    /// What stays once the request has these devices, which were chosen from this room.
    pub(super) fn without(&self, ask: &Request, gpus: &[GpuShare]) -> Self {
        let mut after = self.clone();
        let taken = after.take(ask.cpu_milli(), ask.memory_bytes(), gpus);
        debug_assert_eq!(taken, Ok(()));
        after
    }
}

/// What GpuClustering keeps apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuKind {
    Share = 0,
    One = 1,
    Two = 2,
    Four = 3,
    More = 4,
}

impl GpuKind {
    pub const COUNT: usize = 5;
    pub const ALL: [Self; Self::COUNT] =
        [Self::Share, Self::One, Self::Two, Self::Four, Self::More];

    /// None without a device.
    pub fn new(gpus: usize, milli: u16) -> Option<Self> {
        match gpus {
            0 => None,
            1 if milli < DEVICE_MILLI => Some(Self::Share),
            1 => Some(Self::One),
            2 => Some(Self::Two),
            3..=4 => Some(Self::Four),
            _ => Some(Self::More),
        }
    }

    fn of(gpus: &[GpuShare]) -> Option<Self> {
        Self::new(gpus.len(), gpus.first()?.milli)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoring::{Policy, devices, tests::any_case};
    use proptest::prelude::*;

    #[test]
    fn sets_of_models() {
        let set: ModelSet = [ModelNo::new(0), ModelNo::new(70)].into_iter().collect();
        assert!(set.allows(Some(ModelNo::new(0))) && set.allows(Some(ModelNo::new(99))));
        assert!(!set.allows(Some(ModelNo::new(1))) && !set.allows(None));
        assert!(ModelSet::default().allows(None));
    }

    #[test]
    fn what_is_not_there_is_not_taken() {
        let mut room = Free::new(4000, 1 << 30, 2, None);
        let share = |device, milli| GpuShare { device, milli };
        let before = room.clone();
        for (cpu, memory, gpus) in [
            (4001, 0, vec![]),
            (0, 1 << 31, vec![]),
            (0, 0, vec![share(2, 1)]),
            (0, 0, vec![share(0, 1000), share(0, 1)]),
        ] {
            assert!(room.take(cpu, memory, &gpus).is_err());
            assert_eq!(room, before);
        }
    }

    proptest! {
        #[test]
        fn what_is_given_back_was_never_taken((room, ask) in any_case()) {
            let Some(gpus) = devices(Policy::BestFit, &Default::default(), &room, &ask) else {
                return Ok(());
            };
            let mut changed = room.clone();
            changed.take(ask.cpu_milli(), ask.memory_bytes(), &gpus).unwrap();
            prop_assert_eq!(changed.gpu_milli_total() + ask.gpu_milli_total(), room.gpu_milli_total());
            changed.give_back(ask.cpu_milli(), ask.memory_bytes(), &gpus);
            prop_assert_eq!(changed, room);
        }
    }
}
