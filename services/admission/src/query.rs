//! Pages of a tenant's feed by request and reply: tenants have no access to the streams themselves.

use crate::{feed::FeedPosition, publish::parse_position};
use async_nats::{
    Client, Message as NatsMessage,
    jetstream::{
        consumer::{AckPolicy, DeliverPolicy, pull},
        stream::Stream,
    },
};
use chassis::{Failure, Shutdown};
use futures::StreamExt;
use ledger::{jetstream::JetStreamBus, wire::refusal_to_proto};
use prost::Message;
use schemas::{
    subjects::{HEADER_POSITION, Subjects},
    v1,
};
use std::time::Duration;
use vocab::{Lsn, Refusal, Rule, Token};

const PAGE_MAX: u32 = 1000;
/// A consumer that a page was read with and that could not be deleted goes by itself.
const CONSUMER_TTL: Duration = Duration::from_secs(30);

/// Answers until shutdown, one query after the other.
pub async fn serve(client: Client, bus: &JetStreamBus, shutdown: &Shutdown) -> Result<(), Failure> {
    let subjects = bus.subjects();
    let mut queries = client
        .queue_subscribe(subjects.query("*", "*"), "query".into())
        .await?;
    loop {
        let query = tokio::select! {
            query = queries.next() => query,
            () = shutdown.requested() => return Ok(()),
        };
        let Some(query) = query else {
            return Ok(());
        };
        let Some(reply) = query.reply.clone() else {
            continue;
        };
        let page = match answer(bus, subjects, &query).await {
            Ok(events) => v1::FeedPage {
                events,
                refusal: None,
            },
            Err(Trouble::Refused(refusal)) => v1::FeedPage {
                events: Vec::new(),
                refusal: Some(refusal_to_proto(&refusal)),
            },
            // No answer is the honest one: the asker's patience makes it indefinite.
            Err(Trouble::Unavailable(error)) => {
                tracing::warn!(%error, "feed query");
                continue;
            }
        };
        client.publish(reply, page.encode_to_vec().into()).await?;
    }
}

enum Trouble {
    Refused(Refusal),
    Unavailable(Failure),
}

impl<E: Into<Failure>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Unavailable(error.into())
    }
}

async fn answer(
    bus: &JetStreamBus,
    subjects: &Subjects,
    query: &NatsMessage,
) -> Result<Vec<v1::TenantEvent>, Trouble> {
    let refused = |rule, subject| Err(Trouble::Refused(Refusal::new(rule, subject)));
    let (Some(tenant), Some(verb)) = (
        subjects.token(&query.subject, 1),
        subjects.token(&query.subject, 2),
    ) else {
        return refused(Rule::MalformedMessage, "subject");
    };
    if verb != "feed" {
        return refused(Rule::UnknownVerb, "verb");
    }
    let Ok(wanted) = v1::FeedQuery::decode(query.payload.clone()) else {
        return refused(Rule::MalformedMessage, "payload");
    };
    let job_set = match wanted.job_set.as_str() {
        "" => "*",
        name => match Token::new(name) {
            Ok(_) => name,
            Err(_) => return refused(Rule::NameInvalid, "job_set"),
        },
    };
    let limit = match wanted.limit {
        0 => PAGE_MAX,
        limit if limit > PAGE_MAX => {
            return Err(Trouble::Refused(Refusal::over(
                Rule::QuantityTooLarge,
                "limit",
                PAGE_MAX.into(),
                limit.into(),
            )));
        }
        limit => limit,
    };
    let after = FeedPosition {
        lsn: Lsn(wanted.after_lsn),
        index: wanted.after_index,
    };
    let stream = bus.context().get_stream(subjects.event_stream()).await?;
    let Some(start) = first_after(&stream, after).await? else {
        return Ok(Vec::new());
    };
    read(&stream, start, subjects.event(tenant, job_set), limit).await
}

/// The first sequence whose position is beyond `after`: positions grow with sequences.
async fn first_after(stream: &Stream, after: FeedPosition) -> Result<Option<u64>, Trouble> {
    let state = &stream.cached_info().state;
    if state.messages == 0 {
        return Ok(None);
    }
    let (mut low, mut high) = (state.first_sequence, state.last_sequence + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let message = stream.get_raw_message(middle).await?;
        let text = message.headers.get(HEADER_POSITION).map(|v| v.as_str());
        if text.and_then(parse_position).unwrap_or_default() > after {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok((low <= state.last_sequence).then_some(low))
}

async fn read(
    stream: &Stream,
    start_sequence: u64,
    filter_subject: String,
    limit: u32,
) -> Result<Vec<v1::TenantEvent>, Trouble> {
    let consumer = stream
        .create_consumer(pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence },
            ack_policy: AckPolicy::None,
            filter_subject,
            inactive_threshold: CONSUMER_TTL,
            memory_storage: true,
            num_replicas: 1,
            ..Default::default()
        })
        .await?;
    let mut messages = consumer
        .fetch()
        .max_messages(limit as usize)
        .messages()
        .await?;
    let mut events = Vec::new();
    while let Some(message) = messages.next().await {
        events.push(v1::TenantEvent::decode(message?.payload.clone())?);
    }
    drop(messages);
    let name = consumer.cached_info().name.clone();
    if let Err(error) = stream.delete_consumer(&name).await {
        tracing::debug!(%error, "consumer is left to its time-out");
    }
    Ok(events)
}
