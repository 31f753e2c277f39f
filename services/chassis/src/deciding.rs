//! A service on its ledger: the boot check, the leader, the projectors, with their health, metrics and spans. Written
//! once for all services.

mod aside;
mod observe;
mod trace;

pub use observe::OF_DECIDERS;
pub use trace::JourneyTap;

use std::convert::Infallible;

use async_nats::jetstream::stream::Config;
use futures::future::join_all;
use ledger::{Decider, Inbox, InboxLimits, Projection, SAYS_AFTER, Sink, Time, Witnesses};
use ledger_nats::{
    Decode, Leader, LeaderOptions, Projector, Question, cell, check_ledger_settings,
    jetstream::JetStreamBus,
};
use tokio::sync::{mpsc, watch};
use tracing::Instrument;
use vocab::{CellNo, Level, Millis, subjects::Subjects};

use crate::clock::Clock;
use crate::error::Failure;
use crate::health::ComponentHandle;
use crate::monitor::Monitor;
use crate::query::Mark;
use crate::service::Context;
use crate::watch::Behind;
use aside::aside;
use observe::{LeaderShell, ProjectorShell};

/// Frames, of all writers, between snapshots of a decider, at the least.
const SNAPSHOT_EVERY: u64 = 5000;
/// Real milliseconds without progress after which a standby takes over.
const TAKEOVER_AFTER_MS: u64 = 2000;
/// Real milliseconds in which read models say whether the ledger holds what they have applied.
const LOOK_MS: u64 = 3000;
/// A leader that cannot hand over by then ends as it is.
const HAND_OVER_MS: u64 = 3000;
/// Real milliseconds between tries while the streams are not there yet.
const RETRY_MS: u64 = 200;

impl Time for Clock {
    fn now(&self) -> Millis {
        Millis(self.now_ms())
    }

    fn set(&self, witnesses: &Witnesses) {
        Clock::set(self, witnesses);
    }

    async fn sleep_until(&self, at: Millis) {
        Clock::sleep_until(self, at.0).await;
    }

    async fn pause(&self, real_ms: u64) {
        tokio::time::sleep(std::time::Duration::from_millis(real_ms)).await;
    }
}

/// What a decider needs beside its domain.
pub struct Deciding<D: Decider> {
    pub config: D::Config,
    /// Its inbox and how to read what comes in by it.
    pub inbox: Option<(Inbox, Decode<D::Command>)>,
    pub local: Option<mpsc::Receiver<D::Command>>,
    /// What is asked about its state.
    pub questions: Option<mpsc::Receiver<Question<D>>>,
    pub effects: Option<mpsc::UnboundedSender<D::Effect>>,
    /// The read models of this process: nobody leads before they have said whether the ledger still holds what they have
    /// applied.
    pub read_models: Vec<Mark>,
}

impl<D: Decider> Deciding<D> {
    /// Decides on what stands on the ledger alone.
    pub fn on_ledger(config: D::Config, read_models: Vec<Mark>) -> Self {
        Self {
            config,
            inbox: None,
            local: None,
            questions: None,
            effects: None,
            read_models,
        }
    }

    /// And says what its state would have it decide.
    pub fn asked(self, questions: mpsc::Receiver<Question<D>>) -> Self {
        Self {
            questions: Some(questions),
            ..self
        }
    }
}

impl<T> Context<T> {
    pub fn cell_no(&self) -> CellNo {
        CellNo(self.cell.number)
    }

    pub fn subjects(&self) -> Subjects {
        Subjects::new(&self.cell.name)
    }

    /// The cell's ledger, once it is there; refused if it could lose what it has acknowledged, or if the cell's feature level
    /// is beyond this build.
    pub async fn ledger(&self) -> Result<JetStreamBus, Failure> {
        let component = self.health.component("ledger");
        component.not_ready("looking for the stream");
        let client = self.nats().await?;
        let link = &self.nats_events.link;
        let bus = JetStreamBus::open_among(client, link, self.subjects(), &self.readers).await?;
        let config = self.stream_config(&bus, &component).await?;
        let monitor_url = self.servers.nats.monitor_url.as_deref();
        let monitor = monitor_url.and_then(Monitor::at);
        let page = match &monitor {
            Some(monitor) => monitor.jetstream().await,
            None => None,
        };
        check_ledger_settings(&config, page.map(|page| page.config.sync_always))?;
        cell::check_level(cell::level(&config)?, Level::KNOWN)?;
        component.not_ready("nobody reads it yet");
        self.watch_reader(&bus);
        if let Some(monitor) = monitor {
            self.watch_store(monitor);
        }
        Ok(bus)
    }

