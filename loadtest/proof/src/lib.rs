//! Whether the suite keeps its promises while everything goes wrong that can: in a simulation, in recorded histories of
//! named resources, and on a running stack that is broken at random. The checkers share no code with what they check.

pub mod chaos;
pub mod history;
pub mod simulate;
