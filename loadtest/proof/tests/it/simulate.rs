//! Seeds without violations, and seeds that repeat.

use proof::simulate::run_seed;

#[test]
fn the_invariants_hold_whatever_goes_wrong() {
    // `make sim` runs many more.
    for seed in 1..=20 {
        if let Some(violation) = run_seed(seed).violation {
            panic!("seed {seed}: {violation}");
        }
    }
}

#[test]
fn a_seed_writes_the_same_ledger_again() {
    for seed in 1..=20 {
        let (first, second) = (run_seed(seed), run_seed(seed));
        assert!(first.events > 0, "seed {seed}");
        let same = (first.records, first.events, first.digest);
        assert_eq!(
            same,
            (second.records, second.events, second.digest),
            "seed {seed}"
        );
    }
}

#[test]
fn seeds_differ() {
    assert_ne!(run_seed(1).digest, run_seed(2).digest);
}
