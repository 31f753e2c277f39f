//! What the usual request asks for: given by a list, or learned from what has arrived.
//!
//! What was learned is settled now and then, and only what is settled counts: each time, all scores change. It is settled
//! when the arrivals have doubled, so less than twenty times until there are many, and every few ten thousand arrivals from
//! then on. Old arrivals fade: beyond a limit all counts are halved.

use super::{
    Free, Request,
    prices::{Kind, Prices, Totals},
    usable::{Demand, Usable},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Arrivals that are remembered.
const ARRIVALS_MAX: u64 = 1 << 16;
/// Classes that are remembered.
const CLASSES_MAX: usize = 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Popularity {
    classes: BTreeMap<Demand, u64>,
    /// What they sum up to.
    arrivals: u64,
    totals: Totals,
    /// Nodes by what they have when they are empty.
    supply: BTreeMap<Kind, u32>,
    supply_milli: u64,
    /// Arrivals since the last settling.
    unsettled: u64,
    settled: Settled,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Settled {
    version: u64,
    arrivals: u64,
    supply_milli: u64,
    prices: Prices,
}

impl Popularity {
    /// All that is asked for is known.
    pub fn known(asks: impl IntoIterator<Item = Request>) -> Self {
        let mut popularity = Self::default();
        for ask in asks {
            popularity.count(&ask);
        }
        popularity.settle();
        popularity
    }

    /// Grows when scores may have changed.
    pub fn version(&self) -> u64 {
        self.settled.version
    }

    /// Nothing is known.
    pub fn is_empty(&self) -> bool {
        self.settled.arrivals == 0
    }

    /// One more of those has arrived.
    pub fn arrived(&mut self, ask: &Request) {
        self.count(ask);
        self.unsettled += 1;
        if self.unsettled > self.settled.arrivals {
            self.settle();
        }
    }

    /// As it would be with one more of those; none: nothing that counts would be another.
    pub fn with(&self, ask: &Request) -> Option<Self> {
        (self.unsettled + 1 > self.settled.arrivals).then(|| {
            let mut with = self.clone();
            with.arrived(ask);
            with
        })
    }

    /// A node with this room when it is empty has come.
    pub fn joined(&mut self, empty: &Free) {
        *self.supply.entry(Kind::of(empty)).or_default() += 1;
        self.supply_milli += empty.gpu_milli_total();
        self.settle_supply();
    }

    /// A node that had joined with this room has gone.
    pub fn left(&mut self, empty: &Free) {
        let kind = Kind::of(empty);
        if let Some(count) = self.supply.get_mut(&kind) {
            *count -= 1;
            if *count == 0 {
                self.supply.remove(&kind);
            }
            self.supply_milli -= empty.gpu_milli_total();
            self.settle_supply();
        }
    }

    pub(super) fn usable(&self) -> &Usable {
        &self.settled.prices.usable
    }

    pub(super) fn prices(&self) -> &Prices {
        &self.settled.prices
    }

    fn count(&mut self, ask: &Request) {
        if self.arrivals >= ARRIVALS_MAX || self.classes.len() >= CLASSES_MAX {
            self.fade();
        }
        let demand = Demand::of(ask);
        if self.classes.len() < CLASSES_MAX || self.classes.contains_key(&demand) {
            *self.classes.entry(demand).or_default() += 1;
            self.arrivals += 1;
        }
        self.totals.add(ask);
    }

    fn fade(&mut self) {
        self.classes.retain(|_, count| {
            *count /= 2;
            *count > 0
        });
        self.arrivals = self.classes.values().sum();
        self.totals.halve();
    }

    /// Prices follow the supply when it has changed by half.
    fn settle_supply(&mut self) {
        let (settled, now) = (self.settled.supply_milli, self.supply_milli);
        if now.abs_diff(settled) > settled.min(now) / 2 {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.unsettled = 0;
        self.settled = Settled {
            version: self.settled.version + 1,
            arrivals: self.arrivals,
            supply_milli: self.supply_milli,
            prices: Prices::new(&self.classes, &self.totals, &self.supply),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoring::{
        WHOLE, fragmentation,
        tests::{ask, room},
    };

    #[test]
    fn what_is_learned_is_settled_rarely() {
        let mut learned = Popularity::default();
        assert!(learned.is_empty());
        let mut versions = Vec::new();
        for _ in 0..20 {
            let before = learned.version();
            let with = learned.with(&ask("4c 1x500"));
            learned.arrived(&ask("4c 1x500"));
            assert_eq!(with.is_some(), learned.version() > before);
            assert!(with.is_none_or(|with| with == learned));
            versions.push(learned.version());
        }
        assert_eq!(versions[..8], [1, 1, 2, 2, 2, 2, 3, 3]);
        for _ in 0..1_000_000 {
            learned.arrived(&ask("4c 1x500"));
        }
        assert!(learned.version() < 50, "{}", learned.version());
    }

    #[test]
    fn what_is_learned_is_what_was_given() {
        let asks = || ["9c 1x500", "4c 1x500", "4c 1x500"].into_iter().map(ask);
        let mut learned = Popularity::default();
        asks().for_each(|ask| learned.arrived(&ask));
        let known = Popularity::known(asks());
        let room = room("8c 1000");
        assert_eq!(fragmentation(&learned, &room), fragmentation(&known, &room));
        assert_eq!(fragmentation(&known, &room) / WHOLE, 333);
    }

    #[test]
    fn old_arrivals_fade() {
        let mut learned = Popularity::default();
        (0..ARRIVALS_MAX).for_each(|_| learned.arrived(&ask("9c 1x500")));
        (0..20 * ARRIVALS_MAX).for_each(|_| learned.arrived(&ask("4c 1x500")));
        assert_eq!(fragmentation(&learned, &room("8c 1000")), 0);
        // Nobody can make it grow without end.
        (0..10_000).for_each(|cpu| learned.arrived(&Request::new(cpu, 0, 0, 0, [].into_iter())));
        assert!(learned.classes.len() <= CLASSES_MAX);
    }

    #[test]
    fn the_rarest_classes_do_not_count() {
        let asks = |rare| {
            let many = (0..100 - rare).map(|_| ask("4c 1x500"));
            many.chain((0..rare).map(|_| ask("9c 1x500")))
        };
        let of = |rare| fragmentation(&Popularity::known(asks(rare)), &room("8c 1000"));
        assert_eq!((of(5), of(6) / WHOLE), (0, 60));
    }
}
