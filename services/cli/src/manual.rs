//! What shells complete, and the pages of the manual: both of the commands as they are described to clap.

use crate::{
    Failure,
    print::{bytes, say},
};
use clap::{Args, Command};
use clap_complete::{Shell, generate};
use std::{fs, path::PathBuf};

#[derive(Args)]
pub struct Completions {
    shell: Shell,
}

#[derive(Args)]
pub struct Man {
    /// The directory to write the pages to, one for each command.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Completions {
    pub fn run(self, mut commands: Command) -> Result<(), Failure> {
        let name = commands.get_name().to_owned();
        let mut script = Vec::new();
        generate(self.shell, &mut commands, name, &mut script);
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
