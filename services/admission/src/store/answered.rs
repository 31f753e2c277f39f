//! The tables `answered_submits_1` and `answered_submits_2`, which are two parts of one. Nearly every operation is a
//! submit that is answered, so its row is narrow: its width and its indexes are what it costs. Rows are never deleted:
//! what is forgotten is no longer shown, and a part is emptied as a whole when all of it is forgotten.

use crate::project::AnsweredRow;
use chassis::warm::{WarmError, bigint, insert_into, update};
use sqlx::{Connection, Executor, PgConnection};
use table::{Row, Table};
use vocab::{CellNo, EventNo, Millis, Token};

/// A submit that has an allocation. One of two tables that take turns: new rows go into one, until all of the other is
/// forgotten and emptied. The view operations shows what is not forgotten.
#[derive(Table)]
#[table(name = "answered_submits_1", keyless, fixed)]
// Compares no texts, which halves the row's costs. It cannot be unique: an id may be used again while the row that it stood
// for is forgotten and still there.
#[table(index(by_operation_id, using "hash", on "operation_id"))]
pub struct Answered<'a> {
    /// Number of the event that recorded the operation, and of the allocation.
    #[table(check = "event_no > 0")]
    event_no: EventNo,
    requested_at: Millis,
    decided_at: Millis,
    #[table(check = "state IN ('placed', 'waiting', 'ended')")]
    state: &'static str,
    tenant: &'a Token,
    operation_id: Option<&'a Token>,
    /// First 16 bytes of SHA-256 over the request's canonical content.
    #[table(check = "octet_length(digest) = 16")]
    digest: &'a [u8],
}

pub const PARTS: [&Table; 2] = [
    Answered::TABLE,
    &Table {
        name: "answered_submits_2",
        ..*Answered::TABLE
    },
];

impl<'a> From<&'a AnsweredRow> for Answered<'a> {
    fn from(row: &'a AnsweredRow) -> Self {
        Self {
            event_no: row.no,
            requested_at: row.requested_at,
            decided_at: row.answered_at,
            state: row.answer.name(),
            tenant: &row.tenant,
            operation_id: row.operation_id.as_ref(),
            digest: &row.digest,
        }
    }
}

/// Which of the answered submits are remembered, and where the next ones go. The table has one row.
#[derive(Debug, Clone, PartialEq, Eq, Table)]
#[table(name = "submit_window", key(cell))]
pub struct Window {
    /// Its number in 16 hexadecimal digits, as an allocation's id begins.
    #[table(check = "cell ~ '^[0-9a-f]{16}$'")]
    cell: String,
    /// The window of all submits up to this event is over.
    #[table(check = "forgotten_through >= 0")]
    forgotten_through: EventNo,
    /// The part that takes new rows.
    #[table(check = "part IN (1, 2)")]
    part: u16,
    /// The highest number in that part.
    #[table(check = "last_in_part >= 0")]
    last_in_part: EventNo,
    /// The highest number in the other part.
    #[table(check = "last_in_other >= 0")]
    last_in_other: EventNo,
}

impl Window {
    /// Before anything is written.
    pub fn fresh(cell: CellNo) -> Self {
        Self {
            cell: format!("{:016x}", cell.0),
            forgotten_through: EventNo(0),
            part: 1,
            last_in_part: EventNo(0),
            last_in_other: EventNo(0),
        }
    }

    fn forget(&mut self, through: EventNo) {
        self.forgotten_through = self.forgotten_through.max(through);
    }

    /// When all of the other part is forgotten, it may be emptied and take the new rows.
    fn may_turn(&self) -> bool {
        self.last_in_other <= self.forgotten_through
    }

    fn turn(&mut self) {
        self.part = self.other();
        self.last_in_other = self.last_in_part;
        self.last_in_part = EventNo(0);
    }

    fn other(&self) -> u16 {
        3 - self.part
    }

    fn wrote(&mut self, no: EventNo) {
        self.last_in_part = self.last_in_part.max(no);
    }
}

/// The parts are numbered from 1.
fn part(no: u16) -> &'static Table {
    PARTS[usize::from(no == 2)]
}

