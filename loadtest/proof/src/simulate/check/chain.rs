//! The chain of frames, link by link.

use super::{Frame, Invariant, Violation, Writer};
use crate::simulate::frame;
use ledger::{Digest, Record};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Chain {
    heads: BTreeMap<Writer, Head>,
    end: u64,
    all: [u8; 32],
}

#[derive(Debug, Clone, Default)]
struct Head {
    lsn: u64,
    digest: Vec<u8>,
    frame_no: u64,
    epoch: u64,
    leader: Vec<u8>,
    resigned: bool,
    through_lsn: u64,
    handled: Handled,
    now_ms: Option<i64>,
    last_event_no: u64,
}

/// How far a writer has handled its inbox.
#[derive(Debug, Clone, Default)]
pub struct Handled {
    through: u64,
    ahead: BTreeMap<String, u64>,
}

impl Handled {
    /// The sender's last message that was handled.
    pub fn of(&self, sender: &str) -> u64 {
        let ahead = self.ahead.get(sender).copied().unwrap_or(0);
        ahead.max(self.through)
    }

    /// The last message that was handled, whoever's.
    pub fn last(&self) -> u64 {
        self.ahead.values().copied().fold(self.through, u64::max)
    }

    /// What a frame makes of it, if it moves nothing back and names nobody who is not ahead.
    fn moved(&self, frame: &Frame) -> Option<Self> {
        let mut next = self.clone();
        next.through = frame.through_inbox;
        for of in &frame.ahead {
            let before = next.ahead.insert(of.sender.clone(), of.through);
            if of.through <= before.unwrap_or(0).max(next.through) {
                return None;
            }
        }
        let sorted = frame.ahead.windows(2).all(|w| w[0].sender < w[1].sender);
        (sorted && next.through >= self.through).then_some(next)
    }
}

impl Chain {
    /// How far the writer has handled its inbox.
    pub fn handled(&self, writer: Writer) -> Handled {
        let head = self.heads.get(&writer);
        head.map_or_else(Handled::default, |head| head.handled.clone())
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn digest(&self) -> [u8; 32] {
        self.all
    }

    pub fn accept(&mut self, record: &Record) -> Result<(Writer, Frame), Violation> {
        let lsn = record.lsn.0;
        let wrong = |text: String| Violation {
            invariant: Invariant::Replay,
            lsn,
            text,
        };
        if lsn != self.end + 1 {
            return Err(wrong(format!("record after {}", self.end)));
        }
        self.end = lsn;
        let writer = match record.writer.name() {
            "admission" => Writer::Admission,
            "quota" => Writer::Quota,
            "scheduler" => Writer::Scheduler,
            "node-heartbeat" => Writer::Nodes,
            other => return Err(wrong(format!("unknown writer {other}"))),
        };
        let frame =
            frame::read(&record.frame).ok_or_else(|| wrong("an unreadable frame".into()))?;
        let head = self.heads.entry(writer).or_default();
        let handled = head.handled.moved(&frame);
        let links = [
            (frame.prev_lsn == head.lsn, "previous position"),
            (frame.prev_digest == head.digest, "previous digest"),
            (frame.frame_no == head.frame_no + 1, "frame number"),
            (
                frame.first_event_no == head.last_event_no + 1,
                "event number",
            ),
            (
                frame.epoch > head.epoch
                    || (frame.epoch == head.epoch && frame.leader == head.leader),
                "epoch of another leader",
            ),
            (
                !head.resigned || frame.leader != head.leader,
                "a frame of a leader that has resigned",
            ),
            (frame.through_lsn < lsn, "watermark at or beyond itself"),
            (frame.through_lsn >= head.through_lsn, "watermark backwards"),
            (handled.is_some(), "inbox backwards"),
            (
                head.now_ms.is_none_or(|before| frame.now_ms >= before),
                "clock backwards",
            ),
        ];
        if let Some((_, link)) = links.iter().find(|(holds, _)| !holds) {
            return Err(wrong(format!("{writer:?}'s chain is broken: {link}")));
        }
        *head = Head {
            lsn,
            digest: Digest::of(&record.frame).0.to_vec(),
            frame_no: frame.frame_no,
            epoch: frame.epoch,
            leader: frame.leader.clone(),
            resigned: frame.resigned,
            through_lsn: frame.through_lsn,
            handled: handled.unwrap_or_default(),
            now_ms: Some(frame.now_ms),
            last_event_no: head.last_event_no + frame.events.len() as u64,
        };
        let link = [&self.all[..], &record.frame[..]].concat();
        self.all = Digest::of(&link).0;
        Ok((writer, frame))
    }
}
