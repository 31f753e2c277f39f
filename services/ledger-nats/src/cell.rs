//! The streams of a cell, made by the operator of the bus; everybody else only looks at them.

use async_nats::jetstream::{
    self, object_store,
    stream::{
        Compression, Config, DiscardPolicy, PersistenceMode, RetentionPolicy, StorageType,
        SubjectTransform,
    },
};
use std::{collections::HashMap, time::Duration};
use vocab::{Level, subjects::Subjects};

/// Messages that may pile up per tenant or node before a publish is refused.
const INBOX_BACKLOG_MAX: i64 = 4096;
/// The largest message at an inbox, with its headers; requests somewhat beyond the contract's limit are still answered by name.
/// A server bounds bytes by stream only, so what one sender may have waiting is bounded by both: 384 MiB.
const INBOX_MESSAGE_MAX: i32 = 96 << 10;
/// What the tenants' event feeds may hold, oldest out first. The ledger keeps everything; the feed is a copy.
const EVENT_BYTES_MAX: i64 = 4 << 30;
/// How long a node's last heartbeat is kept, and the largest that is. A node that was silent for so long has no lease any more.
const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(40);
const HEARTBEAT_BYTES_MAX: i32 = 4 << 10;

/// Under this name the ledger stream says how long a slot is.
const SLOT_MS: &str = "apportion_slot_ms";
/// Under this one the cell's feature level.
const LEVEL: &str = "apportion_level";
/// And under this one how often it was adopted after it had lost its end.
const ADOPTED: &str = "apportion_adopted";

/// What is chosen when a cell is made. All of it stays, but the level, which is raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// Copies of every stream.
    pub replicas: usize,
    /// The length of a slot of leases on the cell's clock, in milliseconds; 0: requests say which slot they are of.
    pub slot_ms: u64,
    /// Its feature level.
    pub level: Level,
}

impl Default for Chosen {
    fn default() -> Self {
        Self {
            replicas: 1,
            slot_ms: 1000,
            level: Level::KNOWN,
        }
    }
}

/// The stream does not say how long a slot is: `apportion cell init` has not made it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the ledger stream does not say how long a slot is: {SLOT_MS} is {found:?}, must be a number"
)]
pub struct NoSlotLength {
    found: Option<String>,
}

/// How long a slot of the cell is, as its ledger stream says: one place for all services, so that no two can differ.
pub fn slot_ms(config: &Config) -> Result<u64, NoSlotLength> {
    let found = config.metadata.get(SLOT_MS);
    let length = found.and_then(|text| text.parse().ok());
    length.ok_or_else(|| NoSlotLength {
        found: found.cloned(),
    })
}

/// What the ledger stream says of its feature level is no level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the ledger stream says that the cell's feature level is {0:?}, which is no number")]
pub struct NoLevel(String);

/// The cell's feature level. It stands beside the ledger and not on it: it bounds what leaders newly write, and no fold depends
/// on it. A stream that was made before there were levels is of the first.
pub fn level(config: &Config) -> Result<Level, NoLevel> {
    let found = config.metadata.get(LEVEL);
    found.map_or(Ok(Level::FIRST), |text| {
        text.parse().map_err(|_| NoLevel(text.clone()))
    })
}

pub(crate) fn set_level(config: &mut Config, level: Level) {
    let metadata = &mut config.metadata;
    metadata.insert(LEVEL.to_owned(), level.to_string());
}

/// The cell may have facts on its ledger that this build cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cell is at feature level {cell}, and this build knows levels up to {knows}: replace it by a version that knows level \
     {cell}; a level is never lowered"
)]
pub struct TooOld {
    pub cell: Level,
    pub knows: Level,
}

/// Whether a build that knows these levels may work in a cell of that level.
pub fn check_level(cell: Level, knows: Level) -> Result<(), TooOld> {
    match cell <= knows {
        true => Ok(()),
        false => Err(TooOld { cell, knows }),
    }
}

