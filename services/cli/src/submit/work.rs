//! What it is to run.

use crate::manifest::Wrong;
use clap::Args;
use data_encoding::BASE64;
use schemas::v1;
use std::path::PathBuf;

#[derive(Debug, Clone, Args)]
pub struct Work {
    /// A variable of its environment; may be repeated. It is on the ledger, so it is no place for secrets.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<v1::EnvVar>,
    /// The directory that it runs in, on the node; without it one of its own.
    #[arg(long, value_name = "PATH", default_value = "")]
    working_dir: String,
    /// The image that it runs in, where the nodes' agents start containers.
    #[arg(long, default_value = "")]
    image: String,
    /// A file that it reads from its standard input, at most 32 KiB.
    #[arg(long, value_name = "FILE", value_parser = payload)]
    payload: Option<Payload>,
    /// What it reads from its standard input, in base64: how an allocation's own request has it.
    #[arg(long, value_name = "TEXT", conflicts_with = "payload", value_parser = base64)]
    payload_base64: Option<Payload>,
    /// The command and its arguments, behind `--`.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, Clone)]
struct Payload(Vec<u8>);

fn payload(file: &str) -> Result<Payload, String> {
    let bytes = std::fs::read(PathBuf::from(file));
    bytes.map(Payload).map_err(|error| error.to_string())
}

fn base64(text: &str) -> Result<Payload, String> {
    let bytes = BASE64.decode(text.as_bytes());
    bytes
        .map(Payload)
        .map_err(|error| format!("{text}: write it in base64: {error}"))
}

fn variable(text: &str) -> Result<v1::EnvVar, String> {
    let pair = text.split_once('=');
    let (name, value) = pair.ok_or_else(|| format!("{text}: write a variable as NAME=VALUE"))?;
    Ok(v1::EnvVar {
        name: name.to_owned(),
        value: value.to_owned(),
    })
}

impl Work {
    /// Returns `None` where nothing is said of it. An empty word in the place of the command, as a variable of a shell that is
    /// not set leaves, names nothing to run and is refused, except before arguments for the entry point of an image.
    pub fn request(self) -> Result<Option<v1::Work>, Wrong> {
        let is_for_the_image = !self.image.is_empty() && self.command.len() > 1;
        if self.command.first().is_some_and(String::is_empty) && !is_for_the_image {
            let why = "its first word is empty: write a program, or leave the command out to hold a place without one";
            return Err(Wrong::new("command", why));
        }
        let mut words = self.command.into_iter();
        let work = v1::Work {
            command: words.next().unwrap_or_default(),
            args: words.collect(),
            env: self.env,
            working_dir: self.working_dir,
            image: self.image,
            payload: (self.payload.or(self.payload_base64))
                .map(|payload| payload.0)
                .unwrap_or_default(),
        };
        Ok((work != v1::Work::default()).then_some(work))
    }
}
