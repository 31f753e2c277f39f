//! What a run is to run. Nothing is decided by it, so only what no system could take is refused.

use super::SubmitRequest;
use crate::check::{bounded, by_name, in_order};
use std::sync::Arc;
use vocab::{Operator, PlacementRules, Refusal, Requirement, Rule, Token, Work};

/// What the agent itself says to a run.
const AGENTS_OWN: &str = "APPORTION_";
/// But this one is a tenant's own where the agent does not say it: arrays were asked for so before they were requests.
const ARRAY_INDEX: &str = "APPORTION_ARRAY_INDEX";
const ENV_NAME_BYTES_MAX: usize = 128;

impl SubmitRequest {
    /// In its one form: the environment by name.
    pub(super) fn work(&self) -> Result<Option<Arc<Work>>, Refusal> {
        let Some(work) = &self.work else {
            return Ok(None);
        };
        no_larger(work.payload.len(), Work::PAYLOAD_BYTES_MAX, "work.payload")?;
        no_larger(work.bytes(), Work::BYTES_MAX, "work")?;
        if work.command.is_empty() && work.image.is_empty() {
            return Err(Refusal::new(Rule::WorkInvalid, "work.command"));
        }
        path(&work.command, "work.command")?;
        path(&work.image, "work.image")?;
        path(&work.working_dir, "work.working_dir")?;
        if !work.working_dir.is_empty() && !work.working_dir.starts_with('/') {
            return Err(Refusal::new(Rule::WorkInvalid, "work.working_dir"));
        }
        bounded(&work.args, Work::ARGS_MAX, "work.args")?;
        work.args
            .iter()
            .try_for_each(|arg| text(arg, "work.args"))?;
        bounded(&work.env, Work::ENV_MAX, "work.env")?;
        for (name, value) in &work.env {
            env_name(name, self.array_index)?;
            text(value, "work.env")?;
        }
        if work.env.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Ok(Some(Arc::clone(work)));
        }
        let env = by_name(work.env.clone(), "work.env")?;
        Ok(Some(Arc::new(Work {
            env,
            ..Work::clone(work)
        })))
    }
}

/// The tenant's own rules, and that only nodes will do whose agents can run it.
pub(super) fn where_it_runs(
    work: &Work,
    rules: Option<Box<PlacementRules>>,
) -> Result<Box<PlacementRules>, Refusal> {
    let token = |text| Token::new(text).map_err(|_| Refusal::new(Rule::NameInvalid, "work"));
    let mut rules = rules.unwrap_or_default();
    let (operator, values) = match work.image.is_empty() {
        true => (Operator::Exists, Vec::new()),
        false => (Operator::In, vec![token(Work::BY_PLUGIN)?]),
    };
    rules.selector.push(Requirement {
        label: token(Work::NODE_LABEL)?,
        operator,
        values,
    });
    rules.selector = in_order(rules.selector);
    Ok(rules)
}

fn no_larger(bytes: usize, max: usize, field: &str) -> Result<(), Refusal> {
    if bytes <= max {
        return Ok(());
    }
    let (limit, actual) = (max as u64, bytes as u64);
    Err(Refusal::over(Rule::PayloadTooLarge, field, limit, actual))
}

/// A system call takes texts up to the first NUL.
fn text(text: &str, field: &str) -> Result<(), Refusal> {
    match text.contains('\0') {
        true => Err(Refusal::new(Rule::WorkInvalid, field)),
        false => Ok(()),
    }
}

fn path(path: &str, field: &str) -> Result<(), Refusal> {
    no_larger(path.len(), Work::PATH_BYTES_MAX, field)?;
    text(path, field)
}

fn env_name(name: &str, array_index: Option<u32>) -> Result<(), Refusal> {
    let known = |c: u8| c == b'_' || c.is_ascii_alphanumeric();
    let begins = |c: &u8| !c.is_ascii_digit();
    let is_name = name.len() <= ENV_NAME_BYTES_MAX
        && name.bytes().all(known)
        && name.as_bytes().first().is_some_and(begins)
        && (!name.starts_with(AGENTS_OWN) || name == ARRAY_INDEX && array_index.is_none());
    match is_name {
        true => Ok(()),
        false => Err(Refusal::new(Rule::NameInvalid, "work.env")),
    }
}
