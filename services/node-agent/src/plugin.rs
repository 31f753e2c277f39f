//! What a site's own starter of containers is told, as JSON on its standard input.

use crate::{Bounds, RunKey, Work};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
pub(crate) struct Assignment<'a> {
    allocation: String,
    revision: u64,
    command: &'a [String],
    /// With what the agent adds for each run, without the agent's own variables.
    env: Vec<Variable<'a>>,
    image: Option<&'a str>,
    /// In the container.
    working_dir: Option<&'a Path>,
    /// Holds what the command is to read; absent: nothing.
    payload_file: Option<&'a Path>,
    bounds: &'a Bounds,
}

#[derive(Serialize)]
struct Variable<'a> {
    name: &'a str,
    value: &'a str,
}

impl<'a> Assignment<'a> {
    pub fn new(
        key: RunKey,
        work: &'a Work,
        env: &'a [(String, String)],
        payload_file: Option<&'a Path>,
        bounds: &'a Bounds,
    ) -> Assignment<'a> {
        Assignment {
            allocation: key.allocation.to_string(),
            revision: key.revision,
            command: &work.command,
            env: env
                .iter()
                .map(|(name, value)| Variable { name, value })
                .collect(),
            image: work.image.as_deref(),
            working_dir: work.working_dir.as_deref(),
            payload_file,
            bounds,
        }
    }
}
