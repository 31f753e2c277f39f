//! What tenants may ask of the scheduler, answered from its read model.

mod allocation;
mod explain;
mod named;

pub use allocation::{AllocationQueries, AllocationsQueries};
pub use explain::{ExplainQueries, Unreadable, explanation};
pub use named::{LeaseQueries, ResourceQueries};
