//! The bus alone: the frames that Apportion has just written, appended again on a server of their own by one writer that
//! decides nothing, with the same fence and the same durability.

use super::{PeersError, own::Own};
use crate::kit::servers::Servers;
use async_nats::{
    HeaderMap, HeaderValue,
    header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
    jetstream::{self, context::PublishAckFuture, stream},
};
use bytes::Bytes;
use chassis::{Stopwatch, stack::Stack};
use ledger::{Bus, Tail};
use ledger_nats::{
    cell::{self, Chosen},
    jetstream::JetStreamBus,
};
use replay::reach::{ledger, plain};
use serde::Serialize;
use std::{collections::VecDeque, future::IntoFuture, ops::RangeInclusive, time::Duration};
use vocab::{Lsn, Writer, subjects::Subjects};

/// Whoever may append on a ledger of any name.
const WRITER: Writer = Writer::Quota;
/// Frames kept for it, from the middle of the run.
const SAMPLES_MAX: u64 = 2048;
/// In flight: as a writer of ours has it, as all of them together have it, and more than any.
const IN_FLIGHT: [usize; 3] = [1, 4, 16];
/// At the inbox there are many senders.
const INBOX_IN_FLIGHT: usize = 64;
/// A batch of requests, at the most.
const INBOX_BYTES: usize = 32 << 10;

#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    pub ledger: Vec<Case>,
    pub inbox: Case,
    pub frame_bytes: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Case {
    pub in_flight: usize,
    pub messages_per_s: f64,
    pub bytes_per_s: f64,
}

impl Figures {
    /// So many tasks per second if nothing but their bytes had to be written, one thing after the other.
    pub fn tasks_per_s(&self, ledger: &Case, own: &Own) -> f64 {
        let ledger_s = own.ledger_bytes_per_task / ledger.bytes_per_s;
        let inbox_s = own.inbox_bytes_per_task / self.inbox.bytes_per_s;
        1.0 / (ledger_s + inbox_s)
    }
}

pub async fn measure(
    stack: &Stack,
    run: RangeInclusive<u64>,
    servers: &Servers,
    window: Duration,
) -> Result<Figures, PeersError> {
    let frames = samples(stack, run).await?;
    let operator = jetstream::new(plain(&servers.stack, "operator").await?);
    let maker = jetstream::new(plain(&servers.stack, "bus").await?);
    let mut cases = Vec::new();
    for in_flight in IN_FLIGHT {
        let subjects = Subjects::new(format!("peers{in_flight}"));
        cell::init(&maker, &subjects, Chosen::default()).await?;
        let writer = plain(&servers.stack, WRITER.name()).await?;
        let bus = JetStreamBus::open(writer, subjects.clone()).await?;
        let subject = subjects.ledger(WRITER.name());
        let case = Stream {
            jetstream: bus.context().clone(),
            subject,
            fenced: true,
        };
        cases.push(case.publish(&frames, in_flight, window).await?);
        maker.delete_stream(subjects.ledger_stream()).await?;
    }
    let subjects = Subjects::new("peers-inbox");
    cell::init(&maker, &subjects, Chosen::default()).await?;
    // Nobody takes away what is published here, so that nothing may be refused for being too many.
    let stream = maker.get_stream(subjects.ingress_stream()).await?;
    maker
        .update_stream(stream::Config {
            max_messages_per_subject: i64::from(i32::MAX),
            ..stream.cached_info().config.clone()
        })
        .await?;
    // The operators' messages stand in the tenants' stream.
    let inbox = Stream {
        jetstream: operator,
        subject: subjects.admin(),
        fenced: false,
    };
    let messages: Vec<Bytes> = frames
        .iter()
        .flat_map(|frame| {
            (0..frame.len())
                .step_by(INBOX_BYTES)
                .map(|at| part(frame, at))
        })
        .collect();
    let inbox = inbox.publish(&messages, INBOX_IN_FLIGHT, window).await?;
    maker.delete_stream(subjects.ingress_stream()).await?;
    let bytes: usize = frames.iter().map(Bytes::len).sum();
    Ok(Figures {
        ledger: cases,
        inbox,
        frame_bytes: bytes as f64 / frames.len() as f64,
    })
}

fn part(frame: &Bytes, at: usize) -> Bytes {
    frame.slice(at..frame.len().min(at + INBOX_BYTES))
}

/// Where the stack's ledger ends.
pub async fn end(stack: &Stack) -> Result<u64, PeersError> {
    let bus = ledger(stack).await?;
    Ok(bus.end().await?.0)
}

/// Frames of a run, which stand at these positions of the stack's ledger.
async fn samples(stack: &Stack, run: RangeInclusive<u64>) -> Result<Vec<Bytes>, PeersError> {
    let bus = ledger(stack).await?;
    let all = (run.end() + 1).saturating_sub(*run.start());
    let left_out = all.saturating_sub(SAMPLES_MAX);
    let first = run.start() + left_out / 2;
    let mut records = bus.follow(Lsn(first)).await?;
    let mut frames = Vec::new();
    for _ in 0..all - left_out {
        frames.push(records.recv().await?.frame);
    }
    match frames.len() {
        0 => Err(PeersError::NoFrames),
        _ => Ok(frames),
    }
}

struct Stream {
    jetstream: jetstream::Context,
    subject: String,
    /// Behind the message before it and no other.
    fenced: bool,
}

impl Stream {
    async fn publish(
        &self,
        messages: &[Bytes],
        in_flight: usize,
        window: Duration,
    ) -> Result<Case, PeersError> {
        let watch = Stopwatch::start();
        let mut waiting: VecDeque<PublishAckFuture> = VecDeque::new();
        let (mut count, mut bytes) = (0_u64, 0);
        for message in messages.iter().cycle() {
            if watch.elapsed() > window {
                break;
            }
            if waiting.len() == in_flight
                && let Some(first) = waiting.pop_front()
            {
                first.into_future().await?;
            }
            let mut headers = HeaderMap::new();
            if self.fenced {
                // Nobody else writes here, so each one's position is known before it is there.
                headers.insert(
                    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
                    HeaderValue::from(count),
                );
            }
            let subject = self.subject.clone();
            let publish = self
                .jetstream
                .publish_with_headers(subject, headers, message.clone());
            waiting.push_back(publish.await?);
            count += 1;
            bytes += message.len();
        }
        for ack in waiting {
            ack.into_future().await?;
        }
        let seconds = watch.elapsed().as_secs_f64();
        Ok(Case {
            in_flight,
            messages_per_s: count as f64 / seconds,
            bytes_per_s: bytes as f64 / seconds,
        })
    }
}
