//! A moment, as Unix milliseconds of the cell's clock.

use serde::{Deserialize, Serialize};

pub const HOUR_MS: i64 = 3_600_000;

/// Unix milliseconds of the cell's clock, which may be a recorded one.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
#[wire(transparent)]
pub struct Millis(pub i64);

impl Millis {
    pub fn plus(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// The moment, moved into `[low, high]`; `high` wins where the two cross.
    pub fn between(self, low: Self, high: Self) -> Self {
        self.max(low).min(high)
    }
}
