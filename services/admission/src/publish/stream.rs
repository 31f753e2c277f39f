//! What the sink needs of a stream: JetStream has it, and the simulation's memory.

use super::Part;
use ledger::{Digest, LedgerId, SinkError};
use prost::bytes::Bytes;
use std::future::Future;
use vocab::Token;

/// A feed: the tenant and the job set.
pub type FeedOf = (Token, Token);

/// A message of the feed, and where in the stream it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedMessage {
    pub ledger: LedgerId,
    pub part: Part,
    pub of: FeedOf,
    /// `TenantEvents`, encoded.
    pub payload: Bytes,
    /// The stream's sequence that it is to have.
    pub sequence: u64,
    pub fence: Fence,
}

/// What has to be the stream's last message for this one to follow.
///
/// The message before it was sent a moment ago and may have been refused, while somebody else's has taken its sequence.
/// So a sequence alone is no fence: the predecessor has an id of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fence {
    /// Whatever has the sequence before: the stream said what that is.
    Sequence,
    /// The message with this id, and no other.
    Behind(String),
}

impl FeedMessage {
    /// Names the message by its place and by what it says. Two projectors that make the same message of the same batch
    /// give it the same id, and it does not matter whose is stored.
    pub fn id(&self) -> String {
        let Part {
            after,
            to,
            number,
            count,
            ..
        } = self.part;
        let digest = Digest::of(&self.payload).to_string();
        let (ledger, sequence) = (self.ledger.0, self.sequence);
        format!(
            "{sequence}.{ledger}.{}-{}.{number}-{count}.{digest}",
            after.0 + 1,
            to.0
        )
    }
}

/// How the stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamEnd {
    /// Of the oldest message that is there.
    pub first_sequence: u64,
    /// Of the last message that ever was there.
    pub last_sequence: u64,
    /// Messages that are there.
    pub messages: u64,
    /// It has grown so large that it may have dropped its oldest messages by itself.
    pub full: bool,
}

/// Outcomes on their way to one reply subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub tenant: Token,
    pub token: Token,
    /// `Outcomes`, encoded.
    pub payload: Bytes,
}

/// The stream of the tenants' feeds, and the way to who waits for outcomes.
pub trait FeedStream: Send + Sync + 'static {
    fn end(&self) -> impl Future<Output = Result<StreamEnd, SinkError>> + Send;

    /// The ledger that a message was made from, and which part of a batch it is. None when it is not there, or is not one
    /// that this version has written.
    fn part(
        &self,
        sequence: u64,
    ) -> impl Future<Output = Result<Option<(LedgerId, Part)>, SinkError>> + Send;

    /// Sends them in their order without waiting for one another. Each is stored at its sequence, if the fence lets it,
    /// or was stored there before; `Moved` when one was not. Some of them may be stored when an error comes back, or later.
    fn append(
        &self,
        messages: Vec<FeedMessage>,
    ) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Drops what is below the sequence.
    fn trim(&self, sequence: u64) -> impl Future<Output = Result<(), SinkError>> + Send;

    fn reply(&self, replies: Vec<Reply>) -> impl Future<Output = Result<(), SinkError>> + Send;
}
