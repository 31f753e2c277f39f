//! What a party holds to be let in: a token that anybody may see, and the seed of its key.

use crate::domain::mint;
use async_nats::{Auth, AuthError, ConnectOptions};
use nkeys::KeyPair;
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Between two tries to get a connection back, at the most. The library's own wait grows to 4 s, by which the bus may have
/// been there for long.
const RECONNECT_MAX: Duration = Duration::from_millis(250);

const TOKEN: &str = "NATS USER JWT";
const SEED: &str = "USER NKEY SEED";

/// The content of a creds file, as all of NATS' tools read and write it.
pub struct Creds {
    pub token: String,
    key: KeyPair,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCreds {
    #[error("there is no section `{0}`")]
    Missing(&'static str),
    #[error("the seed is broken")]
    Seed,
    #[error("the token is broken")]
    Token,
}

/// Why a creds file lets nobody in. What is wrong with it stands in the text: the bus's library keeps nothing else.
#[derive(Debug, thiserror::Error)]
pub enum CredsError {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{}: {error}", path.display())]
    Bad { path: PathBuf, error: BadCreds },
}

impl fmt::Debug for Creds {
    /// Without the seed: this may end up in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key.public_key())
    }
}

impl Creds {
    /// A token and the key that it is about.
    pub fn new(token: String, key: KeyPair) -> Self {
        Self { token, key }
    }

    pub fn read(path: &Path) -> Result<Self, CredsError> {
        let text = fs::read_to_string(path).map_err(|error| CredsError::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        Self::parse(&text).map_err(|error| CredsError::Bad {
            path: path.to_owned(),
            error,
        })
    }

    pub fn parse(text: &str) -> Result<Self, BadCreds> {
        let section = |name| section(text, name).ok_or(BadCreds::Missing(name));
        let (token, seed) = (section(TOKEN)?, section(SEED)?);
        let key = KeyPair::from_seed(&seed).map_err(|_| BadCreds::Seed)?;
        Ok(Self { token, key })
    }

    /// Whose the creds of a file are, by what their token says: `quota`, `tenant:team-a`, `operator:alice`.
    pub fn party_of(path: &Path) -> Result<String, CredsError> {
        let party = Self::read(path)?.party();
        party.map_err(|error| CredsError::Bad {
            path: path.to_owned(),
            error,
        })
    }

    /// The party that the token names.
    pub fn party(&self) -> Result<String, BadCreds> {
        let known = mint::known(&self.token);
        known.map(|known| known.name).map_err(|_| BadCreds::Token)
    }

    pub fn public_key(&self) -> String {
        self.key.public_key()
    }

    pub fn into_key(self) -> KeyPair {
        self.key
    }

    pub fn text(&self) -> Result<String, BadCreds> {
        let seed = self.key.seed().map_err(|_| BadCreds::Seed)?;
        let part = |name, line: &str, end| {
            format!("-----BEGIN {name}-----\n{line}\n{end}END {name}{end}\n\n")
        };
        Ok(part(TOKEN, &self.token, "------") + &part(SEED, &seed, "------"))
    }

    /// Proves to a server that the key is there.
    pub fn answer(&self, nonce: &[u8]) -> Result<Auth, BadCreds> {
        let mut auth = Auth::new();
        auth.jwt = Some(self.token.clone());
        auth.signature = Some(self.key.sign(nonce).map_err(|_| BadCreds::Seed)?);
        Ok(auth)
    }
}

/// The line after the one that begins the section.
fn section(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.starts_with("-----BEGIN") && line.contains(name))?;
    let line = lines.find(|line| !line.is_empty())?;
    (!line.starts_with('-')).then(|| line.to_owned())
}

/// Answers a server by a creds file. It is read each time, so that one that was replaced is good from the next connection on.
pub fn prove(path: &Path, nonce: &[u8]) -> Result<Auth, CredsError> {
    let answer = Creds::read(path)?.answer(nonce);
    answer.map_err(|error| CredsError::Bad {
        path: path.to_owned(),
        error,
    })
}

/// Options to connect by a creds file.
pub fn connect(creds: impl Into<PathBuf>) -> ConnectOptions {
    let path = creds.into();
    back_soon(ConnectOptions::with_auth_callback(move |nonce| {
        std::future::ready(prove(&path, &nonce).map_err(AuthError::new))
    }))
}

/// Options to connect to a server that asks nobody who it is.
pub fn connect_as_nobody() -> ConnectOptions {
    back_soon(ConnectOptions::new())
}

pub(crate) fn back_soon(options: ConnectOptions) -> ConnectOptions {
    options.reconnect_delay_callback(reconnect_delay)
}

/// Before a try to get a connection back, the first of which is 1: at once, then after twice as long each time.
pub fn reconnect_delay(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    let longer = 2_u64.checked_pow(doublings).map(Duration::from_millis);
    match attempts {
        0 | 1 => Duration::ZERO,
        _ => longer.map_or(RECONNECT_MAX, |wait| wait.min(RECONNECT_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creds_are_read_as_they_were_written() {
        let creds = Creds::new("a.b.c".to_owned(), KeyPair::new_user());
        let text = creds.text().expect("the key is whole");
        let again = Creds::parse(&text).expect("it was just written");
        assert_eq!(
            (&again.token, again.public_key()),
            (&creds.token, creds.public_key())
        );
        let seed = section(&text, SEED).expect("it was just written");
        assert!(!format!("{again:?}").contains(&seed));
    }

    #[test]
    fn a_reconnect_is_tried_at_once_and_then_ever_less_often() {
        let waits: Vec<_> = [1, 2, 3, 8, 9, 10, 1_000_000]
            .map(|attempts| reconnect_delay(attempts).as_millis())
            .into();
        assert_eq!(waits, [0, 2, 4, 128, 250, 250, 250]);
    }

    #[test]
    fn what_are_no_creds_is_refused() {
        let check = |text: &str, bad| assert_eq!(Creds::parse(text).expect_err(text), bad);
        let token = format!("-----BEGIN {TOKEN}-----\na.b.c\n------END {TOKEN}------\n");
        check("", BadCreds::Missing(TOKEN));
        check(&token, BadCreds::Missing(SEED));
        check(
            &format!("-----BEGIN {TOKEN}-----\n------END {TOKEN}------\n"),
            BadCreds::Missing(TOKEN),
        );
        check(
            &format!("{token}-----BEGIN {SEED}-----\nSUX\n"),
            BadCreds::Seed,
        );
    }
}
