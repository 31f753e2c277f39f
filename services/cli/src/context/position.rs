//! Position of the last change that a command made in a cell, kept in the directory of the contexts for the next command.

use super::file::File;
use chassis::Clock;
use identity::files;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use vocab::Token;

/// A cell that is further behind waits for nothing, and a cell that was set up again under its name has other positions.
const KEPT_FOR_MS: i64 = 60_000;

/// A position in the ledger of one cell on one bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    nats_url: String,
    lsn: u64,
    at_ms: i64,
}

/// File that keeps the position of a cell.
#[derive(Debug)]
pub struct Position {
    path: PathBuf,
    nats_url: String,
    clock: Clock,
}

impl Position {
    /// `None` without a home, or if the cell has no name.
    pub fn of(nats_url: &str, cell: &str) -> Option<Self> {
        let contexts = File::path().ok()?;
        Some(Self {
            path: path(contexts.parent()?, cell)?,
            nats_url: nats_url.to_owned(),
            clock: Clock::real(),
        })
    }

    /// The position that answers have to include; 0: any.
    pub fn read(&self) -> u64 {
        self.read_at(self.clock.now_ms())
    }

    /// Keeps a position, where it is not behind the one that is kept. It is only a help, so errors are ignored.
    pub fn keep(&self, lsn: u64) {
        let _unkept = self.keep_at(lsn, self.clock.now_ms());
    }

    fn read_at(&self, now_ms: i64) -> u64 {
        let kept = files::read(&self.path).ok();
        let kept = kept.and_then(|text| toml::from_str::<Kept>(&text).ok());
        let kept = kept.filter(|kept| {
            let age = now_ms.saturating_sub(kept.at_ms);
            kept.nats_url == self.nats_url && (0..KEPT_FOR_MS).contains(&age)
        });
        kept.map_or(0, |kept| kept.lsn)
    }

    fn keep_at(&self, lsn: u64, now_ms: i64) -> Option<()> {
        let dir = self.path.parent()?;
        files::make_dir(dir).ok()?;
        let _lock = files::lock(dir).ok()?;
        let kept = Kept {
            nats_url: self.nats_url.clone(),
            lsn: lsn.max(self.read_at(now_ms)),
            at_ms: now_ms,
        };
        let text = toml::to_string(&kept).ok()?;
        files::write(&self.path, text).ok()
    }
}

/// A file of the cell's name, which may not lead elsewhere.
fn path(contexts: &Path, cell: &str) -> Option<PathBuf> {
    let cell = Token::new(cell).ok()?;
    Some(contexts.join("positions").join(format!("{cell}.toml")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const NOW_MS: i64 = 1_800_000_000_000;

    #[test]
    fn a_position_is_of_one_cell_for_a_minute() {
        let dir = tempfile::tempdir().expect("a directory");
        let of = |url: &str, cell: &str| Position {
            path: path(dir.path(), cell).expect("a name"),
            nats_url: url.to_owned(),
            clock: Clock::real(),
        };
        let (here, there) = (of("nats://a", "c1"), of("nats://b", "c1"));
        assert_eq!(here.read_at(NOW_MS), 0);
        here.keep_at(7, NOW_MS).expect("a file");
        // A command that ends later and has done less.
        here.keep_at(5, NOW_MS + 1).expect("a file");
        let check = |position: &Position, now_ms: i64, expected: u64| {
            assert_eq!(position.read_at(now_ms), expected, "{position:?} {now_ms}");
        };
        check(&here, NOW_MS + 1, 7);
        check(&here, NOW_MS + KEPT_FOR_MS, 7);
        check(&here, NOW_MS + 1 + KEPT_FOR_MS, 0);
        // The clock went back.
        check(&here, NOW_MS, 0);
        check(&there, NOW_MS + 1, 0);
        check(&of("nats://a", "c2"), NOW_MS + 1, 0);
        // A bus that was set up again.
        there.keep_at(3, NOW_MS + 2).expect("a file");
        check(&there, NOW_MS + 2, 3);
        check(&here, NOW_MS + 2, 0);
        // A file without a position.
        fs::write(&here.path, "lsn = 'x'").expect("a file");
        check(&here, NOW_MS + 2, 0);
        here.keep_at(9, NOW_MS + 3).expect("a file");
        check(&here, NOW_MS + 3, 9);
        assert_eq!(path(dir.path(), "../elsewhere"), None);
    }
}
