//! What tenants and operators may ask of admission.

mod feed;
mod operation;
mod refusals;
mod settings;

pub use feed::FeedQueries;
pub use operation::OperationQueries;
pub use refusals::RefusalsQueries;
pub use settings::SettingsQueries;
