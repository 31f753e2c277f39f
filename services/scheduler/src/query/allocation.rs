//! Where an allocation stands, and what allocations a tenant has.

use crate::store::{self, Allocation, Wanted};
use chassis::{
    query::{Asked, Trouble, Verb, page_limit},
    warm::Moment,
};
use schemas::v1::{
    self, AllocationQuery, AllocationReply, AllocationState, AllocationView, AllocationsPage,
    AllocationsQuery,
};
use sqlx::PgPool;
use vocab::{AllocationId, Lsn, Millis, Refusal, Rule, Token, WaitingReason};
use wire::Message;

/// The verb `allocation`.
pub struct AllocationQueries {
    pub pool: PgPool,
}

impl Verb for AllocationQueries {
    const NAME: &'static str = "allocation";
    type Query = AllocationQuery;
    type Reply = AllocationReply;

    fn position(query: &AllocationQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<AllocationQuery>) -> Result<AllocationReply, Trouble> {
        let id = AllocationId::parse(&asked.query.allocation_id);
        let id = id.ok_or_else(|| Trouble::refused(Rule::AllocationIdInvalid, "allocation_id"))?;
        let found = store::allocation(&self.pool, &asked.tenant, id).await?;
        let found =
            found.ok_or_else(|| Trouble::refused(Rule::AllocationNotFound, "allocation_id"))?;
        let reason = store::waits_for(&self.pool, &found).await?;
        Ok(AllocationReply {
            view: Some(view(&found, reason, asked.applied)),
            refusal: None,
        })
    }
}

/// Allocations of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 100;

/// The verb `allocations`.
pub struct AllocationsQueries {
    pub pool: PgPool,
}

impl Verb for AllocationsQueries {
    const NAME: &'static str = "allocations";
    type Query = AllocationsQuery;
    type Reply = AllocationsPage;

    fn position(query: &AllocationsQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<AllocationsQuery>) -> Result<AllocationsPage, Trouble> {
        let after = match asked.query.after.as_str() {
            "" => None,
            text => {
                let id = AllocationId::parse(text);
                Some(id.ok_or_else(|| Trouble::refused(Rule::AllocationIdInvalid, "after"))?)
            }
        };
        let wanted = wanted(asked.query)?;
        let page = store::list(&self.pool, &asked.tenant, &wanted, after).await?;
        let reasons = store::wait_for(&self.pool, &page.allocations).await?;
        let found = page.allocations.iter().zip(reasons);
        Ok(AllocationsPage {
            allocations: found
                .map(|(one, reason)| view(one, reason, asked.applied))
                .collect(),
            refusal: None,
            next: page.next.map_or_else(String::new, |id| id.to_string()),
            lsn: asked.applied.0,
        })
    }
}

fn wanted(query: AllocationsQuery) -> Result<Wanted, Trouble> {
    let limit = page_limit(query.limit, PAGE, PAGE_MAX)?;
    let mut states = Vec::new();
    for state in &query.states {
        match AllocationState::try_from(*state) {
            Err(_) | Ok(AllocationState::Unspecified) => {
                return Err(Trouble::refused(Rule::SettingInvalid, "states"));
            }
            Ok(state) => states.extend(names(state)),
        }
    }
    // However often one is named.
    states.sort_unstable();
    states.dedup();
    if query.states.is_empty() {
        let live = LIVE.iter().flat_map(|state| names(*state));
        states.extend(live);
    }
    let name = |text: String, field| match text.as_str() {
        "" => Ok(None),
        name if Token::new(name).is_ok() => Ok(Some(text)),
        _ => Err(Trouble::refused(Rule::NameInvalid, field)),
    };
    let moment = |ms: i64, field| match ms {
        0 => Ok(None),
        ms => match Moment::try_from(Millis(ms)) {
            Ok(moment) => Ok(Some(moment)),
            Err(_) => Err(Trouble::refused(Rule::IntervalInvalid, field)),
        },
    };
    Ok(Wanted {
        states,
        queue: name(query.queue, "queue")?,
        job_set: name(query.job_set, "job_set")?,
        team: name(query.team, "team")?,
        namespace: name(query.namespace, "namespace")?,
        node: name(query.node, "node")?,
        gang: name(query.gang, "gang")?,
        name_prefix: name(query.name_prefix, "name_prefix")?,
        since: moment(query.since_ms, "since_ms")?,
        until: moment(query.until_ms, "until_ms")?,
        limit,
    })
}

/// States of what is not over.
const LIVE: [AllocationState; 5] = [
    AllocationState::Requested,
    AllocationState::Waiting,
    AllocationState::Placed,
    AllocationState::Started,
    AllocationState::Stopping,
];

/// The names that the tables have for it.
fn names(state: AllocationState) -> &'static [&'static str] {
    match state {
        AllocationState::Unspecified => &[],
        AllocationState::Requested => &["requested"],
        AllocationState::Waiting => &["queued", "nominated"],
        AllocationState::Placed => &["placed"],
        AllocationState::Started => &["running"],
        AllocationState::Stopping => &["stopping"],
        // `denied`, too: it is over for good, and `waiting` says why.
        AllocationState::Ended => &["ended", "denied"],
    }
}

fn state(name: &str) -> AllocationState {
    let of_name = |state: &AllocationState| names(*state).contains(&name);
    let live = LIVE.into_iter().find(of_name);
    live.unwrap_or(AllocationState::Ended)
}

fn view(found: &Allocation, reason: Option<WaitingReason>, lsn: Lsn) -> AllocationView {
    let ms = |at: Option<Millis>| at.map_or(0, |at| at.0);
    let state = state(&found.state);
    let over = state == AllocationState::Ended;
    AllocationView {
        allocation_id: found.id.to_string(),
        job_set: found.job_set.clone(),
        name: found.name.clone().unwrap_or_default(),
        state: state.into(),
        node: found.node.clone().unwrap_or_default(),
        gpus: found.gpus.iter().map(|share| share.to_prost()).collect(),
        waiting: waiting(found.quota.as_ref(), reason),
        priority: found.priority,
        started_ms: if over { 0 } else { ms(found.started_at) },
        ended: found.end_cause.map(|cause| v1::Ended {
            cause: cause.number(),
            started_ms: ms(found.started_at),
            ended_ms: ms(found.ended_at),
            exit: found.exit.map(|exit| exit.to_prost()),
        }),
        lsn: lsn.0,
        queue: found.queue.clone(),
        team: found.team.clone().unwrap_or_default(),
        namespace: found.namespace.clone().unwrap_or_default(),
        gang: found.gang.clone().unwrap_or_default(),
        priority_class: found.priority_class.clone().unwrap_or_default(),
        requested_ms: found.requested_at.0,
        placed_ms: ms(found.placed_at),
        cpu_milli: found.cpu_milli as i64,
        memory_bytes: found.memory_bytes as i64,
        gpu_count: found.gpu_count.into(),
        gpu_milli: found.gpu_milli.into(),
        attempts: found.attempts.unsigned_abs(),
    }
}

fn waiting(quota: Option<&Refusal>, reason: Option<WaitingReason>) -> Option<v1::Waiting> {
    match (quota, reason) {
        (Some(refusal), _) => Some(v1::Waiting {
            reason: WaitingReason::Quota.number(),
            quota: Some(refusal.to_prost()),
            explanation: refusal.to_string(),
        }),
        (None, Some(reason)) => Some(v1::Waiting {
            reason: reason.number(),
            ..v1::Waiting::default()
        }),
        (None, None) => None,
    }
}
