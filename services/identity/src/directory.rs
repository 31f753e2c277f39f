//! What the operator of the bus has on disk. Keys are made once; tokens and the server's configuration follow from them
//! and from the plan, and are written again only where they say something else than before.
//!
//! | path | what |
//! |---|---|
//! | `plan.json` | the cell, its tenants, and its operators that have a name |
//! | `keys/` | what signs: the operator's keys, the accounts', the nodes'. For nobody but the operator of the bus |
//! | `tokens/` | the operator's and the accounts' tokens |
//! | `admin/` | creds of who makes streams, and of who makes accounts known to the server |
//! | `creds/` | creds of everybody else, and what lets node-heartbeat sign nodes |
//! | `bus.conf` | what NATS' configuration includes |

use crate::{
    creds::{BadCreds, Creds},
    domain::{
        claims::Revocations,
        mint::{self, Keys, MintError, NodeSigner},
        party::{self, ANY_CELL, Account, Guest, Role, SYSTEM, User},
    },
    files::{FileError, lock, make_dir, read, remove, write, write_changed},
};
use nkeys::{KeyPair, KeyPairType};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
};
use vocab::Token;

/// What a bus is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub cell: String,
    pub tenants: BTreeSet<String>,
    /// The operators that have a name.
    #[serde(default)]
    pub operators: BTreeSet<String>,
    /// Whether there is a user that is all nodes.
    pub simulated_fleet: bool,
    /// Where the server keeps the accounts that it knows.
    pub resolver_dir: String,
}

impl Plan {
    fn guests(&self) -> Vec<Guest> {
        let tenants = self.tenants.iter().cloned().map(Guest::Tenant);
        let operators = self.operators.iter().cloned().map(Guest::Operator);
        tenants.chain(operators).collect()
    }

    fn of_kind(&mut self, guest: &Guest) -> &mut BTreeSet<String> {
        match guest {
            Guest::Tenant(_) => &mut self.tenants,
            Guest::Operator(_) => &mut self.operators,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error(transparent)]
    Io(#[from] FileError),
    #[error("{0} is no directory of a bus: make one with `apportion bus init`")]
    NoBus(PathBuf),
    #[error("{path} is for the cell {there}, not {wanted}")]
    OtherCell {
        path: PathBuf,
        there: String,
        wanted: String,
    },
    #[error("{0} is no name of a cell: 1 to 32 characters from A-Z a-z 0-9 _ -, or * for any")]
    NotACell(String),
    #[error("{0} is no name of a tenant: 1 to 64 characters from A-Z a-z 0-9 _ -, the first not _")]
    NotATenant(String),
    #[error(
        "{0} is no name of an operator: 1 to 64 characters from A-Z a-z 0-9 _ -, the first not _"
    )]
    NotAnOperator(String),
    #[error("there is no {} {}", .0.kind(), .0.name())]
    NoGuest(Guest),
    #[error("there is no party {0}")]
    NoParty(String),
    #[error(
        "the system's user signs out by itself what it is to publish: it cannot be replaced at run time"
    )]
    SystemStays,
    #[error("{path}: {source}")]
    Mint { path: PathBuf, source: MintError },
    #[error("{path}: {source}")]
    Creds { path: PathBuf, source: BadCreds },
    #[error("{path}: {source}")]
    Plan {
        path: PathBuf,
        source: serde_json::Error,
    },
}

type Result<T> = std::result::Result<T, DirectoryError>;

/// A user's token comes in one line of the protocol; NATS takes 4,096 bytes if nobody says more.
const LINE_BYTES_MAX: u32 = 32_768;

/// A bus's directory, for one process at a time.
pub struct Directory {
    root: PathBuf,
    plan: Plan,
    _lock: File,
}

impl Directory {
    /// Makes what is missing, and says which files it wrote. What the plan has already stays; tenants are added.
    pub fn init(root: &Path, wanted: Plan, now_s: i64) -> Result<(Self, Vec<PathBuf>)> {
        check_cell(&wanted.cell)?;
        for guest in wanted.guests() {
            check_guest(&guest)?;
        }
        make_dir(root)?;
        let lock = lock(root)?;
        let plan = match read_plan(root)? {
            None => wanted,
            Some(there) if there.cell != wanted.cell => {
                return Err(DirectoryError::OtherCell {
                    path: root.to_owned(),
                    there: there.cell,
                    wanted: wanted.cell,
                });
            }
            Some(there) => Plan {
                tenants: &there.tenants | &wanted.tenants,
                operators: &there.operators | &wanted.operators,
                simulated_fleet: there.simulated_fleet || wanted.simulated_fleet,
                ..wanted
            },
        };
        let directory = Self {
            root: root.to_owned(),
            plan,
            _lock: lock,
        };
        let written = directory.complete(now_s)?;
        Ok((directory, written))
    }

