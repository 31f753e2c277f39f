//! Columns that name accounts and resources, and values that tables hold as text.

use crate::project::Key;
use chassis::warm::{OutOfRange, bigint, unsigned};
use vocab::{Account, Limits, QuotaResource, Token};

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

/// The columns that limits are.
#[derive(Debug, Default)]
pub struct LimitColumns {
    pub hard: Vec<Option<i64>>,
    pub soft: Vec<Option<i64>>,
    pub burst: Vec<Option<i64>>,
    pub burst_ms: Vec<i64>,
    pub borrow: Vec<Option<i64>>,
    pub lend: Vec<Option<i64>>,
}

impl LimitColumns {
    pub fn push(&mut self, limits: Option<Limits>) -> Result<(), OutOfRange> {
        let column = |what, value: Option<u64>| value.map(|value| bigint(what, value)).transpose();
        let of = |value: fn(Limits) -> Option<u64>| limits.and_then(value);
        self.hard
            .push(column("hard", of(|limits| Some(limits.hard)))?);
        self.soft.push(column("soft", of(|limits| limits.soft))?);
        self.burst.push(column("burst", of(|limits| limits.burst))?);
        let burst_ms = limits.map_or(0, |limits| limits.burst_ms);
        self.burst_ms.push(bigint("burst_ms", burst_ms)?);
        self.borrow
            .push(column("borrow", of(|limits| limits.borrow))?);
        self.lend.push(column("lend", of(|limits| limits.lend))?);
        Ok(())
    }
}

/// Limits as a row has them.
#[derive(Debug, Clone, Copy)]
pub struct LimitRecord {
    pub hard: Option<i64>,
    pub soft: Option<i64>,
    pub burst: Option<i64>,
    pub burst_ms: i64,
    pub borrow: Option<i64>,
    pub lend: Option<i64>,
}

impl LimitRecord {
    pub fn limits(self) -> Result<Option<Limits>, OutOfRange> {
        let Some(hard) = self.hard else {
            return Ok(None);
        };
        let column =
            |what, value: Option<i64>| value.map(|value| unsigned(what, value)).transpose();
        Ok(Some(Limits {
            hard: unsigned("hard", hard)?,
            soft: column("soft", self.soft)?,
            burst: column("burst", self.burst)?,
            burst_ms: unsigned("burst_ms", self.burst_ms)?,
            borrow: column("borrow", self.borrow)?,
            lend: column("lend", self.lend)?,
        }))
    }
}

pub fn account(tenant: &str, team: &str, namespace: &str) -> Result<Account, OutOfRange> {
    let below = |what, text: &str| match text {
        "" => Ok(None),
        text => token(what, text).map(Some),
    };
    Ok(Account {
        tenant: token("tenant", tenant)?,
        team: below("team", team)?,
        namespace: below("namespace", namespace)?,
    })
}

pub fn resource(text: &str) -> Result<QuotaResource, OutOfRange> {
    QuotaResource::parse(text).ok_or_else(|| OutOfRange::new("resource", text))
}

pub fn token(what: &'static str, text: &str) -> Result<Token, OutOfRange> {
    Token::new(text).map_err(|_| OutOfRange::new(what, text))
}

/// A name that may be missing, which the tables hold as ''.
pub fn name(token: Option<&Token>) -> &str {
    token.map_or("", Token::as_str)
}

/// A `numeric` without a fraction, as text.
pub fn whole(what: &'static str, text: &str) -> Result<u128, OutOfRange> {
    text.parse().map_err(|_| OutOfRange::new(what, text))
}
