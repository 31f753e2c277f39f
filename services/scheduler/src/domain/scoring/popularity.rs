//! What the usual request asks for: given by a list, or learned from what has arrived.
//!
//! What was learned is settled now and then, and only what is settled counts: each time, all scores change. It is settled
//! when the arrivals have doubled, so less than twenty times until there are many, and every few ten thousand arrivals from
//! then on. Old arrivals fade: beyond a limit all counts are halved.

use super::{
    Ask,
    fragmentation::WHOLE,
    room::{DEVICE_MILLI, ModelNo, Room},
    usable::{Demand, Usable},
};
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BTreeMap};

/// Arrivals that are remembered.
const ARRIVALS_MAX: u64 = 1 << 16;
/// Classes that are remembered.
const CLASSES_MAX: usize = 1024;
/// Classes that a score looks at.
const PRICED_MAX: usize = 128;
/// A class that can use less than this part of all GPU counts as if it could use so much.
const SCARCITY_MAX: u64 = 1000;

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

/// What is asked for beside GPU by those who ask for GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Totals {
    cpu_milli: u64,
    memory_mib: u64,
    gpu_milli: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Kind {
    model: Option<ModelNo>,
    gpus: u16,
    cpu_cores: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Settled {
    version: u64,
    arrivals: u64,
    supply_milli: u64,
    /// Weighed by popularity, in parts of `WHOLE`: the classes that make up 95 % of all requests.
    usable: Usable,
    /// Weighed by popularity among those with GPU, times what is scarce about the class: all GPU by the GPU that the class
    /// could use on empty nodes. The classes that make up 99 % of this weight.
    scarce: Usable,
    served: Served,
}

/// How much GPU is usually asked for with a unit of CPU or memory, in thousandths times 2^20; 0: they are not asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Served {
    by_cpu_milli: u64,
    by_memory_mib: u64,
}

impl Popularity {
    /// All that is asked for is known.
    pub fn known(asks: impl IntoIterator<Item = Ask>) -> Self {
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
    pub fn arrived(&mut self, ask: &Ask) {
        self.count(ask);
        self.unsettled += 1;
        if self.unsettled > self.settled.arrivals {
            self.settle();
        }
    }

    /// A node with this room when it is empty has come.
    pub fn joined(&mut self, empty: &Room) {
        *self.supply.entry(Kind::of(empty)).or_default() += 1;
        self.supply_milli += empty.gpu_milli_total();
        self.settle_supply();
    }

    /// A node that had joined with this room has gone.
    pub fn left(&mut self, empty: &Room) {
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
        &self.settled.usable
    }

    pub(super) fn scarce(&self) -> &Usable {
        &self.settled.scarce
    }

    /// Free GPU beyond what this much free CPU and memory would serve at the usual proportions, in thousandths.
    pub(super) fn stranded(&self, cpu_milli: u64, memory_bytes: u64, gpu_milli: u64) -> u64 {
        let served = |amount: u64, by: u64| match by {
            0 => u64::MAX,
            by => u64::try_from(u128::from(amount) * u128::from(by) >> 20).unwrap_or(u64::MAX),
        };
        let Served {
            by_cpu_milli,
            by_memory_mib,
        } = self.settled.served;
        let by_cpu = served(cpu_milli, by_cpu_milli);
        let by_memory = served(memory_bytes >> 20, by_memory_mib);
        gpu_milli.saturating_sub(by_cpu.min(by_memory))
    }

    fn count(&mut self, ask: &Ask) {
        if self.arrivals >= ARRIVALS_MAX || self.classes.len() >= CLASSES_MAX {
            self.fade();
        }
        let demand = Demand::of(ask);
        if self.classes.len() < CLASSES_MAX || self.classes.contains_key(&demand) {
            *self.classes.entry(demand).or_default() += 1;
            self.arrivals += 1;
        }
        if ask.gpus() > 0 {
            self.totals.cpu_milli += ask.cpu_milli();
            self.totals.memory_mib += ask.memory_bytes() >> 20;
            self.totals.gpu_milli += ask.gpu_milli_total();
        }
    }

    fn fade(&mut self) {
        self.classes.retain(|_, count| {
            *count /= 2;
            *count > 0
        });
        self.arrivals = self.classes.values().sum();
        let Totals {
            cpu_milli,
            memory_mib,
            gpu_milli,
        } = &mut self.totals;
        for total in [cpu_milli, memory_mib, gpu_milli] {
            *total /= 2;
        }
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
        let mut ranked: Vec<_> = self
            .classes
            .iter()
            .map(|(class, count)| (*class, *count))
            .collect();
        ranked.sort_unstable_by_key(|(class, count)| (Reverse(*count), *class));
        let popular = covering(&ranked, 95, usize::MAX);
        let with_gpu: Vec<_> = ranked
            .iter()
            .copied()
            .filter(|(class, _)| class.gpus > 0)
            .collect();
        let mut priced = weights(&with_gpu);
        for (class, weight) in &mut priced {
            *weight = self.price(class, *weight);
        }
        priced.sort_unstable_by_key(|(class, weight)| (Reverse(*weight), *class));
        let Totals {
            cpu_milli,
            memory_mib,
            gpu_milli,
        } = self.totals;
        let served = |amount| u64::checked_div(gpu_milli << 20, amount).unwrap_or(0);
        self.settled = Settled {
            version: self.settled.version + 1,
            arrivals: self.arrivals,
            supply_milli: self.supply_milli,
            usable: Usable::new(weights(popular)),
            scarce: Usable::new(covering(&priced, 99, PRICED_MAX).iter().copied()),
            served: Served {
                by_cpu_milli: served(cpu_milli),
                by_memory_mib: served(memory_mib),
            },
        };
    }

    /// The class's weight by what part of the supply it could use; as it is when the supply is not known.
    fn price(&self, class: &Demand, weight: u64) -> u64 {
        let usable = |kind: &Kind| {
            class.models.allows(kind.model)
                && kind.gpus >= class.gpus
                && kind.cpu_cores * 1000 >= class.cpu_milli
        };
        let could = self.supply.iter().filter(|(kind, _)| usable(kind));
        let usable_milli: u64 = could
            .map(|(kind, count)| kind.gpu_milli() * u64::from(*count))
            .sum();
        match (self.supply_milli, usable_milli) {
            (0, _) => weight,
            // No node could take it: nothing is to be kept for it.
            (_, 0) => 0,
            (all, usable) => {
                let usable = usable.max(all / SCARCITY_MAX).max(1);
                // At most WHOLE times SCARCITY_MAX, give or take a rounding.
                (u128::from(weight) * u128::from(all) / u128::from(usable)) as u64
            }
        }
    }
}

impl Kind {
    /// Cores are whole, so that there are few kinds.
    fn of(empty: &Room) -> Self {
        Self {
            model: empty.model(),
            // At most 16.
            gpus: empty.gpu_milli().len() as u16,
            cpu_cores: empty.cpu_milli() / 1000,
        }
    }

