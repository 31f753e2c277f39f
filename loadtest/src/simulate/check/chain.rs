//! The chain of frames, link by link.

use super::{Frame, Invariant, Violation, Writer, decode};
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
    through_door: u64,
    now_ms: Option<i64>,
    last_event_no: u64,
}

impl Chain {
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
        let frame: Frame =
            decode(&record.frame).ok_or_else(|| wrong("an unreadable frame".into()))?;
        let head = self.heads.entry(writer).or_default();
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
            (frame.through_door >= head.through_door, "door backwards"),
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
            through_door: frame.through_door,
            now_ms: Some(frame.now_ms),
            last_event_no: head.last_event_no + frame.events.len() as u64,
        };
        let link = [&self.all[..], &record.frame[..]].concat();
        self.all = Digest::of(&link).0;
        Ok((writer, frame))
    }
}
