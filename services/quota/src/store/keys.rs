//! Columns that name accounts and resources, and values that tables hold as text.

use crate::project::Key;
use chassis::warm::OutOfRange;
use table::{PgType, Read, RowError, Value, Written, types};
use vocab::{Account, Token};

/// The columns that an account is.
#[derive(Debug, Default)]
pub struct Accounts<'a> {
    pub tenants: Vec<&'a str>,
    /// '' for none.
    pub teams: Vec<&'a str>,
    pub namespaces: Vec<&'a str>,
}

impl<'a> Accounts<'a> {
    pub fn push(&mut self, account: &'a Account) {
        self.tenants.push(account.tenant.as_str());
        self.teams.push(name(account.team.as_ref()));
        self.namespaces.push(name(account.namespace.as_ref()));
    }
}

/// The columns that a key is.
#[derive(Debug, Default)]
pub struct Keys<'a> {
    pub accounts: Accounts<'a>,
    pub resources: Vec<String>,
}

impl<'a> Keys<'a> {
    pub fn push(&mut self, (account, resource): &'a Key) {
        self.accounts.push(account);
        self.resources.push(resource.to_string());
    }
}

/// The name of an account below a tenant; '' for none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Below(pub Option<Token>);

impl Value for Below {
    const TYPE: PgType = types::TEXT;

    fn check(column: &str) -> Option<String> {
        Some(format!("{column} ~ '^[A-Za-z0-9_-]{{0,64}}$'"))
    }

    fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        name(self.0.as_ref()).write(column, out)
    }
}

impl Read for Below {
    type Stored = String;

    fn read(stored: String, column: &'static str) -> Result<Self, OutOfRange> {
        match stored.as_str() {
            "" => Ok(Self(None)),
            name => token(column, name).map(|token| Self(Some(token))),
        }
    }
}

pub fn account(tenant: Token, Below(team): Below, Below(namespace): Below) -> Account {
    Account {
        tenant,
        team,
        namespace,
    }
}

fn token(what: &'static str, text: &str) -> Result<Token, OutOfRange> {
    Token::new(text).map_err(|_| OutOfRange::new(what, text))
}

/// A name that may be missing, which the tables hold as ''.
pub fn name(token: Option<&Token>) -> &str {
    token.map_or("", Token::as_str)
}
