//! The last steps of a world, for people.

use crate::simulate::frame;
use std::collections::VecDeque;

const LINES_MAX: usize = 80;

#[derive(Debug, Default)]
pub struct Trace(VecDeque<String>);

impl Trace {
    pub fn push(&mut self, line: String) {
        self.0.push_back(line);
        if self.0.len() > LINES_MAX {
            self.0.pop_front();
        }
    }

    pub fn lines(self) -> Vec<String> {
        self.0.into()
    }
}

/// A frame in one line.
pub fn describe(record: &ledger::Record) -> String {
    let (lsn, writer) = (record.lsn.0, record.writer.name());
    match frame::read(&record.frame) {
        None => format!("lsn {lsn} {writer}: unreadable"),
        Some(frame) => {
            let kinds = frame.events.iter().filter_map(|event| event.kind.as_ref());
            let kinds: Vec<String> = kinds.map(|kind| format!("{kind:?}")).collect();
            let (epoch, through) = (frame.epoch, frame.through_lsn);
            let inbox = frame.through_inbox;
            format!(
                "lsn {lsn} {writer} epoch {epoch} through {through} inbox {inbox}: {}",
                kinds.join(", ")
            )
        }
    }
}
