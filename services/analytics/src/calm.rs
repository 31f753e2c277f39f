//! Says in the tables what the currency is, and, while nothing happens, that nothing does: what runs is billed up to a moment
//! that is known.

use crate::{Currency, Settings, store::Store};
use chassis::{Clock, Context};
use ledger::Bus;
use ledger_nats::jetstream::JetStreamBus;
use std::{convert::Infallible, time::Duration};
use vocab::{Lsn, Millis};

/// Real time between two rows, and before the first.
const SAY_EVERY: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub struct Calm {
    store: Store,
    bus: JetStreamBus,
    clock: Clock,
    currency: Currency,
}

impl Calm {
    pub fn new(store: Store, bus: JetStreamBus, ctx: &Context<Settings>) -> Self {
        Self {
            store,
            bus,
            clock: ctx.clock.clone(),
            currency: ctx.settings.currency.clone(),
        }
    }

    pub async fn say(self) -> Infallible {
        loop {
            let said = self.look().await.unwrap_or_else(|error| {
                // The projection says whether the stores answer.
                tracing::debug!(%error, "nobody knows whether anything happens");
                false
            });
            tokio::time::sleep(if said { SAY_EVERY } else { LOOK_AGAIN }).await;
        }
    }

    /// The moment is taken before the ledger's end is asked for: whatever is written later has happened later. False: the
    /// tables have no position yet, and what has none is emptied.
    async fn look(&self) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        let now = Millis(self.clock.now_ms());
        let end = self.bus.end().await?;
        let through = self.store.through().await?;
        if through == Lsn(0) {
            return Ok(false);
        }
        let at = match through >= end {
            true => now,
            false => self.store.known().await?.through,
        };
        self.store.says(at, self.currency.as_str()).await?;
        Ok(true)
    }
}
