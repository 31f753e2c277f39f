//! One history, one state: replay from the beginning, from a snapshot and its tail, and the live state are compared.
//!
//! The live state shows itself in the snapshots that leaders save: each holds the digest of the state that decided.

use super::{Invariant, Violation};
use ledger::{
    Decider, Digest, Draft, LedgerId, Record, Replica, Snapshot, memory::MemoryBus, state_digest,
};
use scheduler_rules::{Config, Scheduler};
use vocab::fact::AllocationWaiting;
use vocab::{Event, Millis, WaitingReason};

/// A reader of one decider's states, fed with every record.
pub trait Replay {
    fn record(&mut self, record: &Record) -> Result<(), Violation>;
    /// Looks at the snapshots that were saved since.
    fn snapshots(&mut self, bus: &MemoryBus) -> Result<(), Violation>;
    /// Builds the state from each snapshot that is kept, and its tail.
    fn restore(&self, bus: &MemoryBus) -> Result<(), Violation>;
}

pub struct Replays<D: Decider> {
    replica: Replica<D>,
    /// Digest of the state at each of the writer's frames.
    digests: Vec<Digest>,
    seen: usize,
}

impl<D: Decider> Default for Replays<D> {
    fn default() -> Self {
        Self {
            replica: Replica::default(),
            digests: vec![state_digest(&D::default())],
            seen: 0,
        }
    }
}

fn wrong<D: Decider>(lsn: u64, text: &str) -> Violation {
    Violation {
        invariant: Invariant::Replay,
        lsn,
        text: format!("{}: {text}", D::WRITER.name()),
    }
}

impl<D: Decider> Replays<D> {
    /// A snapshot's state against the replay from the beginning at the same frame.
    fn compare(&self, snapshot: &Snapshot) -> Result<(), Violation> {
        let head = snapshot.chain.head(D::WRITER);
        if self.digests.get(head.frame_no as usize) == Some(&snapshot.digest()) {
            return Ok(());
        }
        Err(wrong::<D>(
            head.lsn.0,
            "the live state is not that of a replay",
        ))
    }
}

impl<D: Decider> Replay for Replays<D> {
    fn record(&mut self, record: &Record) -> Result<(), Violation> {
        self.replica
            .receive(record)
            .map_err(|error| wrong::<D>(record.lsn.0, &format!("replay fails: {error}")))?;
        if record.writer == D::WRITER {
            self.digests.push(state_digest(self.replica.state()));
        }
        Ok(())
    }

    fn snapshots(&mut self, bus: &MemoryBus) -> Result<(), Violation> {
        for bytes in bus.snapshots_from(D::WRITER.name(), self.seen) {
            self.seen += 1;
            let snapshot = Snapshot::from_bytes(&bytes, LedgerId(1))
                .ok_or_else(|| wrong::<D>(0, "a snapshot that cannot be read"))?;
            self.compare(&snapshot)?;
        }
        Ok(())
    }

    fn restore(&self, bus: &MemoryBus) -> Result<(), Violation> {
        let kept = bus.snapshots_kept(D::WRITER.name()).into_iter();
        // What is damaged is no snapshot.
        let mut intact = kept.filter_map(|bytes| Snapshot::from_bytes(&bytes, LedgerId(1)));
        intact.try_for_each(|snapshot| self.restores(&snapshot, bus))
    }
}

impl<D: Decider> Replays<D> {
    fn restores(&self, snapshot: &Snapshot, bus: &MemoryBus) -> Result<(), Violation> {
        let Some(mut replica) = Replica::<D>::restore(snapshot) else {
            return Err(wrong::<D>(0, "a snapshot that cannot be restored"));
        };
        let from = replica.next().0;
        for record in bus.records_from((from - 1) as usize) {
            replica
                .receive(&record)
                .map_err(|error| wrong::<D>(record.lsn.0, &format!("tail fails: {error}")))?;
        }
        let genesis = self.digests.last();
        if genesis == Some(&state_digest(replica.state())) {
            return Ok(());
        }
        let lsn = replica.head().lsn.0;
        Err(wrong::<D>(
            lsn,
            "snapshot and tail are not a replay from the beginning",
        ))
    }
}

/// Whether a scheduler that begins now would do anything but explain: one that has folded all from the beginning, and one
/// that has begun with the newest snapshot. At the clock of the writer's last frame: nothing has come due since.
pub fn begins_quietly(bus: &MemoryBus, config: &Config) -> Result<(), Violation> {
    let kept = bus.snapshots_kept(Scheduler::WRITER.name()).into_iter();
    let restored = kept
        .filter_map(|bytes| Snapshot::from_bytes(&bytes, LedgerId(1)))
        .next()
        .and_then(|snapshot| Replica::<Scheduler>::restore(&snapshot));
    for mut replica in [Some(Replica::default()), restored].into_iter().flatten() {
        let from = replica.next().0;
        for record in bus.records_from((from - 1) as usize) {
            replica
                .receive(&record)
                .map_err(|error| wrong::<Scheduler>(record.lsn.0, &format!("{error}")))?;
        }
        replica
            .fold_all()
            .map_err(|error| wrong::<Scheduler>(0, &format!("{error}")))?;
        let head = replica.head();
        let mut state = replica.state().clone();
        let mut draft = Draft::new(head.now.max(Millis(0)), head.next_event);
        state.decide(config, &mut draft);
        let says = |event: &&Event| {
            matches!(event, Event::PendingGroupExplained(_))
                || matches!(event, Event::AllocationWaiting(AllocationWaiting { reason, .. })
                    if *reason != WaitingReason::Quota)
        };
        if let Some(decided) = draft.events().find(|event| !says(event)) {
            return Err(Violation {
                invariant: Invariant::Memory,
                lsn: replica.next().0 - 1,
                text: format!(
                    "in a quiet state, a scheduler that begins (from {from}): {decided:?}"
                ),
            });
        }
    }
    Ok(())
}
