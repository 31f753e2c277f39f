//! NATS by hand, for what no client would send. In plain text only: the servers of tests and measures are on loopback.

use data_encoding::BASE64URL_NOPAD;
use identity::Creds;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// What the server wants signed; it says so in its first line, after which it waits for the client. In few reads: a server
/// closes connections that take seconds to answer.
async fn nonce(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let (mut line, mut buffer) = (Vec::new(), [0; 4096]);
    while !line.ends_with(b"\n") {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        line.extend(&buffer[..read]);
    }
    let info = line.strip_prefix(b"INFO ").unwrap_or_default();
    let info: serde_json::Value = serde_json::from_slice(info)?;
    Ok(info["nonce"].as_str().unwrap_or_default().into())
}

/// A connection.
pub struct Wire(TcpStream);

impl Wire {
    /// Connects as somebody, or as nobody.
    pub async fn connect(url: &str, creds: Option<&Creds>) -> std::io::Result<Self> {
        let address = url.trim_start_matches("nats://");
        let mut stream = TcpStream::connect(address).await?;
        let (token, signature) = match creds {
            Some(creds) => {
                let answer = creds.answer(&nonce(&mut stream).await?);
                let signature = answer.ok().and_then(|auth| auth.signature);
                (
                    creds.token.as_str(),
                    BASE64URL_NOPAD.encode(&signature.unwrap_or_default()),
                )
            }
            None => ("", String::new()),
        };
        let hello = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\
             \"jwt\":\"{token}\",\"sig\":\"{signature}\",\"lang\":\"test\",\"version\":\"0\",\"protocol\":1}}\r\n"
        );
        stream.write_all(hello.as_bytes()).await?;
        Ok(Self(stream))
    }

    /// A message with a header block of any bytes.
    pub async fn publish(
        &mut self,
        subject: &str,
        headers: &[u8],
        payload: &[u8],
    ) -> std::io::Result<()> {
        let (head, all) = (headers.len(), headers.len() + payload.len());
        let line = format!("HPUB {subject} {head} {all}\r\n");
        self.send(&[line.as_bytes(), headers, payload, b"\r\n"].concat())
            .await
    }

    /// Sends lines of the protocol.
    pub async fn send(&mut self, lines: &[u8]) -> std::io::Result<()> {
        let Err(error) = self.0.write_all(lines).await else {
            return Ok(());
        };
        // Before a server closes a connection, it says why.
        let mut said = Vec::new();
        let _ = self.0.read_to_end(&mut said).await;
        let said = String::from_utf8_lossy(&said);
        Err(std::io::Error::new(
            error.kind(),
            format!("{error}; the server said {said:?}"),
        ))
    }

    /// Returns what the server has said by the time that it has read everything.
    pub async fn flush(&mut self) -> std::io::Result<String> {
        self.0.write_all(b"PING\r\n").await?;
        let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let read = self.0.read(&mut buffer).await?;
            said.extend(&buffer[..read]);
            let text = String::from_utf8_lossy(&said);
            if read == 0 || text.contains("PONG") {
                return Ok(text.into_owned());
            }
        }
    }

    /// Sends bytes and nothing more, and returns when the server has read them or has closed the connection.
    pub async fn end(mut self, bytes: &[u8]) -> std::io::Result<()> {
        // A server that has seen enough closes, and what was not read by then is an error here.
        let (mut read, mut write) = self.0.split();
        let sending = async {
            if write.write_all(bytes).await.is_ok() {
                let _ = write.shutdown().await;
            }
        };
        let mut said = Vec::new();
        let (_, heard) = tokio::join!(sending, read.read_to_end(&mut said));
        match heard {
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
