//! Look of a table: within the width and with the colours of a terminal, and whole and plain everywhere else.

use super::Form;
use std::{
    env,
    io::{self, IsTerminal},
};
use terminal_size::{Width, terminal_size_of};

/// Meaning of a cell, shown as a colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Title,
    /// Success.
    Good,
    /// Waiting, or between two states.
    Waits,
    Bad,
    /// A remark.
    Faint,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Look {
    /// With all columns.
    pub wide: bool,
    /// Columns of the terminal that the table is to fit into; `None`: it is written whole.
    pub width: Option<usize>,
    pub colours: bool,
}

/// Width of a terminal that does not report it.
const WIDTH: usize = 80;
/// Smallest width of a table.
const WIDTH_LEAST: usize = 20;

impl Look {
    /// Returns the look of a form on this standard output.
    pub fn here(form: Form) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let wide = form == Form::Wide;
        let told = || terminal_size_of(io::stdout()).map(|(Width(width), _)| usize::from(width));
        let width = (is_terminal && !wide).then(|| told().unwrap_or(WIDTH).max(WIDTH_LEAST));
        let variable = |name: &str| env::var(name).unwrap_or_default();
        Self {
            wide,
            width,
            colours: has_colours(is_terminal, variable),
        }
    }

    /// The text in the colour of its tone.
    pub fn painted(self, text: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            _ if !self.colours || text.is_empty() => return text.to_owned(),
            Tone::Title => "1",
            Tone::Good => "32",
            Tone::Waits => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Follows <https://no-color.org> and <https://bixense.com/clicolors>.
fn has_colours(is_terminal: bool, variable: impl Fn(&str) -> String) -> bool {
    let is_set = |name: &str| !matches!(&*variable(name), "" | "0");
    if !variable("NO_COLOR").is_empty() {
        return false;
    }
    if is_set("CLICOLOR_FORCE") {
        return true;
    }
    is_terminal && variable("CLICOLOR") != "0" && variable("TERM") != "dumb"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_unless_the_environment_says_otherwise() {
        let check = |is_terminal, said: &[(&str, &str)], expected| {
            let variable = |name: &str| {
                let value = said.iter().find(|(own, _)| *own == name);
                value.map_or_else(String::new, |(_, value)| (*value).to_owned())
            };
            assert_eq!(has_colours(is_terminal, variable), expected, "{said:?}");
        };
        check(true, &[], true);
        check(false, &[], false);
        check(true, &[("NO_COLOR", "1")], false);
        check(true, &[("NO_COLOR", "")], true);
        check(true, &[("CLICOLOR", "0")], false);
        check(true, &[("TERM", "dumb")], false);
        check(false, &[("CLICOLOR_FORCE", "1")], true);
        check(false, &[("CLICOLOR_FORCE", "0")], false);
        check(true, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false);
    }
}
