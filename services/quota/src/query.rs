//! What tenants and operators may ask of quota, answered from its read model.

mod budget;
mod history;
mod limits;

pub use budget::BudgetQueries;
pub use history::{HistoryQueries, of_hour};
pub use limits::{QuotaQueries, Unreadable, of_view, of_wait};