    /// How long a slot of the cell is, in milliseconds of its clock; 0: requests say which slot they are of. The cell's
    /// ledger says it, to all services the same.
    pub async fn slot_ms(&self, bus: &JetStreamBus) -> Result<u64, Failure> {
        let component = self.health.component("ledger");
        let config = self.stream_config(bus, &component).await?;
        Ok(cell::slot_ms(&config)?)
    }

    /// The ledger stream's settings, once it is there.
    async fn stream_config(
        &self,
        bus: &JetStreamBus,
        component: &ComponentHandle,
    ) -> Result<Config, Failure> {
        loop {
            match bus.ledger_config().await {
                Ok(config) => return Ok(config),
                Err(error) => component.not_ready(format!("{error}; has the cell been made?")),
            }
            tokio::select! {
                () = self.clock.pause(RETRY_MS) => {}
                () = self.shutdown.requested() => return Err(self.stopped().into()),
            }
        }
    }

    /// Leads, or stands by, until shutdown. Returns early only on an error that no retry can mend.
    pub async fn decide<D: Decider>(
        &self,
        bus: &JetStreamBus,
        deciding: Deciding<D>,
    ) -> Result<(), Failure> {
        let observer = LeaderShell::new(self);
        self.watch_clock();
        let mut bus = bus.clone();
        if deciding.inbox.is_some() {
            bus = bus.with_inboxes(self.outside("inbox").await?);
        }
        let mut leader = [0; 16];
        leader.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        let (resign, resigns) = watch::channel(false);
        let options = LeaderOptions {
            config: deciding.config,
            leader,
            inbox: deciding.inbox,
            local: deciding.local,
            questions: deciding.questions,
            effects: deciding.effects,
            snapshot_every: SNAPSHOT_EVERY,
            backlog: InboxLimits::default(),
            says_after: SAYS_AFTER,
            takeover_after_ms: TAKEOVER_AFTER_MS,
            resign: resigns,
        };
        let read_models = deciding.read_models;
        let work = async {
            let looked = join_all(read_models.iter().map(Mark::has_looked));
            // A database that does not answer keeps nobody from deciding.
            let patience = self.clock.pause(LOOK_MS);
            tokio::select! { _ = looked => {}, () = patience => {} }
            let leader: Leader<D, _, _> =
                Leader::new(bus, self.clock.clone(), options, Box::new(observer)).await;
            leader.run().await
        };
        let patience = async {
            self.shutdown.requested().await;
            resign.send_replace(true);
            self.clock.pause(HAND_OVER_MS).await;
        };
        tokio::select! {
            outcome = work => Ok(outcome?),
            () = patience => Ok(()),
        }
    }

    /// Projects into `sink` until shutdown, and says in `mark` how far it is: for the queries that read from the sink, and for
    /// who is about to lead.
    pub async fn project<P, S>(
        &self,
        bus: &JetStreamBus,
        sink: S,
        mark: &Mark,
    ) -> Result<(), Failure>
    where
        P: Projection,
        S: Sink<Change = P::Change>,
    {
        // Who waits for an answer waits for a prompt one.
        let behind = if P::BATCHING.is_prompt() {
            Behind::NotReady
        } else {
            Behind::Degraded
        };
        let follower = self.follower(P::NAME, behind);
        let observer = ProjectorShell::new(P::NAME, self, mark.clone(), follower);
        let projector: Projector<P, _, _, _> =
            Projector::new(bus.clone(), self.clock.clone(), sink, Box::new(observer))
                .in_turn(self.leads.subscribe());
        if P::BATCHING.is_prompt() {
            return self.until_shutdown(projector.run()).await;
        }
        self.aside(P::NAME, projector.run()).await
    }

    /// Work until shutdown that may keep a thread busy for long, such as a projection into tables: on a thread of its own, so
    /// that no decision waits behind it.
    pub async fn aside<E>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<Infallible, E>> + Send + 'static,
    ) -> Result<(), Failure>
    where
        E: Into<Failure> + Send + 'static,
    {
        self.until_shutdown(aside(name, work.in_current_span()))
            .await
    }

    /// Dropping a projector is as safe as a crash, and needs no more care.
    async fn until_shutdown<E: Into<Failure>>(
        &self,
        work: impl Future<Output = Result<Infallible, E>>,
    ) -> Result<(), Failure> {
        tokio::select! {
            outcome = work => match outcome {
                Ok(never) => match never {},
                Err(error) => Err(error.into()),
            },
            () = self.shutdown.requested() => Ok(()),
        }
    }
}
