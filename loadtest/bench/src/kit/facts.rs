//! What comes on a running stack's ledger, as it comes.

use chassis::stack::Stack;
use ledger::{Bus, Chain, Tail};
use replay::reach::{ReachError, ledger};
use tokio::task::JoinHandle;
use vocab::{At, Event, Kinds, Lsn};

/// Ends when it is dropped.
pub struct Facts {
    task: JoinHandle<()>,
}

impl Drop for Facts {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Shows each fact of these kinds, from the ledger's beginning on. What cannot be read ends it, and whoever waits for facts
/// then waits in vain.
pub async fn follow(
    stack: &Stack,
    kinds: Kinds,
    mut see: impl FnMut(&At, &Event) + Send + 'static,
) -> Result<Facts, ReachError> {
    let bus = ledger(stack).await?;
    let mut records = bus.follow(Lsn(1)).await?;
    let task = tokio::spawn(async move {
        let mut chain = Chain::default();
        loop {
            let record = match records.recv().await {
                Ok(record) => record,
                Err(error) => return chassis::note!("the ledger: {error}"),
            };
            match chain.accept(&record, kinds) {
                Ok(None) => {}
                Ok(Some(frame)) => frame.placed().for_each(|(at, event)| see(&at, event)),
                Err(error) => return chassis::note!("the ledger: {error}"),
            }
        }
    });
    Ok(Facts { task })
}
