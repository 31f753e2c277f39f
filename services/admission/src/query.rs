//! What tenants may ask of admission.

mod feed;
mod operation;

pub use feed::FeedQueries;
pub use operation::OperationQueries;
