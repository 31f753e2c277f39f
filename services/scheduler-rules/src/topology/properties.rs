//! Any small node and request, against a search over everything.

use super::*;
use proptest::prelude::*;
use vocab::Zone;

#[derive(Debug, Clone)]
struct Case {
    topology: Topology,
    free: Vec<ZoneRoom>,
    free_milli: Vec<u16>,
    ask: ZoneAsk,
}

prop_compose! {
    fn any_case()(zones in 1..5usize)(
        rooms in prop::collection::vec((0..9u64, 0..9u64, 0..3u64, 0..3u64), zones),
        homes in prop::collection::vec(0..zones, 0..8),
        distances in prop::collection::vec(prop_oneof![Just(10u8), Just(20), Just(32)], zones * zones),
        links in prop::collection::vec(any::<bool>(), 28),
        used in prop::collection::vec(prop_oneof![Just(0u16), Just(0), Just(300), Just(1000)], 8),
        ask in (0..14u64, 0..14u64, 0..6u16, prop_oneof![Just(1000u16), 1..1000u16]),
    ) -> Case {
        let devices = homes.len() as u8;
        let zone = |(at, room): (usize, &(u64, u64, u64, u64))| Zone {
            cpu_milli: room.0 + room.2,
            memory_bytes: room.1 + room.3,
            gpus: (0..devices).filter(|d| homes[usize::from(*d)] == at).fold(0, |all, d| all | 1 << d),
        };
        let pairs = (0..8u8).flat_map(|b| (0..b).map(move |a| (a, b))).zip(&links);
        Case {
            topology: Topology {
                zones: rooms.iter().enumerate().map(zone).collect(),
                distances,
                links: pairs.filter(|((_, b), linked)| **linked && *b < devices).map(|(pair, _)| pair).collect(),
            },
            free: rooms.iter().map(|room| ZoneRoom { cpu_milli: room.0, memory_bytes: room.1 }).collect(),
            free_milli: used[..homes.len()].iter().map(|used| 1000 - used).collect(),
            ask: ZoneAsk { cpu_milli: ask.0, memory_bytes: ask.1, gpus: ask.2, gpu_milli: if ask.2 > 1 { 1000 } else { ask.3 } },
        }
    }
}

impl Case {
    fn choose(&self, policy: NumaPolicy) -> Option<Choice> {
        choose(
            &self.topology,
            &self.free,
            &self.free_milli,
            &self.ask,
            policy,
        )
    }

    /// Whether the zones of the mask together have room.
    fn fits(&self, zones: u8) -> bool {
        let inside = || bits(zones.into()).map(usize::from);
        let cpu_milli: u64 = inside().map(|zone| self.free[zone].cpu_milli).sum();
        let memory_bytes: u64 = inside().map(|zone| self.free[zone].memory_bytes).sum();
        cpu_milli >= self.ask.cpu_milli
            && memory_bytes >= self.ask.memory_bytes
            && self.devices(zones).count_ones() >= self.ask.gpus.into()
    }

    /// Of the zones, those that fit.
    fn devices(&self, zones: u8) -> u16 {
        let inside = bits(zones.into()).map(|zone| self.topology.zones[usize::from(zone)].gpus);
        let devices = inside.fold(0, |all, gpus| all | gpus);
        let fits = |device: &u8| self.free_milli[usize::from(*device)] >= self.ask.gpu_milli;
        bits(devices)
            .filter(fits)
            .fold(0, |all, device| all | 1 << device)
    }

    fn all(&self) -> u8 {
        u8::MAX >> (8 - self.free.len())
    }

    fn apart(&self, zones: u8) -> u32 {
        let inside = |zone: usize| zones >> zone & 1 == 1;
        let count = self.free.len();
        let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        let apart = pairs.filter(|(a, b)| a != b && inside(*a) && inside(*b));
        apart
            .map(|(a, b)| u32::from(self.topology.distances[a * count + b]))
            .sum()
    }

    /// Links that are not there, distance, free thousandths, broken links.
    fn cost(&self, devices: u16) -> (u32, u32, u32, u32) {
        let inside = |device: u8| devices >> device & 1 == 1;
        let (mut pairs, mut apart) = (0, 0);
        let home = |device: u8| {
            let zones = self.topology.zones.iter();
            zones
                .take_while(|zone| zone.gpus >> device & 1 == 0)
                .count()
        };
        for (a, b) in bits(devices).flat_map(|a| bits(devices).map(move |b| (a, b))) {
            if a != b {
                let at = home(a) * self.free.len() + home(b);
                apart += u32::from(self.topology.distances[at]);
                pairs += u32::from(a < b);
            }
        }
        let whole = |device: u8| self.free_milli[usize::from(device)] == 1000;
        let (mut linked, mut broken) = (0, 0);
        for (a, b) in &self.topology.links {
            linked += u32::from(inside(*a) && inside(*b));
            broken += u32::from(inside(*a) && !inside(*b) && whole(*b));
            broken += u32::from(inside(*b) && !inside(*a) && whole(*a));
        }
        let free = bits(devices).map(|device| u32::from(self.free_milli[usize::from(device)]));
        (pairs - linked, apart, free.sum(), broken)
    }

