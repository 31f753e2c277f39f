//! A separate schema for one test, on the Postgres that `make test` starts.

use crate::Servers;
use sqlx::{
    Executor, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{
    str::FromStr,
    sync::atomic::{AtomicU32, Ordering},
};

/// An empty schema. [`Scratch::close`] drops it; after a failed test it stays for inspection.
#[derive(Debug)]
pub struct Scratch {
    options: PgConnectOptions,
    schema: String,
    pool: PgPool,
}

impl Scratch {
    /// Creates a schema; `name` is part of its name. Panics without the servers.
    pub async fn open(name: &str) -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("t_{name}_{}_{count}", std::process::id());
        let url = Servers::read().postgres.admin_url;
        let options = PgConnectOptions::from_str(&url).expect("the launcher writes a URL");
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

    /// Returns the schema's pool, with the schema first on its search path, as a service's pool has it.
    pub fn pool(&self) -> PgPool {
        self.pool.clone()
    }

    /// Opens a second pool on the schema, for a test that closes it.
    pub fn another_pool(&self) -> PgPool {
        pool(self.options.clone())
    }

    /// Returns the connection options of the schema.
    pub fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// Drops the schema with its contents.
    pub async fn close(self) {
        let drop = format!("DROP SCHEMA {} CASCADE", self.schema);
        self.pool
            .execute(&*drop)
            .await
            .expect("the test owns the schema");
        self.pool.close().await;
    }
}

fn pool(options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(4)
        .connect_lazy_with(options)
}
