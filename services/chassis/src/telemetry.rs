//! Logs and spans. Logs go through `tracing`, once per process. Spans go through the OpenTelemetry API directly, one
//! provider per service: a layer under `tracing` would cost microseconds per message even when nothing is sampled.

mod exporter;
mod journey;
mod logs;
mod trace_parent;

pub(crate) use self::exporter::SPANS_LOST;
pub use self::journey::{Attribute, Journey, OpenSpan};
pub use self::logs::init_logs;
pub use self::trace_parent::TraceParent;
