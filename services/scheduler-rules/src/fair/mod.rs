//! Fair shares: how much of the cell a queue uses, how much it is due, and how past use is forgiven.

mod decay;
mod share;
mod water;

pub use decay::{Kept, Remembered};
pub use share::{Cost, Share, WEIGHT_MILLI_ONE};
pub use water::{Claim, fair_shares};
