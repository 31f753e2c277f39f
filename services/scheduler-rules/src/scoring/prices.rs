//! What GPU is worth to those who usually come.

use super::{
    Free, Request,
    fragmentation::WHOLE,
    free::{DEVICE_MILLI, ModelNo},
    usable::{Demand, Usable},
};
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BTreeMap};

/// Classes that a score looks at.
const PRICED_MAX: usize = 128;
/// A class that can use less than this part of all GPU counts as if it could use so much.
const SCARCITY_MAX: u64 = 1000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// Weighed by popularity, in parts of `WHOLE`: the classes that make up 95 % of all requests, as published.
    pub usable: Usable,
    /// Weighed by popularity among those with GPU, and by scarcity: see `price`. The classes that make up 99 % of it.
    pub scarce: Usable,
    /// How much GPU is usually asked for with a unit of CPU and of memory, in thousandths times 2^20; 0: unlimited.
    by_cpu_milli: u64,
    by_memory_mib: u64,
}

/// What those who ask for GPU ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    cpu_milli: u64,
    memory_mib: u64,
    gpu_milli: u64,
}

impl Totals {
    pub fn add(&mut self, ask: &Request) {
        if ask.gpus() > 0 {
            self.cpu_milli += ask.cpu_milli();
            self.memory_mib += ask.memory_bytes() >> 20;
            self.gpu_milli += ask.gpu_milli_total();
        }
    }

    pub fn halve(&mut self) {
        self.cpu_milli /= 2;
        self.memory_mib /= 2;
        self.gpu_milli /= 2;
    }
}

/// An empty node. Cores are whole, so that there are few kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind {
    model: Option<ModelNo>,
    gpus: u16,
    cpu_cores: u64,
}

impl Kind {
    pub fn of(empty: &Free) -> Self {
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

    /// Whether the empty node could take one of the class.
    fn serves(&self, class: &Demand) -> bool {
        class.models.allows(self.model)
            && self.gpus >= class.gpus
            && self.cpu_cores * 1000 >= class.cpu_milli
    }
}

impl Prices {
    pub fn new(
        classes: &BTreeMap<Demand, u64>,
        totals: &Totals,
        supply: &BTreeMap<Kind, u32>,
    ) -> Self {
        let classes = classes.iter().map(|(class, count)| (*class, *count));
        let popular = falling(classes.clone());
        let with_gpu = falling(classes.filter(|(class, _)| class.gpus > 0));
        let demand = |(class, count): &(Demand, u64)| (*class, count * class.gpu_milli_total());
        let demands = parts(&with_gpu.iter().map(demand).collect::<Vec<_>>());
        let priced = parts(&with_gpu).into_iter().zip(demands);
        let priced = falling(priced.map(|((class, popularity), (_, demand))| {
            (class, price(&class, popularity, demand, supply))
        }));
        let by = |amount| u64::checked_div(totals.gpu_milli << 20, amount).unwrap_or(0);
        Self {
            usable: Usable::new(parts(covering(&popular, 95, usize::MAX))),
            scarce: Usable::new(covering(&priced, 99, PRICED_MAX).iter().copied()),
            by_cpu_milli: by(totals.cpu_milli),
            by_memory_mib: by(totals.memory_mib),
        }
    }

    /// Free GPU beyond what this much free CPU and memory would serve at the usual proportions, in thousandths.
    pub fn stranded(&self, cpu_milli: u64, memory_bytes: u64, gpu_milli: u64) -> u64 {
        let served = |amount: u64, by: u64| match by {
            0 => u64::MAX,
            by => u64::try_from((u128::from(amount) * u128::from(by)) >> 20).unwrap_or(u64::MAX),
        };
        let by_cpu = served(cpu_milli, self.by_cpu_milli);
        let by_memory = served(memory_bytes >> 20, self.by_memory_mib);
        gpu_milli.saturating_sub(by_cpu.min(by_memory))
    }
}

/// `p + sqrt(p q) (S / A - 1)`: p of all requests and q of all GPU asked for are of the class, which could use A of all the
/// GPU S of empty nodes. So it is the popularity for those who can go anywhere; who depends on a part of the nodes weighs
/// more there. By p alone, many small shares would keep large requests off their model; by q alone, few large requests
/// would keep off everybody. Just p when the supply is not known.
fn price(class: &Demand, popularity: u64, demand: u64, supply: &BTreeMap<Kind, u32>) -> u64 {
    let milli = |(kind, count): (&Kind, &u32)| kind.gpu_milli() * u64::from(*count);
    let all: u64 = supply.iter().map(milli).sum();
    let usable: u64 = supply
        .iter()
        .filter(|(kind, _)| kind.serves(class))
        .map(milli)
        .sum();
    match (all, usable) {
        (0, _) => popularity,
        // No node could take it: nothing is to be kept for it.
        (_, 0) => 0,
        (all, usable) => {
            let usable = usable.max(all / SCARCITY_MAX).max(1);
            // Parts of WHOLE: their product is below 2^60.
            let between = u128::from((popularity * demand).isqrt());
            let scarcity = between * u128::from(all - usable) / u128::from(usable);
            // At most WHOLE times SCARCITY_MAX, give or take a rounding.
            popularity + scarcity as u64
        }
    }
}

/// The largest first.
fn falling(classes: impl Iterator<Item = (Demand, u64)>) -> Vec<(Demand, u64)> {
    let mut classes: Vec<_> = classes.collect();
    classes.sort_unstable_by_key(|(class, count)| (Reverse(*count), *class));
    classes
}

/// The first classes until they make up so many percent of all.
fn covering(classes: &[(Demand, u64)], percent: u64, most: usize) -> &[(Demand, u64)] {
    let all: u64 = classes.iter().map(|(_, count)| count).sum();
    let mut covered = 0;
    let enough = classes.iter().position(|(_, count)| {
        let done = covered * 100 >= all * percent;
        covered += count;
        done
    });
    &classes[..enough.unwrap_or(classes.len()).min(most)]
}

/// Parts of `WHOLE`; what rounding leaves goes to the first.
fn parts(classes: &[(Demand, u64)]) -> Vec<(Demand, u64)> {
    let all: u64 = classes.iter().map(|(_, count)| count).sum();
    let part = |count: u64| (u128::from(count) * u128::from(WHOLE) / u128::from(all)) as u64;
    let mut parts: Vec<_> = classes
        .iter()
        .map(|(class, count)| (*class, part(*count)))
        .collect();
    let given: u64 = parts.iter().map(|(_, part)| part).sum();
    if let Some((_, part)) = parts.first_mut() {
        *part += WHOLE - given;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoring::{
        Popularity,
        tests::{ask, room},
    };

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
                popularity.prices().stranded(free.cpu_milli(), 1 << 40, gpu),
                expected
            );
            assert_eq!(popularity.prices().stranded(1 << 40, memory, gpu), expected);
        }
        assert_eq!(Popularity::default().prices().stranded(0, 0, 1000), 0);
    }

    #[test]
    fn scarcity_follows_the_supply() {
        let mut popularity = Popularity::known([ask("4c 1x1000"), ask("4c 1x1000 m1")]);
        let usable = |popularity: &Popularity, of| popularity.prices().scarce.of(&room(of)) / WHOLE;
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
