//! The servers that `make test` starts.

use serde::Deserialize;
use std::path::PathBuf;

/// Variable that names the launcher's file about its servers.
const STACK_FILE: &str = "APPORTION_TEST_STACK";

/// Addresses and credentials of the servers of `make test`.
#[derive(Clone, Debug, Deserialize)]
pub struct Servers {
    pub nats: Nats,
    pub postgres: Postgres,
    pub clickhouse: Clickhouse,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Nats {
    pub url: String,
    pub monitor_url: String,
    /// Directory of the creds of all users of a cell.
    pub creds: PathBuf,
    /// Directory of the creds that make streams and accounts.
    pub admin: PathBuf,
    /// Directory of both, with the keys.
    pub bus: PathBuf,
    /// Path of the server program, for tests that start their own server.
    pub program: PathBuf,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Postgres {
    /// URL of a role that may create schemas.
    pub admin_url: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Clickhouse {
    pub url: String,
    pub user: String,
    pub password: String,
}

impl Servers {
    /// Reads the launcher's file. Panics without it: a test that did not run must not pass.
    pub fn read() -> Self {
        let path = std::env::var_os(STACK_FILE).unwrap_or_else(|| {
            panic!("{STACK_FILE} is not set: this test needs the servers, run it by `make test`")
        });
        let text = std::fs::read_to_string(path).expect("the servers' file is readable");
        serde_json::from_str(&text).expect("the launcher writes the servers' file")
    }

    /// Returns the path of a user's creds; `user` as in `quota` or `tenant:team-a`.
    pub fn creds(&self, user: &str) -> PathBuf {
        let directory = match user {
            "bus" | "system" => &self.nats.admin,
            _ => &self.nats.creds,
        };
        directory.join(format!("{}.creds", user.replace(':', "-")))
    }

    /// Reads a user's creds.
    pub fn held(&self, user: &str) -> identity::Creds {
        let creds = identity::Creds::read(&self.creds(user));
        creds.unwrap_or_else(|error| panic!("the test servers have no user {user}: {error}"))
    }

    /// Connects to NATS as a user.
    pub async fn nats(&self, user: &str) -> async_nats::Client {
        identity::connect(self.creds(user))
            .connect(&self.nats.url)
            .await
            .expect("the test NATS accepts its users")
    }

    /// Returns a ClickHouse client as the user of the tests.
    pub fn clickhouse(&self) -> clickhouse::Client {
        clickhouse::Client::default()
            .with_url(&self.clickhouse.url)
            .with_user(&self.clickhouse.user)
            .with_password(&self.clickhouse.password)
    }
}
