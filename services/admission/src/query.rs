//! What tenants and operators may ask of admission.

mod feed;
mod operation;
mod rates;
mod refusals;
mod settings;

pub use feed::FeedQueries;
pub use operation::OperationQueries;
pub use rates::RatesQueries;
pub use refusals::RefusalsQueries;
pub use settings::{SettingsQueries, asked_again, change_request};
