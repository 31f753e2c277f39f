//! What is said on one connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use data_encoding::BASE64URL_NOPAD;
use identity::CredsError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{self, MissedTickBehavior};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{InvalidDnsNameError, ServerName};
use watermelon_net::error::{ConnectError, ConnectionReadError};
use watermelon_net::{Connection, StreamingConnection, connect_tcp, proto_connect};
use watermelon_proto::headers::HeaderMap;
use watermelon_proto::proto::{ClientOp, ServerOp};
use watermelon_proto::{
    Connect, Host, MessageBase, NonStandardConnect, Protocol, QueueGroup, ServerAddr,
    Subject as Target,
};

use super::{ANSWERS_MAX, Answer, Heard, ReplyTo, Wanted};
use crate::config::NatsConfig;
use crate::tls::{self, BadAuthority};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A server that has said nothing for twice as long is away.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Answers written in one go.
const ANSWERS_AT_ONCE: usize = 64;

/// Why nothing is heard.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unheard {
    #[error("nats.url is not understood: {0}")]
    Url(String),
    #[error("nats.creds")]
    Creds(#[from] CredsError),
    #[error("nats.ca_file")]
    Authority(#[from] BadAuthority),
    #[error("nats.url has no host that a certificate could be of")]
    Host(#[from] InvalidDnsNameError),
    #[error("the bus is away")]
    Io(#[from] io::Error),
    #[error("the bus does not connect")]
    Connect(#[from] ConnectError),
    #[error("the connection broke")]
    Read(#[from] ConnectionReadError),
    #[error("the bus has said nothing of itself")]
    NoInfo,
    #[error("the bus says nothing any more")]
    Silent,
}

/// With or without TLS.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

type Wire = Connection<Box<dyn Socket>, Box<dyn Socket>>;

/// A connection on which everything wanted is subscribed to.
pub(super) struct Talk {
    wire: Wire,
    answers: mpsc::Receiver<Answer>,
    /// For those who will answer.
    answering: mpsc::Sender<Answer>,
}

impl Talk {
    pub(super) async fn begin(
        service: &'static str,
        config: &NatsConfig,
        wanted: &[Wanted],
    ) -> Result<Self, Unheard> {
        let wire = connect(service, config, wanted);
        let wire = time::timeout(CONNECT_WITHIN, wire).await;
        let wire = wire.map_err(|_| Unheard::Silent)??;
        let (answering, answers) = mpsc::channel(ANSWERS_MAX);
        Ok(Self {
            wire,
            answers,
            answering,
        })
    }

    /// Hands over what comes and sends the answers, until nobody listens. The connection is read one message ahead of who
    /// listens, and answers are sent meanwhile: they may be what it waits for.
    pub(super) async fn run(
        &mut self,
        heard: &mpsc::Sender<Heard>,
        refused: impl Fn(),
    ) -> Result<(), Unheard> {
        let mut ahead: Option<Heard> = None;
        let mut answers = Vec::new();
        let mut pings = time::interval(PING_EVERY);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unanswered = 0;
        loop {
            tokio::select! {
                1.. = self.answers.recv_many(&mut answers, ANSWERS_AT_ONCE) => {
                    for answer in answers.drain(..) {
                        self.wire.enqueue_write_op(&publish(answer));
                    }
                    self.wire.write_and_flush().await?;
                }
                permit = heard.reserve(), if ahead.is_some() => {
                    let (Ok(permit), Some(message)) = (permit, ahead.take()) else {
                        return Ok(());
                    };
                    permit.send(message);
                    // What the server has said meanwhile lies unread.
                    unanswered = 0;
                }
                said = self.wire.read_next(), if ahead.is_none() => {
                    unanswered = 0;
                    match said? {
                        ServerOp::Message { message } => {
                            ahead = Some(hear(message.base, &self.answering));
                        }
                        ServerOp::Ping => {
                            self.wire.enqueue_write_op(&ClientOp::Pong);
                            self.wire.write_and_flush().await?;
                        }
                        ServerOp::Error { error } => {
                            refused();
                            tracing::warn!(%error, "hearing");
                        }
                        ServerOp::Pong | ServerOp::Success | ServerOp::Info { .. } => {}
                    }
                }
                _ = pings.tick() => {
                    // While a message waits for who listens, nothing is read.
                    if unanswered > 1 && ahead.is_none() {
                        return Err(Unheard::Silent);
                    }
                    unanswered += 1;
                    self.wire.enqueue_write_op(&ClientOp::Ping);
                    self.wire.write_and_flush().await?;
                }
            }
        }
    }
}

fn hear(message: MessageBase, answering: &mpsc::Sender<Answer>) -> Heard {
    let reply_to = message.reply_subject.map(|subject| ReplyTo {
        answers: answering.clone(),
        subject: subject.to_string(),
    });
    Heard {
        subject: Subject::from(message.subject.as_str()),
        payload: message.payload,
        reply_to,
    }
}

fn publish(answer: Answer) -> ClientOp {
    ClientOp::Publish {
        message: MessageBase {
            // The server's own word, given back to it.
            subject: Target::from_dangerous_value(answer.subject.into()),
            reply_subject: None,
            headers: HeaderMap::new(),
            payload: answer.payload,
        },
    }
}

async fn connect(
    service: &'static str,
    config: &NatsConfig,
    wanted: &[Wanted],
) -> Result<Wire, Unheard> {
    let address: ServerAddr = config
        .url
        .parse()
        .map_err(|_| Unheard::Url(config.url.clone()))?;
    let socket = connect_tcp(&address).await?;
    socket.set_nodelay(true)?;
    let mut plain = StreamingConnection::new(socket);
    let said = plain.read_next().await;
    let ServerOp::Info { info } = said.map_err(ConnectionReadError::Streaming)? else {
        return Err(Unheard::NoInfo);
    };
    let socket: Box<dyn Socket> = match (&config.ca_file, address.protocol()) {
        (None, Protocol::PossiblyPlain) => Box::new(plain.into_inner()),
        (None, Protocol::TLS) => return Err(Unheard::Url(config.url.clone())),
        (Some(authority), _) => {
            let name = match address.host() {
                Host::Ip(ip) => ServerName::from(*ip),
                Host::Dns(name) => ServerName::try_from(name.to_string())?,
            };
            let connector = TlsConnector::from(Arc::new(tls::client_config(authority)?));
            Box::new(connector.connect(name, plain.into_inner()).await?)
        }
    };
    let hello = hello(service, config, info.nonce.as_deref().unwrap_or_default())?;
    let mut wire = Wire::Streaming(StreamingConnection::new(socket));
    proto_connect(&mut wire, hello, |_| {}).await?;
    for (id, Wanted { subject, group }) in (1_u64..).zip(wanted) {
        wire.enqueue_write_op(&ClientOp::Subscribe {
            id: id.into(),
            subject: Target::from_dangerous_value(subject.as_str().into()),
            queue_group: group.map(QueueGroup::from_static),
        });
    }
    wire.write_and_flush().await?;
    Ok(wire)
}

fn hello(service: &'static str, config: &NatsConfig, nonce: &str) -> Result<Connect, Unheard> {
    let proof = identity::prove(&config.creds, nonce.as_bytes())?;
    Ok(Connect {
        verbose: false,
        pedantic: false,
        require_tls: false,
        auth_token: None,
        username: None,
        password: None,
        client_name: Some(service.to_owned()),
        client_lang: "rust",
        client_version: env!("CARGO_PKG_VERSION"),
        protocol: 1,
        echo: true,
        signature: proof.signature.map(|bytes| BASE64URL_NOPAD.encode(&bytes)),
        jwt: proof.jwt,
        supports_no_responders: false,
        supports_headers: false,
        nkey: None,
        non_standard: NonStandardConnect::default(),
    })
}
