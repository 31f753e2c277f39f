//! What sampled traces cost: the same rate without and with them, in turns.

use super::{Bench, BenchError};
use crate::kit::figures::round;
use replay::otlp::Collector;
use serde::{Deserialize, Serialize};

/// One message in so many is traced, with all that is in it.
pub const ONE_IN: u64 = 100;
/// Of the highest rate, so that more work is more time and not a longer queue.
const PART: f64 = 0.75;
/// Without, with, with, without: what drifts meanwhile adds to both alike.
const TURNS: [bool; 4] = [false, true, true, false];

/// What sampled traces cost.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TracingFigures {
    pub offered_per_s: f64,
    /// One message in so many was traced.
    pub one_in: u64,
    /// What the receiver got. It is a part of the driver, and counts with what tracing costs.
    pub spans: usize,
    /// Of the whole stack per task, in the order of the turns.
    pub off_us: [f64; 2],
    pub on_us: [f64; 2],
    pub percent: f64,
}

pub async fn measure(bench: &Bench<'_>, highest: f64) -> Result<TracingFigures, BenchError> {
    let collector = Collector::listen(bench.stack.otlp_listen, bench.stack.otlp()).await?;
    let per_s = (highest * PART).round();
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for traced in TURNS {
        bench.load.trace_one_in.set(if traced { ONE_IN } else { 0 });
        let us = bench.rate(per_s).await?.cpu_us_per_task;
        if traced { &mut on } else { &mut off }.push(us);
    }
    bench.load.trace_one_in.set(0);
    let (kept, dropped) = collector.spans.counts();
    let (off_us, on_us) = ([off[0], off[1]], [on[0], on[1]]);
    Ok(TracingFigures {
        offered_per_s: per_s,
        one_in: ONE_IN,
        spans: kept + dropped,
        percent: percent(off_us, on_us),
        off_us,
        on_us,
    })
}

fn percent(off: [f64; 2], on: [f64; 2]) -> f64 {
    let (off, on): (f64, f64) = (off.iter().sum(), on.iter().sum());
    round((on / off - 1.0) * 100.0, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_that_is_the_same_for_both_cancels_out() {
        assert_eq!(percent([100.0, 130.0], [110.0, 120.0]), 0.0);
        assert_eq!(percent([100.0, 100.0], [104.0, 106.0]), 5.0);
    }
}
