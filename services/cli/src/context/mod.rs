//! Where the cell is, and as whom to speak to it: from a context of the user's own, from the environment, or from the file of
//! a local stack.

mod command;
pub(crate) mod file;
mod position;
pub(crate) mod resolve;

pub use command::ContextCommand;

use crate::{Failure, complete, look::BETWEEN_LOOKS, print::note, tenants};
use analytics::store::Store;
use chassis::{Clock, stack::Stack};
use clap::Args;
use client::{Client, ConnectOptions};
use file::{File, Settings};
use identity::Login;
use ledger_nats::jetstream::JetStreamBus;
use position::Position;
use resolve::{Environment, Resolved, resolve};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use vocab::{
    CellNo, Lsn, Token,
    subjects::{OPERATOR, Subjects},
};

/// The file that the launcher writes, below the directory of the checkout.
const LOCAL_STACK: &str = ".local/up/stack.json";
/// A database that is away is away now.
const DATABASE_PATIENCE: Duration = Duration::from_secs(2);

/// ClickHouse may be busy with a month's usage, and gets longer.
const USAGE_PATIENCE: Duration = Duration::from_secs(10);

const POSITION_PATIENCE: Duration = Duration::from_secs(3);

/// In the help of every command.
const HEADING: &str = "Options of every command";

/// What is said on the command line.
#[derive(Debug, Clone, Default, Args)]
pub struct Chosen {
    /// Context to use, instead of `APPORTION_CONTEXT` or the current one.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        conflicts_with = "stack",
        help_heading = HEADING
    )]
    context: Option<String>,
    /// File of a running stack. Default without a context: .local/up/stack.json.
    #[arg(long, global = true, value_name = "FILE", help_heading = HEADING)]
    stack: Option<PathBuf>,
    /// Credentials file; commands run as its user.
    #[arg(long, global = true, value_name = "FILE", help_heading = HEADING)]
    creds: Option<PathBuf>,
}

/// A command of a tenant's.
#[derive(Debug, Clone, Args)]
pub struct Whose {
    /// The tenant; without it, the context's.
    #[arg(long)]
    pub tenant: Option<String>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    #[error(
        "no context: make one with `apportion context set NAME --nats-url URL --cell CELL --tenant NAME --creds FILE`, or \
         start a local stack with `make up`"
    )]
    None,
    #[error("there is no context {name}; there are: {known}")]
    Unknown { name: String, known: String },
    #[error("{0} does not say {1}")]
    Lacks(String, &'static str),
    #[error(
        "{0} names no tenant: name it (--tenant NAME), or use a tenant's context (--context NAME)"
    )]
    NoTenant(String),
    #[error(
        "{source_name} acts as tenant {tenant}, and this command is for operators: use an operator's context (--context NAME) or \
         credentials (--creds FILE)"
    )]
    Tenants { source_name: String, tenant: String },
    #[error(
        "{0} acts as an operator, and this command is for a tenant: use a tenant's context (--context NAME) or credentials \
         (--creds FILE)"
    )]
    Operators(String),
    #[error(
        "this reads the cell's databases, and {0} has none: name the file of a stack with --stack, or in the context"
    )]
    NoDatabases(String),
    #[error(
        "the URL of the bus holds a password: name its file with --user and --password-file, or --token-file"
    )]
    SecretInUrl,
    #[error(
        "a user without a password: name its file with --password-file, or have it asked with --prompt"
    )]
    NoPassword,
    #[error("a password without a user: say --user")]
    NoUser,
    #[error("more than one thing lets it in: take creds, a token, or a user with a password")]
    TwoLogins,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the cell's database does not answer within {} s; what the bus can answer needs none",
    DATABASE_PATIENCE.as_secs()
)]
struct DatabaseAway;

impl Chosen {
    /// Reads the options of an unfinished command line.
    pub fn of_words(words: &[String]) -> Self {
        let value = |option| complete::value_of(words, option);
        Self {
            context: value("--context").map(str::to_owned),
            stack: value("--stack").map(PathBuf::from),
            creds: value("--creds").map(PathBuf::from),
        }
    }

    pub fn open(&self) -> Result<Context, Failure> {
        // A stack's file says all: neither a home nor what stands there is needed.
        let file = match &self.stack {
            Some(_) => File::default(),
            None => File::read(&File::path()?)?,
        };
        let local = Path::new(LOCAL_STACK);
        let local = local.exists().then_some(local);
        let resolved = resolve(self, &Environment::read(), &file, local);
        let mut resolved = resolved.map_err(Failure::usage)?;
        if let Some(creds) = &self.creds {
            let by_creds = resolved.settings.by_creds(creds);
            resolved.settings = by_creds.map_err(Failure::usage)?;
        }
        Context::of(resolved)
    }
}

