//! The boot of every service, written once: configuration, logs, spans, health, metrics, signals, connections.
//!
//! A service implements [`Service`] and its `main` is one [`program!`] around [`main`]; [`run_service`] runs the same code
//! inside a test, and [`run_among`] inside a process that holds several services.

mod clock;
mod config;
mod connect;
mod deciding;
mod entry;
mod error;
mod health;
mod hearing;
mod http;
pub mod metrics;
mod monitor;
pub mod output;
mod outside;
mod projection;
pub mod query;
mod service;
mod shutdown;
pub mod stack;
mod telemetry;
pub mod tls;
pub mod warm;
mod watch;

#[doc(hidden)]
pub use mimalloc;

/// A service's program: its `main`, and the allocator that it runs with. Here, and not in the library that a test links,
/// because a program has only one.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        #[global_allocator]
        static ALLOCATOR: $crate::mimalloc::MiMalloc = $crate::mimalloc::MiMalloc;

        fn main() -> ::std::process::ExitCode {
            $main()
        }
    };
}

pub use clock::{Clock, ClockHand, Stamp, Steady, Stopwatch};
pub use config::{
    Cell, ClickhouseConfig, ClockConfig, Config, ConfigError, HttpConfig, LogConfig, LogFormat,
    NatsConfig, PostgresConfig, Secret, TelemetryConfig, check_sample,
};
pub use deciding::{Deciding, JourneyTap};
pub use entry::{command, main, run};
pub use error::{BootError, Failure};
pub use health::{ComponentHandle, Health};
pub use hearing::{Heard, Hearing, ReplyTo, Wanted};
pub use metrics::{Metric, Metrics};
pub use opentelemetry::trace::SpanKind;
pub use projection::Progress;
pub use service::{
    Context, Leading, Needs, Servers, Service, instance, readers, run_among, run_service,
};
pub use shutdown::Shutdown;
pub use telemetry::{Attribute, Journey, OpenSpan, TraceParent, init_logs};
pub use watch::{Behind, Follower};
