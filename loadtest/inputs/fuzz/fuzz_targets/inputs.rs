//! Runs the target that the environment names.

#![no_main]

use inputs::Target;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(|input: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("APPORTION_TARGET").unwrap_or_default();
        let known: Vec<&str> = inputs::TARGETS.iter().map(|(name, _)| *name).collect();
        inputs::target(&name)
            .unwrap_or_else(|| panic!("APPORTION_TARGET={name}: write one of {}", known.join(", ")))
    });
    target(input);
});
