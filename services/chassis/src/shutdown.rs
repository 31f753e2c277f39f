//! One request to stop, seen by everyone.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A request to stop that can be made once and awaited anywhere. Clones are the same request.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// A request that nobody has made yet.
    pub fn new() -> Shutdown {
        Shutdown::default()
    }

    /// Made by the first SIGTERM or SIGINT; the second one ends the process at once, for whoever waits in vain.
    pub fn on_signals() -> std::io::Result<Shutdown> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let shutdown = Shutdown::new();
        let request = shutdown.clone();
        tokio::spawn(async move {
            let name = either(&mut term, &mut int).await.0;
            tracing::info!(signal = name, "stopping");
            request.trigger();
            let (name, number) = either(&mut term, &mut int).await;
            tracing::warn!(signal = name, "stopping at once");
            std::process::exit(128 + number);
        });
        Ok(shutdown)
    }

    /// Makes the request.
    pub fn trigger(&self) {
        self.0.cancel();
    }

    /// Resolves when the request has been made, at once if it was before.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }

    /// Whether the request has been made.
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// A request that follows this one but can also be made alone, to stop a part of a service.
    pub fn child(&self) -> Shutdown {
        Shutdown(self.0.child_token())
    }
}

async fn either(term: &mut Signal, int: &mut Signal) -> (&'static str, i32) {
    tokio::select! {
        _ = term.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
        _ = int.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
    }
}
