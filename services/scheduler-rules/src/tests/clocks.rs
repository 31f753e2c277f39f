//! Rules under extreme clocks: no arithmetic overflows.

use super::{
    histories::{Run, Step, config, setting, step},
    *,
};
use proptest::prelude::*;

fn a_clock() -> impl Strategy<Value = i64> {
    let near = |at: i64| (-90_000i64..90_000).prop_map(move |ms| at.saturating_add(ms));
    prop_oneof![
        Just(i64::MIN),
        near(i64::MIN),
        Just(i64::MAX),
        near(i64::MAX),
        near(0)
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_clock_overflows(
        setting in setting(),
        steps in prop::collection::vec((step(), prop::option::weighted(0.1, a_clock())), 1..14),
        first in a_clock(),
    ) {
        let mut run = Run::new(&setting, false);
        run.world.now = Millis(first);
        for (step, clock) in &steps {
            if let Some(clock) = clock {
                // A leader's clock never goes back.
                run.world.now = run.world.now.max(Millis(*clock));
            }
            run.step(match step {
                // Time limits and pauses may not end at a clock that stands still.
                Step::Settle => &Step::Decide,
                step => step,
            });
            let figures = &mut ledger::Figures::default();
            run.world.state.show(run.world.now, figures);
            run.world.state.wake_at();
        }
    }
}