/// A way to a cell.
pub struct Context {
    /// For people, such as `the context prod`.
    source: String,
    settings: Settings,
    stack: Option<Stack>,
    /// File of the last change's position; `None` if it cannot be kept.
    position: Option<Position>,
    /// The connections of this command.
    clients: Mutex<Vec<Client>>,
}

/// The next command reads what this one has changed.
impl Drop for Context {
    fn drop(&mut self) {
        let clients =
            std::mem::take(&mut *self.clients.lock().unwrap_or_else(PoisonError::into_inner));
        let decided = clients.iter().map(Client::decided_lsn).max();
        if let (Some(position), Some(lsn)) = (&self.position, decided.filter(|lsn| *lsn > 0)) {
            position.keep(lsn);
        }
        if clients.iter().any(Client::has_read_behind) {
            note!("{BEHIND}");
        }
    }
}

const BEHIND: &str = "the cell is behind: an answer may not include your last change yet";

impl Context {
    fn of(Resolved { source, settings }: Resolved) -> Result<Self, Failure> {
        let stack = settings.stack.as_deref().map(Stack::read).transpose();
        let stack = stack.map_err(|error| {
            Failure::usage(format!("{error}\nIs the stack up? `make up` starts it."))
        })?;
        let mut context = Self {
            source,
            settings,
            stack,
            position: None,
            clients: Mutex::default(),
        };
        let cell = context
            .nats_url()
            .and_then(|url| Ok((url, context.cell()?)));
        context.position = cell.ok().and_then(|(url, cell)| Position::of(url, cell));
        Ok(context)
    }

    fn lacks(&self, what: &'static str) -> Failure {
        Failure::usage(ContextError::Lacks(self.source.clone(), what))
    }

    pub fn nats_url(&self) -> Result<&str, Failure> {
        let of_stack = || self.stack.as_ref().map(|stack| &*stack.nats.url);
        let url = self.settings.nats_url.as_deref().or_else(of_stack);
        url.ok_or_else(|| self.lacks("where the bus is (nats_url, APPORTION_NATS_URL)"))
    }

    pub fn cell(&self) -> Result<&str, Failure> {
        let of_stack = || self.stack.as_ref().map(|stack| &*stack.cell.name);
        let cell = self.settings.cell.as_deref().or_else(of_stack);
        cell.ok_or_else(|| self.lacks("which cell it is (cell, APPORTION_CELL)"))
    }

    pub fn ca_file(&self) -> Option<&Path> {
        let of_stack = || self.stack.as_ref().and_then(Stack::ca_file);
        self.settings.ca_file.as_deref().or_else(of_stack)
    }

    /// What lets in `operator` or `tenant:<name>`. That of a context is of whomever it is.
    fn login(&self, key: &str) -> Result<Login, Failure> {
        let said = self.settings.login().map_err(Failure::usage)?;
        match (said, &self.stack) {
            (Some(login), _) => Ok(login),
            (None, Some(stack)) => {
                let creds = stack.creds(key).map_err(Failure::usage)?;
                Ok(Login::Creds(creds))
            }
            (None, None) => Err(self.lacks(
                "what lets it in (creds, APPORTION_CREDS; or a token, or a user with a password)",
            )),
        }
    }

    /// Whose the command is: as it says, or as the context does. None: of no tenant.
    pub fn tenant_of(&self, said: Option<&str>) -> Option<String> {
        let of_context = || self.settings.tenant.clone();
        said.map(str::to_owned).or_else(of_context)
    }

    pub fn tenant_name(&self, said: Option<&str>) -> Result<Token, Failure> {
        let name = self.tenant_of(said);
        let none = || Failure::usage(ContextError::NoTenant(self.source.clone()));
        Token::new(&name.ok_or_else(none)?).map_err(Failure::usage)
    }

    pub async fn tenant(&self, said: Option<&str>) -> Result<Client, Failure> {
        self.tenant_until(said, None).await
    }

    /// With a deadline for each operation.
    pub async fn tenant_until(
        &self,
        said: Option<&str>,
        deadline: Option<Duration>,
    ) -> Result<Client, Failure> {
        // Whoever it is not for need not say whose it would be.
        if self.settings.says_login() && self.settings.tenant.is_none() {
            return Err(Failure::usage(ContextError::Operators(self.source.clone())));
        }
        let tenant = self.tenant_name(said)?;
        let login = self.login(&format!("tenant:{tenant}"))?;
        let options = ConnectOptions::tenant(self.nats_url()?, self.cell()?, tenant);
        self.connect(options.login(login).deadline(deadline)).await
    }

    /// With a deadline for each operation.
    pub async fn operator_until(&self, deadline: Option<Duration>) -> Result<Client, Failure> {
        let login = self.operators_login()?;
        let options = ConnectOptions::operator(self.nats_url()?, self.cell()?);
        self.connect(options.login(login).deadline(deadline)).await
    }

