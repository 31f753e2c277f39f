//! A node's capacity and what is free of it.

use super::{Phase, Scheduler};
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use vocab::{AllocationSpec, Event, GpuShare, NodeCapacity, Token};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub incarnation: u64,
    pub ready: bool,
    pub capacity: NodeCapacity,
    pub cpu_milli_free: u64,
    pub memory_bytes_free: u64,
    /// Free thousandths of each device.
    pub gpu_milli_free: Vec<u16>,
}

impl Node {
    /// A whole device.
    pub const DEVICE_MILLI: u16 = 1000;

    pub fn new(incarnation: u64, capacity: NodeCapacity) -> Self {
        Self {
            incarnation,
            ready: true,
            cpu_milli_free: capacity.cpu_milli,
            memory_bytes_free: capacity.memory_bytes,
            gpu_milli_free: vec![Self::DEVICE_MILLI; capacity.gpus.into()],
            capacity,
        }
    }

    pub fn gpu_milli_free_total(&self) -> u64 {
        self.gpu_milli_free.iter().map(|m| u64::from(*m)).sum()
    }

    /// Takes all of it or, naming what is missing, nothing.
    pub(super) fn take(
        &mut self,
        spec: &AllocationSpec,
        gpus: &[GpuShare],
    ) -> Result<(), &'static str> {
        let cpu = self.cpu_milli_free.checked_sub(spec.cpu_milli);
        let memory = self.memory_bytes_free.checked_sub(spec.memory_bytes);
        let mut free = self.gpu_milli_free.clone();
        for share in gpus {
            let device = free
                .get_mut(usize::from(share.device))
                .ok_or("no such device")?;
            *device = device.checked_sub(share.milli).ok_or("device taken")?;
        }
        self.cpu_milli_free = cpu.ok_or("cpu taken")?;
        self.memory_bytes_free = memory.ok_or("memory taken")?;
        self.gpu_milli_free = free;
        Ok(())
    }

    pub(super) fn give_back(&mut self, spec: &AllocationSpec, gpus: &[GpuShare]) {
        self.cpu_milli_free += spec.cpu_milli;
        self.memory_bytes_free += spec.memory_bytes;
        for share in gpus {
            // The share was taken from this device of this incarnation.
            if let Some(device) = self.gpu_milli_free.get_mut(usize::from(share.device)) {
                *device += share.milli;
            }
        }
    }
}

impl Scheduler {
    pub(super) fn node_ready(&mut self, node: &Token, event: &Event) -> Result<(), IllegalEvent> {
        let known = self
            .nodes
            .get_mut(node)
            .ok_or_else(|| IllegalEvent::new("no such node", event))?;
        known.ready = true;
        self.queue.unsettle();
        Ok(())
    }

    pub(super) fn node_lost(&mut self, node: &Token, event: &Event) -> Result<(), IllegalEvent> {
        let known = self
            .nodes
            .get_mut(node)
            .ok_or_else(|| IllegalEvent::new("no such node", event))?;
        known.ready = false;
        let held = |phase: &Phase| matches!(phase, Phase::Held(hold) if hold.node == *node);
        let lost = self.live.iter().filter(|(_, live)| held(&live.phase));
        self.lost.extend(lost.map(|(allocation, _)| *allocation));
        self.queue.unsettle();
        Ok(())
    }
}
