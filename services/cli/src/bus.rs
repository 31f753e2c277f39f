//! Who is who on the bus. Whoever runs these holds the bus's keys.

use crate::{
    Failure,
    context::{Chosen, Context},
    print::{note, say},
};
use chassis::{Clock, tls};
use clap::{Args, Subcommand};
use identity::{CLAIMS_DELETE, CLAIMS_UPDATE, Directory, Guest, Plan};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Subcommand)]
pub enum BusCommand {
    /// Make a bus's keys, accounts and creds, and the piece of configuration that its servers include. What is there stays;
    /// run twice it changes nothing.
    Init(Init),
    /// Let a tenant in, or shut it out, while the bus runs.
    Tenant {
        #[command(subcommand)]
        command: GuestCommand,
    },
    /// Give an operator a user of its own, whose name stands with what it sets, or take it back, while the bus runs.
    Operator {
        #[command(subcommand)]
        command: GuestCommand,
    },
    /// Give a party (such as quota, operator or tenant:NAME) new creds, and make the old ones void.
    Rotate {
        /// Whose creds: a service, operator, operator:NAME or tenant:NAME.
        party: String,
        #[command(flatten)]
        bus: Bus,
    },
    /// Make all accounts known to the running bus: after an upgrade, or when another command could not reach it.
    Push {
        #[command(flatten)]
        bus: Bus,
    },
}

#[derive(Subcommand)]
pub enum GuestCommand {
    /// Make its account and its creds, and make it known to the bus.
    Add {
        /// Its name.
        name: String,
        #[command(flatten)]
        bus: Bus,
    },
    /// Make its account void, which closes its connections, and throw away its creds.
    Remove {
        /// Its name.
        name: String,
        #[command(flatten)]
        bus: Bus,
    },
}

#[derive(Args)]
pub struct Init {
    /// The cell's name.
    #[arg(long)]
    cell: String,
    /// A tenant; as often as there are some.
    #[arg(long = "tenant")]
    tenants: Vec<String>,
    /// An operator with a user of its own; as often as there are some.
    #[arg(long = "operator")]
    operators: Vec<String>,
    /// The directory. Its keys are for nobody but the operator of the bus.
    #[arg(long)]
    out: PathBuf,
    /// Where the servers keep the accounts that they know, if not in the directory.
    #[arg(long)]
    resolver_dir: Option<PathBuf>,
    /// Make a user `fleet` that is all nodes: for simulations alone.
    #[arg(long)]
    simulated_fleet: bool,
}

#[derive(Args)]
pub struct Bus {
    /// The directory that `bus init` made.
    #[arg(long)]
    dir: PathBuf,
    /// The bus, if it is not the context's.
    #[arg(long)]
    url: Option<String>,
    /// Whose certificate that bus has; without it, as the URL says.
    #[arg(long, requires = "url")]
    ca_file: Option<PathBuf>,
}

impl BusCommand {
    pub async fn run(self, chosen: &Chosen) -> Result<(), Failure> {
        match self {
            Self::Init(init) => init.run(),
            Self::Tenant { command } => command.run(Guest::Tenant, chosen).await,
            Self::Operator { command } => command.run(Guest::Operator, chosen).await,
            Self::Rotate { party, bus } => {
                let mut directory = Directory::open(&bus.dir)?;
                // Without a bus nothing changes.
                let server = bus.server(chosen, &directory).await?;
                let account = directory.rotate(&party, now_s())?;
                let token = directory.account_token(&account)?;
                server.update(token).await.map_err(unheard)?;
                say!("{party}: {}", directory.creds_path(&party).display());
                Ok(())
            }
            Self::Push { bus } => {
                let directory = Directory::open(&bus.dir)?;
                let server = bus.server(chosen, &directory).await?;
                let tokens = directory.account_tokens()?;
                let count = tokens.len();
                for token in tokens {
                    server.update(token).await?;
                }
                say!("{count} accounts are known");
                Ok(())
            }
        }
    }
}

