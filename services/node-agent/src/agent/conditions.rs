//! What holds of the machine: too little memory or room on the disk, and whatever the site's own checks have named.

use super::vitals::Vitals;
use schemas::v1::NodeCondition;
use std::{
    fs,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};
use vocab::Token;

/// As many as the cell takes.
const CONDITIONS_MAX: usize = 8;
/// Of a file, so much is read for the reason.
const REASON_BYTES_MAX: u64 = 256;
/// A pressure begins where less than so many hundredths are left, and ends where as many again are, so that it does not come and go.
const LITTLE_PERCENT: u64 = 5;
const ENOUGH_PERCENT: u64 = 10;

/// A file of the name of a condition in `conditions` below the state's folder says that it holds, and its first line why.
#[derive(Debug)]
pub struct Conditions {
    named: PathBuf,
    memory: bool,
    disk: bool,
}

impl Conditions {
    pub fn new(state_dir: &Path) -> Self {
        Self {
            named: state_dir.join("conditions"),
            memory: false,
            disk: false,
        }
    }

    /// What holds now, by name.
    pub fn look(&mut self, vitals: &Vitals) -> Vec<NodeCondition> {
        let sample = &vitals.sample;
        let total = vitals.memory_total_bytes;
        let free = total.saturating_sub(sample.memory_bytes);
        self.memory = presses(self.memory, free, total);
        let free = sample.disk_free_bytes;
        let total = free.saturating_add(sample.disk_used_bytes);
        self.disk = presses(self.disk, free, total);
        let pressures = [
            (self.memory, "MemoryPressure", "little-memory-left"),
            (self.disk, "DiskPressure", "little-room-left"),
        ];
        let pressures = pressures.into_iter().filter(|(holds, _, _)| *holds);
        let pressures = pressures.map(|(_, name, reason)| NodeCondition {
            name: name.to_owned(),
            reason: reason.to_owned(),
        });
        let mut all: Vec<NodeCondition> = pressures.collect();
        for named in named(&self.named) {
            // A site's own word on it goes before the agent's.
            all.retain(|it| it.name != named.name);
            all.push(named);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.truncate(CONDITIONS_MAX);
        all
    }
}

fn presses(before: bool, free: u64, total: u64) -> bool {
    let percent = if before {
        ENOUGH_PERCENT
    } else {
        LITTLE_PERCENT
    };
    u128::from(free) * 100 < u128::from(total) * u128::from(percent)
}

fn named(dir: &Path) -> Vec<NodeCondition> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                tracing::warn!(%error, "what the site has named cannot be read");
            }
            return Vec::new();
        }
    };
    let mut named: Vec<NodeCondition> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = Token::new(entry.file_name().to_str()?).ok()?;
            // A pipe would keep the agent waiting.
            let is_file = entry.metadata().is_ok_and(|it| it.is_file());
            is_file.then(|| NodeCondition {
                name: name.to_string(),
                reason: reason(&entry.path()),
            })
        })
        .collect();
    named.sort_by(|a, b| a.name.cmp(&b.name));
    named
}

/// In the form of a token: what it may not have in it is a `-`.
fn reason(path: &Path) -> String {
    let mut text = Vec::new();
    let file = fs::File::open(path);
    let read = file.and_then(|file| file.take(REASON_BYTES_MAX).read_to_end(&mut text));
    let text = match read {
        Ok(_) => String::from_utf8_lossy(&text),
        Err(_) => return String::new(),
    };
    let line = text.lines().next().unwrap_or_default().trim();
    let plain = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => c,
        _ => '-',
    };
    line.chars().map(plain).take(Token::LENGTH_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::v1::NodeSample;

    fn vitals(memory_used: u64, disk_free: u64) -> Vitals {
        Vitals {
            sample: NodeSample {
                memory_bytes: memory_used,
                disk_used_bytes: 1000 - disk_free,
                disk_free_bytes: disk_free,
                ..NodeSample::default()
            },
            memory_total_bytes: 1000,
        }
    }

    fn words(conditions: Vec<NodeCondition>) -> String {
        let words = conditions
            .iter()
            .map(|it| format!("{}={}", it.name, it.reason));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_pressure_begins_below_five_in_a_hundred_and_ends_at_ten() {
        let mut conditions = Conditions::new(Path::new("/nowhere"));
        let mut check = |memory_used, disk_free, expected: &str| {
            let found = words(conditions.look(&vitals(memory_used, disk_free)));
            assert_eq!(found, expected, "{memory_used} {disk_free}");
        };
        check(950, 50, "");
        check(951, 50, "MemoryPressure=little-memory-left");
        check(
            901,
            49,
            "DiskPressure=little-room-left MemoryPressure=little-memory-left",
        );
        check(900, 99, "DiskPressure=little-room-left");
        check(900, 100, "");
        check(950, 50, "");
    }

    #[test]
    fn a_machine_that_says_nothing_is_under_no_pressure() {
        let mut conditions = Conditions::new(Path::new("/nowhere"));
        assert_eq!(conditions.look(&Vitals::default()), []);
    }

    #[test]
    fn what_the_site_names_holds_while_its_file_is_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut conditions = Conditions::new(dir.path());
        let named = dir.path().join("conditions");
        fs::create_dir(&named).expect("a new folder");
        let write = |name: &str, text: &[u8]| fs::write(named.join(name), text).expect("written");
        write("GpuXid", b"Xid 79: fallen off the bus\nsecond line");
        write("NetworkUnavailable", b"");
        write("no.token", b"x");
        write("MemoryPressure", "swapping \u{fc}".as_bytes());
        fs::create_dir(named.join("Folder")).expect("a new folder");
        let found = words(conditions.look(&vitals(999, 500)));
        assert_eq!(
            found,
            "GpuXid=Xid-79--fallen-off-the-bus MemoryPressure=swapping-- NetworkUnavailable="
        );
        fs::remove_dir_all(&named).expect("removed");
        let found = words(conditions.look(&vitals(0, 500)));
        assert_eq!(found, "");
    }

    #[test]
    fn no_more_are_named_than_the_cell_takes() {
        let dir = tempfile::tempdir().expect("a folder");
        let named = dir.path().join("conditions");
        fs::create_dir(&named).expect("a new folder");
        for no in 0..20 {
            fs::write(named.join(format!("c{no:02}")), [0xff; 1000]).expect("written");
        }
        let found = Conditions::new(dir.path()).look(&vitals(0, 500));
        assert_eq!(found.len(), CONDITIONS_MAX);
        assert!(found.iter().all(|it| Token::new(&it.reason).is_ok()));
    }
}
