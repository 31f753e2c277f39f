//! How far deciding has come from frame to frame. Only saves work.

use super::work::PutOff;
use vocab::{AllocationNo, EventNo, Millis};

#[derive(Debug, Default)]
pub struct Pace {
    /// The fleet's composition when scheduling keys were last tried, and when pending groups were last explained.
    pub tried_with: Option<u64>,
    pub explained_with: Option<u64>,
    /// When decisions were last made.
    pub decided: Option<Millis>,
    /// There may be more to decide at once.
    pub again: bool,
    /// When who could be made to go may be another matter though nothing has happened.
    pub preempt_again_at: Option<Millis>,
    pub placing_put_off: PutOff,
    pub preempting_put_off: PutOff,
    pub explaining_put_off: PutOff,
    /// Who is new is told from this one on: the frame before was full when it was his turn.
    pub told_from: AllocationNo,
    /// There may be more room somewhere, or others may go there, than when nominees were last looked at.
    pub room_gained: bool,
    /// Position in the job set of the request that is being decided: members with lower numbers are done.
    pub walked: Option<(EventNo, AllocationNo)>,
    /// A reservation was granted, changed or ended: others may go to its nodes.
    pub reserved_anew: bool,
}

impl Pace {
    /// Preemption is worth a look then, even if nothing happens before.
    pub fn preempt_at(&mut self, at: Millis) {
        let before = self.preempt_again_at.unwrap_or(at);
        self.preempt_again_at = Some(before.min(at));
    }
}