/// How often the ledger has lost its end and was adopted as it stood then. Each time it is another ledger.
pub fn adopted(config: &Config) -> i64 {
    let count = config.metadata.get(ADOPTED);
    count.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Once more.
pub(crate) fn adopt(config: &mut Config) {
    let count = adopted(config).saturating_add(1);
    let metadata = &mut config.metadata;
    metadata.insert(ADOPTED.to_owned(), count.to_string());
}

#[derive(Debug, thiserror::Error)]
#[error("stream {stream}: {why}")]
pub struct CellError {
    stream: String,
    why: String,
}

/// All frames, for ever.
pub fn ledger_config(subjects: &Subjects, chosen: Chosen) -> Config {
    Config {
        name: subjects.ledger_stream(),
        subjects: vec![subjects.ledger("*")],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: chosen.replicas,
        deny_delete: true,
        deny_purge: true,
        allow_direct: false,
        compression: Some(Compression::S2),
        metadata: HashMap::from([
            (SLOT_MS.to_owned(), chosen.slot_ms.to_string()),
            (LEVEL.to_owned(), chosen.level.to_string()),
        ]),
        ..Config::default()
    }
}

fn inbox_config(name: String, subjects: Vec<String>, replicas: usize) -> Config {
    Config {
        name,
        subjects,
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        // Overload is a definite refusal at publish, for the one who overloads.
        discard: DiscardPolicy::New,
        max_messages_per_subject: INBOX_BACKLOG_MAX,
        discard_new_per_subject: true,
        max_message_size: INBOX_MESSAGE_MAX,
        // The least there is. Its ids are one name space for all senders, so who uses them is refused.
        duplicate_window: Duration::from_millis(100),
        deny_delete: true,
        ..Config::default()
    }
}

fn event_config(subjects: &Subjects, replicas: usize) -> Config {
    Config {
        name: subjects.event_stream(),
        subjects: vec![subjects.event("*", "*")],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        max_bytes: EVENT_BYTES_MAX,
        discard: DiscardPolicy::Old,
        // A copy of the ledger: its projector looks up what is missing, so it need not be synced.
        persist_mode: (replicas == 1).then_some(PersistenceMode::Async),
        compression: Some(Compression::S2),
        ..Config::default()
    }
}

/// The servers fill a key-value bucket with what goes past anyway: the value of a node's name is its last heartbeat.
fn heartbeat_config(subjects: &Subjects) -> Config {
    let bucket = subjects.heartbeat_bucket();
    let heartbeats = subjects.node("*", "heartbeat");
    Config {
        name: format!("KV_{bucket}"),
        subjects: vec![heartbeats.clone()],
        subject_transform: Some(SubjectTransform {
            source: heartbeats,
            destination: format!("$KV.{bucket}.{{{{wildcard(1)}}}}"),
        }),
        retention: RetentionPolicy::Limits,
        // The next heartbeat of each node fills it again, so one copy in memory is enough, and none waits for a majority.
        storage: StorageType::Memory,
        num_replicas: 1,
        discard: DiscardPolicy::Old,
        max_messages_per_subject: 1,
        max_age: HEARTBEAT_AGE_MAX,
        max_message_size: HEARTBEAT_BYTES_MAX,
        duplicate_window: Duration::from_millis(100),
        // The answer to a heartbeat is node-heartbeat's alone.
        no_ack: true,
        allow_direct: true,
        ..Config::default()
    }
}

/// Lets a stream that was made by an earlier version take what is published by now.
async fn widen(
    jetstream: &jetstream::Context,
    wanted: &Config,
) -> Result<(), jetstream::context::UpdateStreamError> {
    let Ok(stands) = jetstream.get_stream(&wanted.name).await else {
        return Ok(());
    };
    let mut config = stands.cached_info().config.clone();
    let lacks = config.subjects.len() < wanted.subjects.len();
    if lacks
        && config
            .subjects
            .iter()
            .all(|one| wanted.subjects.contains(one))
    {
        config.subjects = wanted.subjects.clone();
        jetstream.update_stream(config).await?;
    }
    Ok(())
}

/// Creates what is missing, subjects of a stream among it. A stream that exists with other settings, and so a ledger with slots
/// of another length, is left alone and reported.
pub async fn init(
    jetstream: &jetstream::Context,
    subjects: &Subjects,
    chosen: Chosen,
) -> Result<(), CellError> {
    let replicas = chosen.replicas;
    let ingress = vec![
        subjects.ingress("*"),
        subjects.admin(),
        subjects.admin_of("*"),
    ];
    let mut ledger = ledger_config(subjects, chosen);
    if let Ok(stands) = jetstream.get_stream(&ledger.name).await {
        // What has become of it since it was made.
        for name in [ADOPTED, LEVEL] {
            match stands.cached_info().config.metadata.get(name) {
                Some(value) => ledger.metadata.insert(name.to_owned(), value.clone()),
                None => ledger.metadata.remove(name),
            };
        }
    }
    let configs = [
        ledger,
        inbox_config(subjects.ingress_stream(), ingress, replicas),
        inbox_config(
            subjects.report_stream(),
            vec![subjects.node("*", "report")],
            replicas,
        ),
        event_config(subjects, replicas),
        heartbeat_config(subjects),
    ];
    for config in configs {
        let failed = |why: String| CellError {
            stream: config.name.clone(),
            why,
        };
        let widened = widen(jetstream, &config).await;
        widened.map_err(|error| failed(error.to_string()))?;
        let created = jetstream.create_stream(config.clone()).await;
        created.map_err(|error| failed(error.to_string()))?;
    }
    let bucket = subjects.snapshot_bucket();
    if jetstream.get_object_store(&bucket).await.is_err() {
        jetstream
            .create_object_store(object_store::Config {
                bucket: bucket.clone(),
                num_replicas: replicas,
                ..Default::default()
            })
            .await
            .map_err(|error| CellError {
                stream: bucket,
                why: error.to_string(),
            })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_says_its_level_and_one_without_is_of_the_first() {
        let check = |said: Option<&str>, expected: Result<u32, &str>| {
            let mut config = ledger_config(&Subjects::new("c1"), Chosen::default());
            assert_eq!(level(&config), Ok(Level::KNOWN));
            config.metadata.remove(LEVEL);
            if let Some(text) = said {
                config.metadata.insert(LEVEL.to_owned(), text.to_owned());
            }
            let expected = expected.map(Level).map_err(|text| NoLevel(text.to_owned()));
            assert_eq!(level(&config), expected);
        };
        check(None, Ok(1));
        check(Some("7"), Ok(7));
        check(Some("new"), Err("new"));
    }

    #[test]
    fn who_knows_less_than_the_cell_says_both_and_what_to_do() {
        assert_eq!(check_level(Level(2), Level(2)), Ok(()));
        assert_eq!(check_level(Level(1), Level(2)), Ok(()));
        let refused = check_level(Level(3), Level(2)).map_err(|error| error.to_string());
        let said = "the cell is at feature level 3, and this build knows levels up to 2: replace it by a version that knows \
                    level 3; a level is never lowered";
        assert_eq!(refused, Err(said.to_owned()));
    }

    #[test]
    fn a_ledger_says_how_long_a_slot_is_or_is_refused() {
        let check = |said: Option<&str>, expected: Result<u64, &str>| {
            let mut config = ledger_config(&Subjects::new("c1"), Chosen::default());
            assert_eq!(slot_ms(&config), Ok(1000));
            config.metadata.clear();
            if let Some(text) = said {
                config.metadata.insert(SLOT_MS.to_owned(), text.to_owned());
            }
            let prefix = "the ledger stream does not say how long a slot is: apportion_slot_ms is ";
            let found = slot_ms(&config).map_err(|error| error.to_string().replace(prefix, ""));
            assert_eq!(found, expected.map_err(str::to_owned));
        };
        check(Some("250"), Ok(250));
        check(Some("0"), Ok(0));
        check(None, Err("None, must be a number"));
        check(Some("1s"), Err("Some(\"1s\"), must be a number"));
    }
}
