//! Queues: what is set for each, what it holds, and what a tenant has waiting.

use crate::store::{self, QueueState, Queued, Standing};
use chassis::query::{Asked, Trouble, Verb, cut_to_fit, page_limit};
use schemas::v1::{
    LimitRequest, QueueQuery, QueueReply, QueueView, QueuedView, QueuesQuery, QueuesReply,
    WaitingCount,
};
use sqlx::PgPool;
use vocab::{Lsn, Rule, Token};

/// Queues of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 100;

/// The verb `queues`.
pub struct QueuesQueries {
    pub pool: PgPool,
}

impl Verb for QueuesQueries {
    const NAME: &'static str = "queues";
    type Query = QueuesQuery;
    type Reply = QueuesReply;

    fn position(query: &QueuesQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<QueuesQuery>) -> Result<QueuesReply, Trouble> {
        let query = &asked.query;
        let limit = page_limit(query.limit, PAGE, PAGE_MAX)? as usize;
        if !query.after.is_empty() && Token::new(&query.after).is_err() {
            return Err(Trouble::refused(Rule::SettingInvalid, "after"));
        }
        let page = store::queues(&self.pool, asked.whose(), &query.after, limit).await?;
        let view = |one: &QueueState| view(one, asked.whose());
        let mut queues: Vec<_> = page.found.iter().map(view).collect();
        let next = match cut_to_fit(&mut queues) {
            true => queues.last().map(|last| last.queue.clone()),
            false => page.next,
        };
        Ok(QueuesReply {
            queues,
            refusal: None,
            next: next.unwrap_or_default(),
            lsn: asked.applied.0,
        })
    }
}

/// `tenant`: who is told, if it is one. The names of the others are not for it.
fn view(one: &QueueState, tenant: Option<&Token>) -> QueueView {
    let settings = &one.settings;
    let told = |name: &&Token| tenant.is_none_or(|tenant| tenant == *name);
    let limit = |(kind, amount): &(vocab::ResourceKind, u64)| LimitRequest {
        resource: kind.name().to_owned(),
        amount: i64::try_from(*amount).unwrap_or(i64::MAX),
    };
    let tenants = settings.tenants.iter().filter(told);
    let parent = settings.parent.as_ref();
    // The numbers are the contract's.
    let waiting = one.waiting.iter().map(|waits| WaitingCount {
        reason: waits.reason.map_or(0, |reason| reason as i32),
        allocations: waits.allocations,
    });
    QueueView {
        queue: one.queue.clone(),
        parent: parent.map_or_else(String::new, Token::to_string),
        weight_milli: settings.weight_milli,
        limits: settings.limits.iter().map(limit).collect(),
        tenants: tenants.map(Token::to_string).collect(),
        order: settings.order as i32,
        placement: settings.placement.map(|policy| policy as i32),
        version: one.version.unwrap_or(0),
        held: one.held.allocations,
        held_cpu_milli: one.held.cpu_milli,
        held_memory_bytes: one.held.memory_bytes,
        held_gpu_milli: one.held.gpu_milli,
        waiting: waiting.collect(),
        oldest_ms: one.oldest.map_or(0, |at| at.0),
        share_ppm: one.share.map(|share| share.share_ppm),
        fair_share_ppm: one.share.map(|share| share.fair_share_ppm),
        share_at_ms: one.share.map_or(0, |share| share.at.0),
    }
}

/// Of those that wait so many are told, at the most, and where nothing is said of it.
const WAITING_MAX: u32 = 1000;
const WAITING: u32 = 50;

/// The verb `queue`.
pub struct QueueQueries {
    pub pool: PgPool,
}

impl Verb for QueueQueries {
    const NAME: &'static str = "queue";
    type Query = QueueQuery;
    type Reply = QueueReply;

    fn position(query: &QueueQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<QueueQuery>) -> Result<QueueReply, Trouble> {
        let limit = page_limit(asked.query.limit, WAITING, WAITING_MAX)?;
        let found = store::queue(&self.pool, &asked.tenant, limit).await?;
        Ok(QueueReply {
            waiting: found.iter().map(queued).collect(),
            refusal: None,
            lsn: asked.applied.0,
        })
    }
}

fn queued(one: &Queued) -> QueuedView {
    QueuedView {
        allocation_id: one.id.to_string(),
        queue: one.queue.clone(),
        position: one.position.unsigned_abs(),
        position_in_line: one.position_in_line.map_or(0, i64::unsigned_abs),
        priority: one.priority,
        standing: one.standing.name().to_owned(),
        not_before_ms: match one.standing {
            Standing::Paused(until) => until.0,
            Standing::Queued | Standing::Nominated | Standing::AwaitingQuota => 0,
        },
        // The numbers are the contract's.
        reason: one.waiting_reason.map_or(0, |reason| reason as i32),
        since_ms: one.since.0,
    }
}
