//! Snapshots on the bus: the newest that can be used, and when the next is due.

use bytes::Bytes;
use ledger::{Bus, BusError, Chain, KEPT, LedgerId, Snapshot, Stored, Witness, bus::bears_out};
use tracing::warn;

/// What `restore` makes of the latest snapshot that is intact, and the bytes of that one. What is damaged, of another ledger or
/// of another version is passed over.
///
/// # Errors
/// [`BusError::Shortened`] if a snapshot holds more than there is on the ledger, or something else than stands there.
pub async fn newest<B: Bus, T>(
    bus: &B,
    name: &str,
    ledger: LedgerId,
    mut restore: impl FnMut(Snapshot) -> Option<T>,
) -> Result<Option<(T, usize)>, BusError> {
    for older in 0..KEPT {
        let bytes = match bus.load_snapshot(name, older).await? {
            None => break,
            Some(Stored::Whole(bytes)) => bytes,
            Some(Stored::Damaged(why)) => {
                warn!(name, older, why, "a snapshot cannot be read");
                continue;
            }
        };
        let Some(snapshot) = Snapshot::from_bytes(&bytes, ledger) else {
            warn!(name, older, "a snapshot is damaged, or of another ledger");
            continue;
        };
        bears_out(bus, &witness(name, &snapshot.chain)).await?;
        if let Some(restored) = restore(snapshot) {
            return Ok(Some((restored, bytes.len())));
        }
    }
    Ok(None)
}

/// How many of the snapshots hold what stands on the ledger.
pub async fn agreeing<B: Bus>(bus: &B, name: &str, ledger: LedgerId) -> Result<usize, BusError> {
    let mut agreeing = 0;
    let count = |_| -> Option<()> {
        agreeing += 1;
        None
    };
    newest(bus, name, ledger, count).await?;
    Ok(agreeing)
}

/// What a snapshot of that name and chain bears witness of.
pub fn witness(name: &str, chain: &Chain) -> Witness {
    chain.witness(format!("the snapshot of {name}"))
}

/// Leaves what was read of a ledger that does not hold it any more where all leaders look before they lead: nobody else knows
/// it. In the place of the older snapshot, without a state, and once: the other snapshot is of use.
pub async fn testify<B: Bus>(
    bus: &B,
    name: &str,
    ledger: LedgerId,
    read: Witness,
    error: &BusError,
) {
    if !matches!(error, BusError::Shortened { .. }) {
        return;
    }
    let said = async {
        let all = bus.witnesses(ledger).await?;
        let known = |one: &Witness| one.lsn >= read.lsn && one.digest.is_some();
        if all.iter().any(known) {
            return Ok(());
        }
        let no_state = Bytes::from_static(b"read, and no state");
        bus.save_snapshot(name, (ledger, read), no_state).await
    };
    if let Err(error) = said.await {
        warn!(%error, name, "not told to the others");
    }
}

/// When the next snapshot is due.
///
/// One costs time in proportion to the state, and saves the next start the fold of what was read since the one before.
/// So it is taken once that is twice as much as the state is large: what snapshots cost is then bounded by what is read
/// anyhow, however large the state is.
#[derive(Debug)]
pub struct Pace {
    /// Frames between two, at the least; 0: one behind each frame, whatever it costs.
    every: u64,
    frames: u64,
    bytes: u64,
    /// Of the last one.
    size: u64,
}

impl Pace {
    /// Bytes after which one is due in any case: a start folds hardly more.
    const BYTES_MAX: u64 = 64 << 20;

    pub fn new(every: u64) -> Self {
        Self {
            every,
            frames: 0,
            bytes: 0,
            size: 0,
        }
    }

    pub fn read(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    pub fn is_due(&self) -> bool {
        let worth = self.frames >= self.every && self.bytes >= 2 * self.size;
        self.every == 0 || worth || self.bytes >= Self::BYTES_MAX
    }

    /// One of `size` bytes was taken, or is what a start began with.
    pub fn taken(&mut self, size: usize) {
        *self = Self {
            size: size as u64,
            ..Self::new(self.every)
        };
    }

    /// Bytes that the next one may well need.
    pub fn room(&self) -> usize {
        (self.size + self.size / 8) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_waits_for_twice_its_own_size() {
        // Frames and bytes of each that are read, the size of the snapshot before, whether one is due.
        let cases = [
            (9, 1, 0, false),
            (10, 1, 0, true),
            (10, 100, 501, false),
            (11, 100, 501, true),
            (9, 8 << 20, 1 << 30, true),
            (10, 6 << 20, 1 << 30, false),
        ];
        for (frames, bytes, size, due) in cases {
            let mut pace = Pace::new(10);
            pace.taken(size);
            for _ in 0..frames {
                pace.read(bytes);
            }
            assert_eq!(pace.is_due(), due, "{frames} of {bytes} after {size}");
        }
    }
}
