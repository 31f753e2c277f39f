//! Warm state: how a read model in Postgres keeps up with the ledger. Written once; a service brings its tables.
//!
//! A batch and the position that it leads to are one transaction, so a repeat, a crash or a second projector can neither
//! skip nor double a change. Everything here can be lost: it is rebuilt from the ledger.

mod fault;
mod position;
mod rows;
pub mod schema;

pub use fault::WarmError;
pub use position::Position;
pub use rows::{insert, insert_into, merge, update};
pub use table::{Moment, OutOfRange, bigint, unsigned};

use ledger::{Batch, Digest, LedgerId, Resume, Sink, SinkError, Witness};
use sqlx::{Connection, Executor, PgConnection, PgPool, Postgres, Transaction};
use std::{future::Future, time::Duration};
use table::{Drift, Row, Snapshot};
use vocab::Lsn;

/// Rows that go into one statement: beyond about a thousand it is not faster, only larger.
pub const ROWS_MAX: usize = 1000;

/// A batch takes milliseconds; by then the server is gone, and the answer with it.
const APPLY_DEADLINE: Duration = Duration::from_secs(30);
/// Another process may be making the tables first.
const ENSURE_DEADLINE: Duration = Duration::from_secs(120);

/// A crash of the server may take back the last commits, together with their position: they are applied again, and the
/// disk is left to the bus, whose syncs decisions wait for. A projector that hangs in the middle is put out, because its
/// successor waits for the position's row. Rows are always found by their keys: a plan that was made while a table was
/// empty would go on reading all of it.
const BEGIN: &str = "BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL enable_seqscan = off; \
                     SET LOCAL idle_in_transaction_session_timeout = '15s'";

/// A service's tables.
pub trait WarmState: Send + Sync + 'static {
    /// What the service's projection makes of events.
    type Change: Send + Sync + 'static;

    /// Names the position.
    const NAME: &'static str;

    /// What makes the service's tables, among them `projection_position`.
    const DDL: &'static str;

    /// Writes one batch. What it changes is taken back when it fails.
    fn write(
        &self,
        tx: &mut PgConnection,
        changes: &[Self::Change],
    ) -> impl Future<Output = Result<(), WarmError>> + Send;

    /// Empties the tables that `write` fills.
    fn wipe(&self, tx: &mut PgConnection) -> impl Future<Output = Result<(), WarmError>> + Send;
}

/// What a service does about tables that are not as it wants them, of which it has said so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDrift {
    /// It goes on.
    #[default]
    Warn,
    /// It ends.
    Refuse,
}

/// The tables are not as the service wants them, and it is set to refuse that.
#[derive(Debug, thiserror::Error)]
#[error("the tables have drifted:{}", lines(.0))]
pub struct Drifted(pub Vec<Drift>);

fn lines(drifts: &[Drift]) -> String {
    drifts.iter().map(|drift| format!("\n  {drift}")).collect()
}

impl OnDrift {
    /// Says how a projection's tables differ.
    pub fn told(self, projection: &'static str, drifts: Vec<Drift>) -> Result<(), Drifted> {
        for drift in &drifts {
            tracing::warn!(projection, %drift, "tables have drifted");
        }
        match (self, drifts.len()) {
            (Self::Refuse, 1..) => Err(Drifted(drifts)),
            _ => Ok(()),
        }
    }
}

/// Applies batches to Postgres. Survives its absence: what fails is to be tried again.
#[derive(Debug)]
pub struct PgSink<T> {
    pool: PgPool,
    tables: T,
    /// The tables as they were when they were as they are to be; `None`: not known.
    seen: Option<Snapshot>,
    on_drift: OnDrift,
    /// The last failure that was logged as an error, so that retries do not repeat it.
    reported: Option<String>,
}

impl<T: WarmState> PgSink<T> {
    /// `pool` finds the service's own schema first. Nothing is sent to the database yet.
    pub fn new(pool: PgPool, tables: T) -> Self {
        Self {
            pool,
            tables,
            seen: None,
            on_drift: OnDrift::default(),
            reported: None,
        }
    }

