//! Spoils reads.

use super::Dice;
use crate::history::{Answer, Call, Found, History};
use vocab::Rule;

pub fn read_old(history: &mut History, _: &mut Dice) -> Option<()> {
    let over = |at: u64| {
        let told = history.calls.iter().filter_map(Call::answered);
        let decided =
            told.filter(move |(.., answer)| *answer != Answer::refused(Rule::OperationConflict));
        decided
            .filter(move |(done, ..)| *done < at)
            .map(|(_, lsn, _)| lsn)
            .max()
    };
    let strict = |read: &usize| history.reads[*read].named_lsn.is_none();
    let mut reads = (0..history.reads.len()).rev().filter(strict);
    let read = reads.find(|read| over(history.reads[*read].invoked_ns) > Some(0))?;
    history.reads[read].lsn = over(history.reads[read].invoked_ns)? - 1;
    Some(())
}

pub fn read_before_named(history: &mut History, _: &mut Dice) -> Option<()> {
    let mut reads = history.reads.iter_mut();
    let read = reads.find(|read| read.named_lsn.is_some())?;
    read.named_lsn = Some(read.lsn + 1);
    Some(())
}

pub fn misread(history: &mut History, _: &mut Dice) -> Option<()> {
    history
        .reads
        .iter_mut()
        .find_map(|read| match &mut read.found {
            Found::Lease { fencing_token, .. } => {
                *fencing_token += 1;
                Some(())
            }
            Found::Refused { .. } => None,
        })
}