    fn gpu_milli(&self) -> u64 {
        u64::from(self.gpus) * u64::from(DEVICE_MILLI)
    }
}

/// The first classes until they make up so many percent of all.
fn covering(ranked: &[(Demand, u64)], percent: u64, most: usize) -> &[(Demand, u64)] {
    let all: u64 = ranked.iter().map(|(_, count)| count).sum();
    let mut covered = 0;
    let enough = ranked.iter().position(|(_, count)| {
        let done = covered * 100 >= all * percent;
        covered += count;
        done
    });
    &ranked[..enough.unwrap_or(ranked.len()).min(most)]
}

/// Parts of `WHOLE`; what rounding leaves goes to the first.
fn weights(classes: &[(Demand, u64)]) -> Vec<(Demand, u64)> {
    let all: u64 = classes.iter().map(|(_, count)| count).sum();
    let mut weights: Vec<_> = classes
        .iter()
        .map(|(class, count)| (*class, count * WHOLE / all))
        .collect();
    let given: u64 = weights.iter().map(|(_, weight)| weight).sum();
    if let Some((_, weight)) = weights.first_mut() {
        *weight += WHOLE - given;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::scoring::{
        fragmentation,
        tests::{ask, room},
    };

    #[test]
    fn what_is_learned_is_settled_rarely() {
        let mut learned = Popularity::default();
        assert!(learned.is_empty());
        let mut versions = Vec::new();
        for _ in 0..20 {
            learned.arrived(&ask("4c 1x500"));
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
        (0..10_000).for_each(|cpu| learned.arrived(&Ask::new(cpu, 0, 0, 0, [].into_iter())));
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

    #[test]
    fn stranded_is_what_cpu_and_memory_do_not_serve() {
        // Four cores and 4 GiB for a device.
        let popularity = Popularity::known([ask("4c 1x1000")]);
        for (free, expected) in [
            ("8c 1000 1000", 0),
            ("4c 1000 1000", 1000),
            ("6c 1000 400", 0),
            ("0c 1000 400", 1400),
            ("8c", 0),
        ] {
            let free = room(free);
            let (memory, gpu) = (free.memory_bytes(), free.gpu_milli_total());
            assert_eq!(
                popularity.stranded(free.cpu_milli(), 1 << 40, gpu),
                expected
            );
            assert_eq!(popularity.stranded(1 << 40, memory, gpu), expected);
        }
        assert_eq!(Popularity::default().stranded(0, 0, 1000), 0);
    }

    #[test]
    fn scarcity_follows_the_supply() {
        let mut popularity = Popularity::known([ask("4c 1x1000"), ask("4c 1x1000 m1")]);
        let usable = |popularity: &Popularity, of| popularity.scarce().of(&room(of)) / WHOLE;
        assert_eq!(usable(&popularity, "8c 1000 m1"), 1000);
        popularity.joined(&room("8c 1000 m1"));
        (0..3).for_each(|_| popularity.joined(&room("8c 1000 m2")));
        // The one model that the second class may use is a quarter of all.
        assert_eq!(usable(&popularity, "8c 1000 m1"), 500 + 4 * 500);
        assert_eq!(usable(&popularity, "8c 1000 m2"), 500);
        popularity.left(&room("8c 1000 m1"));
        (0..2).for_each(|_| popularity.left(&room("8c 1000 m2")));
        // Nobody has it any more.
        assert_eq!(usable(&popularity, "8c 1000 m1"), 500);
    }
}
