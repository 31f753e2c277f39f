//! Whose the allocations are. A live one is known, and an ended one for a window after its end: so long others can still
//! be asked to start after it, and so long the scheduler keeps what became of it.

use super::{
    gangs::Gangs,
    room::{self, Of, Room},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use vocab::{AllocationNo, AllocationSpec, EventNo, Millis, Numbered, Token};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Allocations {
    known: Numbered<AllocationNo, Owned>,
    /// How many are live, by tenant, without those that have none.
    live_of: BTreeMap<Token, u64>,
    ended: Ends,
    denied: Ends,
    gangs: Gangs,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owned {
    pub tenant: Token,
    pub ended: bool,
    /// The room that it takes.
    bytes: u32,
}

impl Owned {
    /// Takes so much instead of what it took.
    fn occupy(&mut self, bytes: u64, room: &mut Room) {
        room.give(Of::Allocations, &self.tenant, self.bytes.into());
        // A request has 64 KiB at the most.
        self.bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        room.take(Of::Allocations, &self.tenant, self.bytes.into());
    }
}

/// Ends by one writer's events, oldest first: when, the number of the event, and what ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Ends(VecDeque<(Millis, EventNo, AllocationNo)>);

/// Which event said that an allocation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndedBy {
    /// The scheduler's; `ran` when it shows that the allocation was on a node, and so its gang once complete.
    Scheduler {
        ran: bool,
    },
    Quota,
}

/// Ends whose window is over: all through these events of the scheduler and of quota. 0: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Over {
    pub ended: EventNo,
    pub denied: EventNo,
}

impl Ends {
    /// The newest of those in a row whose window is over: live while `now <= at + window`.
    fn over(&self, now: Millis, window_ms: i64) -> EventNo {
        let over = |at: &Millis| now > at.plus(window_ms);
        let last = self.0.iter().take_while(|(at, ..)| over(at)).last();
        last.map_or(EventNo(0), |(_, no, _)| *no)
    }
}

impl Allocations {
    pub fn get(&self, no: AllocationNo) -> Option<&Owned> {
        self.known.get(&no)
    }

    pub fn live_of(&self, tenant: &Token) -> u64 {
        self.live_of.get(tenant).copied().unwrap_or(0)
    }

    pub fn gangs(&self) -> &Gangs {
        &self.gangs
    }

    pub fn requested(
        &mut self,
        no: AllocationNo,
        tenant: &Token,
        spec: &AllocationSpec,
        room: &mut Room,
    ) {
        *self.live_of.entry(tenant.clone()).or_default() += 1;
        self.gangs.requested(no, tenant, spec);
        let mut owned = Owned {
            tenant: tenant.clone(),
            ended: false,
            bytes: 0,
        };
        owned.occupy(room::live(tenant, spec), room);
        self.known.insert(no, owned);
    }

    /// It is over by the event with this number.
    pub fn ended(
        &mut self,
        no: AllocationNo,
        by: EndedBy,
        (event, at): (EventNo, Millis),
        room: &mut Room,
    ) {
        let Some(owned) = self.known.get_mut(&no).filter(|owned| !owned.ended) else {
            return;
        };
        owned.ended = true;
        owned.occupy(room::ended(&owned.tenant), room);
        if let Some(live) = self.live_of.get_mut(&owned.tenant) {
            *live -= 1;
            if *live == 0 {
                self.live_of.remove(&owned.tenant);
            }
        }
        let (ends, ran) = match by {
            EndedBy::Scheduler { ran } => (&mut self.ended, ran),
            EndedBy::Quota => (&mut self.denied, false),
        };
        ends.0.push_back((at, event, no));
        self.gangs.ended(no, ran);
    }

    /// Takes the room of all that are known.
    #[cfg(test)]
    pub fn occupy(&self, room: &mut Room) {
        for owned in self.known.values() {
            room.take(Of::Allocations, &owned.tenant, owned.bytes.into());
        }
    }

    /// A live one was said to take `before` in the version of the state that this one is upgraded from.
    pub fn live_took(&mut self, before: u64, room: &mut Room) {
        for owned in self.known.values_mut().filter(|owned| !owned.ended) {
            let bytes = (u64::from(owned.bytes) + room::LIVE).saturating_sub(before);
            owned.occupy(bytes, room);
        }
    }

    pub fn over(&self, now: Millis, window_ms: i64) -> Over {
        Over {
            ended: self.ended.over(now, window_ms),
            denied: self.denied.over(now, window_ms),
        }
    }

    pub fn forget(&mut self, through: Over, room: &mut Room) {
        for (ends, through) in [
            (&mut self.ended, through.ended),
            (&mut self.denied, through.denied),
        ] {
            while let Some((.., no)) = ends.0.pop_front_if(|(_, event, _)| *event <= through) {
                if let Some(owned) = self.known.remove(&no) {
                    room.give(Of::Allocations, &owned.tenant, owned.bytes.into());
                }
            }
        }
    }
}
