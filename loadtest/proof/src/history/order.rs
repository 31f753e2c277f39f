//! The ledger's order against real time.

use super::{Broken, Call, History, Party, Read, Violation, cause::Caused};

/// A place in the ledger's order, and the moments between which it was taken.
#[derive(Debug, Clone, Copy)]
struct Point<'a> {
    lsn: u64,
    /// Reads stand behind all events of their frame.
    index: u64,
    invoked_ns: u64,
    answered_ns: u64,
    by: By<'a>,
}

#[derive(Debug, Clone, Copy)]
enum By<'a> {
    /// The call that was invoked first, and the one that was answered first.
    Calls(&'a Call, Option<&'a Call>),
    Read(&'a Read),
}

/// Entries stand in their order, and nothing ends before it begins.
pub fn well_formed(history: &History) -> Result<(), Violation> {
    for pair in history.ledger.windows(2) {
        let [before, after] = pair else { continue };
        if (before.lsn, before.index) >= (after.lsn, after.index) {
            let parties = [Party::from(after), Party::from(before)];
            return Err(Violation::new(Broken::LedgerOrder, parties));
        }
    }
    let backwards = |call: &&Call| call.ended_ns().is_some_and(|at| at < call.invoked_ns);
    if let Some(call) = history.calls.iter().find(backwards) {
        return Err(Violation::new(Broken::TimeBackwards, [Party::from(call)]));
    }
    let backwards = |read: &&Read| read.answered_ns < read.invoked_ns;
    match history.reads.iter().find(backwards) {
        Some(read) => Err(Violation::new(Broken::TimeBackwards, [Party::from(read)])),
        None => Ok(()),
    }
}

/// Whatever was answered before something else was invoked stands before it.
pub fn real_time(caused: &[Caused<'_>], reads: &[Read]) -> Result<(), Violation> {
    let mut points: Vec<Point<'_>> = caused.iter().filter_map(point_of_entry).collect();
    points.extend(reads.iter().map(point_of_read));
    points.sort_by_key(|point| (point.lsn, point.index));
    // Of all that stands before: what was invoked last.
    let mut latest: Option<Point<'_>> = None;
    for group in points.chunk_by(|a, b| (a.lsn, a.index) == (b.lsn, b.index)) {
        for point in group {
            if let Some(before) = latest.filter(|before| point.answered_ns < before.invoked_ns) {
                return Err(overtaken(point, &before));
            }
        }
        let strict = group.iter().filter(|point| !point.is_lenient());
        latest = latest
            .into_iter()
            .chain(strict.copied())
            .max_by_key(|point| point.invoked_ns);
    }
    named_positions(reads)
}

/// A read that named a position saw it.
fn named_positions(reads: &[Read]) -> Result<(), Violation> {
    let behind = |read: &&Read| read.named_lsn.is_some_and(|named| read.lsn < named);
    match reads.iter().find(behind) {
        Some(read) => Err(Violation::new(Broken::StaleRead, [Party::from(read)])),
        None => Ok(()),
    }
}

fn point_of_entry<'a>(caused: &Caused<'a>) -> Option<Point<'a>> {
    let (first, answered) = (caused.first_invoked?, caused.first_answered);
    Some(Point {
        lsn: caused.entry.lsn,
        index: u64::from(caused.entry.index),
        invoked_ns: first.invoked_ns,
        answered_ns: answered.and_then(Call::ended_ns).unwrap_or(u64::MAX),
        by: By::Calls(first, answered),
    })
}

fn point_of_read(read: &Read) -> Point<'_> {
    Point {
        lsn: read.lsn,
        index: u64::MAX,
        invoked_ns: read.invoked_ns,
        answered_ns: read.answered_ns,
        by: By::Read(read),
    }
}

/// `done` was answered before `before` was invoked, but stands behind it.
fn overtaken(done: &Point<'_>, before: &Point<'_>) -> Violation {
    let answered = match done.by {
        By::Calls(first, answered) => Party::from(answered.unwrap_or(first)),
        By::Read(read) => Party::from(read),
    };
    match before.by {
        By::Read(read) => Violation::new(Broken::StaleRead, [Party::from(read), answered]),
        By::Calls(first, _) => Violation::new(Broken::RealTime, [answered, Party::from(first)]),
    }
}

impl Point<'_> {
    /// A read of a named position may see less than what was answered before it.
    fn is_lenient(&self) -> bool {
        matches!(self.by, By::Read(read) if read.named_lsn.is_some())
    }
}
