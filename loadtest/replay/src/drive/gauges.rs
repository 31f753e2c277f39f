//! Where the services' read models stand, from their metrics pages; and whether they are ready.

use std::{io, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const TIMEOUT: Duration = Duration::from_secs(2);
/// Far more than any page has.
const PAGE_BYTES_MAX: u64 = 4 << 20;

/// The position that all projections of a service have applied; nothing when it does not say, or does not answer.
pub async fn projected_lsn(address: SocketAddr) -> Option<u64> {
    let page = metrics(address).await?;
    values(&page, "apportion_projection_lsn").min()
}

/// A number of a metrics page that has one by this name; nothing when the page does not have it, or does not come.
pub async fn gauge(address: SocketAddr, name: &str) -> Option<u64> {
    let page = metrics(address).await?;
    values(&page, name).next()
}

async fn metrics(address: SocketAddr) -> Option<String> {
    let page = tokio::time::timeout(TIMEOUT, page(address, "/metrics")).await;
    page.ok()?.ok()
}

/// Whether a service says that it is ready; one that does not answer is not.
pub async fn ready(address: SocketAddr) -> bool {
    let page = tokio::time::timeout(TIMEOUT, page(address, "/readyz")).await;
    let page = page.map_or_else(|_| String::new(), Result::unwrap_or_default);
    page.split(' ').nth(1) == Some("200")
}

/// HTTP 1.0, so that the end of the page is the end of the connection.
async fn page(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream
        .take(PAGE_BYTES_MAX)
        .read_to_string(&mut text)
        .await?;
    Ok(text)
}

fn values(page: &str, name: &str) -> impl Iterator<Item = u64> {
    page.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let labelled = rest.starts_with('{') || rest.starts_with(' ');
        let number = rest.rsplit(' ').next()?;
        labelled.then(|| number.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::values;

    #[test]
    fn numbers_are_found_by_their_whole_name() {
        let page = "# TYPE a_lsn gauge\na_lsn_other{cell=\"c\"} 7\na_lsn{cell=\"c 1\"} 42\na_lsn{of=\"b\"} 5\n# EOF\n";
        assert_eq!(values(page, "a_lsn").collect::<Vec<_>>(), [42, 5]);
        assert_eq!(values(page, "b_lsn").next(), None);
    }
}
