//! Which runs of a batch are written as one row.

use super::change::{Account, Change, Fact, Interval, Transfer};
use std::collections::BTreeMap;
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
    // The changes of each allocation's newest run that was placed in the batch.
    let mut runs: BTreeMap<AllocationNo, Vec<usize>> = BTreeMap::new();
    for (index, change) in changes.iter().enumerate() {
        let allocation = match &change.fact {
            Fact::Transfer(Transfer {
                allocation: Some(allocation),
                from,
                to,
                ..
            }) => {
                if (*from, *to) == LIFE[0] {
                    runs.insert(*allocation, Vec::with_capacity(5));
                }
                allocation
            }
            Fact::Interval(run) => &run.allocation,
            Fact::Transfer(_) | Fact::Capacity(_) | Fact::Rate(_) => continue,
        };
        let Some(run) = runs.get_mut(allocation) else {
            continue;
        };
        run.push(index);
        if let [placed, started, ended, interval, released] = run[..] {
            let life = [placed, started, ended, released];
            if is_life(&changes[interval], life.map(|index| &changes[index])) {
                for index in run.iter() {
                    whole[*index] = true;
                }
            }
            runs.remove(allocation);
        }
    }
    whole
}

fn is_life(interval: &Change, life: [&Change; 4]) -> bool {
    let Fact::Interval(run) = &interval.fact else {
        return false;
    };
    let moments = [run.placed_at, run.started_at, run.ended_at, run.released_at];
    let mut steps = life.into_iter().zip(LIFE).zip(moments);
    steps.all(|((change, (from, to)), at)| {
        matches!(&change.fact, Fact::Transfer(transfer)
            if (transfer.from, transfer.to, transfer.at) == (from, to, at) && moves(transfer, run))
    })
}

/// What the run has, where it has it.
fn moves(transfer: &Transfer, run: &Interval) -> bool {
    transfer.allocation == Some(run.allocation)
        && (&transfer.node, transfer.incarnation) == (&run.node, run.incarnation)
        && transfer.gpu_model == run.gpu_model
        && transfer.amounts == run.amounts()
}
