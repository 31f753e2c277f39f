//! One connection of one tenant, or of an operator.

use crate::{
    batcher::Batcher,
    replies::{Denial, Replies},
};
use async_nats::{Event, ServerError, jetstream};
use identity::{BadAuthority, Guest, Login};
use schemas::v1::Outcome;
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::mpsc, task::JoinHandle};
use vocab::{
    BadToken, Token,
    subjects::{OPERATOR, Subjects},
};

/// Longer than any healthy cell takes, short enough that a person still waits for the retry.
const PATIENCE: Duration = Duration::from_secs(10);
/// Messages whose acknowledgement is outstanding. Whoever sends more waits, which bounds the client's memory.
const UNACKNOWLEDGED_MAX: usize = 16_384;

/// Who speaks. The server has the last word: it lets a user publish only on the user's own subjects. An operator whose creds have
/// a name publishes under it, and what it sets says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Party {
    Tenant(Token),
    Operator,
}

impl Party {
    /// Where its requests are published.
    fn inbox(&self, login: &Login, subjects: &Subjects) -> String {
        match self {
            Self::Tenant(tenant) => subjects.ingress(tenant.as_str()),
            // What is wrong with creds, the connection says.
            Self::Operator => match login.party().ok().flatten().as_deref().map(Guest::of_key) {
                Some(Some(Guest::Operator(name))) => subjects.admin_of(&name),
                _ => subjects.admin(),
            },
        }
    }

    /// The token that stands for the party in subjects.
    pub fn name(&self) -> &str {
        match self {
            Self::Tenant(tenant) => tenant.as_str(),
            Self::Operator => OPERATOR,
        }
    }
}

/// Where to connect to, and as whom.
#[derive(Clone)]
pub struct ConnectOptions {
    url: String,
    cell: String,
    party: Party,
    about: Option<Token>,
    login: Login,
    ca_file: Option<PathBuf>,
    patience: Duration,
    deadline: Option<Duration>,
    reads_after: Option<u64>,
    observer: Option<mpsc::UnboundedSender<Outcome>>,
    batched: bool,
}

impl ConnectOptions {
    pub fn tenant(url: impl Into<String>, cell: impl Into<String>, tenant: Token) -> Self {
        Self::new(url.into(), cell.into(), Party::Tenant(tenant))
    }

    pub fn operator(url: impl Into<String>, cell: impl Into<String>) -> Self {
        Self::new(url.into(), cell.into(), Party::Operator)
    }

    fn new(url: String, cell: String, party: Party) -> Self {
        Self {
            url,
            cell,
            party,
            about: None,
            login: Login::Nobody,
            ca_file: None,
            patience: PATIENCE,
            deadline: None,
            reads_after: None,
            observer: None,
            batched: false,
        }
    }

    /// Questions are about this tenant's things. Operators may ask so.
    pub fn about(mut self, tenant: Token) -> Self {
        self.about = Some(tenant);
        self
    }

    /// The file by which the party is let in. It is read again at every connection.
    pub fn creds(self, path: impl Into<PathBuf>) -> Self {
        self.login(Login::Creds(path.into()))
    }

    /// By what the party is let in, where it is no creds file.
    pub fn login(mut self, login: Login) -> Self {
        self.login = login;
        self
    }

    /// The PEM file of the authority that the bus's servers have their certificates of. With it the connection is made by TLS
    /// or not at all; without it, as the URL says.
    pub fn ca_file(mut self, path: Option<impl Into<PathBuf>>) -> Self {
        self.ca_file = path.map(Into::into);
        self
    }

