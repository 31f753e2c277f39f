//! Peak memory of the stack's processes, as the kernel counts it.

use chassis::stack::Stack;
use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::task::JoinHandle;

/// A process that is killed takes its count with it, so the counts are looked at this often.
const PERIOD: Duration = Duration::from_millis(500);

/// Looks on until it is dropped.
pub struct MemoryWatch {
    peaks_kib: Arc<Mutex<BTreeMap<String, u64>>>,
    task: JoinHandle<()>,
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Only maxima are kept, so a poisoned lock is as good as any.
fn locked(peaks: &Mutex<BTreeMap<String, u64>>) -> MutexGuard<'_, BTreeMap<String, u64>> {
    peaks.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryWatch {
    pub fn start(stack: Stack) -> Self {
        let peaks_kib = Arc::new(Mutex::default());
        let task = tokio::spawn({
            let peaks_kib = Arc::clone(&peaks_kib);
            async move {
                loop {
                    look(&stack, &peaks_kib);
                    tokio::time::sleep(PERIOD).await;
                }
            }
        });
        Self { peaks_kib, task }
    }

    /// MiB by process, this one included.
    pub fn peaks_mb(&self) -> BTreeMap<String, f64> {
        let mb = |kib: &u64| (*kib as f64 / 102.4).round() / 10.0;
        let peaks = locked(&self.peaks_kib);
        peaks
            .iter()
            .map(|(name, kib)| (name.clone(), mb(kib)))
            .collect()
    }
}

fn look(stack: &Stack, peaks: &Mutex<BTreeMap<String, u64>>) {
    let own = ("loadtest".to_owned(), std::process::id());
    for (name, pid) in stack.pids().into_iter().chain([own]) {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
            continue;
        };
        if let Some(kib) = high_water_kib(&status) {
            let mut peaks = locked(peaks);
            let peak = peaks.entry(name).or_default();
            *peak = kib.max(*peak);
        }
    }
}

fn high_water_kib(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::high_water_kib;

    #[test]
    fn the_high_water_mark_is_found() {
        let status = "Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   81234 kB\nVmRSS:\t  1 kB\n";
        assert_eq!(high_water_kib(status), Some(81_234));
        assert_eq!(high_water_kib("Name:\tzombie\n"), None);
    }
}
