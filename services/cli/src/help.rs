//! Groups of commands in `--help`.

use clap::Command;

/// Maximum columns of a line.
pub const WIDTH: usize = 100;

/// Groups in their order, each with its commands.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Commands for work",
        &[
            "submit", "cancel", "priority", "wait", "logs", "watch", "resource",
        ],
    ),
    (
        "Commands to see",
        &[
            "list",
            "get",
            "describe",
            "explain",
            "queue",
            "queues",
            "job-sets",
            "preemptions",
            "refusals",
            "operation",
            "top",
            "what-if",
        ],
    ),
    (
        "Commands for money",
        &[
            "bill",
            "usage",
            "budgets",
            "report",
            "invoice",
            "rates",
            "conservation",
        ],
    ),
    (
        "Commands for nodes",
        &[
            "nodes",
            "node",
            "cordon",
            "uncordon",
            "drain",
            "taint",
            "reserve",
            "unreserve",
            "reservations",
        ],
    ),
    (
        "Commands for settings",
        &[
            "tenants",
            "tenant",
            "quota",
            "queue-set",
            "priority-class",
            "policy",
            "settings",
            "plan",
            "apply",
        ],
    ),
    (
        "Commands for the cell",
        &[
            "context",
            "serve",
            "cell",
            "bus",
            "tls",
            "schema",
            "verify",
            "ledger",
            "repair",
            "completions",
            "man",
        ],
    ),
];

/// Returns the command with a help text that lists its commands in groups.
pub fn grouped(command: Command) -> Command {
    let mut text = String::new();
    for (title, names) in GROUPS {
        text += &format!("{title}:\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text += &entry(name, &about);
        }
        text.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

/// Columns of the names.
const NAMES: usize = 18;

/// Returns the lines of a command: its name and its summary, wrapped.
fn entry(name: &str, about: &str) -> String {
    let mut line = format!("  {name:<width$}", width = NAMES - 2);
    let mut text = String::new();
    for word in about.split_whitespace() {
        let is_first = line.len() <= NAMES;
        if !is_first && line.len() + 1 + word.len() > WIDTH {
            text += line.trim_end();
            text.push('\n');
            line = " ".repeat(NAMES);
        } else if !is_first {
            line.push(' ');
        }
        line += word;
    }
    text + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;
    use std::collections::BTreeSet;

    #[test]
    fn each_command_is_in_one_group() {
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let once: BTreeSet<&str> = grouped.iter().copied().collect();
        assert_eq!(once.len(), grouped.len());
        let commands = commands();
        let all: BTreeSet<&str> = commands.get_subcommands().map(Command::get_name).collect();
        assert_eq!(all, once);
    }

    fn helps(command: &mut Command, above: &str, all: &mut Vec<(String, String)>) {
        let name = format!("{above} {}", command.get_name());
        all.push((name.clone(), command.render_help().to_string()));
        all.push((name.clone(), command.render_long_help().to_string()));
        for below in command.get_subcommands_mut() {
            helps(below, &name, all);
        }
    }

    #[test]
    fn no_line_of_help_is_too_long_and_options_of_all_commands_come_last() {
        let mut commands = commands();
        commands.build();
        let mut all = Vec::new();
        helps(&mut commands, "", &mut all);
        let mut wrong = Vec::new();
        for (name, help) in &all {
            let long = help.lines().filter(|line| line.chars().count() > WIDTH);
            wrong.extend(long.map(|line| format!("{name}: {line}")));
            let own = help.rfind("--help");
            let of_all = ["--context <", "--stack <", "--creds <"];
            let is_above = |option: &&str| help.find(*option) < own;
            // Its own `--creds` is a part of the context.
            let has_own = name.ends_with("context set");
            if name.split(' ').count() > 2 && !name.contains(" help") && !has_own {
                let above = of_all.iter().filter(|option| is_above(option));
                wrong.extend(above.map(|option| format!("{name}: {option} stands above")));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
