//! How the agent becomes a node on the bus: by a token that an operator was given, it gets a user for an hour at a time.

use async_nats::Client;
use chassis::NatsConfig;
use identity::{
    Creds,
    files::{FileError, read, write},
};
use nkeys::KeyPair;
use prost::Message as _;
use schemas::v1::{JoinReply, JoinRequest, Refusal, join_reply::Answer};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use vocab::subjects::Subjects;
use wire::Message as _;

/// A user lasts an hour.
pub const RENEW: Duration = Duration::from_secs(30 * 60);
const PATIENCE: Duration = Duration::from_secs(10);
const SEED: &str = "node.seed";
const CREDS: &str = "node.creds";

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0} holds no key")]
    Key(PathBuf),
    #[error(transparent)]
    Authority(#[from] identity::BadAuthority),
    #[error("cannot connect to join: {0}")]
    Connect(#[from] async_nats::ConnectError),
    #[error("nobody answers who may join: {0}")]
    Request(#[from] async_nats::RequestError),
    #[error("nobody answers who may join")]
    NoAnswer,
    #[error("may not join: {}", explanation(.0))]
    Refused(Refusal),
}

/// Returns the refusal in words, with its limit and its remedy.
pub fn explanation(refusal: &Refusal) -> String {
    let known = vocab::Refusal::decode(&refusal.encode_to_vec());
    known.map_or_else(
        |_| format!("{}: rule {}", refusal.subject, refusal.rule),
        |known| known.explanation(),
    )
}

/// A node's key pair, and what it joins by.
pub struct Identity {
    state_dir: PathBuf,
    node: String,
    token: Vec<u8>,
    key: KeyPair,
}

impl Identity {
    /// The key is made once and stays with the machine.
    pub fn open(state_dir: &Path, node: &str, token_file: &Path) -> Result<Self, JoinError> {
        let token = read(token_file)?.trim().as_bytes().to_vec();
        let path = state_dir.join(SEED);
        let key = match path.exists() {
            true => KeyPair::from_seed(read(&path)?.trim()),
            false => {
                let key = KeyPair::new_user();
                if let Ok(seed) = key.seed() {
                    write(&path, &seed)?;
                }
                Ok(key)
            }
        };
        Ok(Self {
            state_dir: state_dir.to_owned(),
            node: node.to_owned(),
            token,
            key: key.map_err(|_| JoinError::Key(path))?,
        })
    }

    /// Where the node's creds are written.
    pub fn creds(&self) -> PathBuf {
        self.state_dir.join(CREDS)
    }

    /// Gets the node's user, or the next one.
    pub async fn join(&self, config: &NatsConfig, subjects: &Subjects) -> Result<(), JoinError> {
        let options = identity::connect(&config.creds).custom_inbox_prefix("_INBOX.join");
        let options = identity::trusting(options, config.ca_file.as_deref())?;
        let client = options
            .name("node agent, to join")
            .connect(&config.url)
            .await?;
        let reply = self.ask(&client, subjects).await;
        let user_jwt = match reply?.answer {
            Some(Answer::UserJwt(user_jwt)) => user_jwt,
            Some(Answer::Refused(refusal)) => return Err(JoinError::Refused(refusal)),
            None => return Err(JoinError::NoAnswer),
        };
        let seed = self.key.seed().and_then(|seed| KeyPair::from_seed(&seed));
        let key = seed.map_err(|_| JoinError::Key(self.state_dir.join(SEED)))?;
        let text = Creds::new(user_jwt, key).text();
        let text = text.map_err(|_| JoinError::Key(self.state_dir.join(SEED)))?;
        Ok(write(&self.creds(), &text)?)
    }

    async fn ask(&self, client: &Client, subjects: &Subjects) -> Result<JoinReply, JoinError> {
        let request = JoinRequest {
            node: self.node.clone(),
            token: self.token.clone(),
            public_key: self.key.public_key(),
        };
        let answer = client.request(subjects.join(), request.encode_to_vec().into());
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        let answer = answer.map_err(|_| JoinError::NoAnswer)??;
        JoinReply::decode(answer.payload).map_err(|_| JoinError::NoAnswer)
    }
}
