//! What holds whatever happens: random histories.

use super::world::{Ask, Step, World};
use proptest::prelude::*;
use vocab::Slot;

fn ask() -> impl Strategy<Value = Ask> {
    let of = || 0u8..12;
    let wrong = || prop_oneof![6 => Just(0u8), 1 => 1u8..3];
    let off = || prop_oneof![6 => Just(0i8), 1 => -1i8..=1];
    prop_oneof![
        3 => (0u8..7).prop_map(Ask::Create),
        8 => (prop::collection::vec(0u8..7, 0..5), 0u8..3, 0u64..18)
            .prop_map(|(names, holder, ttl)| Ask::Acquire(names, holder, ttl)),
        8 => (0u8..7, 0u8..3, 1u64..6).prop_map(|(name, holder, ttl)| Ask::Acquire(vec![name], holder, ttl)),
        5 => (of(), wrong(), off()).prop_map(|(of, wrong, off)| Ask::Confirm(of, wrong, off)),
        4 => (of(), wrong(), off()).prop_map(|(of, wrong, off)| Ask::Release(of, wrong, off)),
        2 => of().prop_map(Ask::Revoke),
        2 => of().prop_map(Ask::Reclaim),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => ask().prop_map(Step::Ask),
        2 => (0u8..12, -2i8..3).prop_map(|(of, off)| Step::Expire(of, off)),
        2 => Just(Step::ExpireDue),
        4 => (-1i8..4).prop_map(Step::Wait),
        1 => (4i8..12).prop_map(Step::Wait),
        1 => Just(Step::Restore),
    ]
}

proptest! {
    #[test]
    fn it_does_what_the_model_does(
        steps in prop::collection::vec(step(), 0..120),
        limit in prop_oneof![3 => Just(None), 1 => (1u64..4).prop_map(Some)],
        begin in prop_oneof![3 => Just(0), 1 => Just(Slot::MAX - 30)],
    ) {
        let mut world = World::new(limit, begin);
        (0..4).for_each(|no| world.ask(&Ask::Create(no)));
        steps.iter().for_each(|step| world.step(step));
    }

    /// One that is restored all the time, and one that never is, end with the same bytes.
    #[test]
    fn one_history_has_one_form(steps in prop::collection::vec(step(), 0..60)) {
        let (mut kept, mut read) = (World::new(None, 0), World::new(None, 0));
        for step in &steps {
            kept.step(step);
            read.step(step);
            read.step(&Step::Restore);
        }
        prop_assert!(kept.digest() == read.digest());
    }
}
