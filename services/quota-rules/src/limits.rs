//! Limits in force at one account for one resource type, and its burst.

use super::cohort::Share;
use serde::{Deserialize, Serialize};
use vocab::{
    Limits, Millis,
    sabotage::{self, Bug},
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Limited {
    pub limits: Limits,
    pub burst: Burst,
    /// When what is above the limit is to be taken back, as the books have it.
    pub timer: Option<Millis>,
    /// What it is counted with in its cohort.
    pub share: Share,
}

/// Where an account is with its burst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Burst {
    /// It may begin.
    #[default]
    Rested,
    /// A grant went above `hard`.
    Above { since: Millis },
    /// It was above, and is not any more.
    Below { since: Millis },
}

impl Limited {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            burst: Burst::Rested,
            timer: None,
            share: Share::default(),
        }
    }

    fn after_burst(&self, since: Millis) -> Millis {
        since.plus(i64::try_from(self.limits.burst_ms).unwrap_or(i64::MAX))
    }

    /// The most that may be held now.
    pub fn cap(&self, now: Millis) -> u64 {
        let may_burst = sabotage::armed(Bug::BurstForever)
            || match self.burst {
                Burst::Rested => true,
                Burst::Above { since } => now < self.after_burst(since),
                Burst::Below { since } => now >= self.after_burst(since),
            };
        if may_burst {
            self.most()
        } else {
            self.limits.hard
        }
    }

    /// The most that may ever be held.
    pub fn most(&self) -> u64 {
        self.limits.burst.unwrap_or(0).max(self.limits.hard)
    }

    /// When the next burst may begin, if one may not now.
    pub fn rested_at(&self, now: Millis) -> Option<Millis> {
        match self.burst {
            Burst::Below { since } => Some(self.after_burst(since)).filter(|at| *at > now),
            Burst::Rested | Burst::Above { .. } => None,
        }
    }

    /// When the passing of time alone changes how much may be held.
    pub fn turns_at(&self, now: Millis) -> Option<Millis> {
        match self.burst {
            Burst::Above { since } | Burst::Below { since } => {
                Some(self.after_burst(since)).filter(|at| *at > now)
            }
            Burst::Rested => None,
        }
    }

    /// Takes in that use has changed; the moment at which what is above the limit is to be taken back.
    pub fn settle(&mut self, held: u64, staying: u64, granted: bool, bursts: bool, now: Millis) {
        let above = held > self.limits.hard;
        self.burst = match self.burst {
            _ if !bursts || self.limits.burst.is_none() => Burst::Rested,
            Burst::Rested | Burst::Below { .. } if above && granted => Burst::Above { since: now },
            Burst::Above { .. } if !above => Burst::Below { since: now },
            same => same,
        };
        self.timer = match self.burst {
            Burst::Above { since } if staying > self.limits.hard => Some(self.after_burst(since)),
            Burst::Rested | Burst::Above { .. } | Burst::Below { .. } => None,
        };
    }
}
