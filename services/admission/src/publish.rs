//! The feed's sink: outcomes to who waits for them, events to the tenants' feeds, each feed message once.
//!
//! A batch of the projection becomes one message per job set. The stream itself says how far it is: its last message
//! names its batch and its number in it. A batch that was begun is folded again with the same bounds, makes the same
//! messages, and those that are there are left out. Each message names its predecessor, so whatever another projector
//! does meanwhile, what is stored is what one of them would have sent alone.
//!
//! A feed that has to be made anew begins with a message of its own, `Part::BEGINNING`. It is stored before what is old
//! is dropped, so that whoever would have gone on behind the old end is refused.

mod jetstream;
mod pack;
mod part;
mod refuse;
mod stream;

pub use jetstream::JetStreamFeed;
pub use part::Part;
pub use refuse::refuse;
pub use stream::{FeedMessage, FeedOf, FeedStream, Fence, Reply, StreamEnd};

use crate::{
    feed::{FeedItem, FeedKind, Outcome},
    wire,
};
use ledger::{Batch, Digest, LedgerId, Resume, Sink, SinkError, Witness};
use pack::{Pack, Packer};
use prost::bytes::Bytes;
use vocab::{CellNo, Lsn, Token};

/// Acknowledgements awaited at the same time, below the client's own bound.
const IN_FLIGHT_MAX: usize = 64;

pub struct FeedSink<S> {
    stream: S,
    cell: CellNo,
    /// Where the stream ends, as far as this sink knows.
    end: Option<End>,
    /// The sequence that the stream had behind the last batch of this sink, and where that batch ended. A batch may have
    /// nothing that goes into a feed.
    applied: Option<(u64, Applied)>,
}

/// Up to where, and what stands there.
#[derive(Debug, Clone, Copy)]
struct Applied {
    to: Lsn,
    digest: Option<Digest>,
}

#[derive(Debug, Clone, Copy)]
struct End {
    sequence: u64,
    /// The last message, when its batch is not complete.
    begun: Option<Part>,
}

/// Who waits for outcomes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ReplyTo {
    tenant: Token,
    token: Token,
}

/// Outcomes on their way to who waits for them.
struct Replies {
    cell: CellNo,
    packer: Packer<ReplyTo>,
}

impl Replies {
    fn new(cell: CellNo) -> Self {
        Self {
            cell,
            packer: Packer::new(wire::OUTCOMES),
        }
    }

    fn push(&mut self, to: ReplyTo, outcome: &Outcome) {
        let cell = self.cell;
        (self.packer).push(to, |out| wire::outcome(outcome, cell, out));
    }

    fn packed(self) -> Vec<Reply> {
        let packs = self.packer.packs().into_iter();
        let reply = |pack: Pack<ReplyTo>| Reply {
            tenant: pack.to.tenant,
            token: pack.to.token,
            payload: pack.payload.into(),
        };
        packs.map(reply).collect()
    }
}

impl<S: FeedStream> FeedSink<S> {
    pub fn new(stream: S, cell: CellNo) -> Self {
        Self {
            stream,
            cell,
            end: None,
            applied: None,
        }
    }

    /// Outcomes go out at once: the frames that they come from are durable. One that is sent again says the same.
    async fn reply(&self, items: &[FeedItem]) -> Result<(), SinkError> {
        let mut replies = Replies::new(self.cell);
        for item in items {
            let FeedKind::Outcome(outcome) = &item.kind else {
                continue;
            };
            for token in &item.reply_to {
                let to = ReplyTo {
                    tenant: item.tenant.clone(),
                    token: token.clone(),
                };
                replies.push(to, outcome);
            }
        }
        self.stream.reply(replies.packed()).await
    }

    fn packs(&self, items: &[FeedItem]) -> Vec<Pack<FeedOf>> {
        let mut packer = Packer::new(wire::EVENTS);
        for item in items.iter().filter(|item| item.in_feed) {
            let to = (item.tenant.clone(), item.job_set.clone());
            packer.push(to, |out| wire::tenant_event(item, self.cell, out));
        }
        packer.packs()
    }

    /// Sends what of the batch is not there.
    async fn feed(&self, batch: &Batch<FeedItem>, end: End) -> Result<End, SinkError> {
        let packs = self.packs(&batch.changes);
        // A batch has 4096 changes or one frame's: far from the bound.
        let count = u32::try_from(packs.len())
            .map_err(|error| SinkError::Unavailable(error.to_string()))?;
        let landed = match end.begun {
            Some(begun) if begun.to == batch.to && begun.count == count => begun.number,
            Some(begun) => {
                // Another version has made other messages of it, so nobody can say what is missing.
                tracing::error!(
                    ?begun,
                    to = batch.to.0,
                    count,
                    "feed begun by another version"
                );
                self.begin_anew(batch.ledger, end.sequence).await?;
                return Err(SinkError::Moved);
            }
            None => 0,
        };
        let part = |number| Part {
            after: batch.after,
            to: batch.to,
            number,
            count,
            digest: batch.digest,
        };
        let mut missing = (1..).map(part).zip(packs).skip(landed as usize).peekable();
        let mut sequence = end.sequence;
        while missing.peek().is_some() {
            let mut fence = Fence::Sequence;
            let mut messages = Vec::with_capacity(IN_FLIGHT_MAX);
            for (part, pack) in missing.by_ref().take(IN_FLIGHT_MAX) {
                sequence += 1;
                let message = FeedMessage {
                    ledger: batch.ledger,
                    part,
                    of: pack.to,
                    payload: pack.payload.into(),
                    sequence,
                    fence,
                };
                fence = Fence::Behind(message.id());
                messages.push(message);
            }
            self.stream.append(messages).await?;
        }
        Ok(End {
            sequence,
            begun: None,
        })
    }

