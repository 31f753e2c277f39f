//! The table `projection_position`.

use table::Table;
use vocab::Lsn;

/// How far the read model has applied the ledger. The same table in every service; it moves in the transaction that writes
/// the rows, so the two can never disagree.
#[derive(Debug, Clone, PartialEq, Eq, Table)]
#[table(name = "projection_position", key(name))]
pub struct Position {
    pub name: String,
    /// Tells this ledger from one that was made anew under the same name: its creation, Unix nanoseconds.
    pub ledger_created: i64,
    #[table(check = "lsn >= 0")]
    pub lsn: Lsn,
    /// What stood on the ledger at the position that was applied, SHA-256: a ledger that lost its end and grew again is told
    /// from the one that was read by it. Unknown until the next batch.
    #[table(check = "octet_length(digest) = 32")]
    pub digest: Option<[u8; 32]>,
}
