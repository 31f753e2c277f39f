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

pub use fields::{Fields, Wrong, did_you_mean, text, unknown};
pub use kind::{Kind, Setting, expecting};
pub use plan::{
    Action, Difference, Plan, Send, Standing, Step, judged_by, not_among, patched, plan, rank,
};
pub use read::{Documents, Fault, Place, read, written};
pub use units::text_of;