    /// What to do about tables that are not as the service wants them.
    pub fn on_drift(mut self, on_drift: OnDrift) -> Self {
        self.on_drift = on_drift;
        self
    }

    /// On a connection of its own: when this ends early, closing it ends the transaction and its lock.
    async fn ensure(&self) -> Result<Snapshot, WarmError> {
        let mut connection = self.pool.acquire().await?.detach();
        let drifts = schema::ensure(&mut connection, T::DDL).await?;
        let found = schema::found(&mut connection).await?;
        connection.close().await?;
        self.on_drift.told(T::NAME, drifts)?;
        Ok(found)
    }

    async fn found(&self) -> Result<Snapshot, WarmError> {
        schema::found(&mut *self.pool.acquire().await?).await
    }

    async fn try_resume(&mut self, ledger: LedgerId) -> Result<Resume, WarmError> {
        // A person may have dropped or changed some at any time.
        if self.seen.is_none() || self.seen != Some(within(APPLY_DEADLINE, self.found()).await?) {
            self.seen = Some(within(ENSURE_DEADLINE, self.ensure()).await?);
        }
        within(APPLY_DEADLINE, self.position(ledger)).await
    }

    /// Rows without a position, or of another ledger, are none of this ledger's.
    async fn position(&self, ledger: LedgerId) -> Result<Resume, WarmError> {
        let mut tx = self.begin().await?;
        let inserted = sqlx::query(
            "INSERT INTO projection_position (name, ledger_created, lsn) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING",
        )
        .bind(T::NAME)
        .bind(ledger.0)
        .execute(&mut *tx)
        .await?;
        let read = table::select(Position::TABLE) + " WHERE name = $1 FOR UPDATE";
        let Position {
            ledger_created: created,
            lsn,
            digest,
            ..
        } = sqlx::query_as(&read)
            .bind(T::NAME)
            .fetch_one(&mut *tx)
            .await?;
        let found = if inserted.rows_affected() == 0 && created == ledger.0 {
            (lsn, digest.map(Digest))
        } else {
            tracing::info!(
                projection = T::NAME,
                before = created,
                ledger = ledger.0,
                "rebuilding"
            );
            self.tables.wipe(&mut tx).await?;
            sqlx::query(
                "UPDATE projection_position SET ledger_created = $2, lsn = 0, digest = NULL WHERE name = $1",
            )
            .bind(T::NAME)
            .bind(ledger.0)
            .execute(&mut *tx)
            .await?;
            (Lsn(0), None)
        };
        tx.commit().await?;
        let (through, digest) = found;
        Ok(Resume {
            through,
            digest,
            begun: None,
        })
    }

    /// On a connection that is not used again when the time is up: what was under way on it, as a COPY, would be answered
    /// to whoever asks next.
    async fn try_apply(&self, batch: &Batch<T::Change>) -> Result<(), WarmError> {
        let mut connection = self.pool.acquire().await?;
        let applied = within(APPLY_DEADLINE, self.apply_on(&mut connection, batch)).await;
        if let Err(WarmError::TimedOut(_)) = applied {
            drop(connection.detach());
        }
        applied
    }

    async fn apply_on(
        &self,
        connection: &mut PgConnection,
        batch: &Batch<T::Change>,
    ) -> Result<(), WarmError> {
        let (after, to) = (bigint("lsn", batch.after.0)?, bigint("lsn", batch.to.0)?);
        let mut tx = connection.begin_with(BEGIN).await?;
        // Locks the row, so of two projectors one waits here and then finds the position moved.
        let moved = sqlx::query(
            "UPDATE projection_position SET lsn = $4, digest = $5 WHERE name = $1 AND ledger_created = $2 AND lsn = $3",
        )
        .bind(T::NAME)
        .bind(batch.ledger.0)
        .bind(after)
        .bind(to)
        .bind(batch.digest.map(|digest| digest.0.to_vec()))
        .execute(&mut *tx)
        .await?;
        if moved.rows_affected() == 0 {
            return Err(WarmError::Moved);
        }
        self.tables.write(&mut tx, &batch.changes).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn begin(&self) -> Result<Transaction<'static, Postgres>, WarmError> {
        Ok(self.pool.begin_with(BEGIN).await?)
    }

