//! Boot refuses a ledger stream that could lose what it has acknowledged.

use async_nats::jetstream::stream::{Config, PersistenceMode, RetentionPolicy, StorageType};

/// A setting of the stream or its server that can lose an acknowledged frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the ledger stream is not safe: {setting} is {found}, must be {needed}")]
pub struct UnsafeLedger {
    pub setting: &'static str,
    pub found: String,
    pub needed: &'static str,
}

/// `server_syncs_always` is what the server's monitoring page says; unknown counts as no. Three replicas make up for it.
pub fn check_ledger_settings(
    config: &Config,
    server_syncs_always: Option<bool>,
) -> Result<(), UnsafeLedger> {
    let async_persistence = matches!(config.persist_mode, Some(PersistenceMode::Async));
    let rules: [(&'static str, bool, String, &'static str); 12] = [
        (
            "storage",
            config.storage == StorageType::File,
            format!("{:?}", config.storage),
            "file",
        ),
        (
            "retention",
            config.retention == RetentionPolicy::Limits,
            format!("{:?}", config.retention),
            "limits",
        ),
        (
            "persist_mode",
            !async_persistence,
            "async".into(),
            "default",
        ),
        (
            "deny_delete",
            config.deny_delete,
            config.deny_delete.to_string(),
            "true",
        ),
        (
            "deny_purge",
            config.deny_purge,
            config.deny_purge.to_string(),
            "true",
        ),
        (
            "allow_rollup_hdrs",
            !config.allow_rollup,
            config.allow_rollup.to_string(),
            "false",
        ),
        (
            "max_age",
            config.max_age.is_zero(),
            format!("{:?}", config.max_age),
            "0",
        ),
        (
            "max_msgs",
            config.max_messages <= 0,
            config.max_messages.to_string(),
            "unlimited",
        ),
        (
            "max_bytes",
            config.max_bytes <= 0,
            config.max_bytes.to_string(),
            "unlimited",
        ),
        (
            "max_msgs_per_subject",
            config.max_messages_per_subject <= 0,
            config.max_messages_per_subject.to_string(),
            "unlimited",
        ),
        (
            "allow_msg_ttl",
            !config.allow_message_ttl,
            config.allow_message_ttl.to_string(),
            "false",
        ),
        (
            "sync_interval",
            config.num_replicas >= 3 || server_syncs_always == Some(true),
            match server_syncs_always {
                Some(_) => "periodic".into(),
                None => "unknown (set nats.monitor_url)".into(),
            },
            "always on a single replica",
        ),
    ];
    match rules.into_iter().find(|(_, safe, _, _)| !safe) {
        None => Ok(()),
        Some((setting, _, found, needed)) => Err(UnsafeLedger {
            setting,
            found,
            needed,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Chosen, ledger_config};
    use std::time::Duration;
    use vocab::subjects::Subjects;

    fn check(change: fn(&mut Config), syncs: Option<bool>, refused: Option<&str>) {
        let mut config = ledger_config(&Subjects::new("c1"), Chosen::default());
        change(&mut config);
        let found = check_ledger_settings(&config, syncs).err();
        assert_eq!(found.map(|e| e.setting), refused);
    }

    #[test]
    fn every_setting_that_loses_frames_is_refused() {
        check(|_| {}, Some(true), None);
        check(|_| {}, Some(false), Some("sync_interval"));
        check(|_| {}, None, Some("sync_interval"));
        check(|c| c.num_replicas = 3, None, None);
        let t = Some(true);
        check(|c| c.storage = StorageType::Memory, t, Some("storage"));
        check(
            |c| c.retention = RetentionPolicy::WorkQueue,
            t,
            Some("retention"),
        );
        check(
            |c| c.persist_mode = Some(PersistenceMode::Async),
            t,
            Some("persist_mode"),
        );
        check(|c| c.deny_delete = false, t, Some("deny_delete"));
        check(|c| c.deny_purge = false, t, Some("deny_purge"));
        check(|c| c.allow_rollup = true, t, Some("allow_rollup_hdrs"));
        check(|c| c.max_age = Duration::from_secs(1), t, Some("max_age"));
        check(|c| c.max_messages = 5, t, Some("max_msgs"));
        check(|c| c.max_bytes = 5, t, Some("max_bytes"));
        check(
            |c| c.max_messages_per_subject = 5,
            t,
            Some("max_msgs_per_subject"),
        );
        check(|c| c.allow_message_ttl = true, t, Some("allow_msg_ttl"));
    }
}
