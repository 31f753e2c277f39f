//! Analytics as a process, beside the launcher's servers.

use super::{BillError, history::MONTH};
use crate::kit::servers::Servers;
use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
};
use vocab::subjects::Subjects;

/// As the kernel's figures call it.
pub const NAME: &str = "analytics";

/// Ends with this.
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// The program that was built beside this one.
    pub fn start(
        servers: &Servers,
        subjects: &Subjects,
        database: &str,
    ) -> Result<Self, BillError> {
        let directory = servers.stack.state_dir.join("measure");
        fs::create_dir_all(&directory)?;
        let (config, log) = (
            directory.join("analytics.toml"),
            directory.join("analytics.log"),
        );
        fs::write(
            &config,
            servers.analytics_config(subjects.cell(), database, MONTH.end())?,
        )?;
        let program = std::env::current_exe()?.with_file_name("apportion-analytics");
        let child = Command::new(program)
            .arg("--config")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?)
            .spawn()?;
        Ok(Self { child, log })
    }

    /// Its name and process.
    pub fn named(&self) -> (String, u32) {
        (NAME.to_owned(), self.child.id())
    }

    pub fn lives(&mut self) -> Result<(), BillError> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(_) => {
                let log = fs::read_to_string(&self.log)?;
                let last = log.lines().last().unwrap_or_default();
                Err(BillError::Ended(last.to_owned()))
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
