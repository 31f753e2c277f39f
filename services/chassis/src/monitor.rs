//! The bus's monitoring pages: the only place that says whether the server syncs before it acknowledges, whether it can
//! write, and how much room it has.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The pages are small; what is longer is something else.
const PAGE_MAX: u64 = 1 << 20;
/// Real time that an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Where they are.
#[derive(Clone, Debug)]
pub(crate) struct Monitor {
    authority: String,
}

/// What the server says of its health; nothing, if it is well.
#[derive(Debug, Deserialize)]
pub(crate) struct HealthPage {
    pub error: Option<String>,
}

/// What it says of JetStream.
#[derive(Debug, Deserialize)]
pub(crate) struct JetStreamPage {
    /// Bytes in files.
    #[serde(default)]
    pub storage: u64,
    #[serde(default)]
    pub config: JetStreamConfig,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct JetStreamConfig {
    #[serde(default)]
    pub sync_always: bool,
    /// What may be stored in files; 0 where JetStream is not at work.
    #[serde(default)]
    pub max_storage: u64,
}

impl Monitor {
    /// None for a page that cannot be asked.
    pub(crate) fn at(url: &str) -> Option<Monitor> {
        let authority = url
            .strip_prefix("http://")?
            .trim_end_matches('/')
            .to_owned();
        Some(Monitor { authority })
    }

    /// None if the server does not say.
    pub(crate) async fn health(&self) -> Option<HealthPage> {
        self.page("/healthz").await
    }

    pub(crate) async fn jetstream(&self) -> Option<JetStreamPage> {
        self.page("/jsz?config=true").await
    }

    async fn page<P: DeserializeOwned>(&self, path: &str) -> Option<P> {
        let asked = tokio::time::timeout(ANSWER_MAX, get(&self.authority, path));
        let body = asked.await.ok()?.ok()?;
        serde_json::from_slice(&body).ok()
    }
}

/// One plain request on a connection of its own. HTTP/1.0, so that the body is all that follows the headers.
pub(crate) async fn get(authority: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(authority).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {authority}\r\nAccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(PAGE_MAX).read_to_end(&mut answer).await?;
    let body = answer.windows(4).position(|w| w == b"\r\n\r\n");
    Ok(body.map_or_else(Vec::new, |at| answer.split_off(at + 4)))
}
