//! What the measures share: what they say, what they are written down as, and what the stack uses meanwhile.

pub mod figures;
pub mod report;
pub mod usage;
