//! Work that may keep a thread busy for long, on a thread of its own, so that no decision waits behind it.

use std::future::Future;
use std::io;

use tokio::{runtime::Builder, select, sync::oneshot};

use crate::error::Failure;

/// The work's outcome. Dropping this ends the work at its next pause, and the thread with it.
pub(super) async fn aside<V, E>(
    name: &'static str,
    work: impl Future<Output = Result<V, E>> + Send + 'static,
) -> Result<V, Failure>
where
    V: Send + 'static,
    E: Into<Failure> + Send + 'static,
{
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (alive, gone) = oneshot::channel::<()>();
    let (done, outcome) = oneshot::channel();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                select! {
                    // Nobody is left to hear of it when the service ends meanwhile.
                    value = work => drop(done.send(value)),
                    _ = gone => {}
                }
            });
        })?;
    let outcome = outcome.await;
    drop(alive);
    match outcome {
        Ok(outcome) => outcome.map_err(Into::into),
        Err(_) => Err(io::Error::other(format!("the thread of {name} has ended")).into()),
    }
}
