//! What tenants and operators may ask of quota, answered from its read model; and trials, from its state.

mod budget;
mod history;
mod limits;
mod trial;

pub use budget::BudgetQueries;
pub use history::{HistoryQueries, of_hour};
pub use limits::{QuotaQueries, Unreadable, of_view, of_wait};
pub use trial::TrialQueries;
