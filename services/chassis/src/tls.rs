//! TLS to the servers, by the installation's authority alone: [`client_config`] is what every connection is made by.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use async_nats::rustls;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;

pub use identity::{BadAuthority, client_config, trusting};

/// As the ClickHouse crate has them for its own connections: the server ends idle ones after 3 s.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(2);
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// A client of ClickHouse at this URL: with an authority by TLS or not at all. It connects per request.
pub fn clickhouse(url: &str, ca_file: Option<&Path>) -> Result<clickhouse::Client, BadAuthority> {
    let client = match ca_file {
        None => clickhouse::Client::default(),
        Some(path) => {
            let mut tcp = HttpConnector::new();
            tcp.set_keepalive(Some(TCP_KEEPALIVE));
            tcp.enforce_http(false);
            let connector = hyper_rustls::HttpsConnectorBuilder::new()
                .with_tls_config(client_config(path)?)
                .https_only()
                .enable_http1()
                .wrap_connector(tcp);
            let http = Client::builder(TokioExecutor::new())
                .pool_idle_timeout(POOL_IDLE_TIMEOUT)
                .build(connector);
            clickhouse::Client::with_http_client(http)
        }
    };
    Ok(client.with_url(url))
}

/// Whether a connection failed because of what the server showed, and not because of the way to it.
pub fn is_distrust(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return true;
        }
        // An error of the system may hold one of a library, which is not its source but itself.
        let held = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        next = match held {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn distrust_is_found_wherever_it_is_held() {
        let distrust =
            || rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        assert!(is_distrust(&distrust()));
        assert!(is_distrust(&io::Error::other(distrust())));
        assert!(is_distrust(&sqlx::Error::Io(io::Error::other(distrust()))));
        assert!(is_distrust(&sqlx::Error::Tls(Box::new(distrust()))));
        assert!(!is_distrust(&io::Error::other("away")));
        assert!(!is_distrust(&sqlx::Error::PoolTimedOut));
    }
}
