//! What tenants and operators may ask of the scheduler, answered from its read model.

mod allocation;
mod explain;
mod named;
mod preemptions;
mod queues;
mod reservations;

pub use allocation::{AllocationQueries, AllocationsQueries};
pub use explain::{ExplainQueries, Unreadable, explanation};
pub use named::{LeaseQueries, ResourceQueries};
pub use preemptions::{PreemptionsQueries, of_preemption};
pub use queues::{QueueQueries, QueuesQueries};
pub use reservations::ReservationsQueries;