    /// Takes or gives back.
    fn apply(&mut self, choice: &Choice, take: bool) {
        for device in choice.devices() {
            let milli = &mut self.free_milli[usize::from(*device)];
            *milli = match take {
                true => milli
                    .checked_sub(self.ask.gpu_milli)
                    .expect("over-allocated"),
                false => *milli + self.ask.gpu_milli,
            };
        }
        for part in choice.parts() {
            let room = &mut self.free[usize::from(part.zone)];
            let change = |amount: u64, part: u64| match take {
                true => amount.checked_sub(part).expect("over-allocated"),
                false => amount + part,
            };
            room.cpu_milli = change(room.cpu_milli, part.cpu_milli);
            room.memory_bytes = change(room.memory_bytes, part.memory_bytes);
        }
    }
}

const POLICIES: [NumaPolicy; 3] = NumaPolicy::ALL;

proptest! {
    #[test]
    fn a_choice_is_found_iff_there_is_one(case in any_case()) {
        let fits = case.fits(case.all());
        prop_assert_eq!(case.choose(NumaPolicy::BestEffort).is_some(), fits);
        prop_assert_eq!(case.choose(NumaPolicy::None).is_some(), fits);
        let in_one = (0..case.free.len()).any(|zone| case.fits(1 << zone));
        prop_assert_eq!(case.choose(NumaPolicy::Single).is_some(), in_one);
        prop_assert_eq!(fits_a_zone(&case.topology, &case.free, &case.free_milli, &case.ask), in_one);
    }

    #[test]
    fn a_choice_is_what_was_asked_for(case in any_case()) {
        for policy in POLICIES {
            let Some(choice) = case.choose(policy) else { continue };
            prop_assert_eq!(choice.devices().len(), usize::from(case.ask.gpus));
            prop_assert!(choice.devices().is_sorted_by(|a, b| a < b));
            prop_assert_eq!(choice.parts().iter().map(|p| p.cpu_milli).sum::<u64>(), case.ask.cpu_milli);
            prop_assert_eq!(choice.parts().iter().map(|p| p.memory_bytes).sum::<u64>(), case.ask.memory_bytes);
            let again = parts(&case.topology, &case.free, &case.ask, choice.zones());
            prop_assert_eq!(again.as_deref(), Some(choice.parts()));
            for device in choice.devices() {
                prop_assert!(case.devices(choice.zones()) >> device & 1 == 1);
            }
            for part in choice.parts() {
                prop_assert!(choice.zones() >> part.zone & 1 == 1);
            }
            // Taken, nothing is below nothing; given back, all is as before.
            let mut after = case.clone();
            after.apply(&choice, true);
            after.apply(&choice, false);
            prop_assert_eq!(&after.free, &case.free);
            prop_assert_eq!(&after.free_milli, &case.free_milli);
        }
    }

    #[test]
    fn zones_are_few_and_devices_the_best_of_them(case in any_case()) {
        if let Some(choice) = case.choose(NumaPolicy::Single) {
            prop_assert_eq!(choice.zones().count_ones(), 1);
            // Best effort is single where single is possible.
            prop_assert_eq!(case.choose(NumaPolicy::BestEffort), Some(choice));
        }
        let Some(choice) = case.choose(NumaPolicy::BestEffort) else { return Ok(()) };
        let count = choice.zones().count_ones();
        let chosen = (count, case.apart(choice.zones()));
        let fitting = (1..=case.all()).filter(|zones| case.fits(*zones));
        let least = fitting.map(|zones| (zones.count_ones(), case.apart(zones))).min();
        prop_assert_eq!(Some(chosen), least);
        let chosen = choice.devices().iter().fold(0, |all, device| all | 1 << device);
        let from = case.devices(choice.zones());
        let subsets = (0..=from).filter(|set| set & from == *set);
        let least = subsets.filter(|set| set.count_ones() == u32::from(case.ask.gpus)).map(|set| case.cost(set)).min();
        prop_assert_eq!(Some(case.cost(chosen)), least);
    }
}
