//! A machine at rest, so that nobody stands in another's way.

use super::PeersError;
use crate::kit::usage::Usage;
use chassis::stack::Stack;
use std::time::Duration;

/// Of one core, by the whole stack: what it uses when it has nothing to do.
const IDLE_CORES: f64 = 0.15;
const LOOKS_MAX: usize = 120;

/// Waits until the stack has nothing left to do.
pub async fn rest(stack: &Stack) -> Result<(), PeersError> {
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