    /// Whether it lets a tenant in, and no operator.
    pub fn is_tenants(&self) -> bool {
        self.settings.says_login() && self.settings.tenant.is_some()
    }

    /// For a question that operators may ask, too: of the tenant that is said or the context's, as that tenant, or as the
    /// operator where there are no creds of the tenant's; without a tenant, as the operator and of all.
    pub async fn asker(&self, said: Option<&str>) -> Result<Client, Failure> {
        if self.tenant_of(said).is_none() {
            return self.operator_until(None).await;
        }
        let tenant = self.tenant_name(said)?;
        let is_tenants = match self.settings.says_login() {
            true => self.is_tenants(),
            false => self.login(&format!("tenant:{tenant}")).is_ok(),
        };
        if is_tenants {
            return self.tenant(Some(tenant.as_str())).await;
        }
        let login = self.operators_login()?;
        let options = ConnectOptions::operator(self.nats_url()?, self.cell()?);
        let options = options.login(login).about(tenant.clone());
        let client = self.connect(options).await?;
        // The operators' own requests are refused, too.
        if tenant.as_str() != OPERATOR {
            tenants::demand(&client, &tenant).await?;
        }
        Ok(client)
    }

    /// The same for a question about one tenant's things.
    pub async fn asker_of_one(&self, said: Option<&str>) -> Result<Client, Failure> {
        self.tenant_name(said)?;
        self.asker(said).await
    }

    async fn connect(&self, options: ConnectOptions) -> Result<Client, Failure> {
        let options = options.ca_file(self.ca_file());
        let client = Client::connect(options.reads_after(self.reads_after())).await?;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.push(client.clone());
        Ok(client)
    }

    /// The position that answers have to include; 0: any.
    fn reads_after(&self) -> u64 {
        self.position.as_ref().map_or(0, Position::read)
    }

    fn operators_login(&self) -> Result<Login, Failure> {
        if self.is_tenants() {
            return Err(Failure::usage(ContextError::Tenants {
                source_name: self.source.clone(),
                tenant: self.settings.tenant.clone().unwrap_or_default(),
            }));
        }
        self.login("operator")
    }

    /// The bus itself, as the operator may use it.
    pub async fn bus(&self) -> Result<async_nats::Client, Failure> {
        let options = self.operators_login()?.options();
        let options = identity::trusting(options, self.ca_file())?;
        Ok(options.connect(self.nats_url()?).await?)
    }

    pub fn subjects(&self) -> Result<Subjects, Failure> {
        Ok(Subjects::new(self.cell()?))
    }

    /// The ledger, as the operator reads it.
    pub async fn ledger(&self) -> Result<JetStreamBus, Failure> {
        Ok(JetStreamBus::open(self.bus().await?, self.subjects()?).await?)
    }

    pub fn databases(&self) -> Result<&Stack, Failure> {
        let none = || Failure::usage(ContextError::NoDatabases(self.source.clone()));
        self.stack.as_ref().ok_or_else(none)
    }

    pub fn cell_no(&self) -> Result<CellNo, Failure> {
        Ok(CellNo(self.databases()?.cell.number))
    }

    /// A reader of one service's warm state.
    pub async fn warm_state(&self, schema: &str) -> Result<PgPool, Failure> {
        let options = PgConnectOptions::from_str(&self.databases()?.postgres.url)?;
        let options = options.options([("search_path", schema)]);
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(DATABASE_PATIENCE);
        match pool.connect_with(options).await {
            Err(sqlx::Error::PoolTimedOut) => Err(Failure::unreachable(DatabaseAway)),
            pool => Ok(pool?),
        }
    }

    /// The usage and the bill of all tenants, of a server that answers.
    pub async fn usage(&self) -> Result<Store, Failure> {
        let stack = self.databases()?;
        let database = &stack.clickhouse.database;
        let bill = stack.bill().map_err(Failure::usage)?;
        let store = Store::new(bill, database, self.cell_no()?);
        store.answers_within(USAGE_PATIENCE).await?;
        self.reached(&store).await?;
        Ok(store)
    }

    /// Waits until the tables include the last change, for as long as a service waits for a position.
    async fn reached(&self, store: &Store) -> Result<(), Failure> {
        let wanted = Lsn(self.reads_after());
        let reach = async {
            while store.through().await? < wanted {
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
            Ok::<(), Failure>(())
        };
        match tokio::time::timeout(POSITION_PATIENCE, reach).await {
            Ok(reached) => reached,
            Err(_) => {
                note!("{BEHIND}");
                Ok(())
            }
        }
    }

    /// The time of a local stack may be recorded time.
    pub fn clock(&self) -> Clock {
        self.stack.as_ref().map_or_else(Clock::real, Stack::clock)
    }
}
