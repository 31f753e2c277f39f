//! The alarm of a clock that was set: decisions go on by the steady clock, and a person has to look.

use prometheus_client::metrics::counter::Counter;

use super::LOOK_EVERY;
use crate::clock::Clock;
use crate::health::ComponentHandle;
use crate::metrics::{Fraction, Metric};

/// Beyond what a machine's time service corrects by itself without a step.
const ALARM_MS: u64 = 1000;

pub(crate) const CLOCK_AHEAD_SECONDS: Metric = Metric::gauge(
    "apportion_clock_ahead_seconds",
    "Real time by which the machine's clock is ahead of the one that decisions are made by; below 0: behind",
);
pub(crate) const CLOCK_STEPS: Metric = Metric::counter(
    "apportion_clock_steps_total",
    "Times that the machine's clock was found far from the one that decisions are made by",
);

pub(super) async fn watch(
    clock: Clock,
    component: ComponentHandle,
    ahead: Fraction,
    steps: Counter,
) {
    let mut alarmed = false;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let ahead_ms = clock.wall_ahead_ms();
        ahead.set(ahead_ms as f64 / 1000.0);
        let alarm = ahead_ms.unsigned_abs() > ALARM_MS;
        if alarm && !alarmed {
            steps.inc();
            tracing::warn!(
                ahead_ms,
                "the machine's clock was set; it is followed by a tenth"
            );
        }
        alarmed = alarm;
        match ahead_ms {
            _ if !alarm => component.ready(),
            0.. => component
                .degraded("the machine's clock is ahead of the decisions' (clock_ahead_seconds)"),
            _ => component
                .degraded("the machine's clock is behind the decisions' (clock_ahead_seconds)"),
        }
    }
}
