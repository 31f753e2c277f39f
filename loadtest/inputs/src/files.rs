//! Files that users write, and files that the project's programs write for each other.

use chassis::{Config, stack::Stack};
use identity::{Creds, NodeSigner, Plan};
use node_agent::{Bounds, End, Lease};
use serde::{Serialize, de::DeserializeOwned};

fn text(input: &[u8]) -> &str {
    // The files are read as text, so the input ends before its first byte that is not UTF-8.
    match std::str::from_utf8(input) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&input[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// Parses a settings file, as `plan` and `apply` do.
pub fn settings(input: &[u8]) -> bool {
    cli::inputs::settings(text(input))
}

/// Parses a file of requests, as `submit --file` does.
pub fn tasks(input: &[u8]) -> bool {
    cli::inputs::tasks(text(input))
}

/// Parses a user's contexts file.
pub fn contexts(input: &[u8]) -> bool {
    cli::inputs::contexts(text(input))
}

/// Parses a quantity, a duration or a moment.
pub fn amounts(input: &[u8]) -> bool {
    cli::inputs::amounts(text(input))
}

/// Parses the configuration of a service.
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

/// Parses a creds file, and the file with node-heartbeat's signing key.
pub fn creds(input: &[u8]) -> bool {
    let text = text(input);
    let signs = NodeSigner::parse(text).is_ok();
    let Ok(creds) = Creds::parse(text) else {
        return signs;
    };
    // The creds may belong to another installation, so an error is allowed.
    let _ = creds.party();
    creds.answer(b"nonce").expect("a seed signs");
    let written = creds.text().expect("parsed creds can be written");
    let again = Creds::parse(&written).expect("written creds are readable");
    assert_eq!(again.token, creds.token);
    assert_eq!(again.public_key(), creds.public_key());
    true
}

/// Parses JSON files: the plan of a bus, a stack, and the files that an agent and its shims write.
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
    let written = serde_json::to_vec(&value).expect("a parsed value can be written");
    let again: T = serde_json::from_slice(&written).expect("a written value is readable");
    assert!(again == value, "{}", String::from_utf8_lossy(&written));
    true
}
