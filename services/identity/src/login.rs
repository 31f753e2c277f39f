//! By what the bus lets somebody in: by creds, or where a server is set up so, by a token or a password of its own.

use crate::{Creds, CredsError, FileError, connect, connect_as_nobody, creds::back_soon, files};
use async_nats::{Auth, AuthError, ConnectOptions};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Login {
    /// The server asks nobody who it is.
    #[default]
    Nobody,
    /// A creds file.
    Creds(PathBuf),
    /// A file with a token.
    Token(PathBuf),
    Password {
        user: String,
        /// With the password.
        file: PathBuf,
    },
}

impl Login {
    /// Options to connect so. Files are read at each connection, so that one that was replaced is good from the next one on.
    pub fn options(self) -> ConnectOptions {
        match self {
            Self::Nobody => connect_as_nobody(),
            Self::Creds(path) => connect(path),
            secret => back_soon(ConnectOptions::with_auth_callback(move |_| {
                std::future::ready(secret.answer().map_err(AuthError::new))
            })),
        }
    }

    /// Whose it is, as its creds say it: `quota`, `tenant:team-a`, `operator:alice`; none: that is the server's to know.
    pub fn party(&self) -> Result<Option<String>, CredsError> {
        match self {
            Self::Creds(path) => Creds::party_of(path).map(Some),
            Self::Nobody | Self::Token(_) | Self::Password { .. } => Ok(None),
        }
    }

    fn answer(&self) -> Result<Auth, FileError> {
        let mut auth = Auth::new();
        match self {
            Self::Token(path) => auth.token = Some(secret(path)?),
            Self::Password { user, file } => {
                auth.username = Some(user.clone());
                auth.password = Some(secret(file)?);
            }
            Self::Nobody | Self::Creds(_) => {}
        }
        Ok(auth)
    }
}

/// A token or password, as a file has it on its first line.
pub fn secret(path: &Path) -> Result<String, FileError> {
    let text = files::read(path)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
