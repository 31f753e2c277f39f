//! A machine at rest: one measure does not slow down the next.

use super::PeersError;
use crate::kit::usage::Usage;
use chassis::stack::Stack;
use replay::command::Size;
use std::time::Duration;

/// Cores that an idle stack uses at most.
const IDLE_CORES: f64 = 0.15;
const LOOKS_MAX: usize = 120;

/// Waits until the stack has nothing left to do; at the smallest size it does not matter whether it has.
pub async fn rest(stack: &Stack, size: Size) -> Result<(), PeersError> {
    if size.smoke {
        return Ok(());
    }
    for _ in 0..LOOKS_MAX {
        let usage = Usage::begin(stack).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let used = usage.end(stack).await;
        let seconds: f64 = used.cpu_s.values().sum();
        if seconds / used.wall_s < IDLE_CORES {
            return Ok(());
        }
    }
    Err(PeersError::NeverAtRest(LOOKS_MAX))
}
