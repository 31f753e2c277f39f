//! Files: those that users write, and those that programs of the suite write for each other.

use chassis::{Config, stack::Stack};
use identity::{Creds, NodeSigner, Plan};
use node_agent::{Bounds, End, Lease};
use serde::{Serialize, de::DeserializeOwned};

fn text(input: &[u8]) -> &str {
    // The files are read as text; what is behind other bytes never is.
    match std::str::from_utf8(input) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&input[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// Settings, for `plan` and `apply`.
pub fn settings(input: &[u8]) -> bool {
    cli::inputs::settings(text(input))
}

/// Requests, for `submit --file`.
pub fn tasks(input: &[u8]) -> bool {
    cli::inputs::tasks(text(input))
}

/// The contexts of a user.
pub fn contexts(input: &[u8]) -> bool {
    cli::inputs::contexts(text(input))
}

/// A quantity, a duration or a moment.
pub fn amounts(input: &[u8]) -> bool {
    cli::inputs::amounts(text(input))
}

/// The configuration of a service.
pub fn configuration(input: &[u8]) -> bool {
    let text = text(input);
    let accepted = [
        Config::<admission_rules::Config>::check(text).is_ok(),
        Config::<quota_rules::Config>::check(text).is_ok(),
        Config::<scheduler_rules::Config>::check(text).is_ok(),
        Config::<node_heartbeat_rules::Config>::check(text).is_ok(),
        Config::<node_agent::AgentSettings>::check(text).is_ok(),
    ];
    accepted.contains(&true)
}

/// Creds, and the file by which node-heartbeat signs.
pub fn creds(input: &[u8]) -> bool {
    let text = text(input);
    let signs = NodeSigner::parse(text).is_ok();
    let Ok(creds) = Creds::parse(text) else {
        return signs;
    };
    // It may be of another installation.
    let _ = creds.party();
    creds.answer(b"nonce").expect("a seed signs");
    let written = creds.text().expect("a seed is written");
    let again = Creds::parse(&written).expect("what was written is read");
    assert_eq!(again.token, creds.token);
    assert_eq!(again.public_key(), creds.public_key());
    true
}

/// Files of JSON: what a bus is for, a stack, and what an agent and its shims write.
pub fn json(input: &[u8]) -> bool {
    let accepted = [
        written::<Plan>(input),
        written::<End>(input),
        written::<Lease>(input),
        written::<Bounds>(input),
        serde_json::from_slice::<Stack>(input).is_ok(),
    ];
    accepted.contains(&true)
}

fn written<T: Serialize + DeserializeOwned + PartialEq>(input: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<T>(input) else {
        return false;
    };
    let written = serde_json::to_vec(&value).expect("what was read is written");
    let again: T = serde_json::from_slice(&written).expect("what was written is read");
    assert!(again == value, "{}", String::from_utf8_lossy(&written));
    true
}
