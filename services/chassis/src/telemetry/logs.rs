//! The process's log.

use std::sync::Once;

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// Quiet unless the filter names them: the libraries under the exporter, since a receiver that is away must not fill the
/// log and sending spans is no news; the bus client, whose events are counted and logged as health.
const QUIET: &str = "h2=off,hyper=off,hyper_util=off,tonic=off,tower=off,opentelemetry=off,opentelemetry_sdk=off,opentelemetry_otlp=off,async_nats=warn";

/// Starts the process's log on standard output. In a process with several services the first call decides.
pub fn init_logs(config: &LogConfig) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A line that cannot be written is otherwise reported by `eprintln!`, which panics if standard error is closed, too.
        let builder = tracing_subscriber::fmt()
            .log_internal_errors(false)
            .with_env_filter(filter(&config.filter));
        let set = match config.format {
            LogFormat::Json => builder
                .json()
                .flatten_event(true)
                .with_span_list(false)
                .try_init(),
            LogFormat::Pretty => builder
                .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stdout()))
                .try_init(),
        };
        // A test or a host process that already has a subscriber keeps it.
        drop(set);
    });
}

/// The later directive of a target wins, so a filter may still turn a quiet library on.
fn filter(wanted: &str) -> EnvFilter {
    EnvFilter::builder().parse_lossy(format!("{QUIET},{wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_libraries_stay_quiet_until_they_are_named() {
        let shows = |wanted: &str, directive: &str| {
            filter(wanted)
                .to_string()
                .split(',')
                .any(|own| own == directive)
        };
        assert!(shows("debug", "h2=off"));
        assert!(shows("debug", "debug"));
        assert!(shows("info,h2=trace", "h2=trace"));
        assert!(!shows("info,h2=trace", "h2=off"));
    }
}
