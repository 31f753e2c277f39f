//! What a request asks for, in the numbers that the policies compute with.

use super::free::{DEVICE_MILLI, Free, GpuKind, ModelNo, ModelSet};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Request {
    cpu_milli: u64,
    memory_bytes: u64,
    gpus: u16,
    /// Thousandths of each device.
    gpu_milli: u16,
    models: ModelSet,
}

impl Request {
    /// Without models any will do.
    pub fn new(
        cpu_milli: u64,
        memory_bytes: u64,
        gpus: u16,
        gpu_milli: u16,
        models: impl Iterator<Item = ModelNo>,
    ) -> Self {
        Self {
            cpu_milli,
            memory_bytes,
            gpus,
            gpu_milli: if gpus == 0 { 0 } else { gpu_milli },
            models: models.collect(),
        }
    }

    pub fn cpu_milli(&self) -> u64 {
        self.cpu_milli
    }

    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    pub fn gpus(&self) -> u16 {
        self.gpus
    }

    pub fn gpu_milli(&self) -> u16 {
        self.gpu_milli
    }

    pub fn gpu_milli_total(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.gpu_milli)
    }

    pub fn models(&self) -> ModelSet {
        self.models
    }

    /// A part of one device.
    pub fn is_share(&self) -> bool {
        self.gpus == 1 && self.gpu_milli < DEVICE_MILLI
    }

    pub fn kind(&self) -> Option<GpuKind> {
        GpuKind::new(self.gpus.into(), self.gpu_milli)
    }
}

/// Whether there is room for the request now.
pub fn fits(room: &Free, ask: &Request) -> bool {
    room.cpu_milli() >= ask.cpu_milli
        && room.memory_bytes() >= ask.memory_bytes
        && (ask.gpus == 0
            || ask.models.allows(room.model())
                && room.fitting(ask.gpu_milli).count() >= usize::from(ask.gpus))
}
