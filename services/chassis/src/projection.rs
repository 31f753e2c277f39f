//! How far the projections of a service are, as instruments. One process may run several, so each has its name as a label.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use vocab::Lsn;

use crate::metrics::{Fraction, Metric, Metrics};
use crate::service::Context;
use crate::watch::{Follower, Followers};

pub(crate) const CHANGES: Metric = Metric::counter(
    "apportion_projection_changes_total",
    "Changes applied by a projection",
)
.by(&["projection"]);
pub(crate) const RETRIES: Metric = Metric::counter(
    "apportion_projection_retries_total",
    "Times that a projection tried its sink or the bus again",
)
.by(&["projection"]);
pub(crate) const LSN: Metric = Metric::gauge(
    "apportion_projection_lsn",
    "Position of the ledger that a projection has applied",
)
.by(&["projection"]);
pub(crate) const LAG_SECONDS: Metric = Metric::gauge(
    "apportion_projection_lag_seconds",
    "Real time since the ledger had an end that a projection has not applied, 0 when it has applied all. A process that \
     stands by applies nothing: the smallest of a cell's processes counts",
)
.by(&["projection"]);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfProjection {
    pub projection: &'static str,
}

/// Those of all projections of one service.
#[derive(Clone, Debug)]
pub(crate) struct Projections {
    changes: Family<OfProjection, Counter>,
    retries: Family<OfProjection, Counter>,
    lsn: Family<OfProjection, Gauge>,
    pub lag_seconds: Family<OfProjection, Fraction>,
}

impl Projections {
    pub fn new(m: &Metrics) -> Self {
        Self {
            changes: m.register(&CHANGES, Family::default()),
            retries: m.register(&RETRIES, Family::default()),
            lsn: m.register(&LSN, Family::default()),
            lag_seconds: m.register(&LAG_SECONDS, Family::default()),
        }
    }

    fn of(&self, projection: &'static str, followers: &Followers) -> Progress {
        let of = OfProjection { projection };
        // So that nobody who waits for it takes nothing for no lag.
        let _ = self.lag_seconds.get_or_create(&of);
        Progress {
            changes: self.changes.get_or_create(&of).clone(),
            retries: self.retries.get_or_create(&of).clone(),
            lsn: self.lsn.get_or_create(&of).clone(),
            applied: followers.projection(projection),
        }
    }
}

/// How far one projection is, as it says itself.
#[derive(Clone, Debug)]
pub struct Progress {
    changes: Counter,
    retries: Counter,
    lsn: Gauge,
    applied: Follower,
}

impl Progress {
    /// Everything up to here is in its sink.
    pub fn applied(&self, to: Lsn, changes: usize) {
        self.changes.inc_by(changes as u64);
        self.lsn.set(i64::try_from(to.0).unwrap_or(i64::MAX));
        self.applied.read(to);
    }

    /// Its sink, or the bus, is tried again.
    pub fn retries(&self) {
        self.retries.inc();
    }
}

impl<T> Context<T> {
    /// Where a projection says how far it is.
    pub fn progress(&self, projection: &'static str) -> Progress {
        self.projections.of(projection, &self.followers)
    }
}
