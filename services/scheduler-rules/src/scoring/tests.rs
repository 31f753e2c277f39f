//! Rooms and requests in words, and what holds for all policies.

use super::*;
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

fn model(word: &str) -> Option<ModelNo> {
    word.strip_prefix('m')
        .map(|number| ModelNo::new(number.parse().unwrap()))
}

fn cores(word: Option<&str>) -> u64 {
    word.unwrap().strip_suffix('c').unwrap().parse().unwrap()
}

/// `8c 1000 400 m1`: 8 cores, as many GiB, free thousandths of the devices, the model.
pub fn room(text: &str) -> Free {
    let mut words = text.split(' ');
    let cores = cores(words.next());
    let (models, free): (Vec<_>, Vec<_>) = words.partition(|word| word.starts_with('m'));
    let model = models.first().and_then(|word| model(word));
    let mut room = Free::new(cores * 1000, cores << 30, free.len() as u16, model);
    for (device, free) in (0..).zip(free) {
        let milli = DEVICE_MILLI - free.parse::<u16>().unwrap();
        if milli > 0 {
            room.take(0, 0, &[GpuShare { device, milli }]).unwrap();
        }
    }
    room
}

/// `4c 2x1000 m1 m2`: 4 cores, as many GiB, 2 devices, of these models.
pub fn ask(text: &str) -> Request {
    let mut words = text.split(' ');
    let cores = cores(words.next());
    let (models, gpus): (Vec<_>, Vec<_>) = words.partition(|word| word.starts_with('m'));
    let gpu = gpus.first().map(|word| word.split_once('x').unwrap());
    let (gpus, milli) = gpu.unwrap_or(("0", "0"));
    Request::new(
        cores * 1000,
        cores << 30,
        gpus.parse().unwrap(),
        milli.parse().unwrap(),
        models.into_iter().filter_map(model),
    )
}

/// The node that the policy prefers, by its number, and its devices; the first of equals.
#[track_caller]
pub fn check(policy: Policy, popularity: &Popularity, nodes: &[&str], of: &str, expected: &str) {
    let ask = ask(of);
    let rooms = nodes.iter().map(|node| room(node)).enumerate();
    let scored = rooms.filter_map(|(no, room)| Some((no, score(policy, popularity, &room, &ask)?)));
    let best = scored.max_by_key(|(no, score)| (*score, std::cmp::Reverse(*no)));
    let found = best.map_or("none".to_owned(), |(no, _)| {
        let devices = devices(policy, popularity, &room(nodes[no]), &ask);
        let devices = devices
            .unwrap()
            .into_iter()
            .map(|share| format!(" {}", share.device));
        format!("{no}{}", devices.collect::<String>())
    });
    assert_eq!(found, expected);
}

/// A room of any fill and a request that may or may not fit.
pub fn any_case() -> impl Strategy<Value = (Free, Request)> {
    let free = prop::collection::vec(prop_oneof![Just(1000u16), Just(0), 0u16..=1000], 0..9);
    let room = (0u64..64, free, prop::option::of(0u32..4)).prop_map(|(cores, free, model)| {
        let free: String = free.iter().map(|free| format!(" {free}")).collect();
        let model = model.map_or(String::new(), |model| format!(" m{model}"));
        room(&format!("{cores}c{free}{model}"))
    });
    let gpus = prop_oneof![(Just(1u16), 1u16..=1000), (0u16..9, Just(1000))];
    let models = prop::collection::vec(0u32..4, 0..3);
    let ask = (0u64..32, gpus, models).prop_map(|(cores, (gpus, milli), models)| {
        let models = models.into_iter().map(ModelNo::new);
        Request::new(cores * 1000, cores << 30, gpus, milli, models)
    });
    (room, ask)
}

#[test]
fn policies_have_names() {
    for policy in Policy::ALL {
        assert_eq!(Policy::parse(policy.name()), Some(policy));
    }
    assert_eq!(Policy::parse("best-fit"), Some(Policy::BestFit));
    assert_eq!(Policy::parse("worst-fit"), None);
}

#[test]
fn ranks_are_fixed() {
    assert_eq!(rank(""), 0xf52a_15e9_a9b5_e89b);
    assert_ne!(rank("node-1") >> 32, rank("node-2") >> 32);
}

/// Properties of this module skip cases that do not fit.
#[test]
fn many_cases_fit() {
    const SAMPLES: usize = 400;
    let mut runner = TestRunner::deterministic();
    let (mut fitting, mut shares) = (0, 0);
    for _ in 0..SAMPLES {
        let tree = any_case().new_tree(&mut runner);
        let (room, ask) = tree.expect("the strategy rejects nothing").current();
        let fits = fits(&room, &ask);
        fitting += usize::from(fits);
        shares += usize::from(fits && ask.is_share());
    }
    assert!(
        fitting >= 40 && shares >= 10,
        "{fitting} fit, {shares} shares"
    );
}

proptest! {
    #[test]
    fn a_score_is_there_if_devices_are(
        (room, ask) in any_case(),
        others in prop::collection::vec(any_case(), 0..5),
        joined: bool,
    ) {
        let mut popularity = Popularity::known(others.iter().map(|(_, ask)| *ask));
        if joined {
            others.iter().for_each(|(room, _)| popularity.joined(room));
        }
        for policy in Policy::ALL {
            let found = score(policy, &popularity, &room, &ask);
            prop_assert_eq!(found.is_some(), fits(&room, &ask));
            prop_assert_eq!(found, score(policy, &popularity.clone(), &room, &ask));
            let devices = devices(policy, &popularity, &room, &ask);
            prop_assert_eq!(devices.is_some(), found.is_some());
            if let Some(devices) = devices {
                prop_assert_eq!(devices.len(), usize::from(ask.gpus()));
                let mut room = room.clone();
                prop_assert!(room.take(ask.cpu_milli(), ask.memory_bytes(), &devices).is_ok());
            }
        }
    }
}
