//! How far a read model is, for those who wait for it.

use std::time::Duration;
use tokio::sync::watch;
use vocab::Lsn;

/// The position that a read model has applied. Clones share it: one writes, many wait.
#[derive(Debug, Clone, Default)]
pub struct Mark {
    applied: watch::Sender<Lsn>,
    /// Whether what it has applied was held against the ledger, as far as the read model could be asked.
    looked: watch::Sender<bool>,
}

impl Mark {
    /// Goes back when the read model did, as after a crash of its database.
    pub fn set(&self, applied: Lsn) {
        self.applied.send_if_modified(|mark| {
            let changed = *mark != applied;
            *mark = applied;
            changed
        });
    }

    pub fn applied(&self) -> Lsn {
        *self.applied.borrow()
    }

    /// The ledger holds what the read model has applied, or nobody can ask now.
    pub(crate) fn looked(&self) {
        self.looked
            .send_if_modified(|looked| !std::mem::replace(looked, true));
    }

    /// Until it has looked.
    pub(crate) async fn has_looked(&self) {
        // The writer lives as long as `self` does.
        let _ = self.looked.subscribe().wait_for(|looked| *looked).await;
    }

    /// Waits until `wanted` is applied and returns what is; without patience left, the position that it is at.
    pub async fn reach(&self, wanted: Lsn, patience: Duration) -> Result<Lsn, Lsn> {
        let mut marks = self.applied.subscribe();
        let reached = marks.wait_for(|applied| *applied >= wanted);
        match tokio::time::timeout(patience, reached).await {
            Ok(Ok(applied)) => Ok(*applied),
            // The writer lives as long as `self` does, so this is the time-out.
            Ok(Err(_)) | Err(_) => Err(self.applied()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_sees_the_position_or_how_far_it_is() {
        let mark = Mark::default();
        mark.set(Lsn(7));
        let now = Duration::ZERO;
        assert_eq!(mark.reach(Lsn(7), now).await, Ok(Lsn(7)));
        assert_eq!(mark.reach(Lsn(8), now).await, Err(Lsn(7)));
        let other = mark.clone();
        let waiting = tokio::spawn(async move { other.reach(Lsn(8), Duration::MAX).await });
        tokio::task::yield_now().await;
        mark.set(Lsn(9));
        assert_eq!(waiting.await.unwrap(), Ok(Lsn(9)));
    }
}
