//! The kernel's space of one tenant.

use super::{DomainError, Subject};
use scheduler_rules::{Bounds, Space};
use vocab::{LeaseNo, ResourceAnswer, ResourceAsk, Slot};

pub struct Kernel {
    space: Space,
    bounds: Bounds,
    last: LeaseNo,
}

impl Subject for Kernel {
    fn new() -> Self {
        Self {
            space: Space::default(),
            bounds: Bounds::default(),
            last: LeaseNo(0),
        }
    }

    fn prepare(&mut self, _slot: Slot, _asks: &[ResourceAsk]) {}

    fn decide(
        &mut self,
        slot: Slot,
        asks: &[ResourceAsk],
    ) -> Result<Vec<(LeaseNo, ResourceAnswer)>, DomainError> {
        let mut answers = Vec::with_capacity(asks.len());
        for ask in asks {
            self.last.0 += 1;
            let answer = self.space.decide(ask, slot, None, &self.bounds);
            let applied = self.space.apply(self.last, ask, slot, &answer);
            applied.map_err(DomainError::Unfit)?;
            answers.push((self.last, answer));
        }
        Ok(answers)
    }
}