    /// What passes by itself is for the caller to show; what needs a person is logged, once.
    fn failed(&mut self, error: WarmError, doing: &'static str) -> SinkError {
        if let WarmError::Moved = error {
            return SinkError::Moved;
        }
        if let WarmError::Drifted(_) = error {
            return SinkError::Refused(error.to_string());
        }
        if error.tables_changed() {
            self.seen = None;
        }
        let text = error.to_string();
        if !error.passes() && self.reported.as_ref() != Some(&text) {
            tracing::error!(
                projection = T::NAME,
                doing,
                error = text,
                sqlstate = error.sqlstate(),
                table = error.table(),
                constraint = error.constraint(),
                "warm state refuses what the ledger says"
            );
            self.reported = Some(text.clone());
        }
        SinkError::Unavailable(text)
    }
}

impl<T: WarmState> Sink for PgSink<T> {
    type Change = T::Change;

    async fn resume(&mut self, ledger: LedgerId) -> Result<Resume, SinkError> {
        let found = self.try_resume(ledger).await;
        found.map_err(|error| self.failed(error, "resume"))
    }

    async fn apply(&mut self, batch: &Batch<T::Change>) -> Result<(), SinkError> {
        // Tables that somebody dropped come back empty, and with them position 0.
        if self.seen.is_none() {
            return Err(SinkError::Moved);
        }
        match self.try_apply(batch).await {
            Ok(()) => {
                self.reported = None;
                Ok(())
            }
            Err(error) => Err(self.failed(error, "apply")),
        }
    }
}

/// Empties tables in a transaction. A session that reads one of them delays it by two seconds at most: the rows are deleted then,
/// which takes longer and waits for no reader.
pub async fn empty(tx: &mut PgConnection, tables: &[&str]) -> Result<(), WarmError> {
    const LOCK_NOT_AVAILABLE: &str = "55P03";
    let begin = "SAVEPOINT whole; SET LOCAL lock_timeout = '2s'";
    tx.execute(begin).await?;
    let truncate = format!("TRUNCATE {}", tables.join(", "));
    match tx.execute(&*truncate).await.map_err(WarmError::from) {
        Ok(_) => {
            let end = "SET LOCAL lock_timeout = DEFAULT; RELEASE SAVEPOINT whole";
            tx.execute(end).await?;
        }
        Err(error) if error.sqlstate() == Some(LOCK_NOT_AVAILABLE) => {
            tx.execute("ROLLBACK TO SAVEPOINT whole").await?;
            for table in tables {
                tx.execute(&*format!("DELETE FROM {table}")).await?;
            }
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What a schema's tables bear witness of, for who only reads them; none if they are of another ledger, or not there.
pub async fn witness(
    pool: &PgPool,
    schema: &str,
    ledger: LedgerId,
) -> Result<Option<Witness>, WarmError> {
    let read = table::select(Position::TABLE) + " WHERE ledger_created = $1";
    let row = sqlx::query_as(&read).bind(ledger.0);
    let row: Option<Position> = row.fetch_optional(pool).await?;
    Ok(row.map(|Position { lsn, digest, .. }| Witness {
        who: format!("the tables of {schema}"),
        lsn,
        digest: digest.map(Digest),
    }))
}

/// A connection that hears nothing any more would wait for hours.
async fn within<V>(
    deadline: Duration,
    work: impl Future<Output = Result<V, WarmError>>,
) -> Result<V, WarmError> {
    tokio::time::timeout(deadline, work)
        .await
        .unwrap_or(Err(WarmError::TimedOut(deadline)))
}
