//! Which runs of a batch are written as one row.

use super::change::{Account, Change, Fact, Interval, Transfer};
use std::sync::Arc;
use vocab::AllocationNo;

/// What a run does to the books of a node that is ready when it is placed and when it is released.
pub const LIFE: [(Account, Account); 4] = [
    (Account::Idle, Account::Reserved),
    (Account::Reserved, Account::Allocated),
    (Account::Allocated, Account::Reserved),
    (Account::Reserved, Account::Idle),
];

/// Says of each change whether it belongs to a run that is written as one row: an interval of which all four transfers are
/// in the batch, and are exactly those that its row says. The same changes give the same answer, which a repeat needs.
pub fn in_one_row(changes: &[Change]) -> Vec<bool> {
    let mut whole = vec![false; changes.len()];
    // Those of one allocation behind one another. What a frame says is in the order of the allocations already, and such
    // stretches are what this sort is quick with.
    let about = (0..).zip(changes).filter_map(|(index, change)| {
        let allocation = allocation(&change.fact)?;
        Some((allocation, index))
    });
    let mut about: Vec<(AllocationNo, u32)> = about.collect();
    about.sort();
    for of_one in about.chunk_by(|(one, _), (other, _)| one == other) {
        mark_whole(changes, of_one, &mut whole);
    }
    whole
}

/// Of whose run it is a part.
fn allocation(fact: &Fact) -> Option<AllocationNo> {
    match fact {
        Fact::Transfer(transfer) => transfer.moved.allocation,
        Fact::Interval(run) => Some(run.allocation),
        _ => None,
    }
}

/// An allocation that was queued again has several runs.
fn mark_whole(changes: &[Change], mut of_one: &[(AllocationNo, u32)], whole: &mut [bool]) {
    let fact = |at: u32| &changes[at as usize].fact;
    while let Some(((_, first), behind)) = of_one.split_first() {
        of_one = match of_one {
            [
                (_, placed),
                (_, started),
                (_, ended),
                (_, interval),
                (_, released),
                rest @ ..,
            ] if is_life(
                fact(*interval),
                [*placed, *started, *ended, *released].map(fact),
            ) =>
            {
                for at in [first, started, ended, interval, released] {
                    whole[*at as usize] = true;
                }
                rest
            }
            _ => behind,
        };
    }
}

fn is_life(interval: &Fact, life: [&Fact; 4]) -> bool {
    let Fact::Interval(run) = interval else {
        return false;
    };
    let moments = [run.placed_at, run.started_at, run.ended_at, run.released_at];
    let mut steps = life.into_iter().zip(LIFE).zip(moments);
    steps.all(|((fact, (from, to)), at)| {
        matches!(fact, Fact::Transfer(transfer)
            if (transfer.from, transfer.to, transfer.at) == (from, to, at) && moves(transfer, run))
    })
}

/// What the run has, where it has it.
fn moves(transfer: &Transfer, run: &Interval) -> bool {
    let same = Arc::ptr_eq(&transfer.moved, &run.moved) || transfer.moved == run.moved;
    same && transfer.moved.allocation == Some(run.allocation)
}
