//! Why an allocation stands where it stands.

use super::allocation::{of_view, view};
use crate::{
    project::{Entry, Position},
    start_estimate::StartEstimate,
    store::{self, Ahead, Explanation, PlaceInQueue, Standing},
};
use chassis::{
    Clock,
    query::{Asked, Trouble, Verb, ask_state},
};
use ledger_nats::Questions;
use scheduler_rules::Scheduler;
use schemas::v1::{self, ExplainQuery, ExplainReply};
use sqlx::PgPool;
use vocab::{AllocationId, AllocationNo, Event, Lsn, Millis, Rule, Token};
use wire::Message;

/// The verb `explain`.
pub struct ExplainQueries {
    pub pool: PgPool,
    pub clock: Clock,
    pub questions: Questions<Scheduler>,
}

impl Verb for ExplainQueries {
    const NAME: &'static str = "explain";
    type Query = ExplainQuery;
    type Reply = ExplainReply;

    fn position(query: &ExplainQuery) -> Lsn {
        Lsn(query.at_lsn.max(query.as_of_lsn))
    }

    async fn answer(&self, asked: Asked<ExplainQuery>) -> Result<ExplainReply, Trouble> {
        let id = AllocationId::parse(&asked.query.allocation_id);
        let id = id.ok_or_else(|| Trouble::refused(Rule::AllocationIdInvalid, "allocation_id"))?;
        let as_of = Some(Lsn(asked.query.as_of_lsn)).filter(|lsn| lsn.0 > 0);
        let now = self.clock.now_ms();
        let found = store::explain(&self.pool, &asked.tenant, id, as_of, Millis(now)).await?;
        let mut found =
            found.ok_or_else(|| Trouble::refused(Rule::AllocationNotFound, "allocation_id"))?;
        if let Some(place) = &mut found.place {
            self.forecast(id, place).await;
        }
        let depends_on = match as_of {
            None => store::dependencies(&self.pool, &found.allocation, &asked.tenant).await?,
            Some(_) => Vec::new(),
        };
        Ok(ExplainReply {
            depends_on: depends_on
                .iter()
                .map(|(one, reason)| view(one, *reason, found.through))
                .collect(),
            ..reply(&found)
        })
    }
}

impl ExplainQueries {
    /// Adds the earliest start by the estimates of running allocations. It stays unknown without a process that decides.
    async fn forecast(&self, id: AllocationId, place: &mut PlaceInQueue) {
        if place.standing != Standing::Queued {
            return;
        }
        let (_, number) = id.0.as_u64_pair();
        let earliest = ask_state(&self.questions, Lsn(0), move |state, view| {
            state.earliest_start(AllocationNo(number), view.now)
        });
        place.free_from = earliest.await.ok().and_then(|(at, _)| at);
        if let Some(free_from) = place.free_from {
            place.start = place.start.and_then(|start| start.not_before(free_from));
        }
    }
}

fn reply(found: &Explanation) -> ExplainReply {
    ExplainReply {
        view: Some(view(
            &found.allocation,
            found.allocation.waiting_reason,
            found.through,
        )),
        refusal: None,
        history: found.history.iter().map(explained).collect(),
        pending_group: found.pending_group.as_ref().map(explained),
        place: found.place.as_ref().map(place),
        lsn: found.through.0,
        depends_on: Vec::new(),
    }
}

fn explained(entry: &Entry) -> v1::Explained {
    v1::Explained {
        lsn: entry.position.lsn.0,
        index: entry.position.index,
        at_ms: entry.at.0,
        event: entry.bytes(),
    }
}

fn place(place: &PlaceInQueue) -> v1::PlaceInQueue {
    let number = |number: i64| number.unsigned_abs();
    v1::PlaceInQueue {
        position: number(place.position),
        in_queue: number(place.in_queue),
        position_in_line: place.position_in_line.map_or(0, number),
        in_line: place.in_line.map_or(0, number),
        not_before_ms: match place.standing {
            Standing::Paused(until) => until.0,
            Standing::Queued | Standing::Nominated | Standing::AwaitingQuota => 0,
        },
        since_ms: place.since.0,
        ahead_cpu_milli: place.ahead.cpu_milli,
        ahead_memory_bytes: place.ahead.memory_bytes,
        ahead_gpu_milli: place.ahead.gpu_milli,
        start: place.start.map(|start| v1::StartEstimate {
            earliest_ms: start.earliest.0,
            latest_ms: start.latest.0,
            placements: start.placements,
        }),
        free_from_ms: place.free_from.map_or(0, |at| at.0),
    }
}

/// A reply that is none of the contract's, or of a later version.
#[derive(Debug, thiserror::Error)]
#[error("the cell's explanation cannot be read: {0}")]
pub struct Unreadable(&'static str);

/// What the cell has explained to the tenant.
pub fn explanation(reply: &ExplainReply, tenant: &Token) -> Result<Explanation, Unreadable> {
    let view = reply.view.as_ref();
    let allocation = view.and_then(|view| of_view(view, tenant));
    let allocation = allocation.ok_or(Unreadable("the allocation"))?;
    let history = reply.history.iter().map(entry);
    Ok(Explanation {
        history: history.collect::<Result<_, _>>()?,
        pending_group: reply.pending_group.as_ref().map(entry).transpose()?,
        place: match &reply.place {
            Some(place) => Some(of_place(place, allocation.nominated_node.is_some())?),
            None => None,
        },
        through: Lsn(reply.lsn),
        allocation,
    })
}

fn entry(explained: &v1::Explained) -> Result<Entry, Unreadable> {
    let position = Position {
        lsn: Lsn(explained.lsn),
        index: explained.index,
    };
    let event = Event::decode(&explained.event).map_err(|_| Unreadable("a fact"))?;
    let entry = Entry::new(position, Millis(explained.at_ms), event);
    entry.ok_or(Unreadable("a fact that explains nothing"))
}

fn of_place(place: &v1::PlaceInQueue, nominated: bool) -> Result<PlaceInQueue, Unreadable> {
    let number = |number: u64| i64::try_from(number).map_err(|_| Unreadable("the place"));
    let in_group = |count: u64| (place.in_line > 0).then(|| number(count)).transpose();
    Ok(PlaceInQueue {
        standing: match place.not_before_ms {
            0 if nominated => Standing::Nominated,
            0 => Standing::Queued,
            until => Standing::Paused(Millis(until)),
        },
        since: Millis(place.since_ms),
        position: number(place.position)?,
        in_queue: number(place.in_queue)?,
        position_in_line: in_group(place.position_in_line)?,
        in_line: in_group(place.in_line)?,
        ahead: Ahead {
            cpu_milli: place.ahead_cpu_milli,
            memory_bytes: place.ahead_memory_bytes,
            gpu_milli: place.ahead_gpu_milli,
        },
        start: place.start.as_ref().map(|start| StartEstimate {
            earliest: Millis(start.earliest_ms),
            latest: Millis(start.latest_ms),
            placements: start.placements,
        }),
        free_from: (place.free_from_ms != 0).then_some(Millis(place.free_from_ms)),
    })
}
