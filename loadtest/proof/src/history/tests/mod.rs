//! Histories that hold pass; each way of spoiling one is found, and as what it is.

mod corrupt;
mod generate;
mod handmade;
mod tape;

use super::{Bounds, History, check};
use vocab::Token;

/// The small bounds of the table of behaviour.
const BOUNDS: Bounds = Bounds {
    resources_max: 4,
    leases_max: 4,
    members_max: 3,
    ttl_slots_max: 16,
    window_slots: 24,
    history_slots: 4,
    expirations_max: 2,
};

fn token(text: &str) -> Token {
    Token::new(text).expect("names in tests are tokens")
}

/// The name of the broken rule, or `holds`.
fn verdict(history: &History) -> &'static str {
    match check(history) {
        Ok(_) => "holds",
        Err(violation) => violation.broken.name(),
    }
}