    pub fn open(root: &Path) -> Result<Self> {
        if !root.join(PLAN).exists() {
            return Err(DirectoryError::NoBus(root.to_owned()));
        }
        let lock = lock(root)?;
        let plan = read_plan(root)?;
        Ok(Self {
            root: root.to_owned(),
            plan: plan.ok_or_else(|| DirectoryError::NoBus(root.to_owned()))?,
            _lock: lock,
        })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Adds a guest. One that is there stays as it is.
    pub fn add(&mut self, guest: &Guest, now_s: i64) -> Result<()> {
        check_guest(guest)?;
        self.plan.of_kind(guest).insert(guest.name().to_owned());
        self.complete(now_s).map(drop)
    }

    /// The request by which the server forgets a guest's account.
    pub fn deletion(&self, guest: &Guest, now_s: i64) -> Result<String> {
        self.has(guest)?;
        let (keys, _) = self.keys()?;
        let account = guest.account();
        let key = keys.accounts.get(&account).map(KeyPair::public_key);
        let path = self.token_path(&account);
        let key = key.ok_or(MintError::NoKey(account));
        key.and_then(|key| mint::deletion(&keys, vec![key], now_s))
            .map_err(|source| DirectoryError::Mint { path, source })
    }

    /// Throws away what there is of a guest. One of the same name that is added later is another one.
    pub fn forget(&mut self, guest: &Guest, now_s: i64) -> Result<()> {
        self.has(guest)?;
        self.plan.of_kind(guest).remove(guest.name());
        let account = guest.account();
        for path in [
            self.creds_path(&guest.key()),
            self.token_path(&account),
            self.key_path(&format!("account-{account}")),
        ] {
            remove(&path)?;
        }
        self.complete(now_s).map(drop)
    }

    /// Gives a party a new key and makes the old one void. Returns the name of the account that changed.
    pub fn rotate(&mut self, key: &str, now_s: i64) -> Result<String> {
        let (keys, _) = self.keys()?;
        let user = self.users().into_iter().find(|user| user.key == key);
        let user = user.ok_or_else(|| DirectoryError::NoParty(key.to_owned()))?;
        if user.account == SYSTEM {
            return Err(DirectoryError::SystemStays);
        }
        let path = self.creds_path(key);
        let old = self.read_creds(&path)?;
        let pair = KeyPair::new_user();
        let token = mint::user(&keys, &user, pair.public_key(), now_s);
        let token = token.map_err(|source| DirectoryError::Mint {
            path: path.clone(),
            source,
        })?;
        self.write_creds(&path, &Creds::new(token, pair))?;
        let void = Revocations::from([(old.public_key(), now_s)]);
        let account = self.accounts().into_iter().find(|a| a.name == user.account);
        // Every user has an account: `users` and `accounts` are of the same parties.
        if let Some(account) = account {
            self.keep_account(&keys, &account, &void, now_s)?;
        }
        self.complete(now_s)?;
        Ok(user.account)
    }

    /// The token of an account, as the server is to have it.
    pub fn account_token(&self, account: &str) -> Result<String> {
        Ok(read(&self.token_path(account))?)
    }

    /// The tokens of all accounts.
    pub fn account_tokens(&self) -> Result<Vec<String>> {
        let accounts = self.accounts();
        let names = accounts.iter().map(|account| account.name.as_str());
        names.map(|name| self.account_token(name)).collect()
    }

    /// The file of a party: `quota`, `tenant:team-a`. `bus` and `system` are apart from the others.
    pub fn creds_path(&self, key: &str) -> PathBuf {
        let place = match key {
            "bus" | "system" => "admin",
            _ => "creds",
        };
        let name = key.replace(':', "-");
        self.root.join(place).join(format!("{name}.creds"))
    }

    fn key_path(&self, name: &str) -> PathBuf {
        self.root.join("keys").join(format!("{name}.nk"))
    }

    fn token_path(&self, account: &str) -> PathBuf {
        let name = format!("account-{account}.jwt");
        self.root.join("tokens").join(name)
    }

    fn has(&self, guest: &Guest) -> Result<()> {
        match self.plan.guests().contains(guest) {
            true => Ok(()),
            false => Err(DirectoryError::NoGuest(guest.clone())),
        }
    }

    fn accounts(&self) -> Vec<Account> {
        let system = Account {
            name: SYSTEM.to_owned(),
            ..Account::default()
        };
        let mut all = party::accounts(&self.plan.cell, &self.plan.guests());
        all.push(system);
        all
    }

    fn users(&self) -> Vec<User> {
        party::users(
            &self.plan.cell,
            &self.plan.guests(),
            self.plan.simulated_fleet,
        )
    }

    /// Brings the files to what the plan says.
    fn complete(&self, now_s: i64) -> Result<Vec<PathBuf>> {
        for place in ["keys", "tokens", "admin", "creds"] {
            make_dir(&self.root.join(place))?;
        }
        let mut written = Vec::new();
        let path = self.root.join(PLAN);
        let plan =
            serde_json::to_string_pretty(&self.plan).map_err(|source| DirectoryError::Plan {
                path: path.clone(),
                source,
            })?;
        written.extend(write_changed(&path, &(plan + "\n"))?);
        let (keys, made) = self.keys()?;
        written.extend(made);

        let path = self.root.join("tokens/operator.jwt");
        written.extend(keep(&path, now_s, |at| mint::operator(&keys, at))?);
        for account in self.accounts() {
            written.extend(self.keep_account(&keys, &account, &Revocations::new(), now_s)?);
        }
        for user in self.users() {
            written.extend(self.keep_user(&keys, &user, now_s)?);
        }
        let path = self.root.join("creds/node-signing.nk");
        let signer = NodeSigner::of(&keys).map_err(|source| DirectoryError::Mint {
            path: path.clone(),
            source,
        })?;
        written.extend(write_changed(&path, &signer)?);
        let path = self.root.join("bus.conf");
        written.extend(write_changed(&path, &self.configuration(&keys)?)?);
        Ok(written)
    }

    /// All keys, and the files of those that were made.
    fn keys(&self) -> Result<(Keys, Vec<PathBuf>)> {
        let mut made = Vec::new();
        let mut key = |name: &str, kind| {
            let path = self.key_path(name);
            if !path.exists() {
                let seed = KeyPair::new(kind).seed();
                let seed = seed.map_err(|error| broken_key(&path, error))?;
                write(&path, &(seed + "\n"))?;
                made.push(path.clone());
            }
            KeyPair::from_seed(read(&path)?.trim()).map_err(|error| broken_key(&path, error))
        };
        let operator = key("operator", KeyPairType::Operator)?;
        let operator_signing = key("operator-signing", KeyPairType::Operator)?;
        let mut accounts = BTreeMap::new();
        for account in self.accounts() {
            let pair = key(&format!("account-{}", account.name), KeyPairType::Account)?;
            accounts.insert(account.name, pair);
        }
        let mut roles = BTreeMap::new();
        for role in Role::ALL {
            let name = format!("{}-signing", role.name());
            roles.insert(role, key(&name, KeyPairType::Account)?);
        }
        let keys = Keys {
            operator,
            operator_signing,
            accounts,
            roles,
        };
        Ok((keys, made))
    }

    fn keep_account(
        &self,
        keys: &Keys,
        account: &Account,
        void: &Revocations,
        now_s: i64,
    ) -> Result<Option<PathBuf>> {
        let path = self.token_path(&account.name);
        let mut revocations = match path.exists() {
            true => {
                mint::known(&read(&path)?)
                    .map_err(|source| DirectoryError::Mint {
                        path: path.clone(),
                        source,
                    })?
                    .nats
                    .revocations
            }
            false => Revocations::new(),
        };
        revocations.extend(void.iter().map(|(key, at)| (key.clone(), *at)));
        keep(&path, now_s, |at| {
            mint::account(keys, account, revocations.clone(), at)
        })
    }

    fn keep_user(&self, keys: &Keys, user: &User, now_s: i64) -> Result<Option<PathBuf>> {
        let path = self.creds_path(&user.key);
        let minted = |at, pair: &KeyPair| {
            let token = mint::user(keys, user, pair.public_key(), at);
            token.map_err(|source| DirectoryError::Mint {
                path: path.clone(),
                source,
            })
        };
        let (pair, at) = if path.exists() {
            let there = self.read_creds(&path)?;
            let known = mint::known(&there.token).map_err(|source| DirectoryError::Mint {
                path: path.clone(),
                source,
            })?;
            let pair = there.into_key();
            if minted(known.iat, &pair)? == self.read_creds(&path)?.token {
                return Ok(None);
            }
            (pair, now_s.max(known.iat + 1))
        } else {
            (KeyPair::new_user(), now_s)
        };
        let token = minted(at, &pair)?;
        self.write_creds(&path, &Creds::new(token, pair))?;
        Ok(Some(path))
    }

    fn read_creds(&self, path: &Path) -> Result<Creds> {
        Creds::parse(&read(path)?).map_err(|source| DirectoryError::Creds {
            path: path.to_owned(),
            source,
        })
    }

    fn write_creds(&self, path: &Path, creds: &Creds) -> Result<()> {
        let text = creds.text().map_err(|source| DirectoryError::Creds {
            path: path.to_owned(),
            source,
        })?;
        Ok(write(path, &text)?)
    }

    /// What NATS' configuration includes: whom the server trusts, and the accounts that it begins with.
    fn configuration(&self, keys: &Keys) -> Result<String> {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let operator = read(&self.root.join("tokens/operator.jwt"))?;
        let public = |account: &Account| keys.accounts.get(&account.name).map(KeyPair::public_key);
        let accounts = self.accounts();
        let system = accounts.iter().find(|account| account.name == SYSTEM);
        let mut text = format!(
            "# Written by `apportion bus`, which writes it again when an account changes.\n\
             operator: {}\n\
             system_account: {}\n\
             resolver: {{ type: full, dir: {}, allow_delete: true, interval: \"2m\" }}\n\
             max_control_line: {LINE_BYTES_MAX}\n\
             resolver_preload: {{\n",
            quoted(operator.trim()),
            system.and_then(public).unwrap_or_default(),
            quoted(&self.plan.resolver_dir),
        );
        for account in &accounts {
            let (key, token) = (
                public(account).unwrap_or_default(),
                self.account_token(&account.name)?,
            );
            text += &format!("  # {}\n  {key}: {}\n", account.name, quoted(token.trim()));
        }
        Ok(text + "}\n")
    }
}

const PLAN: &str = "plan.json";

fn broken_key(path: &Path, error: nkeys::error::Error) -> DirectoryError {
    DirectoryError::Mint {
        path: path.to_owned(),
        source: error.into(),
    }
}

/// As services take it in their configuration.
fn check_cell(name: &str) -> Result<()> {
    match Token::new(name) {
        Ok(_) if name.len() <= 32 => Ok(()),
        _ if name == ANY_CELL => Ok(()),
        _ => Err(DirectoryError::NotACell(name.to_owned())),
    }
}

fn check_guest(guest: &Guest) -> Result<()> {
    match (Token::new(guest.name()), guest) {
        (Ok(name), _) if !name.as_str().starts_with('_') => Ok(()),
        (_, Guest::Tenant(name)) => Err(DirectoryError::NotATenant(name.clone())),
        (_, Guest::Operator(name)) => Err(DirectoryError::NotAnOperator(name.clone())),
    }
}

fn read_plan(root: &Path) -> Result<Option<Plan>> {
    let path = root.join(PLAN);
    if !path.exists() {
        return Ok(None);
    }
    let plan = serde_json::from_str(&read(&path)?);
    plan.map(Some)
        .map_err(|source| DirectoryError::Plan { path, source })
}

/// A token that says the same but the moment stays.
fn keep(
    path: &Path,
    now_s: i64,
    minted: impl Fn(i64) -> std::result::Result<String, MintError>,
) -> Result<Option<PathBuf>> {
    let failed = |source| DirectoryError::Mint {
        path: path.to_owned(),
        source,
    };
    let mut at = now_s;
    if path.exists() {
        let there = read(path)?;
        let known = mint::known(&there).map_err(failed)?;
        if minted(known.iat).map_err(failed)? == there.trim() {
            return Ok(None);
        }
        // Servers take the later one.
        at = now_s.max(known.iat + 1);
    }
    write(path, &(minted(at).map_err(failed)? + "\n"))?;
    Ok(Some(path.to_owned()))
}
