//! All rules, from those about single answers to those about all of them.

use super::{History, Seen, Violation, ledger::Book, order, replay};

/// How much a history that holds has shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub calls: usize,
    pub answered: usize,
    pub unwritten: usize,
    pub indefinite: usize,
    pub reads: usize,
    pub decisions: usize,
}

/// The first rule that is broken. Later rules rely on the earlier ones.
pub fn check(history: &History) -> Result<Summary, Violation> {
    order::well_formed(history)?;
    let book = Book::new(history);
    book.one_outcome()?;
    book.executed_once(history.bounds.window_slots)?;
    book.nothing_lost()?;
    let caused = book.causes()?;
    book.no_stale_repeats()?;
    order::real_time(&caused, &history.reads)?;
    replay::replay(history)?;
    Ok(summary(history))
}

fn summary(history: &History) -> Summary {
    let mut summary = Summary {
        calls: history.calls.len(),
        reads: history.reads.len(),
        decisions: history.ledger.len(),
        ..Summary::default()
    };
    for call in &history.calls {
        match call.seen {
            Seen::Answered { .. } => summary.answered += 1,
            Seen::Unwritten { .. } => summary.unwritten += 1,
            Seen::Nothing => summary.indefinite += 1,
        }
    }
    summary
}
