//! What the operator of the servers has on disk. The authority is made once; what it signed is made again when it is due.
//!
//! | path | what |
//! |---|---|
//! | `ca.pem` | the authority's certificate: for everybody who connects |
//! | `ca.key` | what signs. No server needs it, and it may be kept elsewhere until the next renewal |
//! | `<server>.pem`, `<server>.key` | what a server shows, and proves |
//! | `tls.json` | what was signed, for whom and until when |

use super::authority::{self, AuthorityError, Issued, Period, SERVERS};
use identity::files::{self, FileError};
use rcgen::KeyPair;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
};

const RECORD: &str = "tls.json";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    authority: Period,
    hosts: BTreeSet<String>,
    /// By server. What is being replaced is not in here, so that a kill leaves nothing that does not fit together.
    servers: BTreeMap<String, Issued>,
}

#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}: {source}", path.display())]
    Record {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{}: {source}", path.display())]
    Key { path: PathBuf, source: rcgen::Error },
    #[error("{} is no directory of an authority: make one with `apportion tls init`", .0.display())]
    NoAuthority(PathBuf),
    #[error("{} is missing, by which the authority signs: put it back, or begin in another directory", .0.display())]
    NoKey(PathBuf),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

type Result<T> = std::result::Result<T, DirectoryError>;

/// An authority's directory, for one process at a time.
pub struct Directory {
    root: PathBuf,
    record: Record,
    written: Vec<PathBuf>,
    _lock: File,
}

impl Directory {
    /// Makes what is missing or due, and says which files it wrote. Hosts are added to those that are there.
    pub fn init(root: &Path, hosts: Vec<String>, now_s: i64) -> Result<Vec<PathBuf>> {
        let wanted = authority::hosts(hosts)?;
        files::make_dir(root)?;
        let lock = files::lock(root)?;
        let record = match read_record(root)? {
            Some(there) => Record {
                hosts: &there.hosts | &wanted,
                ..there
            },
            None => Record {
                authority: authority::authority_period(now_s),
                hosts: wanted,
                servers: BTreeMap::new(),
            },
        };
        Self::of(root, record, lock).complete(now_s)
    }

    /// Makes everything anew but the authority.
    pub fn renew(root: &Path, now_s: i64) -> Result<Vec<PathBuf>> {
        if !root.join(RECORD).exists() {
            return Err(DirectoryError::NoAuthority(root.to_owned()));
        }
        let lock = files::lock(root)?;
        let record = read_record(root)?;
        let mut record = record.ok_or_else(|| DirectoryError::NoAuthority(root.to_owned()))?;
        record.servers.clear();
        Self::of(root, record, lock).complete(now_s)
    }

    fn of(root: &Path, record: Record, lock: File) -> Self {
        Self {
            root: root.to_owned(),
            record,
            written: Vec::new(),
            _lock: lock,
        }
    }

    fn complete(mut self, now_s: i64) -> Result<Vec<PathBuf>> {
        let due: Vec<&str> = SERVERS
            .into_iter()
            .filter(|server| self.is_due(server, now_s))
            .collect();
        let (key_path, root_path) = (self.root.join("ca.key"), self.root.join("ca.pem"));
        if due.is_empty() && root_path.exists() {
            self.save()?;
            return Ok(self.written);
        }
        for server in &due {
            self.record.servers.remove(*server);
        }
        // Whoever has the certificate already believes in that key alone.
        if !key_path.exists() && root_path.exists() {
            return Err(DirectoryError::NoKey(key_path));
        }
        let key = self.key(&key_path)?;
        self.save()?;
        if !root_path.exists() {
            let root = authority::root(&key, self.record.authority)?;
            self.write(root_path, &root)?;
        }
        for server in due {
            let issued = authority::next(self.record.authority, &self.record.hosts, now_s)?;
            let pair = self.new_key(&self.path(server, "key"))?;
            let authority = self.record.authority;
            let pem = authority::certificate(&key, authority, server, &pair, &issued)?;
            self.write(self.path(server, "pem"), &pem)?;
            self.record.servers.insert(server.to_owned(), issued);
            self.save()?;
        }
        Ok(self.written)
    }

    fn is_due(&self, server: &str, now_s: i64) -> bool {
        let Record {
            authority,
            hosts,
            servers,
        } = &self.record;
        let there = ["pem", "key"].map(|kind| self.path(server, kind).exists());
        there != [true, true] || authority::is_due(servers.get(server), *authority, hosts, now_s)
    }

    fn path(&self, server: &str, kind: &str) -> PathBuf {
        self.root.join(format!("{server}.{kind}"))
    }

    /// The key in a file, made if it is missing.
    fn key(&mut self, path: &Path) -> Result<KeyPair> {
        match path.exists() {
            true => KeyPair::from_pem(&files::read(path)?).map_err(|source| DirectoryError::Key {
                path: path.to_owned(),
                source,
            }),
            false => self.new_key(path),
        }
    }

    fn new_key(&mut self, path: &Path) -> Result<KeyPair> {
        let pair = KeyPair::generate().map_err(|source| DirectoryError::Key {
            path: path.to_owned(),
            source,
        })?;
        self.write(path.to_owned(), &pair.serialize_pem())?;
        Ok(pair)
    }

    fn write(&mut self, path: PathBuf, text: &str) -> Result<()> {
        files::write(&path, text)?;
        self.written.push(path);
        Ok(())
    }

    fn save(&mut self) -> Result<()> {
        let path = self.root.join(RECORD);
        let text = serde_json::to_string_pretty(&self.record);
        let text = text.map_err(|source| DirectoryError::Record {
            path: path.clone(),
            source,
        })?;
        files::write_changed(&path, &(text + "\n"))?;
        Ok(())
    }
}

fn read_record(root: &Path) -> Result<Option<Record>> {
    let path = root.join(RECORD);
    if !path.exists() {
        return Ok(None);
    }
    let record = serde_json::from_str(&files::read(&path)?);
    record
        .map(Some)
        .map_err(|source| DirectoryError::Record { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    const NOW_S: i64 = 1_800_000_000;
    const YEAR_S: i64 = 365 * 86_400;

    /// A directory for one test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn of(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tls-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn init(&self, hosts: &[&str], now_s: i64) -> Result<Vec<PathBuf>> {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            Directory::init(&self.0, hosts, now_s)
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.0.join(name)).expect(name)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn everything_is_made_once_and_for_its_owner_alone() -> Result<()> {
        let there = Scratch::of("once");
        assert_eq!(there.init(&["nats"], NOW_S)?.len(), 10);
        assert!(there.init(&["nats"], NOW_S + 9)?.is_empty());
        assert!(there.init(&[], NOW_S + 9)?.is_empty());
        for entry in fs::read_dir(&there.0).expect("it was made") {
            let entry = entry.expect("it can be listed");
            let mode = entry.metadata().expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{:?}", entry.path());
        }
        let config = identity::client_config(&there.0.join("ca.pem"));
        assert!(config.is_ok(), "{config:?}");
        Ok(())
    }

    #[test]
    fn what_is_due_is_made_again_and_the_authority_stays() -> Result<()> {
        let there = Scratch::of("due");
        there.init(&["nats"], NOW_S)?;
        let names = ["ca.pem", "ca.key", "nats.pem", "nats.key"];
        let before = names.map(|name| there.read(name));
        let changed = || {
            let now = names.map(|name| there.read(name));
            [0, 1, 2, 3].map(|at| now[at] != before[at])
        };
        assert_eq!(there.init(&["db"], NOW_S)?.len(), 8);
        assert_eq!(changed(), [false, false, true, true]);
        assert_eq!(Directory::renew(&there.0, NOW_S)?.len(), 8);
        assert_eq!(there.init(&[], NOW_S + YEAR_S)?.len(), 8);
        assert_eq!(changed(), [false, false, true, true]);
        // As a kill between a key and its certificate leaves it.
        fs::remove_file(there.0.join("otlp.pem")).expect("it is there");
        assert_eq!(there.init(&[], NOW_S + YEAR_S)?.len(), 2);
        Ok(())
    }

    #[test]
    fn without_its_key_an_authority_signs_nothing_and_is_not_replaced() -> Result<()> {
        let there = Scratch::of("key");
        there.init(&[], NOW_S)?;
        let ca = there.read("ca.pem");
        fs::remove_file(there.0.join("ca.key")).expect("it is there");
        assert!(there.init(&[], NOW_S)?.is_empty());
        for refused in [
            there.init(&["db"], NOW_S),
            Directory::renew(&there.0, NOW_S),
        ] {
            assert!(
                matches!(refused, Err(DirectoryError::NoKey(_))),
                "{refused:?}"
            );
        }
        assert_eq!(there.read("ca.pem"), ca);
        Ok(())
    }

    #[test]
    fn what_is_no_authoritys_directory_is_not_renewed() {
        let nothing = Scratch::of("nothing");
        let refused = Directory::renew(&nothing.0, NOW_S);
        assert!(
            matches!(refused, Err(DirectoryError::NoAuthority(_))),
            "{refused:?}"
        );
        assert!(!nothing.0.exists());
    }
}
