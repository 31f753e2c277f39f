//! `docs/cli.md`: every command as it is described to clap, as Markdown.

use clap::{Arg, Command};

/// All commands as Markdown, one heading for each.
pub fn reference(mut commands: Command) -> String {
    commands.build();
    let mut page = String::from(
        "# The command line\n\nThis page is made of the commands as they are described to whoever asks for `--help`; a test fails \
         when it says something else. Do not edit it: `APPORTION_WRITE=1 cargo test -p cli reference` writes it anew. What \
         holds for all commands, contexts and forms of output, is in the [README](../services/cli/README.md).\n\n",
    );
    let exits = commands.get_after_help().map(ToString::to_string);
    page += &format!("```text\n{}\n```\n", exits.unwrap_or_default());
    page += "\nOptions of every command:\n\n";
    page += &table(commands.get_arguments().filter(|arg| arg.is_global_set()));
    for command in commands.get_subcommands_mut() {
        section(command, "apportion", &mut page);
    }
    page
}

fn section(command: &mut Command, above: &str, page: &mut String) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{above} {}", command.get_name());
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(|about| paragraph(&about.to_string()));
    *page += &format!("\n## {name}\n\n{}\n", about.unwrap_or_default());
    if command
        .get_subcommands()
        .all(|one| one.get_name() == "help")
    {
        let usage = command.render_usage().to_string();
        let usage = usage.trim_start_matches("Usage:").trim();
        *page += &format!("\n```text\n{usage}\n```\n");
    }
    if let Some(after) = command.get_after_help() {
        *page += &format!("\n```text\n{after}\n```\n");
    }
    let own = command.get_arguments().filter(|arg| {
        let of_all =
            ["context", "stack", "creds", "help", "version"].contains(&arg.get_id().as_str());
        !of_all && !arg.is_hide_set()
    });
    let rows = table(own);
    if !rows.is_empty() {
        *page += &format!("\n{rows}");
    }
    for command in command.get_subcommands_mut() {
        section(command, &name, page);
    }
}

fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let rows: Vec<String> = args.map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => format!("| option | what |\n|---|---|\n{}", rows.concat()),
    }
}

fn row(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let count = arg.get_num_args();
    let takes = count.is_some_and(|count| count.takes_values());
    let may_be_alone = count.is_some_and(|count| count.min_values() == 0);
    let values = arg.get_value_names().unwrap_or_default();
    let values: Vec<String> = values.iter().map(|name| format!("<{name}>")).collect();
    let shown = match (names.is_empty(), takes) {
        (false, true) if may_be_alone => format!("{}[={}]", names.join(", "), values.join(" ")),
        (true, _) => values.join(" "),
        (false, true) => format!("{} {}", names.join(", "), values.join(" ")),
        (false, false) => names.join(", "),
    };
    let help = arg.get_long_help().or(arg.get_help());
    let mut help = paragraph(&help.map(ToString::to_string).unwrap_or_default());
    let choices = arg.get_possible_values();
    let choices: Vec<&str> = choices.iter().map(|choice| choice.get_name()).collect();
    if takes && !choices.is_empty() {
        help += &format!(" One of {}.", choices.join(", "));
    }
    let defaults = arg.get_default_values().iter();
    let defaults: Vec<_> = defaults.map(|it| it.to_string_lossy()).collect();
    if takes && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        help += &format!(" Without it: {}.", defaults.join(", "));
    }
    let cell = |text: &str| text.replace('|', "\\|");
    format!("| `{}` | {} |\n", cell(&shown), cell(&help))
}

/// On one line, with what looks like markup escaped, and a full stop.
fn paragraph(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.replace('<', "&lt;").replace('*', "\\*");
    match line.ends_with(['.', '!', '?', ':']) || line.is_empty() {
        true => line,
        false => line + ".",
    }
}
