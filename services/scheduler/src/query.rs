//! What tenants may ask of the scheduler, answered from its read model.

mod allocation;
mod named;

pub use allocation::{AllocationQueries, AllocationsQueries};
pub use named::{LeaseQueries, ResourceQueries};
