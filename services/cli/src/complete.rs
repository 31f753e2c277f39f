//! Names that a shell completes: contexts of the user, and what the cell has.

use crate::{
    Failure,
    context::{Chosen, Context, file::File},
    list, nodes, queues,
};
use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use client::{AllocationsQuery, JobSetsQuery, NodesQuery};
use std::{env, ffi::OsStr, time::Duration};

/// A shell that waits longer seems to hang.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Names that are offered at most.
const OFFERED: u32 = 200;

/// Kind of thing that a value names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Context,
    Allocation,
    JobSet,
    Queue,
    Node,
    Tenant,
}

impl Named {
    fn of(command: &str, arg: &Arg) -> Option<Self> {
        Some(match (command, arg.get_id().as_str()) {
            (_, "context") | ("show" | "use" | "delete", "name") => Self::Context,
            (_, "allocation_id" | "allocations" | "again" | "after" | "after_success") => {
                Self::Allocation
            }
            (_, "job_set") => Self::JobSet,
            ("queue-set", "queue") => return None,
            (_, "queue") => Self::Queue,
            ("cordon" | "uncordon" | "drain" | "taint" | "describe" | "list", "node" | "nodes") => {
                Self::Node
            }
            (_, "tenant") => Self::Tenant,
            _ => return None,
        })
    }
}

/// The same commands, with completion of names.
pub fn with_names(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| match Named::of(&name, &arg) {
        Some(named) => arg.add(ArgValueCompleter::new(move |begin: &OsStr| {
            begun(named, begin)
        })),
        None => arg,
    });
    command.mut_subcommands(with_names)
}

/// Names that begin so; none where they cannot be found out in time.
fn begun(named: Named, begin: &OsStr) -> Vec<CompletionCandidate> {
    let Some(begin) = begin.to_str() else {
        return Vec::new();
    };
    let found = match named {
        Named::Context => contexts(),
        named => of_cell(named, begin),
    };
    let found = found.unwrap_or_default().into_iter();
    let fitting = found.filter(|(name, _)| name.starts_with(begin));
    let candidates = fitting.map(|(name, what)| {
        let what = Some(what).filter(|what| !what.is_empty());
        CompletionCandidate::new(name).help(what.map(Into::into))
    });
    candidates.collect()
}

/// Names with remarks.
type Names = Vec<(String, String)>;

fn contexts() -> Result<Names, Failure> {
    let contexts = File::read(&File::path()?)?.contexts;
    Ok(contexts.into_keys().map(|it| (it, String::new())).collect())
}

fn of_cell(named: Named, begin: &str) -> Result<Names, Failure> {
    let words: Vec<String> = env::args().collect();
    let context = Chosen::of_words(&words).open()?;
    let tenant = value_of(&words, "--tenant");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let asked = ask(named, &context, tenant, begin);
        let late = |_| Failure::unreachable("not in time");
        tokio::time::timeout(PATIENCE, asked).await.map_err(late)?
    })
}

/// The value of an option among words of a command line that is not complete.
pub fn value_of<'a>(words: &'a [String], option: &str) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == option {
            return words.next().map(String::as_str);
        }
        let value = word
            .strip_prefix(option)
            .and_then(|it| it.strip_prefix('='));
        if value.is_some() {
            return value;
        }
    }
    None
}

async fn ask(
    named: Named,
    context: &Context,
    tenant: Option<&str>,
    begin: &str,
) -> Result<Names, Failure> {
    let begin = begin.to_owned();
    let plain = |name: String| (name, String::new());
    Ok(match named {
        Named::Context => Vec::new(),
        Named::Allocation => {
            let client = context.asker_of_one(tenant).await?;
            let query = |states| AllocationsQuery {
                states,
                name_prefix: begin.clone(),
                limit: OFFERED,
                ..AllocationsQuery::default()
            };
            let mut found = client.allocations(&query(Vec::new())).await?.allocations;
            if found.is_empty() {
                found = client
                    .allocations(&query(list::State::all()))
                    .await?
                    .allocations;
            }
            let named = found.into_iter().filter(|one| !one.name.is_empty());
            named
                .map(|one| (one.name.clone(), list::state(&one)))
                .collect()
        }
        Named::JobSet => {
            let client = context.asker_of_one(tenant).await?;
            let query = JobSetsQuery {
                name_prefix: begin,
                limit: OFFERED,
                ..JobSetsQuery::default()
            };
            let found = client.job_sets(&query).await?.job_sets;
            found.into_iter().map(|one| plain(one.job_set)).collect()
        }
        Named::Queue => {
            let client = context.asker(tenant).await?;
            let (found, _) = queues::all(&client).await?;
            found.into_iter().map(|one| plain(one.queue)).collect()
        }
        Named::Node => {
            let client = context.operator_until(None).await?;
            let query = NodesQuery {
                name_prefix: begin,
                ..NodesQuery::default()
            };
            let (found, _) = nodes::registered(&client, query).await?;
            found.into_iter().map(|one| plain(one.node)).collect()
        }
        Named::Tenant => {
            let client = context.operator_until(None).await?;
            let (found, ..) = crate::tenants::all(&client, begin).await?;
            found.into_iter().map(|one| plain(one.tenant)).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_an_unfinished_line_are_found() {
        let words = [
            "apportion",
            "--",
            "get",
            "--context",
            "c",
            "--tenant=t",
            "--stack",
        ];
        let words = words.map(str::to_owned);
        assert_eq!(value_of(&words, "--context"), Some("c"));
        assert_eq!(value_of(&words, "--tenant"), Some("t"));
        assert_eq!(value_of(&words, "--stack"), None);
        assert_eq!(value_of(&words, "--creds"), None);
    }

    #[test]
    fn values_that_are_names_are_completed() {
        let of = |line: &str| {
            let mut command = crate::commands();
            for word in line.split(' ') {
                command = command.find_subcommand(word).unwrap().clone();
            }
            let name = command.get_name().to_owned();
            let named = command.get_arguments();
            named
                .filter_map(|arg| Named::of(&name, arg))
                .collect::<Vec<_>>()
        };
        for line in [
            "get", "logs", "wait", "cancel", "describe", "explain", "priority",
        ] {
            assert!(of(line).contains(&Named::Allocation), "{line}");
        }
        for line in ["cordon", "drain", "taint", "node describe", "list"] {
            assert!(of(line).contains(&Named::Node), "{line}");
        }
        for line in ["context use", "context show", "context delete"] {
            assert_eq!(of(line), [Named::Context], "{line}");
        }
    }
}