/// Writes rows, and forgets. `no_more_open` were written as operations that are open.
pub async fn write(
    tx: &mut PgConnection,
    rows: Vec<&AnsweredRow>,
    no_more_open: &[EventNo],
    forgotten: Option<EventNo>,
) -> Result<(), WarmError> {
    close(tx, no_more_open).await?;
    if rows.is_empty() && forgotten.is_none() {
        return Ok(());
    }
    let mut window: Window = sqlx::query_as(&table::select(Window::TABLE))
        .fetch_one(&mut *tx)
        .await?;
    if let Some(through) = forgotten {
        window.forget(through);
        if window.may_turn() && empty(tx, part(window.other())).await? {
            window.turn();
        }
    }
    for row in &rows {
        window.wrote(row.no);
    }
    let rows = rows.into_iter().map(Answered::from);
    insert_into(tx, part(window.part), rows).await?;
    update(tx, &[window]).await
}

/// Takes out what stood among the open operations.
async fn close(tx: &mut PgConnection, no_more_open: &[EventNo]) -> Result<(), WarmError> {
    if no_more_open.is_empty() {
        return Ok(());
    }
    let numbers = no_more_open.iter().map(|no| bigint("event_no", no.0));
    let numbers: Vec<_> = numbers.collect::<Result<_, _>>()?;
    sqlx::query!(
        "DELETE FROM other_operations WHERE event_no = ANY ($1)",
        &numbers
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Whether the part is empty now. Not while somebody reads it: whoever does that for long would hold up everything.
async fn empty(tx: &mut PgConnection, part: &Table) -> Result<bool, WarmError> {
    const LOCK_NOT_AVAILABLE: &str = "55P03";
    let mut aside = tx.begin().await?;
    let lock = format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE NOWAIT", part.name);
    match aside.execute(&*lock).await.map_err(WarmError::from) {
        Ok(_) => {}
        Err(error) if error.sqlstate() == Some(LOCK_NOT_AVAILABLE) => {
            aside.rollback().await?;
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    aside.execute(&*format!("TRUNCATE {}", part.name)).await?;
    aside.commit().await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of `rows`, up to a number, and `forgotten`, through a number; then where the rows of each went, and which
    /// part was emptied.
    fn check(batches: &str, expected: &str) {
        let mut window = Window::fresh(CellNo(1));
        let mut words = Vec::new();
        for batch in batches.split(", ") {
            let (what, no) = batch.split_once(' ').unwrap();
            let no = EventNo(no.parse().unwrap());
            match what {
                "forgotten" => window.forget(no),
                _ => window.wrote(no),
            }
            if what == "forgotten" && window.may_turn() {
                window.turn();
                words.push(format!("{} emptied", window.part));
            } else if what == "rows" {
                words.push(format!("{} into {}", no.0, window.part));
            }
        }
        assert_eq!(words.join(", "), expected, "{batches}");
    }

    #[test]
    fn a_part_is_emptied_when_all_of_it_is_forgotten() {
        check("rows 5, rows 9", "5 into 1, 9 into 1");
        // The second one is empty from the beginning, so it takes over at the first opportunity.
        check(
            "rows 5, rows 9, forgotten 3, rows 12",
            "5 into 1, 9 into 1, 2 emptied, 12 into 2",
        );
        check(
            "rows 9, forgotten 3, rows 12, forgotten 8, rows 15",
            "9 into 1, 2 emptied, 12 into 2, 15 into 2",
        );
        check(
            "rows 9, forgotten 3, rows 12, forgotten 9, rows 15, forgotten 11, forgotten 12, rows 16",
            "9 into 1, 2 emptied, 12 into 2, 1 emptied, 15 into 1, 2 emptied, 16 into 2",
        );
    }

    #[test]
    fn what_is_forgotten_stays_so() {
        let mut window = Window::fresh(CellNo(0xab));
        window.forget(EventNo(7));
        window.forget(EventNo(3));
        assert_eq!(window.forgotten_through, EventNo(7));
        assert_eq!(window.cell, "00000000000000ab");
    }
}
