//! `--watch`: what a command shows, again and again.

use crate::{Failure, amount, print::begin_anew};
use clap::{Arg, ArgMatches, Command};
use std::time::Duration;

/// Commands that ask and change nothing.
const READS: [&str; 26] = [
    "list",
    "get",
    "describe",
    "explain",
    "queue",
    "queues",
    "job-sets",
    "nodes",
    "node list",
    "node describe",
    "tenants",
    "top nodes",
    "top tenants",
    "top queues",
    "preemptions",
    "reservations",
    "refusals",
    "quota get",
    "quota tree",
    "budgets",
    "usage",
    "bill",
    "rates list",
    "settings list",
    "settings get",
    "report forecast",
];

const ID: &str = "again";
/// Whoever looks more often takes more of the cell than of the screen.
const LEAST: Duration = Duration::from_millis(500);

/// The same commands, those that read with `--watch`.
pub fn with_watch(command: Command) -> Command {
    add(command, "")
}

fn add(command: Command, name: &str) -> Command {
    let command = match READS.contains(&name) {
        true => command.arg(watch()),
        false => command,
    };
    command.mut_subcommands(|below| {
        let name = format!("{name} {}", below.get_name());
        add(below, name.trim())
    })
}

fn watch() -> Arg {
    Arg::new(ID)
        .long("watch")
        .value_name("DURATION")
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("2s")
        .value_parser(amount::duration_ms)
        .help("Show it every 2s, or as often as said (--watch=10s, from 500ms on), until it is interrupted or fails. On a terminal the newest takes the place of the one before; otherwise each follows the last")
}

/// How often what was asked is to be shown; none: once.
pub fn every(matches: &ArgMatches) -> Option<Duration> {
    let mut leaf = matches;
    while let Some((_, below)) = leaf.subcommand() {
        leaf = below;
    }
    let every_ms = leaf.try_get_one::<i64>(ID).ok().flatten()?;
    Some(Duration::from_millis(every_ms.unsigned_abs()).max(LEAST))
}

/// Shows it until it fails, or its reader has gone.
pub async fn show(
    every: Duration,
    mut show: impl AsyncFnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        begin_anew();
        show().await?;
        tokio::time::sleep(every).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;

    fn every_of(line: &str) -> Option<Duration> {
        let words = ["apportion"].into_iter().chain(line.split_whitespace());
        every(&commands().try_get_matches_from(words).unwrap())
    }

    #[test]
    fn what_reads_can_be_watched() {
        assert_eq!(every_of("list"), None);
        let two = Some(Duration::from_secs(2));
        for name in READS {
            let rest = match name {
                "get" | "describe" | "explain" | "node describe" => "x",
                "quota get" => "a",
                "settings get" => "scheduling",
                _ => "",
            };
            assert_eq!(every_of(&format!("{name} {rest} --watch")), two, "{name}");
        }
        let check = |line, ms| assert_eq!(every_of(line), Some(Duration::from_millis(ms)));
        check("list --watch=10s -o json", 10_000);
        check("top nodes --watch=1ms", 500);
        // A flag of its own.
        assert_eq!(every_of("drain n --watch"), None);
    }
}
