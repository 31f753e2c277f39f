//! `apportion context`.

use super::{
    Chosen, Context, ContextError,
    file::{File, Settings},
    resolve::of_name,
};
use crate::{
    Failure,
    print::{Fields, NO_POSITION, Output, Page, Sheet, column, named, plain, say, valued},
};
use clap::{Args, Subcommand};
use identity::{Creds, files};
use std::path::{Path, PathBuf, absolute};
use vocab::Token;

#[derive(Subcommand)]
pub enum ContextCommand {
    /// Show all contexts.
    List(List),
    /// Show what holds now, from all sources; or another context.
    Show(Show),
    /// Make a context, or change what is given of it. With --stack, the file of a stack says the rest, and where the databases
    /// are. The first context is in use from then on.
    Set(Box<Set>),
    /// Take this context from now on.
    Use {
        /// The context's name.
        name: String,
    },
    /// Delete a context, with a secret that was asked for. The files that it names stay.
    Delete {
        /// The context's name.
        name: String,
    },
}

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub struct Show {
    /// The context; without it, what holds now.
    name: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub struct Set {
    /// The context's name.
    name: String,
    /// The bus, such as tls://nats.example.org:4222; several with commas between them.
    #[arg(long, value_name = "URL")]
    nats_url: Option<String>,
    /// The cell's name.
    #[arg(long)]
    cell: Option<String>,
    /// It is this tenant's.
    #[arg(long)]
    tenant: Option<String>,
    /// It is the operator's.
    #[arg(long, conflicts_with = "tenant")]
    operator: bool,
    /// The file by which the bus lets the tenant or the operator in.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["token_file", "user", "password_file", "prompt"])]
    creds: Option<PathBuf>,
    /// A file whose first line is a token, for a bus that lets in by one.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "password_file", "prompt"])]
    token_file: Option<PathBuf>,
    /// A user, for a bus that lets in by a user and a password.
    #[arg(long)]
    user: Option<String>,
    /// A file whose first line is the user's password.
    #[arg(
        long,
        value_name = "FILE",
        requires = "user",
        conflicts_with = "prompt"
    )]
    password_file: Option<PathBuf>,
    /// Ask for the user's password, or without --user for the token, at the terminal, without showing it. It is kept in a file
    /// beside the contexts that nobody else may read.
    #[arg(long)]
    prompt: bool,
    /// The PEM file of the authority that the servers have their certificates of.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

impl ContextCommand {
    pub fn run(self, chosen: &Chosen) -> Result<(), Failure> {
        let path = File::path()?;
        match self {
            Self::List(list) => list.run(&File::read(&path)?),
            Self::Show(show) => show.run(chosen),
            Self::Set(set) => set.run(&path, chosen),
            Self::Use { name } => {
                File::change(&path, |file| {
                    of_name(&name, file).map_err(Failure::usage)?;
                    file.current = Some(name.clone());
                    Ok(())
                })?;
                say!("context {name} is in use");
                Ok(())
            }
            Self::Delete { name } => {
                File::change(&path, |file| {
                    of_name(&name, file).map_err(Failure::usage)?;
                    file.contexts.remove(&name);
                    file.current.take_if(|current| *current == name);
                    Ok(files::remove(&secret_path(&path, &name))?)
                })?;
                say!("context {name} is deleted");
                Ok(())
            }
        }
    }
}

impl List {
    fn run(self, file: &File) -> Result<(), Failure> {
        let rows = file.contexts.iter().map(|(name, settings)| {
            let current = file.current.as_ref() == Some(name);
            let place = settings.nats_url.clone();
            let stack = settings
                .stack
                .as_ref()
                .map(|path| path.display().to_string());
            vec![
                valued(if current { "*" } else { "" }.to_owned(), current),
                plain(name),
                named(&place.or(stack).unwrap_or_default()),
                named(settings.cell.as_deref().unwrap_or_default()),
                plain(who(settings)),
            ]
        });
        let columns = vec![
            column("current", ""),
            column("name", "context"),
            column("nats_url", "bus"),
            column("cell", "cell"),
            column("who", "who"),
        ];
        let all = columns.len();
        let sheet = Sheet::new(columns, all, rows.collect());
        Page::of(sheet, NO_POSITION, "no contexts").print(self.output)
    }
}

fn who(settings: &Settings) -> String {
    match &settings.tenant {
        Some(tenant) => format!("tenant {tenant}"),
        None if !settings.says_login() && settings.stack.is_some() => "whoever is named".to_owned(),
        None => match settings.operator() {
            Some(name) => format!("operator {name}"),
            None => "operator".to_owned(),
        },
    }
}

