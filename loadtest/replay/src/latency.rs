//! Times as a histogram.

use hdrhistogram::Histogram;
use std::time::Duration;

/// Microseconds up to ten minutes, three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are in order"))
}

pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

pub fn quantile_ms(micros: &Histogram<u64>, quantile: f64) -> f64 {
    micros.value_at_quantile(quantile) as f64 / 1000.0
}
