//! The contract, for programs in other languages.

use crate::Failure;
use clap::Subcommand;
use std::{fs, path::PathBuf};

#[derive(Subcommand)]
pub enum SchemaCommand {
    /// Write the messages as an encoded FileDescriptorSet, so that no protoc is needed to speak them.
    Descriptors {
        /// The file to write.
        #[arg(long)]
        out: PathBuf,
    },
}

pub fn run(command: SchemaCommand) -> Result<(), Failure> {
    let SchemaCommand::Descriptors { out } = command;
    fs::write(&out, schemas::FILE_DESCRIPTOR_SET)
        .map_err(|error| format!("{}: {error}", out.display()).into())
}
