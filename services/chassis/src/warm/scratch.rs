//! A schema of its own for one test, on the Postgres that `make test` starts.

use crate::check_made;
use sqlx::{
    Executor, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{
    str::FromStr,
    sync::atomic::{AtomicU32, Ordering},
};
use table::Table;

/// An empty schema. [`Scratch::close`] drops it; after a failed test it stays for a look.
#[derive(Debug)]
pub struct Scratch {
    options: PgConnectOptions,
    schema: String,
    pool: PgPool,
}

impl Scratch {
    /// Panics without the servers: a test that did not run must not look like one that passed.
    pub async fn open(name: &str) -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("t_{name}_{}_{count}", std::process::id());
        let options = PgConnectOptions::from_str(&admin_url()).expect("admin_url is a URL");
        let setup = pool(options.clone());
        setup
            .execute(&*format!(
                "DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}"
            ))
            .await
            .expect("the test role may create schemas");
        setup.close().await;
        let options = options.options([("search_path", &schema)]);
        let pool = pool(options.clone());
        Scratch {
            options,
            schema,
            pool,
        }
    }

    /// Finds the schema first, as a service's pool does.
    pub fn pool(&self) -> PgPool {
        self.pool.clone()
    }

    /// A pool on the same schema that nothing else shares, for a test that shuts it.
    pub fn another_pool(&self) -> PgPool {
        pool(self.options.clone())
    }

    /// How to reach the schema.
    pub fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// Drops the schema with all that is in it.
    pub async fn close(self) {
        let drop = format!("DROP SCHEMA {} CASCADE", self.schema);
        self.pool.execute(&*drop).await.expect("its own schema");
        self.pool.close().await;
    }
}

/// Holds the migration of a service against the rows that it is made of; with `APPORTION_WRITE=1` it is written anew.
pub fn check_migration(service: &str, tables: &[&Table], more: &str) {
    let made = format!(
        "-- Made of the rows in services/{service}/src/store by APPORTION_WRITE=1 cargo test -p {service} --test warm\n\n{}{more}",
        table::ddl(tables),
    );
    check_made(
        &format!("schemas/postgres/{service}/0001_tables.sql"),
        &made,
        &format!("-p {service} --test warm"),
    );
}

fn pool(options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(4)
        .connect_lazy_with(options)
}

fn admin_url() -> String {
    let file = std::env::var_os("APPORTION_TEST_STACK").expect(
        "APPORTION_TEST_STACK is not set: this test needs the servers, run it by `make test`",
    );
    let text = std::fs::read_to_string(&file).expect("APPORTION_TEST_STACK names a readable file");
    let stack: serde_json::Value = serde_json::from_str(&text).expect("the test stack is JSON");
    stack["postgres"]["admin_url"]
        .as_str()
        .expect("the test stack has postgres.admin_url")
        .to_owned()
}
