//! Connections by which messages come to an inbox, apart from the one by which the service decides.
//!
//! Header blocks are the senders' own bytes, and an inbox needs them. The client library closes a connection on which one comes
//! that it cannot read, and one with a carriage return in a value ends the client for good. Here that costs a moment: the
//! connection is made again. What needs no headers is heard without them ([`crate::Hearing`]).

use std::time::Duration;

use async_nats::Client;
use ledger_nats::jetstream::Outside;
use tokio::sync::watch;
use tracing::Instrument;

use crate::config::NatsConfig;
use crate::connect::{self, NatsEvents};
use crate::error::BootError;
use crate::health::ComponentHandle;
use crate::service::Context;
use crate::shutdown::Shutdown;

/// Before a client takes the place of one that has broken down: whoever has ended that one goes on sending.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Before credentials are tried again that the server took before.
const REFUSED_AGAIN_AFTER: Duration = Duration::from_secs(5);

struct Keeper {
    service: &'static str,
    config: NatsConfig,
    events: NatsEvents,
    health: ComponentHandle,
    shutdown: Shutdown,
}

impl<T> Context<T> {
    /// Makes a connection of this name and keeps it. While it is away the service is degraded.
    pub(crate) async fn outside(&self, name: &'static str) -> Result<Outside, BootError> {
        let keeper = Keeper {
            service: self.service,
            config: self.servers.nats.clone(),
            events: self.nats_events.beside(name),
            health: self.health.component(name),
            shutdown: self.shutdown.clone(),
        };
        let (client, broken_down) = match keeper.connect().await {
            Err(BootError::Stopped) => return Err(self.stopped()),
            connected => connected?,
        };
        let (sender, clients) = watch::channel(client);
        let link = keeper.events.link.clone();
        let keeping = keeper.keep(broken_down, sender).in_current_span();
        self.watches.begin(keeping);
        Ok(Outside { clients, link })
    }
}

impl Keeper {
    /// A client, and who is told that it has broken down.
    async fn connect(&self) -> Result<(Client, Shutdown), BootError> {
        let events = self.events.renewed();
        let health = self.health.clone();
        let connected = connect::nats(self.service, &self.config, &events, health, &self.shutdown);
        Ok((connected.await?, events.broken_down))
    }

    async fn keep(self, mut broken_down: Shutdown, clients: watch::Sender<Client>) {
        loop {
            broken_down.requested().await;
            self.events.count("broken_down");
            self.health
                .degraded("the bus client has broken down: a message that it cannot read");
            tokio::time::sleep(AGAIN_AFTER).await;
            let client = loop {
                match self.connect().await {
                    Ok((client, next)) => {
                        broken_down = next;
                        break client;
                    }
                    Err(BootError::Stopped) => return,
                    Err(error) => {
                        tracing::warn!(%error, "connecting again");
                        tokio::time::sleep(REFUSED_AGAIN_AFTER).await;
                    }
                }
            };
            clients.send_replace(client);
            self.events.link.broke();
        }
    }
}