impl Init {
    fn run(self) -> Result<(), Failure> {
        let resolver_dir = match self.resolver_dir {
            Some(path) => path,
            None => std::path::absolute(&self.out)?.join("resolver"),
        };
        let resolver_dir = resolver_dir.to_str().ok_or("a path that is not UTF-8")?;
        let plan = Plan {
            cell: self.cell,
            tenants: BTreeSet::from_iter(self.tenants),
            operators: BTreeSet::from_iter(self.operators),
            simulated_fleet: self.simulated_fleet,
            resolver_dir: resolver_dir.to_owned(),
        };
        let (_, written) = Directory::init(&self.out, plan, now_s())?;
        say!("{}: {} files written", self.out.display(), written.len());
        Ok(())
    }
}

impl GuestCommand {
    async fn run(self, kind: fn(String) -> Guest, chosen: &Chosen) -> Result<(), Failure> {
        match self {
            Self::Add { name, bus } => {
                let guest = kind(name);
                let mut directory = Directory::open(&bus.dir)?;
                // Without a bus nothing changes.
                let server = bus.server(chosen, &directory).await?;
                directory.add(&guest, now_s())?;
                say!("{}", server.let_in(&directory, &guest).await?);
            }
            Self::Remove { name, bus } => {
                let guest = kind(name);
                let mut directory = Directory::open(&bus.dir)?;
                let server = bus.server(chosen, &directory).await?;
                server.delete(directory.deletion(&guest, now_s())?).await?;
                directory.forget(&guest, now_s())?;
                say!("{} {} is shut out", guest.kind(), guest.name());
            }
        }
        Ok(())
    }
}

/// The directory has changed, and the bus may not know it.
fn unheard(failure: Failure) -> Failure {
    note!("the directory has changed; `apportion bus push` makes it known to the bus");
    failure.afterwards()
}

fn now_s() -> i64 {
    Clock::real().now_ms() / 1000
}

impl Bus {
    async fn server(&self, chosen: &Chosen, directory: &Directory) -> Result<Server, Failure> {
        match &self.url {
            Some(url) => Server::connect(directory, url, self.ca_file.as_deref()).await,
            None => Server::of(directory, &chosen.open()?).await,
        }
    }
}

/// Gives each of the tenants an account and creds, if it has none, and makes the account known to the context's bus. Says
/// where the creds are, a line each.
pub async fn let_in(
    directory: &mut Directory,
    tenants: &BTreeSet<&str>,
    context: &Context,
) -> Result<Vec<String>, Failure> {
    let server = Server::of(directory, context).await?;
    let mut said = Vec::new();
    for tenant in tenants {
        let tenant = Guest::Tenant((*tenant).to_owned());
        directory.add(&tenant, now_s())?;
        said.push(server.let_in(directory, &tenant).await?);
    }
    Ok(said)
}

/// A bus that takes its accounts from whoever has the system's creds.
struct Server(async_nats::Client);

impl Server {
    async fn connect(
        directory: &Directory,
        url: &str,
        ca_file: Option<&Path>,
    ) -> Result<Self, Failure> {
        let creds = directory.creds_path("system");
        let options = tls::trusting(identity::connect(creds), ca_file)?;
        Ok(Self(options.name("apportion bus").connect(url).await?))
    }

    /// The context's.
    async fn of(directory: &Directory, context: &Context) -> Result<Self, Failure> {
        Self::connect(directory, context.nats_url()?, context.ca_file()).await
    }

    /// The guest is in the directory already.
    async fn let_in(&self, directory: &Directory, guest: &Guest) -> Result<String, Failure> {
        let token = directory.account_token(&guest.account())?;
        self.update(token).await.map_err(unheard)?;
        let creds = directory.creds_path(&guest.key());
        let (kind, name) = (guest.kind(), guest.name());
        Ok(format!("{kind} {name}: {}", creds.display()))
    }

    async fn update(&self, token: String) -> Result<(), Failure> {
        self.ask(CLAIMS_UPDATE, token).await
    }

    async fn delete(&self, request: String) -> Result<(), Failure> {
        self.ask(CLAIMS_DELETE, request).await
    }

    async fn ask(&self, subject: &'static str, token: String) -> Result<(), Failure> {
        let asked = self.0.request(subject, token.trim().to_owned().into());
        let answer = tokio::time::timeout(PATIENCE, asked).await;
        let answer = answer.map_err(|_| "the bus does not answer")??;
        let said: Value = serde_json::from_slice(&answer.payload)?;
        match said["data"]["code"].as_u64() {
            Some(200) => Ok(()),
            _ => Err(format!("the bus refuses it: {said}").into()),
        }
    }
}
