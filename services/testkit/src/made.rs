//! Checks of files in the checkout that a program generates.

use std::{env, fs, path::Path};
use table::Table;

/// Compares a generated file with its source; panics if it is out of date. With `APPORTION_WRITE=1` it is written again.
/// `path` is relative to the checkout; `test` is the cargo arguments that select the test, as `-p cli reference`.
pub fn check_made(path: &str, made: &str, test: &str) {
    let whole = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    if env::var_os("APPORTION_WRITE").is_some_and(|value| value == "1") {
        fs::write(&whole, made).expect("the checkout can be written");
    }
    let found = fs::read_to_string(&whole).unwrap_or_default();
    assert!(
        made == found,
        "{path} is out of date: `APPORTION_WRITE=1 cargo test {test}` writes it again"
    );
}

/// Compares a service's migration with the rows that it is made of; with `APPORTION_WRITE=1` it is written again.
pub fn check_migration(service: &str, tables: &[&Table], more: &str) {
    let test = format!("-p {service} --test it the_migration");
    let made = format!(
        "-- Made of the rows in services/{service}/src/store by APPORTION_WRITE=1 cargo test {test}\n\n{}{more}",
        table::ddl(tables),
    );
    check_made(
        &format!("schemas/postgres/{service}/0001_tables.sql"),
        &made,
        &test,
    );
}
