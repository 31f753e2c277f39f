//! Says in the tables that nothing happens, while nothing does: what runs is billed up to a moment that is known.

use crate::{Currency, Settings, store::Store};
use chassis::{Clock, Context};
use ledger::{Bus, jetstream::JetStreamBus};
use std::{convert::Infallible, time::Duration};
use vocab::{Lsn, Millis};

/// Real time between two rows.
const SAY_EVERY: Duration = Duration::from_secs(30);

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
            if let Err(error) = self.look().await {
                // The projection says whether the stores answer.
                tracing::debug!(%error, "nobody knows whether anything happens");
            }
            tokio::time::sleep(SAY_EVERY).await;
        }
    }

    /// The moment is taken before the ledger's end is asked for: whatever is written later has happened later.
    async fn look(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let now = Millis(self.clock.now_ms());
        let end = self.bus.end().await?;
        let through = self.store.through().await?;
        // Tables without a position are emptied.
        if through >= end && through > Lsn(0) {
            self.store.says(now, self.currency.as_str()).await?;
        }
        Ok(())
    }
}
