//! A history as JSON lines, in any order but that of the ledger's entries.

use super::{Bounds, Call, Entry, History, Read};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Bounds(Bounds),
    Call(Call),
    Read(Read),
    Ledger(Entry),
}

/// A line that cannot be read, counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum BadLine {
    #[error("line {number}: {source}")]
    Unreadable {
        number: usize,
        source: serde_json::Error,
    },
    #[error("line {number}: the bounds a second time")]
    BoundsTwice { number: usize },
    #[error("the bounds are missing")]
    NoBounds,
}

/// Reads a history; empty lines say nothing.
pub fn read_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<History, BadLine> {
    let mut bounds = None;
    let (mut calls, mut reads, mut ledger) = (Vec::new(), Vec::new(), Vec::new());
    for (number, text) in (1..).zip(lines) {
        if text.trim().is_empty() {
            continue;
        }
        let unreadable = |source| BadLine::Unreadable { number, source };
        match serde_json::from_str(text).map_err(unreadable)? {
            Line::Bounds(_) if bounds.is_some() => return Err(BadLine::BoundsTwice { number }),
            Line::Bounds(found) => bounds = Some(found),
            Line::Call(call) => calls.push(call),
            Line::Read(read) => reads.push(read),
            Line::Ledger(entry) => ledger.push(entry),
        }
    }
    Ok(History {
        bounds: bounds.ok_or(BadLine::NoBounds)?,
        calls,
        reads,
        ledger,
    })
}

/// The lines of a history, each without its end.
pub fn write_lines(history: &History) -> impl Iterator<Item = serde_json::Result<String>> {
    let calls = history.calls.iter().cloned().map(Line::Call);
    let reads = history.reads.iter().cloned().map(Line::Read);
    let ledger = history.ledger.iter().cloned().map(Line::Ledger);
    std::iter::once(Line::Bounds(history.bounds))
        .chain(calls)
        .chain(reads)
        .chain(ledger)
        .map(|line| serde_json::to_string(&line))
}
