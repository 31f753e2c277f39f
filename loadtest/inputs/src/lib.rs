//! Fuzz targets for the decoders of all external input.
//!
//! A target decodes an input and panics if a guarantee is broken: a decoder never panics, a decoded value is unchanged after it
//! is encoded and decoded again, and a decider refuses by a rule. A target returns whether the decoder accepted the input.
//!
//! The test `replay` runs each file of `corpus/<target>/`; `cargo fuzz` searches for more inputs (see CONTRIBUTING.md).

mod agent;
mod cell;
mod columns;
mod files;
mod frames;
mod headers;
mod inboxes;
mod messages;
mod parts;
mod questions;
mod replies;
mod states;
mod texts;

/// Function that runs one input and returns whether the decoder accepted it.
pub type Target = fn(&[u8]) -> bool;

/// All targets, sorted by name. Each has a directory of inputs in `corpus/`.
pub const TARGETS: &[(&str, Target)] = &[
    ("agent", agent::told),
    ("amounts", files::amounts),
    ("cell", cell::lives),
    ("columns", columns::rows),
    ("configuration", files::configuration),
    ("contexts", files::contexts),
    ("copy", frames::copy),
    ("creds", files::creds),
    ("event", messages::event),
    ("fold", cell::fold),
    ("frames", frames::chain),
    ("headers", headers::message),
    ("json", files::json),
    ("message", messages::message),
    ("names", texts::names),
    ("node", inboxes::node),
    ("question", questions::question),
    ("reply", replies::reply),
    ("request", inboxes::request),
    ("settings", files::settings),
    ("state", states::state),
    ("tasks", files::tasks),
];

/// Returns the target with this name.
pub fn target(name: &str) -> Option<Target> {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, target)| *target)
}