    /// From here on whoever has read on before `sequence` is refused, and what is old may go. Where it then begins.
    async fn begin_anew(&self, ledger: LedgerId, sequence: u64) -> Result<u64, SinkError> {
        tracing::info!("the feed is made anew");
        let beginning = FeedMessage {
            ledger,
            part: Part::BEGINNING,
            of: nobodys(),
            payload: Bytes::new(),
            sequence: sequence + 1,
            fence: Fence::Sequence,
        };
        self.stream.append(vec![beginning]).await?;
        self.stream.trim(sequence + 1).await?;
        Ok(sequence + 1)
    }

    /// Whether somebody has emptied the stream, even if others have written since: it does not begin where feeds begin, and
    /// has not become so large that it has dropped that itself.
    async fn was_emptied(&self, end: StreamEnd) -> Result<bool, SinkError> {
        if end.messages == 0 || end.full {
            return Ok(end.messages == 0 && end.last_sequence > 0);
        }
        let first = self.stream.part(end.first_sequence).await?;
        Ok(!first.is_some_and(|(_, part)| part.is_beginning()))
    }

    /// Where it stands, whether or not it has to be made anew first.
    async fn look(&self, ledger: LedgerId) -> Result<(End, Applied), SinkError> {
        let end = self.stream.end().await?;
        let mut sequence = end.last_sequence;
        let last = match end.messages {
            0 => None,
            _ => self.stream.part(sequence).await?,
        };
        let mut part = last.filter(|(of, _)| *of == ledger).map(|(_, part)| part);
        let unreadable = end.messages > 0 && part.is_none();
        if unreadable || self.was_emptied(end).await? {
            sequence = self.begin_anew(ledger, sequence).await?;
            part = None;
        } else if part == Some(Part::BEGINNING) && end.first_sequence < sequence {
            // Whoever has begun it anew has not come to drop the rest.
            self.stream.trim(sequence).await?;
        }
        let begun = part.filter(|part| !part.is_last());
        let readable = Applied {
            to: part.map_or(Lsn(0), Part::readable),
            digest: part.filter(|part| part.is_last()).and_then(|p| p.digest),
        };
        let applied = match self.applied {
            Some((behind, applied)) if behind == sequence => applied,
            _ => readable,
        };
        Ok((End { sequence, begun }, applied))
    }
}

/// What the feed bears witness of, for who only looks; none if it is of another ledger.
pub async fn witness(
    stream: &impl FeedStream,
    ledger: LedgerId,
) -> Result<Option<Witness>, SinkError> {
    let end = stream.end().await?;
    if end.messages == 0 {
        return Ok(None);
    }
    let last = stream.part(end.last_sequence).await?;
    let last = last.filter(|(of, part)| *of == ledger && *part != Part::BEGINNING);
    Ok(last.map(|(_, part)| Witness {
        who: "the feed".to_owned(),
        lsn: part.to,
        digest: part.digest,
    }))
}

/// The feed that no tenant reads.
fn nobodys() -> FeedOf {
    // Literals of the token's alphabet.
    let token = |text| Token::new(text).expect("a token");
    (token("_feed"), token("_beginning"))
}

impl<S: FeedStream> Sink for FeedSink<S> {
    type Change = FeedItem;

    async fn resume(&mut self, ledger: LedgerId) -> Result<Resume, SinkError> {
        let (end, applied) = self.look(ledger).await?;
        self.end = Some(end);
        Ok(Resume {
            through: applied.to,
            digest: applied.digest,
            begun: end.begun.map(|part| part.to),
        })
    }

    async fn apply(&mut self, batch: &Batch<FeedItem>) -> Result<(), SinkError> {
        // Until it is known again, only the stream knows where it ends.
        let Some(end) = self.end.take() else {
            return Err(SinkError::Moved);
        };
        if let Err(error) = self.reply(&batch.changes).await {
            self.end = Some(end);
            return Err(error);
        }
        match self.feed(batch, end).await {
            Ok(end) => {
                let (to, digest) = (batch.to, batch.digest);
                self.applied = Some((end.sequence, Applied { to, digest }));
                self.end = Some(end);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "feed");
                Err(SinkError::Moved)
            }
        }
    }
}
