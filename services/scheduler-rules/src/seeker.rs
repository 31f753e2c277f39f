//! One that looks for a place.

use super::{class::Class, queues::QueueNo};
use vocab::{AllocationNo, PlacementPolicy};

/// An allocation, or a guest that does not stand in the state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seeker<'a> {
    pub no: AllocationNo,
    pub class: &'a Class,
    pub policy: PlacementPolicy,
    /// None: nobody has used its queue yet, which has no settings.
    pub queue: Option<QueueNo>,
    /// 0: not known.
    pub run_time_ms: u64,
}
