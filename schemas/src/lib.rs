//! The contract: messages, subjects and stream names. Field numbers are never reused.

pub mod subjects;

/// The generated messages of `proto/apportion/v1`.
#[allow(clippy::all)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/apportion.v1.rs"));
}
