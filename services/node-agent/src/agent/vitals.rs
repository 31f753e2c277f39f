//! How busy the machine is. What cannot be read is 0 or left out: a heartbeat is never in want of it.

use super::conditions::{Conditions, Little};
use crate::discover::field_bytes;
use nvml_wrapper::{Nvml, error::NvmlError};
use schemas::v1::{GpuSample, NodeCondition, NodeSample};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A file system or a driver that hangs holds up no heartbeat for longer.
const PATIENCE: Duration = Duration::from_millis(200);

/// What was measured at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vitals {
    pub sample: NodeSample,
    /// All of the machine, of which the sample says what is in use; 0: not known.
    pub memory_total_bytes: u64,
}

/// What a heartbeat says of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// None: it took too long this time.
    pub sample: Option<NodeSample>,
    /// As it was last known.
    pub conditions: Vec<NodeCondition>,
}

/// Measures off the agent's own thread, and once at a time.
#[derive(Clone)]
pub struct Sampler {
    probe: Arc<Mutex<Probe>>,
    known: Arc<Mutex<Vec<NodeCondition>>>,
}

impl Sampler {
    /// `dir`: on the file system whose room is said. The CPU time is counted from now on, and what holds now is known.
    pub fn new(dir: PathBuf, little: Little) -> Self {
        let mut probe = Probe {
            proc: PathBuf::from("/proc"),
            conditions: Conditions::new(&dir, little),
            dir,
            before: Ticks::default(),
            nvml: Nvml::init().ok(),
        };
        let vitals = probe.measure(0);
        let known = probe.conditions.look(&vitals);
        Self {
            probe: Arc::new(Mutex::new(probe)),
            known: Arc::new(Mutex::new(known)),
        }
    }

    /// What takes too long, or waits for one before that still does, is not known.
    pub async fn sample(&self, runs: usize) -> Measured {
        let Self { probe, known } = self.clone();
        let measured = tokio::task::spawn_blocking(move || {
            let mut probe = probe.try_lock().ok()?;
            let vitals = probe.measure(runs);
            *locked(&known) = probe.conditions.look(&vitals);
            Some(vitals.sample)
        });
        let measured = tokio::time::timeout(PATIENCE, measured).await;
        Measured {
            sample: measured.ok().and_then(|measured| measured.ok()?),
            conditions: locked(&self.known).clone(),
        }
    }
}

/// Nobody panics while he has it.
fn locked<T>(known: &Mutex<T>) -> MutexGuard<'_, T> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Probe {
    proc: PathBuf,
    dir: PathBuf,
    conditions: Conditions,
    before: Ticks,
    nvml: Option<Nvml>,
}

impl Probe {
    fn measure(&mut self, runs: usize) -> Vitals {
        let memory = memory(&self.read("meminfo"));
        let network = network(&self.read("net/dev"));
        let disk = disk(&self.dir);
        let sample = NodeSample {
            cpu_milli: self.cpu_milli(),
            memory_bytes: memory.used,
            gpus: self.nvml.as_ref().map(gpus).unwrap_or_default(),
            disk_used_bytes: disk.used,
            disk_free_bytes: disk.free,
            network_received_bytes: network.received,
            network_sent_bytes: network.sent,
            load_milli: load_milli(&self.read("loadavg")).unwrap_or(0),
            oom_kills: oom_kills(&self.read("vmstat")).unwrap_or(0),
            runs: u32::try_from(runs).unwrap_or(u32::MAX),
        };
        Vitals {
            sample,
            memory_total_bytes: memory.total,
        }
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.proc.join(file)).unwrap_or_default()
    }

    fn cpu_milli(&mut self) -> u64 {
        let now = ticks(&self.read("stat")).unwrap_or_default();
        let before = std::mem::replace(&mut self.before, now);
        cpu_milli(before, now)
    }
}

/// CPU time of all cores since the machine was started, in ticks of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    all: u64,
    cores: u64,
}

/// Of `/proc/stat`. Waiting for a disk is no work of the CPU, and neither is what a hypervisor gives to others.
fn ticks(stat: &str) -> Option<Ticks> {
    let (mut sum, mut cores) = (None, 0);
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("cpu") => {
                let ticks: Result<Vec<u64>, _> = words.take(8).map(str::parse).collect();
                sum = ticks.ok();
            }
            Some(name) if name.starts_with("cpu") => cores += 1,
            _ => break,
        }
    }
    let sum = sum?;
    let &[user, nice, system, idle, iowait, irq, softirq, steal] = sum.as_slice() else {
        return None;
    };
    let add = |ticks: &[u64]| ticks.iter().fold(0u64, |sum, one| sum.saturating_add(*one));
    let busy = add(&[user, nice, system, irq, softirq]);
    Some(Ticks {
        busy,
        all: add(&[busy, idle, iowait, steal]),
        cores,
    })
}

