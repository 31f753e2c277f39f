//! The tables, made by the files of `schemas/clickhouse` in their order.

use super::{Store, StoreError, untouched, within};
use clickhouse::{Row, sql::Identifier};
use ledger::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

macro_rules! migrations {
    ($($file:literal),* $(,)?) => {
        /// Every file of the directory, in order.
        pub const MIGRATIONS: &[(&str, &str)] = &[$((
            $file,
            include_str!(concat!("../../../../schemas/clickhouse/", $file)),
        ),)*];
    };
}

migrations![
    "0001_ledger_ranges.sql",
    "0002_facts.sql",
    "0003_usage_hourly.sql",
    "0004_chargeback.sql",
    "0005_conservation.sql",
    "0006_conservation_by_run.sql",
    "0007_ranges_name_a_digest.sql",
];

const CREATE_SCHEMA_MIGRATIONS: &str = "
    CREATE TABLE IF NOT EXISTS schema_migrations (
        file String,
        checksum String,
        applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
    )
    ENGINE = MergeTree
    ORDER BY file
    SETTINGS fsync_after_insert = 1, fsync_part_directory = 1";

#[derive(Row, Serialize, Deserialize)]
struct Applied {
    file: String,
    checksum: String,
}

/// Statements end with a semicolon at the end of a line.
fn statements(file: &str) -> impl Iterator<Item = &str> {
    file.split(";\n").filter(|statement| {
        let code = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with("--");
        statement.lines().any(code)
    })
}

impl Store {
    /// Makes what is missing. Every statement can be repeated, so a kill in between does no harm.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.migrate_by(MIGRATIONS).await
    }

    async fn create_database(&self) -> Result<(), StoreError> {
        let create = self.server.query("CREATE DATABASE IF NOT EXISTS ?");
        within(create.bind(Identifier(&self.database)).execute()).await
    }

    /// As `migrate`, with other files.
    pub async fn migrate_by(&self, files: &[(&str, &str)]) -> Result<(), StoreError> {
        self.create_database().await?;
        self.execute(CREATE_SCHEMA_MIGRATIONS).await?;
        let applied: BTreeMap<String, String> = self
            .fetch_all::<Applied>(self.query("SELECT file, checksum FROM schema_migrations"))
            .await?
            .into_iter()
            .map(|row| (row.file, row.checksum))
            .collect();
        for (file, text) in files {
            let checksum = Digest::of(text.as_bytes()).to_string();
            match applied.get(*file) {
                Some(before) if *before == checksum => continue,
                Some(_) => {
                    let file = (*file).to_owned();
                    return Err(StoreError::MigrationChanged { file });
                }
                None => {}
            }
            for statement in statements(text) {
                self.execute(statement).await?;
            }
            let done = Applied {
                file: (*file).to_owned(),
                checksum,
            };
            self.insert("schema_migrations", &[done], &format!("migration:{file}"))
                .await?;
            tracing::info!(file, "migration applied");
        }
        let unknown = applied
            .into_keys()
            .find(|file| !files.iter().any(|(known, _)| known == file));
        untouched(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_directory_is_listed_in_order() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/clickhouse");
        let mut found: Vec<String> = std::fs::read_dir(directory)
            .expect("the directory is in the checkout")
            .map(|entry| {
                let name = entry.expect("its entries are readable").file_name();
                name.into_string().expect("names are UTF-8")
            })
            .filter(|name| name.ends_with(".sql"))
            .collect();
        found.sort();
        let listed: Vec<&str> = MIGRATIONS.iter().map(|(file, _)| *file).collect();
        assert_eq!(found, listed);
    }

    #[test]
    fn a_file_is_cut_into_statements() {
        let file = "-- a\nCREATE a;\n\n-- b; c\nCREATE 'x;y'\n;\n-- end\n";
        let found: Vec<&str> = statements(file).map(str::trim).collect();
        assert_eq!(found, ["-- a\nCREATE a", "-- b; c\nCREATE 'x;y'"]);
    }
}
