//! Options of a command line that replace fields of a repeated request.

use super::file;
use clap::{ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};

/// Options of the command line that are fields of a request, with their values as they are written.
#[derive(Debug, Default)]
pub struct Said(Vec<(String, Vec<String>)>);

impl Said {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the values of the option of this ID; `None`: the command line does not have it.
    pub fn values(&self, id: &str) -> Option<&[String]> {
        let found = self.0.iter().find(|(own, _)| own == id);
        found.map(|(_, values)| &**values)
    }

    fn of(matches: &ArgMatches) -> Self {
        let flags = file::flags();
        let ids = flags.get_arguments().map(|flag| flag.get_id().as_str());
        let is_said = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let values = |id: &str| -> Vec<String> {
            let raw = matches.get_raw(id).into_iter().flatten();
            raw.map(|value| value.to_string_lossy().into_owned())
                .collect()
        };
        let said = ids.filter(is_said);
        Self(said.map(|id| (id.to_owned(), values(id))).collect())
    }
}

impl FromArgMatches for Said {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self::of(matches))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::of(matches);
        Ok(())
    }
}

/// Adds no options.
impl Args for Said {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}
