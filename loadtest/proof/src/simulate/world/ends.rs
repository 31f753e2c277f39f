//! The bus comes back without its last records, at the very end of a world. Whoever has read them says so, and neither decides
//! nor tells anything from then on: neither while it lives, nor after it was started anew.

use super::World;
use crate::simulate::{Ended, Invariant, Process, Role, Violation};
use bytes::Bytes;
use ledger::{BusError, Inbox, InboxMessage, LedgerId, Snapshot};
use ledger_nats::{LeaderError, ProjectorError, VerifyError};
use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};
use vocab::{Lsn, Token, Writer};

/// So many of the last records are lost, at the most.
const LOST_MAX: u64 = 20;
/// Polls after which every process does what it can while no append lands.
const POLLS_UNDER_WAY: u32 = 40;
/// Polls within which a process has to give up.
const POLLS_MAX: u32 = 400;

impl World {
    pub(super) fn loses_its_end(&mut self) -> Result<(), Violation> {
        let records = self.shared.bus.records();
        let end = records.len() as u64;
        if end == 0 {
            return Ok(());
        }
        let keep = end - 1 - self.random.below(end.min(LOST_MAX));
        self.note(|_| format!("the ledger loses all behind {keep} of {end}"));
        self.appends_are_under_way()?;
        self.shared.bus.loses_its_end(keep as usize, Vec::new());
        self.shared.bus.heal();
        let feed_has_told = self.has_read(Role::Feed) > Lsn(keep);
        for process in std::mem::take(&mut self.processes) {
            // A feed that has told nothing of it has nothing to take back.
            if process.role != Role::Feed || feed_has_told {
                self.gives_up(process)?;
            }
        }
        self.newcomers_give_up(keep)?;
        self.verification_finds_it(keep)?;
        // Others stand in their place, as many or more. Their number alone says nothing.
        let others = records.into_iter().take(1).cycle().take(LOST_MAX as usize);
        self.shared
            .bus
            .loses_its_end(keep as usize, others.collect());
        self.newcomers_give_up(keep)?;
        self.verification_finds_it(keep)
    }

    /// Admission tries to record something, on what it has read, until after the server has come back.
    fn appends_are_under_way(&mut self) -> Result<(), Violation> {
        self.shared.bus.loses_appends();
        let message = InboxMessage {
            seq: 0,
            // A literal of the token's alphabet.
            sender: Token::new("late").expect("a token"),
            reply_to: None,
            trace: None,
            by: None,
            reserved_header: false,
            payload: Bytes::from_static(b"not a request"),
        };
        self.shared.bus.publish(Inbox::Ingress, message);
        for _ in 0..POLLS_UNDER_WAY {
            for process in &mut self.processes {
                process.poll().map_err(|ended| Violation {
                    invariant: Invariant::Replay,
                    lsn: 0,
                    text: format!("while appends do not land, {process} {ended}"),
                })?;
            }
        }
        Ok(())
    }

    /// Those that find something of what was lost: in what they have left themselves, or, if they decide, in anybody's snapshot.
    fn newcomers_give_up(&mut self, keep: u64) -> Result<(), Violation> {
        let by_snapshot = self.known().is_some_and(|lsn| lsn > Lsn(keep));
        for role in Role::ALL {
            let decides = role != Role::Feed;
            if self.has_read(role) > Lsn(keep) || decides && by_snapshot {
                let time = self.clock.skewed(0);
                let process = Process::start(self.next_process, role, &self.shared, time, 1);
                self.next_process += 1;
                self.gives_up(process)?;
            }
        }
        Ok(())
    }

    /// Every link holds, and still it is not what was read.
    fn verification_finds_it(&self, keep: u64) -> Result<(), Violation> {
        let known = self.known();
        let mut verifying = pin!(ledger_nats::verify(&self.shared.bus, &[]));
        let mut context = Context::from_waker(Waker::noop());
        let verified = loop {
            if let Poll::Ready(verified) = verifying.as_mut().poll(&mut context) {
                break verified;
            }
        };
        let found = matches!(verified, Err(VerifyError::Bus(BusError::Shortened { .. })));
        if found == known.is_some_and(|lsn| lsn > Lsn(keep)) {
            return Ok(());
        }
        Err(Violation {
            invariant: Invariant::Replay,
            lsn: keep,
            text: format!("{known:?} was read and {keep} is the end: verified as {verified:?}"),
        })
    }

    /// How far anybody has come whose snapshot the store keeps.
    fn known(&self) -> Option<Lsn> {
        let witnesses = self.shared.bus.witnessed().into_iter();
        witnesses.map(|witness| witness.lsn).max()
    }

    /// How far the latest intact snapshot of a role, or what it wrote, has come.
    fn has_read(&self, role: Role) -> Lsn {
        let writer = match role {
            Role::Admission => Writer::Admission,
            Role::Quota => Writer::Quota,
            Role::Scheduler => Writer::Scheduler,
            Role::Nodes => Writer::NodeHeartbeat,
            Role::Feed => return self.shared.feed.through(),
        };
        // A leader that was late may have saved it, and have read less than the one before.
        let kept = self.shared.bus.snapshots_kept(writer.name()).into_iter();
        let mut intact = kept.filter_map(|bytes| Snapshot::from_bytes(&bytes, LedgerId(1)));
        let latest = intact.next();
        latest.map_or(Lsn(0), |snapshot| snapshot.chain.furthest())
    }

    fn gives_up(&mut self, mut process: Process) -> Result<(), Violation> {
        let before = self.shared.bus.records().len();
        let wrong = |text: String| Violation {
            invariant: Invariant::Replay,
            lsn: before as u64,
            text: format!("after the ledger has lost its end, {text}"),
        };
        for _ in 0..POLLS_MAX {
            let polled = process.poll();
            if self.shared.bus.records().len() != before {
                return Err(wrong(format!("{process} writes on")));
            }
            match polled {
                Ok(_) => self.clock.advance(50),
                Err(
                    Ended::Leader(LeaderError::Bus(BusError::Shortened { .. }))
                    | Ended::Projector(ProjectorError::Bus(BusError::Shortened { .. })),
                ) => return Ok(()),
                Err(ended) => return Err(wrong(format!("{process} {ended}"))),
            }
        }
        Err(wrong(format!("{process} does not say so")))
    }
}
