//! What tenants and operators may ask of the scheduler, answered from its read model.

mod allocation;
mod explain;
mod job_sets;
mod named;
mod nodes;
mod preemptions;
mod queues;
mod reservations;
mod tenants;

pub use allocation::{AllocationQueries, AllocationsQueries};
pub use explain::{ExplainQueries, Unreadable, explanation};
pub use job_sets::JobSetsQueries;
pub use named::{LeaseQueries, ResourceQueries};
pub use nodes::{NodeQueries, NodesQueries};
pub use preemptions::{PreemptionsQueries, of_preemption};
pub use queues::{QueueQueries, QueuesQueries};
pub use reservations::ReservationsQueries;
pub use tenants::TenantsQueries;

use chassis::query::name_prefix;
