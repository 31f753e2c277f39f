//! Identity is derived from the log position: known before the append, never reused.

use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

/// Ledger sequence number: the position of a frame. 0 is before the first.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
#[wire(transparent)]
pub struct Lsn(pub u64);

/// Number of an event among all events of its writer, from 1.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
#[wire(transparent)]
pub struct EventNo(pub u64);

/// Number of a cell, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellNo(pub u64);

/// An allocation inside its cell: the number of its `AllocationRequested`.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
#[wire(transparent)]
pub struct AllocationNo(pub u64);

impl AllocationNo {
    pub fn id(self, cell: CellNo) -> AllocationId {
        AllocationId(Uuid::from_u64_pair(cell.0, self.0))
    }
}

/// An allocation across cells: `(cell << 64) | number`, written as a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AllocationId(pub Uuid);

impl AllocationId {
    /// The number, if the id was issued by `cell`.
    pub fn in_cell(self, cell: CellNo) -> Option<AllocationNo> {
        let (high, low) = self.0.as_u64_pair();
        (high == cell.0).then_some(AllocationNo(low))
    }

    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }
}

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_cell_and_its_number() {
        let id = AllocationNo(77).id(CellNo(3));
        assert_eq!(id.to_string(), "00000000-0000-0003-0000-00000000004d");
        assert_eq!(id.in_cell(CellNo(3)), Some(AllocationNo(77)));
        assert_eq!(id.in_cell(CellNo(4)), None);
        assert_eq!(AllocationId::parse(&id.to_string()), Some(id));
    }
}
