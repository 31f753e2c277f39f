//! One that looks for a place.

use super::{
    class::Class,
    queues::{QueueNo, Queues},
};
use vocab::{AllocationNo, PlacementPolicy, Token};

/// An allocation, or a guest that does not stand in the state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seeker<'a> {
    pub no: AllocationNo,
    pub class: &'a Class,
    pub policy: PlacementPolicy,
    /// None: nobody has used its queue yet, which has no settings.
    pub queue: Option<QueueNo>,
    pub queue_name: &'a Token,
    /// 0: not known.
    pub run_time_ms: u64,
}

impl Seeker<'_> {
    /// Returns whether its queue or one above it has the name. A queue without a number has none above it.
    pub fn is_below(&self, queues: &Queues, name: &Token) -> bool {
        match self.queue {
            Some(queue) => queues.up(queue).any(|no| queues.get(no).name == *name),
            None => self.queue_name == name,
        }
    }
}
