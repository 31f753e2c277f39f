//! Something comes to stand on the ledger that no writer has written there, and the world ends with it. Whoever reads it stops
//! there and says where, alive or started anew; nothing that is decided by then knows of it, and nothing is decided behind it.

use super::World;
use crate::simulate::{Ended, Invariant, Role, Violation, frame};
use ledger::{BusError, ChainError, ReplicaError, memory::Foreign};
use ledger_nats::{LeaderError, ProjectorError, VerifyError};
use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};
use vocab::{Lsn, Writer};

/// Rounds in which things go wrong yet.
const ROUNDS_TROUBLED: u32 = 1000;
/// Rounds within which everybody has read it.
const ROUNDS_MAX: u32 = 2000;

impl World {
    pub(super) fn meets_foreign(&mut self) -> Result<(), Violation> {
        // What is under way lands before it, and everybody reads it at once; or not.
        let calm = self.rare.random.chance(500);
        if calm {
            self.shared.bus.heal();
        }
        self.look()?;
        let foreign = self.foreign();
        let lsn = self.shared.bus.intrudes(foreign);
        self.note(|_| format!("{foreign:?} comes to stand at {}", lsn.0));
        self.client_asks();
        self.all_stop(lsn)?;
        self.shared.bus.heal();
        self.decided_before(lsn, calm)?;
        let before = self.shared.bus.records().len();
        for role in Role::ALL {
            self.start(role);
        }
        self.all_stop(lsn)?;
        if self.shared.bus.records().len() != before {
            return Err(wrong(lsn, "who starts behind it writes"));
        }
        if self.shared.feed.through() >= lsn {
            return Err(wrong(lsn, "tenants are told of it"));
        }
        self.verification_stops(lsn)
    }

    fn foreign(&mut self) -> Foreign {
        let random = &mut self.rare.random;
        let writer = Writer::ALL[random.below(Writer::ALL.len() as u64) as usize];
        // Not its last: who has appended that and got no answer finds it by its bytes.
        let records = self.shared.bus.records();
        let mut of = records.iter().filter(|record| record.writer == writer);
        of.next_back();
        let earlier: Vec<Lsn> = of.map(|record| record.lsn).collect();
        match random.below(3) {
            0 => Foreign::Subject,
            1 if !earlier.is_empty() => {
                Foreign::Again(earlier[random.below(earlier.len() as u64) as usize])
            }
            _ => Foreign::NoFrame(writer),
        }
    }

    /// Each process ends and says where; or it ends as it was asked to.
    fn all_stop(&mut self, lsn: Lsn) -> Result<(), Violation> {
        for round in 0..ROUNDS_MAX {
            // Who loses its connection again and again may never get there.
            if round == ROUNDS_TROUBLED {
                self.shared.bus.heal();
                self.shared.feed.lock().lost = 0;
            }
            let mut index = 0;
            while let Some(process) = self.processes.get_mut(index) {
                match process.poll() {
                    Ok(false) => index += 1,
                    Ok(true) => drop(self.processes.swap_remove(index)),
                    Err(ended) if stopped_at(&ended) == Some(lsn) => {
                        drop(self.processes.swap_remove(index));
                    }
                    Err(ended) => return Err(wrong(lsn, format!("{process} {ended}"))),
                }
            }
            if self.processes.is_empty() {
                return Ok(());
            }
            self.clock.advance(20);
        }
        let left: Vec<String> = self.processes.iter().map(ToString::to_string).collect();
        Err(wrong(lsn, format!("{left:?} do not stop")))
    }

    /// What stands behind it was decided by who had not read it: a frame of each process that was under way, where nothing
    /// is late.
    fn decided_before(&self, lsn: Lsn, calm: bool) -> Result<(), Violation> {
        let mut decided = BTreeMap::new();
        for record in self.shared.bus.records_from(lsn.0 as usize) {
            let frame = frame::read(&record.frame);
            let frame = frame.ok_or_else(|| wrong(record.lsn, "unreadable"))?;
            if frame.through_lsn >= lsn.0 {
                return Err(wrong(record.lsn, format!("its writer has read {}", lsn.0)));
            }
            let frames = decided.entry(frame.leader).or_insert(0);
            *frames += u32::from(!frame.events.is_empty());
            if calm && *frames > 1 {
                return Err(wrong(record.lsn, "its writer decides on"));
            }
        }
        Ok(())
    }

    fn verification_stops(&self, lsn: Lsn) -> Result<(), Violation> {
        let mut verifying = pin!(ledger_nats::verify(&self.shared.bus, &[]));
        let mut context = Context::from_waker(Waker::noop());
        let verified = loop {
            if let Poll::Ready(verified) = verifying.as_mut().poll(&mut context) {
                break verified;
            }
        };
        let found = match &verified {
            Err(VerifyError::Bus(error)) => foreign_at(error),
            Err(VerifyError::Chain(error)) => unfit_at(error),
            Ok(_) => None,
        };
        match found == Some(lsn) {
            true => Ok(()),
            false => Err(wrong(lsn, format!("verified as {verified:?}"))),
        }
    }
}

fn wrong(lsn: Lsn, text: impl ToString) -> Violation {
    Violation {
        invariant: Invariant::Replay,
        lsn: lsn.0,
        text: format!("something foreign is on the ledger: {}", text.to_string()),
    }
}

/// Where a process says that it has found something foreign.
fn stopped_at(ended: &Ended) -> Option<Lsn> {
    match ended {
        Ended::Leader(LeaderError::Bus(error)) | Ended::Projector(ProjectorError::Bus(error)) => {
            foreign_at(error)
        }
        Ended::Leader(LeaderError::Replica(ReplicaError::Chain(error)))
        | Ended::Projector(ProjectorError::Chain(error)) => unfit_at(error),
        Ended::Leader(_) | Ended::Projector(_) | Ended::Panicked(_) => None,
    }
}

fn foreign_at(error: &BusError) -> Option<Lsn> {
    match error {
        BusError::Foreign { lsn, .. } => Some(*lsn),
        BusError::Unavailable(_) | BusError::Shortened { .. } => None,
    }
}

fn unfit_at(error: &ChainError) -> Option<Lsn> {
    match error {
        ChainError::Unreadable { lsn, .. } | ChainError::Broken { lsn, .. } => Some(*lsn),
        ChainError::Gap { .. } => None,
    }
}