impl Show {
    fn run(self, chosen: &Chosen) -> Result<(), Failure> {
        let context = match self.name {
            Some(name) => Chosen {
                context: Some(name),
                ..Chosen::default()
            }
            .open()?,
            None => chosen.open()?,
        };
        let Context {
            source, settings, ..
        } = &context;
        let file = |path: &Option<PathBuf>| {
            let path = path.as_ref().map(|path| path.display().to_string());
            named(&path.unwrap_or_default())
        };
        let ca_file = context.ca_file().map(Path::to_owned);
        let fields = Fields::default()
            .add("source", "source", plain(source))
            .add("nats_url", "bus", plain(context.nats_url()?))
            .add("cell", "cell", plain(context.cell()?))
            .add("who", "who", plain(who(settings)))
            .add("creds", "creds", file(&settings.creds))
            .add("token_file", "token", file(&settings.token_file))
            .add(
                "user",
                "user",
                named(settings.user.as_deref().unwrap_or_default()),
            )
            .add("password_file", "password", file(&settings.password_file))
            .add("ca_file", "authority", file(&ca_file))
            .add("stack", "stack", file(&settings.stack));
        Page::one(fields).print(self.output)
    }
}

impl Set {
    fn run(self, path: &Path, chosen: &Chosen) -> Result<(), Failure> {
        let name = Token::new(&self.name).map_err(Failure::usage)?.to_string();
        let is_operators = self.operator;
        let said = self.settings(path, &name, chosen.stack.clone())?;
        let mut first = false;
        File::change(path, |file| {
            let below = file.contexts.remove(&name).unwrap_or_default();
            let mut settings = below.under(said);
            if is_operators {
                settings.tenant = None;
            }
            if settings.has_secret() {
                return Err(Failure::usage(ContextError::SecretInUrl));
            }
            settings.login().map_err(Failure::usage)?;
            file.contexts.insert(name.clone(), settings);
            first = file.contexts.len() == 1;
            if first {
                file.current = Some(name.clone());
            }
            Ok(())
        })?;
        say!(
            "context {name} is set{}",
            if first { " and in use" } else { "" }
        );
        Ok(())
    }

    /// What is given, with files by their whole paths: it is to hold in any directory. A file that is no good is refused here,
    /// where it is named.
    fn settings(
        self,
        contexts: &Path,
        name: &str,
        stack: Option<PathBuf>,
    ) -> Result<Settings, Failure> {
        let whole = |path: Option<PathBuf>| path.map(absolute).transpose();
        let asked = match self.prompt {
            true => Some(ask(&secret_path(contexts, name), self.user.as_deref())?),
            false => None,
        };
        let (asked_token, asked_password) = match self.user {
            Some(_) => (None, asked),
            None => (asked, None),
        };
        let settings = Settings {
            nats_url: self.nats_url,
            cell: self.cell,
            tenant: self.tenant,
            creds: whole(self.creds)?,
            token_file: whole(self.token_file)?.or(asked_token),
            user: self.user,
            password_file: whole(self.password_file)?.or(asked_password),
            ca_file: whole(self.ca_file)?,
            stack: whole(stack)?,
        };
        for name in [&settings.cell, &settings.tenant].into_iter().flatten() {
            Token::new(name).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        }
        if let Some(path) = &settings.creds {
            Creds::read(path).map_err(Failure::usage)?;
        }
        let secrets = [&settings.token_file, &settings.password_file];
        for path in secrets.into_iter().flatten() {
            if identity::secret(path).map_err(Failure::usage)?.is_empty() {
                return Err(Failure::usage(format!(
                    "{}: its first line is empty",
                    path.display()
                )));
            }
        }
        if let Some(path) = &settings.ca_file {
            identity::client_config(path).map_err(Failure::usage)?;
        }
        Ok(settings)
    }
}

/// Where a secret that was asked for is kept.
fn secret_path(contexts: &Path, name: &str) -> PathBuf {
    contexts.with_file_name(format!("{name}.secret"))
}

/// Asks for a secret at the terminal, and keeps it.
fn ask(path: &Path, user: Option<&str>) -> Result<PathBuf, Failure> {
    let prompt = match user {
        Some(user) => format!("password of {user}: "),
        None => "token: ".to_owned(),
    };
    let secret = rpassword::prompt_password(prompt);
    let secret =
        secret.map_err(|error| Failure::usage(format!("no terminal to ask at: {error}")))?;
    if let Some(dir) = path.parent() {
        files::make_dir(dir)?;
    }
    files::write(path, secret + "\n")?;
    Ok(path.to_owned())
}
