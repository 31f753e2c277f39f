//! Reads the whole ledger, checks every link, and asks those who have read it before.

use crate::snapshots::agreeing;
use ledger::{Bus, BusError, Chain, ChainError, Digest, Head, Tail, Witness, bus::bears_out};
use std::collections::BTreeMap;
use vocab::{Kinds, Lsn, Writer};

/// What a ledger that holds consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub frames: u64,
    pub events: u64,
    pub bytes: u64,
    pub last: Lsn,
    pub heads: BTreeMap<Writer, Head>,
    /// Of what stands at the end.
    pub digest: Option<Digest>,
    /// Snapshots of the writers that hold what stands on the ledger.
    pub snapshots: usize,
    /// All who have said how far they have read, and what stood there: it stands there.
    pub witnesses: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error(transparent)]
    Chain(#[from] ChainError),
}

/// From the first record to the last one that is there at the start. `others` have read it before, beside the snapshots.
///
/// # Errors
/// [`BusError::Shortened`] if a witness has read more than there is, or something else: a ledger that lost its end has no
/// broken link.
pub async fn verify<B: Bus>(bus: &B, others: &[Witness]) -> Result<Verified, VerifyError> {
    let ledger = bus.ledger_id().await?;
    let mut witnesses = bus.witnesses(ledger).await?;
    witnesses.extend_from_slice(others);
    let end = bus.end().await?;
    for witness in &witnesses {
        bears_out(bus, witness).await?;
    }
    let mut chain = Chain::default();
    let (mut frames, mut events, mut bytes) = (0, 0, 0);
    if end > Lsn(0) {
        let mut records = bus.follow(Lsn(1)).await?;
        while chain.last() < end {
            let record = records.recv().await?;
            if let Some(frame) = chain.accept(&record, Kinds::ALL)? {
                frames += 1;
                events += u64::from(frame.count);
                bytes += record.frame.len() as u64;
            }
        }
    }
    let heads = Writer::ALL
        .into_iter()
        .map(|writer| (writer, chain.head(writer)))
        .filter(|(_, head)| head.frame_no > 0)
        .collect();
    let mut snapshots = 0;
    for writer in Writer::ALL {
        snapshots += agreeing(bus, writer.name(), ledger).await?;
    }
    Ok(Verified {
        frames,
        events,
        bytes,
        last: end,
        heads,
        digest: chain.digest(),
        snapshots,
        witnesses: witnesses.len(),
    })
}
