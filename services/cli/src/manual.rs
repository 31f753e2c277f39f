//! What shells complete, the pages of the manual, and the reference in `docs/cli.md`: all of the commands as they are described
//! to clap.

use crate::{
    COMPLETE, Failure,
    print::{bytes, say},
};
use clap::{Args, Command};
use clap_complete::{Shell, env::Shells};
use std::{fs, path::PathBuf};

#[derive(Args)]
pub struct Completions {
    /// The shell that is to complete.
    shell: Shell,
}

#[derive(Args)]
pub struct Man {
    /// The directory to write the pages to, one for each command.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Completions {
    pub fn run(self) -> Result<(), Failure> {
        let shell = self.shell.to_string();
        let shells = Shells::builtins();
        let unknown = || Failure::usage(format!("{shell}: this shell is not known"));
        let shell = shells.completer(&shell).ok_or_else(unknown)?;
        let name = "apportion";
        let mut script = Vec::new();
        shell.write_registration(COMPLETE, name, name, name, &mut script)?;
        bytes(&script)
    }
}

impl Man {
    pub fn run(self, commands: Command) -> Result<(), Failure> {
        fs::create_dir_all(&self.out)?;
        clap_mangen::generate_to(commands, &self.out)?;
        say!(
            "{}: apportion.1 and a page for each command",
            self.out.display()
        );
        Ok(())
    }
}

#[cfg(test)]
mod configuration;
#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::{reference::reference, *};
    use crate::commands;
    use testkit::check_made;

    /// Commands that print no data, but that something was done; or data in one form alone, for another command or a shell.
    const WITHOUT_DATA: &str = "context set, context use, context delete, cell init, cell raise, bus init, bus operator add, \
        bus operator remove, bus tenant add, bus tenant remove, bus rotate, bus push, tls init, tls renew, schema descriptors, settings export, serve, \
        logs, drain, invoice export, ledger copy, repair, completions, man";

    /// Each command without others below it, by its whole name.
    fn leaves(command: &Command, above: &str, all: &mut Vec<(String, Command)>) {
        let below = || {
            command
                .get_subcommands()
                .filter(|one| one.get_name() != "help")
        };
        if below().next().is_none() {
            all.push((above.trim().to_owned(), command.clone()));
        }
        for one in below() {
            leaves(one, &format!("{above} {}", one.get_name()), all);
        }
    }

    fn all() -> Vec<(String, Command)> {
        let mut commands = commands();
        commands.build();
        let mut all = Vec::new();
        leaves(&commands, "", &mut all);
        all
    }

    #[test]
    fn every_command_that_prints_data_takes_every_form() {
        let without: Vec<&str> = WITHOUT_DATA.split(',').map(str::trim).collect();
        let mut wrong = Vec::new();
        for (name, command) in all() {
            let form = command
                .get_arguments()
                .find(|arg| arg.get_long() == Some("output"));
            let forms = form.map(|arg| arg.get_possible_values().len());
            let expected = (!without.contains(&name.as_str())).then_some(5);
            if forms != expected {
                wrong.push(format!("{name}: {forms:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let known: Vec<String> = all().into_iter().map(|(name, _)| name).collect();
        for name in without {
            assert!(
                known.iter().any(|known| known == name),
                "there is no {name}"
            );
        }
    }

    #[test]
    fn every_command_and_option_says_what_it_is() {
        let mut silent = Vec::new();
        for (name, command) in all() {
            if command.get_about().is_none() {
                silent.push(name.clone());
            }
            let args = command
                .get_arguments()
                .filter(|arg| arg.get_help().is_none());
            silent.extend(args.map(|arg| format!("{name} {}", arg.get_id())));
        }
        silent.sort();
        silent.dedup();
        assert!(
            silent.is_empty(),
            "without a help text:\n{}",
            silent.join("\n")
        );
    }

    #[test]
    fn the_reference_says_what_the_commands_are() {
        let made = reference(commands());
        check_made("docs/cli.md", &made, "-p cli reference");
    }
}
