//! The kernel and the model side by side: whatever is asked is asked of both, and they say the same.

use super::restored;
use crate::{
    model::{Model, Ruled},
    space::{Bounds, LeaseView, ResourceView, Space},
};
use vocab::{LeaseNo, ResourceAnswer, ResourceAsk, Slot, Token};

pub struct Both {
    pub space: Space,
    pub model: Model,
    pub bounds: Bounds,
    pub limit: Option<u64>,
}

impl Both {
    pub fn new(bounds: &Bounds, limit: Option<u64>) -> Self {
        Self {
            space: Space::default(),
            model: Model::new(bounds.clone()),
            bounds: bounds.clone(),
            limit,
        }
    }

    pub fn ask(&mut self, no: LeaseNo, ask: &ResourceAsk, slot: Slot) -> ResourceAnswer {
        let (space, limit) = (&mut self.space, self.limit);
        let answer = space.decide(ask, slot, limit, &self.bounds);
        assert_eq!(answer, space.decide(ask, slot, limit, &self.bounds));
        assert_eq!(space.apply(no, ask, slot, &answer), Ok(()));
        let said = match &answer {
            ResourceAnswer::Refused(refusal) => Err(refusal.rule),
            done => Ok(done.clone()),
        };
        let expected = self.model.ask(no, ask, slot, limit);
        assert_eq!(said, expected, "{ask:?} at {slot}");
        answer
    }

    /// The fencing token from then on, and the last slot that it is remembered at.
    pub fn expire(
        &mut self,
        no: LeaseNo,
        deadline: Slot,
        slot: Slot,
    ) -> Ruled<Option<(u64, Slot)>> {
        let decided = self.space.decide_expiry(no, deadline, slot, &self.bounds);
        let said = decided.map_err(|refusal| refusal.rule);
        let said = said.map(|expiry| expiry.map(|it| (it.fencing_token, it.retire_after)));
        if let Ok(Some((_, retire_after))) = said {
            assert_eq!(self.space.expire(no, slot, retire_after), Ok(()));
        }
        let expected = self.model.expire(no, deadline, slot);
        assert_eq!(said, expected, "{no:?} at {slot}");
        said
    }

    pub fn resource(&self, name: &Token) -> Option<ResourceView> {
        let found = self.space.resource(name);
        assert_eq!(found, self.model.resource(name), "{name}");
        found
    }

    pub fn lease(&self, no: LeaseNo, slot: Slot) -> Ruled<LeaseView> {
        let found = self.space.lease(no, slot);
        let found = found.map_err(|refusal| refusal.rule);
        let expected = self.model.lease(no, slot);
        assert_eq!(found, expected.cloned(), "{no:?} at {slot}");
        found
    }

    pub fn restore(&mut self) {
        self.space = restored(&self.space);
    }
}
