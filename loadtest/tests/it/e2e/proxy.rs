//! A way to a server that can break: bytes go both ways until all connections on it are cut.

use std::{net::SocketAddr, sync::Arc};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

pub struct Proxy {
    address: SocketAddr,
    /// Counts the cuts.
    cuts: Arc<watch::Sender<u64>>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// To a server's URL, `nats://host:port`.
    pub async fn to(url: &str) -> Self {
        let server = url.trim_start_matches("nats://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let cuts = Arc::new(watch::Sender::new(0));
        let task = tokio::spawn(accept(listener, server, cuts.clone()));
        Self {
            address,
            cuts,
            task,
        }
    }

    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Breaks all connections; new ones are taken at once.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn accept(listener: TcpListener, server: String, cuts: Arc<watch::Sender<u64>>) {
    while let Ok((mut inside, _)) = listener.accept().await {
        let (server, mut cuts) = (server.clone(), cuts.subscribe());
        tokio::spawn(async move {
            let Ok(mut outside) = TcpStream::connect(server).await else {
                return;
            };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut inside, &mut outside) => {}
                _ = cuts.changed() => {}
            }
        });
    }
}
