//! What tenants and operators may ask of the scheduler, answered from its read model; and trials, from its state.

mod allocation;
mod explain;
mod job_sets;
mod named;
mod nodes;
mod preemptions;
mod queues;
mod request;
mod reservations;
mod tenants;
mod trial;

pub use allocation::{AllocationQueries, AllocationsQueries};
pub use explain::{ExplainQueries, Unreadable, explanation};
pub use job_sets::JobSetsQueries;
pub use named::{LeaseQueries, ResourceQueries};
pub use nodes::{NodeQueries, NodesQueries};
pub use preemptions::{PreemptionsQueries, of_preemption};
pub use queues::{QueueQueries, QueuesQueries};
pub use reservations::ReservationsQueries;
pub use tenants::TenantsQueries;
pub use trial::TrialQueries;

use chassis::query::name_prefix;
