//! How much GPU of a room is usable to the classes of requests, each with its weight.
//!
//! To a class with CPU c, k devices and d thousandths of each, the usable GPU of a room is what is free on devices with at
//! least d, provided that the model is allowed, that there are k such devices, and that c of CPU is free; else nothing. It
//! is the complement of F_n(m) of Weng et al., "Beware of Fragmentation", USENIX ATC 2023: usable = U - F_n(m).

use super::{
    Request,
    free::{Free, ModelSet},
};
use serde::{Deserialize, Serialize};

/// A class of requests. Memory is no part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Demand {
    pub models: ModelSet,
    pub gpus: u16,
    pub gpu_milli: u16,
    pub cpu_milli: u64,
}

impl Demand {
    pub fn of(ask: &Request) -> Self {
        Self {
            models: ask.models(),
            gpus: ask.gpus(),
            gpu_milli: ask.gpu_milli(),
            cpu_milli: ask.cpu_milli(),
        }
    }

    pub fn gpu_milli_total(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.gpu_milli)
    }
}

/// Classes with weights. Those that differ in CPU alone are looked at together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usable {
    groups: Vec<Group>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Group {
    models: ModelSet,
    gpus: u16,
    gpu_milli: u16,
    /// By CPU, rising: the weight of all classes with so much CPU or less.
    weights: Vec<(u64, u64)>,
}

impl Group {
    fn weight(&self, room: &Free, cpu_milli: u64) -> u64 {
        if !self.models.allows(room.model()) {
            return 0;
        }
        let below = self.weights.iter().rev().find(|(cpu, _)| *cpu <= cpu_milli);
        below.map_or(0, |(_, weight)| *weight)
    }

    /// How many devices fit, and what is free on them together.
    fn fitting(&self, room: &Free) -> (u16, u64) {
        let fitting = room.fitting(self.gpu_milli);
        fitting.fold((0, 0), |(count, milli), (_, free)| {
            (count + 1, milli + u64::from(free))
        })
    }
}

impl Usable {
    /// Classes without GPU do not count.
    pub fn new(classes: impl IntoIterator<Item = (Demand, u64)>) -> Self {
        let mut classes: Vec<_> = classes
            .into_iter()
            .filter(|(demand, _)| demand.gpus > 0)
            .collect();
        // CPU is the last field.
        classes.sort_unstable();
        let mut groups: Vec<Group> = Vec::new();
        for (demand, weight) in classes {
            let same = |group: &&mut Group| {
                (group.models, group.gpus, group.gpu_milli)
                    == (demand.models, demand.gpus, demand.gpu_milli)
            };
            match groups.last_mut().filter(same) {
                Some(group) => {
                    let below = group.weights.last().map_or(0, |(_, weight)| *weight);
                    group.weights.push((demand.cpu_milli, below + weight));
                }
                None => groups.push(Group {
                    models: demand.models,
                    gpus: demand.gpus,
                    gpu_milli: demand.gpu_milli,
                    weights: vec![(demand.cpu_milli, weight)],
                }),
            }
        }
        Self { groups }
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Weight times usable thousandths, of all classes together.
    pub fn of(&self, room: &Free) -> u64 {
        let mut sum = 0;
        for group in &self.groups {
            let weight = group.weight(room, room.cpu_milli());
            if weight > 0 {
                let (count, milli) = group.fitting(room);
                sum += if count >= group.gpus {
                    weight * milli
                } else {
                    0
                };
            }
        }
        sum
    }

    /// The same once a share of one device is taken, for each device that it fits on.
    pub fn after_share(&self, room: &Free, ask: &Request) -> impl Iterator<Item = (u16, u64)> {
        let taken = ask.gpu_milli();
        let mut after = [0; Free::GPUS_MAX];
        for group in &self.groups {
            let weight = group.weight(room, room.cpu_milli() - ask.cpu_milli());
            if weight == 0 {
                continue;
            }
            let (count, milli) = group.fitting(room);
            for (device, free) in room.fitting(taken) {
                let (mut count, mut milli) = (count, milli);
                let left = free - taken;
                if left >= group.gpu_milli {
                    milli -= u64::from(taken);
                } else if free >= group.gpu_milli {
                    count -= 1;
                    milli -= u64::from(free);
                }
                if count >= group.gpus {
                    after[usize::from(device)] += weight * milli;
                }
            }
        }
        room.fitting(taken)
            .map(move |(device, _)| (device, after[usize::from(device)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoring::{fits, tests::any_case};
    use proptest::prelude::*;
    use vocab::GpuShare;

    /// Class by class.
    fn naive(classes: &[(Demand, u64)], room: &Free) -> u64 {
        let usable = |demand: &Demand| {
            let free = room
                .gpu_milli()
                .iter()
                .filter(|free| **free >= demand.gpu_milli);
            let fits = demand.gpus > 0
                && demand.models.allows(room.model())
                && demand.cpu_milli <= room.cpu_milli()
                && free.clone().count() >= usize::from(demand.gpus);
            if fits {
                free.map(|free| u64::from(*free)).sum()
            } else {
                0
            }
        };
        classes
            .iter()
            .map(|(demand, weight)| weight * usable(demand))
            .sum()
    }

    proptest! {
        #[test]
        fn grouping_changes_nothing(
            cases in prop::collection::vec((any_case(), 1u64..1000), 1..12),
        ) {
            let ((room, ask), _) = &cases[0];
            let mut classes: Vec<_> =
                cases.iter().map(|((_, ask), weight)| (Demand::of(ask), *weight)).collect();
            classes.dedup_by_key(|(demand, _)| *demand);
            let usable = Usable::new(classes.clone());
            prop_assert_eq!(usable.of(room), naive(&classes, room));
            if ask.is_share() && fits(room, ask) {
                let free = room.gpu_milli().iter().filter(|free| **free >= ask.gpu_milli());
                prop_assert_eq!(usable.after_share(room, ask).count(), free.count());
                for (device, after) in usable.after_share(room, ask) {
                    let mut room = room.clone();
                    let share = GpuShare { device, milli: ask.gpu_milli() };
                    room.take(ask.cpu_milli(), ask.memory_bytes(), &[share]).unwrap();
                    prop_assert_eq!(after, naive(&classes, &room));
                }
            }
        }
    }
}
