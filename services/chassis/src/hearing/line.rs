//! One connection after the other.

use identity::reconnect_delay;
use tokio::sync::mpsc;

use super::{Heard, Talk, Wanted, talk::Unheard};
use crate::config::NatsConfig;
use crate::connect::NatsEvents;
use crate::health::ComponentHandle;
use crate::shutdown::Shutdown;

/// A connection that is not opened yet.
pub(crate) struct Line {
    pub(super) service: &'static str,
    pub(super) config: NatsConfig,
    pub(super) wanted: Vec<Wanted>,
    pub(super) events: NatsEvents,
    pub(super) health: ComponentHandle,
    pub(super) shutdown: Shutdown,
}

impl Line {
    /// Tries until it works. None when the service is to stop.
    pub(super) async fn connect(&self) -> Option<Talk> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let trying = Talk::begin(self.service, &self.config, &self.wanted);
            let why = tokio::select! {
                () = self.shutdown.requested() => return None,
                talk = trying => match talk {
                    Ok(talk) => {
                        self.events.count("connected");
                        self.health.ready();
                        return Some(talk);
                    }
                    Err(why) => why,
                },
            };
            self.away(&why);
            tokio::select! {
                () = self.shutdown.requested() => return None,
                () = tokio::time::sleep(reconnect_delay(attempts)) => {}
            }
        }
    }

    /// Until the service is to stop, or nobody listens.
    pub(super) async fn hear(self, mut talk: Talk, heard: mpsc::Sender<Heard>) {
        loop {
            let talking = talk.run(&heard, || self.events.count("server_error"));
            tokio::select! {
                () = self.shutdown.requested() => return,
                ended = talking => match ended {
                    Ok(()) => return,
                    Err(why) => {
                        self.events.count("disconnected");
                        self.away(&why);
                    }
                },
            }
            match self.connect().await {
                Some(next) => talk = next,
                None => return,
            }
        }
    }

    fn away(&self, why: &Unheard) {
        tracing::warn!(
            url = self.config.url,
            error = crate::error::one_line(why),
            "hearing"
        );
        self.health.degraded("disconnected");
    }
}
