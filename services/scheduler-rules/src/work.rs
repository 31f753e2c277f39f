//! What deciding costs, in the units of work of a [`ledger::Draft`], and how a frame's work is shared out.
//!
//! The order in a frame is: placing, preempting, explaining. What finds the frame's work used up is put off, and in the next
//! frame it has so much however much was spent before it. So a frame is bounded and nothing waits for ever. Nothing
//! depends on how long anything took.

use ledger::Draft;

/// Whether something was put off in the frame before, which was used up before it was its turn.
#[derive(Debug, Default)]
pub struct PutOff(bool);

impl PutOff {
    /// Whether it is its turn now. If not, it is in the next frame, with `least` to spend.
    pub fn is_due(&mut self, least: usize, draft: &mut Draft) -> bool {
        if self.0 {
            draft.allow(least);
        }
        self.0 = draft.full();
        !self.0
    }
}

/// To see where a queue stands among the others.
pub const QUEUE: usize = 4;
/// To see whether there is room for a scheduling key.
pub const TRY: usize = 16;
/// To look at a node closely, and see who would have to go from it.
pub const LOOK: usize = 160;
/// To see who may go from a node that has changed, and for each that is on it.
pub const SEE: usize = 4;
pub const SEE_EACH: usize = 3;
/// So many pending groups, queues or nodes are gone through for one unit.
pub const WALKED_FOR_ONE: usize = 2;
/// So many nodes are counted by what keeps them off for one unit.
pub const COUNTED_FOR_ONE: usize = 8;

/// For placing, once it is known whose turn it is.
pub const PLACING_LEAST: usize = 3000;
/// For clearing nodes; one more unit is looked for when it is used up, at the most.
pub const PREEMPTING_MAX: usize = 25_000;
/// However many pending groups and queues had to be gone through before.
pub const PREEMPTING_LEAST: usize = 5000;
pub const EXPLAINING_LEAST: usize = 9000;
