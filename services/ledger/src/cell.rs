//! The streams of a cell, made by an operator; services only look at them.

use async_nats::jetstream::{
    self, object_store,
    stream::{Compression, Config, DiscardPolicy, PersistenceMode, RetentionPolicy, StorageType},
};
use schemas::subjects::Subjects;

/// Messages that may pile up per tenant or node before a publish is refused.
const DOOR_BACKLOG_MAX: i64 = 20_000;
/// The largest message at a door; requests beyond the contract's limit are still answered by name.
const DOOR_MESSAGE_MAX: i32 = 1 << 20;
/// What the tenants' event feeds may hold, oldest out first. The ledger keeps everything; the feed is a copy.
const EVENT_BYTES_MAX: i64 = 4 << 30;

#[derive(Debug, thiserror::Error)]
#[error("stream {stream}: {why}")]
pub struct CellError {
    stream: String,
    why: String,
}

/// All frames, for ever.
pub fn ledger_config(subjects: &Subjects, replicas: usize) -> Config {
    Config {
        name: subjects.ledger_stream(),
        subjects: vec![subjects.ledger("*")],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        deny_delete: true,
        deny_purge: true,
        allow_direct: false,
        compression: Some(Compression::S2),
        ..Config::default()
    }
}

fn door_config(name: String, subjects: Vec<String>, replicas: usize) -> Config {
    Config {
        name,
        subjects,
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        // Overload is a definite refusal at publish, for the one who overloads.
        discard: DiscardPolicy::New,
        max_messages_per_subject: DOOR_BACKLOG_MAX,
        discard_new_per_subject: true,
        max_message_size: DOOR_MESSAGE_MAX,
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

/// Creates what is missing. A stream that exists with other settings is left alone and reported.
pub async fn init(
    jetstream: &jetstream::Context,
    subjects: &Subjects,
    replicas: usize,
) -> Result<(), CellError> {
    let ingress = vec![subjects.ingress("*"), subjects.admin()];
    let configs = [
        ledger_config(subjects, replicas),
        door_config(subjects.ingress_stream(), ingress, replicas),
        door_config(
            subjects.report_stream(),
            vec![subjects.node("*", "report")],
            replicas,
        ),
        event_config(subjects, replicas),
    ];
    for config in configs {
        let stream = config.name.clone();
        jetstream
            .create_stream(config)
            .await
            .map_err(|error| CellError {
                stream,
                why: error.to_string(),
            })?;
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
