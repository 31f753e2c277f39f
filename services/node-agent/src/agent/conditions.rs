//! What holds of the machine: too little memory or room on the disk, and whatever the site's own checks have named.

use super::vitals::Vitals;
use schemas::v1::NodeCondition;
use std::{
    fs,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};
use vocab::{Token, fact::NodeConditionChanged};

/// As many as the cell takes.
const CONDITIONS_MAX: usize = 8;
/// Of a file, so much is read for the reason.
const REASON_BYTES_MAX: u64 = 256;

/// What the site's own checks name: a file of the name of a condition in this folder says that it holds, and its first line why.
pub fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("conditions")
}

/// A pressure begins where less than so many hundredths are left.
#[derive(Clone, Copy, Debug)]
pub struct Little {
    pub memory_percent: u8,
    pub disk_percent: u8,
}

#[derive(Debug)]
pub struct Conditions {
    folder: PathBuf,
    little: Little,
    memory: bool,
    disk: bool,
    named: Vec<NodeCondition>,
    /// The folder could be read the last time.
    readable: bool,
}

impl Conditions {
    pub fn new(state_dir: &Path, little: Little) -> Self {
        Self {
            folder: folder(state_dir),
            little,
            memory: false,
            disk: false,
            named: Vec::new(),
            readable: true,
        }
    }

    /// What holds now.
    pub fn look(&mut self, vitals: &Vitals) -> Vec<NodeCondition> {
        let sample = &vitals.sample;
        let total = vitals.memory_total_bytes;
        let free = total.saturating_sub(sample.memory_bytes);
        self.memory = presses(self.memory, free, total, self.little.memory_percent);
        let free = sample.disk_free_bytes;
        let total = free.saturating_add(sample.disk_used_bytes);
        self.disk = presses(self.disk, free, total, self.little.disk_percent);
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
        self.look_at_folder();
        for named in &self.named {
            // A site's own word on it goes before the agent's.
            all.retain(|it| it.name != named.name);
            all.push(named.clone());
        }
        // Where there are too many, those go that keep nothing away.
        let keeps_away =
            |it: &NodeCondition| NodeConditionChanged::KEEP_AWAY.contains(&it.name.as_str());
        all.sort_by(|a, b| (!keeps_away(a), &a.name).cmp(&(!keeps_away(b), &b.name)));
        all.truncate(CONDITIONS_MAX);
        all
    }

    /// While the folder cannot be read, what it had goes on.
    fn look_at_folder(&mut self) {
        match fs::read_dir(&self.folder) {
            Ok(entries) => {
                self.named = named(entries);
                self.readable = true;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.named = Vec::new();
                self.readable = true;
            }
            Err(error) => {
                if std::mem::replace(&mut self.readable, false) {
                    tracing::warn!(%error, "what the site has named cannot be read");
                }
            }
        }
    }
}

/// A pressure ends where twice as much is left as where it begins, so that it does not come and go. What is not known stays.
fn presses(before: bool, free: u64, total: u64, percent: u8) -> bool {
    if total == 0 {
        return before;
    }
    let percent = u128::from(percent) * if before { 2 } else { 1 };
    u128::from(free) * 100 < u128::from(total) * percent
}

fn named(entries: fs::ReadDir) -> Vec<NodeCondition> {
    let of_file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let name = Token::new(entry.file_name().to_str()?).ok()?;
        // A pipe would keep the agent waiting.
        let is_file = entry.metadata().is_ok_and(|it| it.is_file());
        let may_say = name.as_str() != NodeConditionChanged::READY;
        (is_file && may_say).then(|| NodeCondition {
            name: name.to_string(),
            reason: reason(&entry.path()),
        })
    };
    entries.filter_map(of_file).collect()
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

    const LITTLE: Little = Little {
        memory_percent: 5,
        disk_percent: 5,
    };

    fn words(conditions: Vec<NodeCondition>) -> String {
        let words = conditions
            .iter()
            .map(|it| format!("{}={}", it.name, it.reason));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_pressure_begins_below_five_in_a_hundred_and_ends_at_ten() {
        let mut conditions = Conditions::new(Path::new("/nowhere"), LITTLE);
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
        let off = Little {
            memory_percent: 0,
            disk_percent: 0,
        };
        let mut conditions = Conditions::new(Path::new("/nowhere"), off);
        assert_eq!(words(conditions.look(&vitals(1000, 0))), "");
    }

    #[test]
    fn what_cannot_be_measured_goes_on() {
        let mut conditions = Conditions::new(Path::new("/nowhere"), LITTLE);
        assert_eq!(conditions.look(&Vitals::default()), []);
        let pressed = conditions.look(&vitals(999, 1));
        assert_eq!(pressed.len(), 2);
        assert_eq!(conditions.look(&Vitals::default()), pressed);
    }

    #[test]
    fn what_the_site_named_goes_on_while_it_cannot_be_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut conditions = Conditions::new(dir.path(), LITTLE);
        let named = folder(dir.path());
        fs::create_dir(&named).expect("a new folder");
        fs::write(named.join("GpuXid"), "").expect("written");
        assert_eq!(words(conditions.look(&vitals(0, 500))), "GpuXid=");
        fs::remove_dir_all(&named).expect("removed");
        // No folder, and not nothing.
        fs::write(&named, "").expect("written");
        assert_eq!(words(conditions.look(&vitals(0, 500))), "GpuXid=");
        fs::remove_file(&named).expect("removed");
        assert_eq!(words(conditions.look(&vitals(0, 500))), "");
    }

    #[test]
    fn what_the_site_names_holds_while_its_file_is_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut conditions = Conditions::new(dir.path(), LITTLE);
        let named = folder(dir.path());
        fs::create_dir(&named).expect("a new folder");
        let write = |name: &str, text: &[u8]| fs::write(named.join(name), text).expect("written");
        write("GpuXid", b"Xid 79: fallen off the bus\nsecond line");
        write("NetworkUnavailable", b"");
        write("no.token", b"x");
        write("Ready", b"not the agent's to say");
        write("MemoryPressure", "swapping \u{fc}".as_bytes());
        fs::create_dir(named.join("Folder")).expect("a new folder");
        let found = words(conditions.look(&vitals(999, 500)));
        assert_eq!(
            found,
            "MemoryPressure=swapping-- NetworkUnavailable= GpuXid=Xid-79--fallen-off-the-bus"
        );
        fs::remove_dir_all(&named).expect("removed");
        let found = words(conditions.look(&vitals(0, 500)));
        assert_eq!(found, "");
    }

    #[test]
    fn no_more_are_named_than_the_cell_takes() {
        let dir = tempfile::tempdir().expect("a folder");
        let named = folder(dir.path());
        fs::create_dir(&named).expect("a new folder");
        for no in 0..20 {
            fs::write(named.join(format!("c{no:02}")), [0xff; 1000]).expect("written");
        }
        // Of bytes that are no text.
        let found = Conditions::new(dir.path(), LITTLE).look(&vitals(999, 1));
        assert_eq!(found.len(), CONDITIONS_MAX);
        assert!(found.iter().all(|it| Token::new(&it.reason).is_ok()));
        // What keeps new allocations away is among them.
        let first = words(found[..2].to_vec());
        assert_eq!(
            first,
            "DiskPressure=little-room-left MemoryPressure=little-memory-left"
        );
    }
}
