//! The bus's monitoring page: the only place that says whether the server syncs before it acknowledges.

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The page is small; what is longer is something else.
const PAGE_MAX: u64 = 1 << 20;

#[derive(Deserialize)]
struct Page {
    config: PageConfig,
}

#[derive(Deserialize)]
struct PageConfig {
    #[serde(default)]
    sync_always: bool,
}

/// What the server says of itself; none if it does not say.
pub(crate) async fn server_syncs_always(url: &str) -> Option<bool> {
    let authority = url.strip_prefix("http://")?.trim_end_matches('/');
    let body = get(authority, "/jsz?config=true").await.ok()?;
    let page: Page = serde_json::from_slice(&body).ok()?;
    Some(page.config.sync_always)
}

/// One plain request on a connection of its own. HTTP/1.0, so that the body is all that follows the headers.
async fn get(authority: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(authority).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {authority}\r\nAccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(PAGE_MAX).read_to_end(&mut answer).await?;
    let body = answer.windows(4).position(|w| w == b"\r\n\r\n");
    Ok(body.map_or_else(Vec::new, |at| answer.split_off(at + 4)))
}