    /// How long one sending of an operation waits before its outcome counts as indefinite.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long each verb's call sends its operation again and again while the outcome is not definite; without it, it sends it
    /// once.
    pub fn deadline(mut self, deadline: Option<Duration>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Every question is answered with all that this connection has decided, and with the ledger up to `lsn`, such as the position of
    /// an earlier connection. Without it, a question is answered as of any position that it does not name itself.
    pub fn reads_after(mut self, lsn: u64) -> Self {
        self.reads_after = Some(lsn);
        self
    }

    /// Sends operations that are under way at the same time in common messages: while one message waits for its
    /// acknowledgement, what is sent meanwhile queues up for the next. Their order stays. Without load an operation waits
    /// for nothing; under load many share one write at the inbox.
    pub fn batched(mut self) -> Self {
        self.batched = true;
        self
    }

    /// Gets a copy of every outcome that reaches the party, also the late ones that nobody waits for any more: for
    /// drivers that check that no operation is answered in two ways.
    pub fn observed_by(mut self, observer: mpsc::UnboundedSender<Outcome>) -> Self {
        self.observer = Some(observer);
        self
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the cell's name: {0}")]
    Cell(#[from] BadToken),
    #[error("connecting to {url}: {source}")]
    Connect {
        url: String,
        source: async_nats::ConnectError,
    },
    #[error(transparent)]
    Authority(#[from] BadAuthority),
    #[error("subscribing to replies: {0}")]
    Subscribe(#[from] async_nats::SubscribeError),
    #[error("subscribing to replies: {0}")]
    Flush(#[from] async_nats::client::FlushError),
}

/// A connection. Clones share it; thousands of operations may be outstanding on it.
#[derive(Clone)]
pub struct Client(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) nats: async_nats::Client,
    pub(crate) jetstream: jetstream::Context,
    pub(crate) subjects: Subjects,
    pub(crate) party: Party,
    /// Where requests are published.
    pub(crate) inbox: String,
    /// Whose things questions are about, if not the party's own.
    pub(crate) about: Option<Token>,
    pub(crate) patience: Duration,
    pub(crate) deadline: Option<Duration>,
    /// Position that each answer includes; `None` if questions name their own.
    pub(crate) reads_after: Option<u64>,
    /// True after an answer that is older than the position that it was to include.
    pub(crate) read_behind: AtomicBool,
    pub(crate) replies: Arc<Replies>,
    pub(crate) batcher: Option<Batcher>,
    dispatcher: JoinHandle<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.dispatcher.abort();
    }
}

impl Client {
    pub async fn connect(options: ConnectOptions) -> Result<Self, ConnectError> {
        let cell = Token::new(&options.cell)?;
        let subjects = Subjects::new(cell.as_str());
        let inbox = options.party.inbox(&options.login, &subjects);
        let denial = Denial::default();
        let connect = options.login.options();
        let connect = identity::trusting(connect, options.ca_file.as_deref())?
            .name(format!("apportion client {}", options.party.name()))
            .event_callback({
                let denial = denial.clone();
                move |event| {
                    note(&event, &denial);
                    std::future::ready(())
                }
            });
        let nats = connect
            .connect(&options.url)
            .await
            .map_err(|source| ConnectError::Connect {
                url: options.url.clone(),
                source,
            })?;
        // The token of a request is one token of the subject, so one subscription hears all of the party's replies.
        let subscription = nats
            .subscribe(subjects.reply(options.party.name(), "*"))
            .await?;
        nats.flush().await?;
        let replies = Arc::new(Replies::new(denial));
        let dispatcher = tokio::spawn(replies.clone().dispatch(subscription, options.observer));
        let jetstream = jetstream::ContextBuilder::new()
            .timeout(options.patience)
            .ack_timeout(options.patience)
            .max_ack_inflight(UNACKNOWLEDGED_MAX)
            .backpressure_on_inflight(true)
            .build(nats.clone());
        Ok(Self(Arc::new_cyclic(|inner| Inner {
            nats,
            jetstream,
            subjects,
            party: options.party,
            inbox,
            about: options.about,
            patience: options.patience,
            deadline: options.deadline,
            reads_after: options.reads_after,
            read_behind: AtomicBool::new(false),
            replies,
            batcher: options.batched.then(|| Batcher::spawn(inner.clone())),
            dispatcher,
        })))
    }

    pub fn party(&self) -> &Party {
        &self.0.party
    }

    pub fn subjects(&self) -> &Subjects {
        &self.0.subjects
    }

    /// The newest position of the ledger that an outcome on this connection has named; 0: none has. A question with it as
    /// `at_lsn` is answered with everything that was decided here in it.
    pub fn decided_lsn(&self) -> u64 {
        self.0.replies.decided()
    }

    /// Returns whether an answer on this connection is older than [`ConnectOptions::reads_after`] asks for: the cell was too far behind, or its
    /// ledger does not reach that position.
    pub fn has_read_behind(&self) -> bool {
        self.0.read_behind.load(Ordering::Relaxed)
    }

    pub fn deadline(&self) -> Option<Duration> {
        self.0.deadline
    }
}

/// A refused publish or subscribe comes as an event and not as an error of the call, so the last one is kept for
/// whoever waits in vain.
fn note(event: &Event, denial: &Denial) {
    match event {
        Event::ServerError(ServerError::Other(text)) => {
            tracing::warn!(error = text, "nats server error");
            denial.set(text);
        }
        Event::ServerError(error) => {
            tracing::warn!(%error, "nats server error");
            denial.set(&error.to_string());
        }
        Event::SlowConsumer(subscription) => {
            tracing::warn!(subscription, "nats slow consumer, replies dropped");
        }
        Event::Disconnected => {
            tracing::debug!(event = %event, "nats");
            denial.connection_lost();
        }
        other => tracing::debug!(event = %other, "nats"),
    }
}
