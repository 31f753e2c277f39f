//! Who is whose server: an installation's own authority, and a certificate for each of its servers.

mod authority;
mod directory;

use crate::{Failure, print::say};
use chassis::Clock;
use clap::{Args, Subcommand};
use directory::Directory;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum TlsCommand {
    /// Make an authority, and a key and a certificate for each server. What is there stays, unless it ends within two months
    /// or names other hosts.
    Init {
        #[command(flatten)]
        dir: Dir,
        /// A name or address by which servers are reached, beside localhost and 127.0.0.1; as often as there are some.
        #[arg(long = "host")]
        hosts: Vec<String>,
    },
    /// Give each server a new key and certificate of the same authority, for the same hosts.
    Renew {
        #[command(flatten)]
        dir: Dir,
    },
}

#[derive(Args)]
pub struct Dir {
    /// The directory. Its keys are for nobody but the operator of the servers, and `ca.key` no server needs.
    #[arg(long)]
    dir: PathBuf,
}

pub fn run(command: TlsCommand) -> Result<(), Failure> {
    let now_s = Clock::real().now_ms() / 1000;
    let (root, written) = match command {
        TlsCommand::Init { dir, hosts } => {
            let written = Directory::init(&dir.dir, hosts, now_s)?;
            (dir.dir, written)
        }
        TlsCommand::Renew { dir } => {
            let written = Directory::renew(&dir.dir, now_s)?;
            (dir.dir, written)
        }
    };
    say!("{}: {} files written", root.display(), written.len());
    for path in written {
        say!("  {}", path.display());
    }
    Ok(())
}
