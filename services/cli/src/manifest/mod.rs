//! Settings as files have them, and what a file would change. All of it is pure.

mod budget;
mod cordon;
mod fields;
mod kind;
mod plan;
mod priority_class;
mod queue;
mod quota;
mod rate;
mod read;
mod reservation;
mod scheduling;
mod taints;
mod tenant;
#[cfg(test)]
mod tests;
mod units;

pub use fields::{Fields, Wrong, known, meant, text};
pub use kind::{Kind, Setting, expecting};
pub use plan::{
    Action, Difference, Plan, Send, Standing, Step, kinds_named, patched, plan, rank, unmet,
};
pub use read::{Document, Place, gathered, read, written};
pub use units::text_of;
