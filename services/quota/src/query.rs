//! What tenants and operators may ask of quota, answered from its read model.

mod budget;
mod limits;

pub use budget::BudgetQueries;
pub use limits::{QuotaQueries, Unreadable, of_view, of_wait};
