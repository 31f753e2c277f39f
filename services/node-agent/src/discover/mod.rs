//! What the machine has.

mod cpu;
mod gpu;
mod limit;
mod memory;
mod zone;

pub use gpu::Gpu;
pub(crate) use memory::field_bytes;
pub use zone::Zone;

use crate::CpuSet;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

/// All that is known of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    pub hostname: String,
    pub kernel: String,
    /// `arch`, `hostname` and `os`; the values are tokens.
    pub labels: BTreeMap<String, String>,
    pub capacity: Amounts,
    /// Without what the system keeps for itself.
    pub allocatable: Amounts,
    /// The CPUs that this process may use.
    pub cpus: CpuSet,
    /// Empty where the kernel says nothing of NUMA. The parts sum up to what is allocatable.
    pub zones: Vec<Zone>,
    /// In the order of the PCI bus, so the place in the list is the device's index.
    pub gpus: Vec<Gpu>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

/// What the system keeps for itself.
pub type Reserved = Amounts;

#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: not understood")]
    Content { path: PathBuf },
    #[error("cannot tell which CPUs this process may use: {0}")]
    Affinity(io::Error),
    /// One that is broken makes the indices of the others doubtful.
    #[error("device {index}: {reason}")]
    Gpu { index: u32, reason: String },
    #[error("the driver of the GPUs: {0}")]
    Driver(String),
}

/// This machine, as far as this process may use it.
pub fn machine(reserved: Reserved) -> Result<Machine, DiscoverError> {
    let affinity = cpu::affinity()?;
    let system = rustix::system::uname();
    let names = Names {
        hostname: system.nodename().to_string_lossy().into_owned(),
        kernel: system.release().to_string_lossy().into_owned(),
    };
    read(Path::new("/"), &affinity, names, gpu::devices()?, reserved)
}

struct Names {
    hostname: String,
    kernel: String,
}

/// All but what only the kernel itself and the driver can say, from the files below `root`.
fn read(
    root: &Path,
    affinity: &CpuSet,
    names: Names,
    gpus: Vec<Gpu>,
    reserved: Reserved,
) -> Result<Machine, DiscoverError> {
    let cpus = cpu::online(root)?.both(affinity);
    let limit = limit::of_cgroup(root);
    let whole = cpus.len() as u64 * 1000;
    let memory_bytes = memory::total_bytes(root)?;
    let capacity = Amounts {
        cpu_milli: limit.cpu_milli.map_or(whole, |limit| limit.min(whole)),
        memory_bytes: limit
            .memory_bytes
            .map_or(memory_bytes, |limit| limit.min(memory_bytes)),
    };
    let allocatable = Amounts {
        cpu_milli: capacity.cpu_milli.saturating_sub(reserved.cpu_milli),
        memory_bytes: capacity.memory_bytes.saturating_sub(reserved.memory_bytes),
    };
    let mut gpus = gpus;
    for gpu in &mut gpus {
        gpu.zone = zone::of_device(root, &gpu.pci_address);
    }
    let labels = [
        ("arch", std::env::consts::ARCH),
        ("hostname", &names.hostname),
        ("os", std::env::consts::OS),
    ];
    Ok(Machine {
        labels: labels
            .into_iter()
            .map(|(name, value)| (name.to_owned(), token(value)))
            .collect(),
        hostname: names.hostname,
        kernel: names.kernel,
        capacity,
        allocatable,
        zones: zone::zones(root, &cpus, allocatable, &gpus)?,
        cpus,
        gpus,
    })
}

const TOKEN_MAX: usize = 64;

/// As a name is written in the contract: what is not a letter, a digit, `_` or `-` becomes one dash.
fn token(text: &str) -> String {
    let mut token = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || c == '_' {
            token.push(c);
        } else if !token.is_empty() && !token.ends_with('-') {
            token.push('-');
        }
    }
    token.truncate(TOKEN_MAX);
    match token.trim_end_matches('-') {
        "" => "unknown".to_owned(),
        token => token.to_owned(),
    }
}

fn text(path: PathBuf) -> Result<(PathBuf, String), DiscoverError> {
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(source) => Err(DiscoverError::Read { path, source }),
    }
}

/// A machine of files, for tests.
#[cfg(test)]
fn machine_of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        let path = root.path().join(path);
        let parent = path.parent().expect("it has a folder");
        std::fs::create_dir_all(parent).expect("made");
        std::fs::write(path, text).expect("written");
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_no_other_signs() {
        let check = |text: &str, expected: &str| assert_eq!(token(text), expected, "{text:?}");
        check("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB");
        check("node1.example.org", "node1-example-org");
        check("Tesla  V100 (16 GB)", "Tesla-V100-16-GB");
        check("_x", "_x");
        check(" é ", "unknown");
        check("", "unknown");
        check(&"a".repeat(70), &"a".repeat(64));
        check(&format!("{} b", "a".repeat(63)), &"a".repeat(63));
    }

    #[test]
    fn what_the_system_keeps_is_not_for_others() {
        let check = |reserved: (u64, u64), limit: Option<(&str, &str)>, expected: (u64, u64)| {
            let mut files = vec![
                ("sys/devices/system/cpu/online", "0-7\n"),
                ("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\n"),
                ("proc/self/cgroup", "0::/a\n"),
            ];
            if let Some((cpu, memory)) = limit {
                files.push(("sys/fs/cgroup/a/cpu.max", cpu));
                files.push(("sys/fs/cgroup/a/memory.max", memory));
            }
            let root = machine_of(&files);
            let names = Names {
                hostname: "n1.example.org".to_owned(),
                kernel: "6.1".to_owned(),
            };
            let reserved = Reserved {
                cpu_milli: reserved.0,
                memory_bytes: reserved.1,
            };
            let affinity = (0..4).collect();
            let machine = read(root.path(), &affinity, names, vec![], reserved).expect("read");
            let amounts = machine.allocatable;
            assert_eq!((amounts.cpu_milli, amounts.memory_bytes), expected);
            assert_eq!(machine.labels["hostname"], "n1-example-org");
        };
        check((0, 0), None, (4000, 1_024_000));
        check((500, 24_000), None, (3500, 1_000_000));
        check((9000, u64::MAX), None, (0, 0));
        check((500, 0), Some(("150000 100000\n", "4096\n")), (1000, 4096));
        check((0, 0), Some(("max 100000\n", "max\n")), (4000, 1_024_000));
        check(
            (0, 0),
            Some(("900000 100000\n", "9999999\n")),
            (4000, 1_024_000),
        );
    }

    #[test]
    fn this_machine_is_discovered() {
        let machine = machine(Reserved::default()).expect("discovered");
        assert!(machine.capacity.cpu_milli > 0);
        assert!(machine.capacity.memory_bytes > 0);
        assert!(!machine.kernel.is_empty());
    }
}