/// Thousandths of a core between the two moments.
fn cpu_milli(before: Ticks, now: Ticks) -> u64 {
    let busy = u128::from(now.busy.saturating_sub(before.busy));
    let all = u128::from(now.all.saturating_sub(before.all));
    let whole = now.cores.saturating_mul(1000);
    // The kernel's count of idle time may go back.
    let used = (busy * u128::from(whole)).checked_div(all).unwrap_or(0);
    u64::try_from(used).map_or(whole, |used| used.min(whole))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Memory {
    used: u64,
    total: u64,
}

/// Of `/proc/meminfo`: what the kernel could not give to a new process without swapping is in use.
fn memory(meminfo: &str) -> Memory {
    let amounts = ["MemTotal:", "MemAvailable:"].map(|name| field_bytes(meminfo, name));
    match amounts {
        [Some(total), Some(available)] => Memory {
            used: total.saturating_sub(available),
            total,
        },
        _ => Memory::default(),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Network {
    received: u64,
    sent: u64,
}

/// Of `/proc/net/dev`: bytes are the first and the ninth of an interface's counts.
fn network(dev: &str) -> Network {
    let mut all = Network::default();
    for (name, counts) in dev.lines().filter_map(|line| line.split_once(':')) {
        let counts: Result<Vec<u64>, _> = counts.split_whitespace().map(str::parse).collect();
        if let (false, Ok([received, _, _, _, _, _, _, _, sent, ..])) =
            (name.trim() == "lo", counts.as_deref())
        {
            all.received = all.received.saturating_add(*received);
            all.sent = all.sent.saturating_add(*sent);
        }
    }
    all
}

/// Of `/proc/loadavg`: the average of one minute, in hundredths there.
fn load_milli(loadavg: &str) -> Option<u64> {
    let (whole, hundredths) = loadavg.split_whitespace().next()?.split_once('.')?;
    let hundredths: u64 = hundredths.parse().ok().filter(|it| *it < 100)?;
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(1000)?.checked_add(hundredths * 10)
}

/// Of `/proc/vmstat`.
fn oom_kills(vmstat: &str) -> Option<u64> {
    let mut lines = vmstat.lines();
    lines.find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Disk {
    used: u64,
    free: u64,
}

/// What only root may fill is neither in use nor free.
fn disk(dir: &Path) -> Disk {
    let Ok(found) = rustix::fs::statvfs(dir) else {
        return Disk::default();
    };
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Disk {
        used: bytes(found.f_blocks.saturating_sub(found.f_bfree)),
        free: bytes(found.f_bavail),
    }
}

/// Those that can be asked.
fn gpus(nvml: &Nvml) -> Vec<GpuSample> {
    let count = nvml.device_count().unwrap_or(0);
    let asked = (0..count).map(|index| gpu(nvml, index));
    asked.filter_map(Result::ok).collect()
}

fn gpu(nvml: &Nvml, index: u32) -> Result<GpuSample, NvmlError> {
    let device = nvml.device_by_index(index)?;
    Ok(GpuSample {
        device: index,
        // The driver averages over a second or less, in hundredths.
        busy_milli: device.utilization_rates()?.gpu.min(100) * 10,
        memory_bytes: device.memory_info()?.used,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_of_all_cores_without_waiting() {
        let check = |stat: &str, expected: Option<(u64, u64, u64)>| {
            let found = ticks(stat).map(|it| (it.busy, it.all, it.cores));
            assert_eq!(found, expected, "{stat:?}");
        };
        check(
            "cpu  10 2 3 100 50 4 5 6 7 8\ncpu0 1 1 1 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1 1 1 1\nintr 5 cpu\ncpu9 1\n",
            Some((24, 180, 2)),
        );
        check("cpu 1 1 1 1 1 1 1 1\n", Some((5, 8, 0)));
        check("cpu 1 1 1 1 1 1 1\ncpu0 1\n", None);
        check("cpu 1 1 1 1 1 1 1 x\n", None);
        check("cpu0 1 1 1 1 1 1 1 1\n", None);
        check("intr 1\n", None);
        check("", None);
    }

    #[test]
    fn cpus_in_use_are_those_of_the_time_between() {
        let check = |before: (u64, u64), now: (u64, u64), expected| {
            let ticks = |(busy, all)| Ticks {
                busy,
                all,
                cores: 4,
            };
            assert_eq!(cpu_milli(ticks(before), ticks(now)), expected);
        };
        check((0, 0), (100, 400), 1000);
        check((100, 400), (100, 800), 0);
        check((100, 400), (500, 800), 4000);
        check((100, 400), (133, 800), 330);
        // Of the same moment, and of a kernel that counts back.
        check((100, 400), (100, 400), 0);
        check((100, 400), (90, 380), 0);
        check((100, 400), (500, 401), 4000);
        check((0, 0), (u64::MAX, u64::MAX), 4000);
    }

    #[test]
    fn memory_in_use_is_what_nobody_can_have() {
        let check = |meminfo: &str, used, total| {
            assert_eq!(memory(meminfo), Memory { used, total }, "{meminfo:?}");
        };
        let whole = "MemTotal: 16 kB\nMemFree: 1 kB\nMemAvailable: 6 kB\n";
        check(whole, 10_240, 16_384);
        check("MemTotal: 16 kB\nMemAvailable: 20 kB\n", 0, 16_384);
        check("MemTotal: 16 kB\nMemFree: 1 kB\n", 0, 0);
        check("", 0, 0);
    }

    #[test]
    fn the_network_is_all_but_the_loopback() {
        let check = |dev: &str, received, sent| {
            assert_eq!(network(dev), Network { received, sent }, "{dev:?}");
        };
        let heads = "Inter-|   Receive                |  Transmit\n face |bytes    packets errs\n";
        let lo = "    lo: 1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0\n";
        let eth = "  eth0: 30 1 0 0 0 0 0 0 40 1 0 0 0 0 0 0\n";
        let vlan = "eth0.7:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n";
        check(&[heads, lo].concat(), 0, 0);
        check(&[heads, lo, eth, vlan].concat(), 35, 46);
        check(&[eth, "eth1: 1 2 3\neth2: x\n"].concat(), 30, 40);
        check("", 0, 0);
    }

    #[test]
    fn load_is_in_thousandths() {
        let check =
            |loadavg: &str, expected| assert_eq!(load_milli(loadavg), expected, "{loadavg:?}");
        check("0.52 0.58 0.59 1/389 12345\n", Some(520));
        check("12.05 0.58 0.59 1/389 12345\n", Some(12_050));
        check("1 0.58\n", None);
        check("1.500 0.58\n", None);
        check("x.50\n", None);
        check("18446744073709551615.00\n", None);
        check("", None);
    }

    #[test]
    fn kills_for_want_of_memory_are_a_line() {
        let check = |vmstat: &str, expected| assert_eq!(oom_kills(vmstat), expected, "{vmstat:?}");
        check("pgfault 1\noom_kill 3\noom_kill_other 4\n", Some(3));
        check("oom_kill_other 4\n", None);
        check("oom_kill x\n", None);
        check("", None);
    }

    const OFF: Little = Little {
        memory_percent: 0,
        disk_percent: 0,
    };

    #[test]
    fn what_is_not_measured_in_time_is_left_out_and_what_held_goes_on() {
        let dir = tempfile::tempdir().expect("a folder");
        let named = super::super::conditions::folder(dir.path());
        fs::create_dir(&named).expect("a new folder");
        fs::write(named.join("GpuXid"), "").expect("written");
        let sampler = Sampler::new(dir.path().to_owned(), OFF);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let busy = locked(&sampler.probe);
        let said = runtime.expect("a runtime").block_on(sampler.sample(3));
        drop(busy);
        assert_eq!((said.sample, said.conditions.len()), (None, 1));
    }

    #[test]
    fn this_machine_is_measured() {
        let dir = tempfile::tempdir().expect("a folder");
        let sampler = Sampler::new(dir.path().to_owned(), OFF);
        let Vitals {
            sample,
            memory_total_bytes,
        } = locked(&sampler.probe).measure(3);
        assert_eq!(sample.runs, 3);
        assert!(sample.memory_bytes > 0 && sample.memory_bytes < memory_total_bytes);
        assert!(sample.disk_used_bytes > 0 && sample.disk_free_bytes > 0);
    }

    #[test]
    fn a_machine_that_says_nothing_is_all_zeros() {
        let none = PathBuf::from("/nowhere");
        let mut probe = Probe {
            proc: none.clone(),
            conditions: Conditions::new(&none, OFF),
            dir: none,
            before: Ticks::default(),
            nvml: None,
        };
        assert_eq!(probe.measure(0), Vitals::default());
    }
}
