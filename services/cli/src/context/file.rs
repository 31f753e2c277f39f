//! The user's own contexts, in a file for nobody else.

use super::ContextError;
use crate::Failure;
use etcetera::BaseStrategy;
use identity::{Creds, CredsError, Guest, Login, files};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// All contexts, and the one that is taken when none is named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    #[serde(default)]
    pub contexts: BTreeMap<String, Settings>,
}

/// What a context may say. Without `tenant` it is the operator's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nats_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creds: Option<PathBuf>,
    /// A file with a token instead of creds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// A user, with a password, instead of creds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The file of a stack, which says the rest, and where its databases are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<PathBuf>,
}

impl Settings {
    /// With what `over` says. What lets somebody in is of one source.
    pub fn under(self, over: Self) -> Self {
        let login = if over.says_login() { &over } else { &self };
        let Self {
            creds,
            token_file,
            user,
            password_file,
            ..
        } = login.clone();
        Self {
            nats_url: over.nats_url.or(self.nats_url),
            cell: over.cell.or(self.cell),
            tenant: over.tenant.or(self.tenant),
            creds,
            token_file,
            user,
            password_file,
            ca_file: over.ca_file.or(self.ca_file),
            stack: over.stack.or(self.stack),
        }
    }

    /// With other creds, and so of whom those are.
    pub fn by_creds(self, creds: &Path) -> Result<Self, CredsError> {
        let tenant = match Guest::of_key(&Creds::party_of(creds)?) {
            Some(Guest::Tenant(name)) => Some(name),
            Some(Guest::Operator(_)) | None => None,
        };
        let by = Self {
            creds: Some(creds.to_owned()),
            ..Self::default()
        };
        Ok(Self {
            tenant,
            ..self.under(by)
        })
    }

    /// The name of the operator whose creds these are; none: they have none, or cannot be read.
    pub fn operator(&self) -> Option<String> {
        let party = Creds::party_of(self.creds.as_ref()?);
        match Guest::of_key(&party.ok()?)? {
            Guest::Operator(name) => Some(name),
            Guest::Tenant(_) => None,
        }
    }

    /// Whether it says anything of what lets somebody in.
    pub fn says_login(&self) -> bool {
        let files = [&self.creds, &self.token_file, &self.password_file];
        self.user.is_some() || files.iter().any(|file| file.is_some())
    }

    /// What lets somebody in; none: nothing is said of it.
    pub fn login(&self) -> Result<Option<Login>, ContextError> {
        let said = (
            &self.creds,
            &self.token_file,
            &self.user,
            &self.password_file,
        );
        Ok(Some(match said {
            (None, None, None, None) => return Ok(None),
            (Some(path), None, None, None) => Login::Creds(path.clone()),
            (None, Some(path), None, None) => Login::Token(path.clone()),
            (None, None, Some(user), Some(file)) => Login::Password {
                user: user.clone(),
                file: file.clone(),
            },
            (None, None, Some(_), None) => return Err(ContextError::NoPassword),
            (None, None, None, Some(_)) => return Err(ContextError::NoUser),
            _ => return Err(ContextError::TwoLogins),
        }))
    }

    /// Whether the URL names a user, whose password everybody would see who sees the URL.
    pub fn has_secret(&self) -> bool {
        let url = self.nats_url.as_deref().unwrap_or_default();
        let hosts = url.split_once("://").map_or(url, |(_, hosts)| hosts);
        hosts.contains('@')
    }
}

impl File {
    pub fn path() -> Result<PathBuf, Failure> {
        let dirs = etcetera::choose_base_strategy().map_err(Failure::usage)?;
        Ok(dirs.config_dir().join("apportion").join("contexts.toml"))
    }

    /// One that is not there has no contexts.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = files::read(path).map_err(Failure::usage)?;
        let file = Self::parse(&text);
        file.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
    }

    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    pub fn text(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// Changes the file while nobody else does.
    pub fn change(
        path: &Path,
        change: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let dir = path.parent().unwrap_or(Path::new("."));
        files::make_dir(dir)?;
        let _lock = files::lock(dir)?;
        let mut file = Self::read(path)?;
        change(&mut file)?;
        Ok(files::write(path, &file.text()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use identity::{Directory, Plan};
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn commands_are_of_whoever_the_creds_are() {
        let dir = tempfile::tempdir().expect("a directory");
        let plan = Plan {
            cell: "c1".to_owned(),
            tenants: ["team-a".to_owned()].into(),
            operators: ["alice".to_owned()].into(),
            simulated_fleet: false,
            resolver_dir: "resolver".to_owned(),
        };
        let (bus, _) = Directory::init(&dir.path().join("bus"), plan, 1).expect("a bus");
        let below = Settings {
            tenant: Some("team-b".to_owned()),
            token_file: Some("a-token".into()),
            cell: Some("c1".to_owned()),
            ..Settings::default()
        };
        let check = |key: &str, tenant: Option<&str>, operator: Option<&str>| {
            let creds = bus.creds_path(key);
            let found = below
                .clone()
                .by_creds(&creds)
                .expect("creds that were made");
            assert_eq!(found.login(), Ok(Some(Login::Creds(creds))));
            let whose = (found.tenant.as_deref(), found.operator());
            assert_eq!(whose, (tenant, operator.map(str::to_owned)), "{key}");
            assert_eq!(found.cell.as_deref(), Some("c1"));
        };
        check("tenant:team-a", Some("team-a"), None);
        check("operator:alice", None, Some("alice"));
        check("operator", None, None);
        assert!(below.by_creds(&dir.path().join("none")).is_err());
    }

    #[test]
    fn what_is_written_is_read_again_and_is_for_nobody_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("apportion").join("contexts.toml");
        assert_eq!(File::read(&path).unwrap(), File::default());
        let settings = Settings {
            nats_url: Some("tls://bus:4222".to_owned()),
            tenant: Some("team-a".to_owned()),
            creds: Some("/home/a/a.creds".into()),
            ..Settings::default()
        };
        let set = |name: &'static str| {
            File::change(&path, |file| {
                file.current = Some(name.to_owned());
                file.contexts.insert(name.to_owned(), settings.clone());
                Ok(())
            })
        };
        set("a").unwrap();
        set("b").unwrap();
        let read = File::read(&path).unwrap();
        assert_eq!(read.current.as_deref(), Some("b"));
        assert_eq!(read.contexts["a"], settings);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        let stays = File::change(&path, |_| Err("no".into()));
        assert!(stays.is_err());
        assert_eq!(File::read(&path).unwrap(), read);
        fs::write(&path, "current = 'a'\nunknown = 1\n").unwrap();
        let refused = File::read(&path).unwrap_err().to_string();
        assert!(refused.contains("unknown"), "{refused}");
    }
}
