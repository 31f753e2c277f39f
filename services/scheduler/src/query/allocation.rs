//! Where an allocation stands, and what allocations a tenant has.

use super::request::request;
use crate::store::{self, Allocation, Wanted};
use chassis::{
    query::{Asked, Trouble, Verb, page_limit},
    warm::Moment,
};
use schemas::{
    ToProst as _,
    v1::{
        self, AllocationQuery, AllocationReply, AllocationState, AllocationView, AllocationsPage,
        AllocationsQuery,
    },
};
use sqlx::PgPool;
use vocab::{
    AllocationId, AllocationSpec, CellNo, EndCause, Gang, GpuRequest, Lsn, Millis, PendingGroupNo,
    QuotaFlags, Refusal, Rule, RunLimits, TimeBounds, Token, WaitingReason,
};
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
        let (cell, _) = found.id.0.as_u64_pair();
        Ok(AllocationReply {
            view: Some(view(&found, reason, asked.applied)),
            refusal: None,
            asked: Some(request(&found.spec, CellNo(cell))),
            operation_id: found.operation.clone().unwrap_or_default(),
            attempts: attempts(&found),
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
    let labels = query.labels.iter().map(|label| {
        let token = |text: &str| {
            Token::new(text).map_err(|_| Trouble::refused(Rule::NameInvalid, "labels"))
        };
        let value = Some(label.value.as_str()).filter(|value| !value.is_empty());
        Ok((token(&label.name)?, value.map(token).transpose()?))
    });
    let labels: Vec<_> = labels.collect::<Result<_, Trouble>>()?;
    let (most, count) = (AllocationSpec::LABELS_MAX, labels.len());
    if count > most {
        let refusal = Refusal::over(Rule::TooManyElements, "labels", most as u64, count as u64);
        return Err(Trouble::Refused(refusal));
    }
    Ok(Wanted {
        states,
        queue: name(query.queue, "queue")?,
        job_set: name(query.job_set, "job_set")?,
        team: name(query.team, "team")?,
        namespace: name(query.namespace, "namespace")?,
        node: name(query.node, "node")?,
        gang: name(query.gang, "gang")?,
        priority_class: name(query.priority_class, "priority_class")?,
        labels,
        oldest_first: query.oldest_first,
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
        AllocationState::Waiting => &["queued", "nominated", "awaiting_quota"],
        AllocationState::Placed => &["placed"],
        AllocationState::Started => &["running"],
        AllocationState::Stopping => &["stopping"],
        // `denied`, too: it is over for good, and `waiting` says why.
        AllocationState::Ended => &["ended", "denied"],
    }
}

pub(super) fn state(name: &str) -> AllocationState {
    let of_name = |state: &AllocationState| names(*state).contains(&name);
    let live = LIVE.into_iter().find(of_name);
    live.unwrap_or(AllocationState::Ended)
}

pub(super) fn view(found: &Allocation, reason: Option<WaitingReason>, lsn: Lsn) -> AllocationView {
    let ms = |at: Option<Millis>| at.map_or(0, |at| at.0);
    let state = state(&found.state);
    let over = state == AllocationState::Ended;
    let spec = &found.spec;
    let text = |token: &Option<Token>| token.as_ref().map_or_else(String::new, Token::to_string);
    let gpu = spec.gpu.as_ref();
    AllocationView {
        allocation_id: found.id.to_string(),
        job_set: spec.job_set.to_string(),
        name: text(&spec.name),
        state: state.into(),
        node: found.node.clone().unwrap_or_default(),
        gpus: found.gpus.iter().map(|share| share.to_prost()).collect(),
        waiting: waiting(found.quota.as_ref(), reason),
        priority: spec.priority,
        started_ms: if over { 0 } else { ms(found.started_at) },
        ended: found.end_cause.map(|cause| v1::Ended {
            cause: cause.number(),
            started_ms: ms(found.started_at),
            ended_ms: ms(found.ended_at),
            exit: found.exit.map(|exit| exit.to_prost()),
        }),
        lsn: lsn.0,
        queue: found.queue.clone(),
        team: text(&spec.team),
        namespace: text(&spec.namespace),
        gang: (spec.gang.as_ref()).map_or_else(String::new, |gang| gang.name.to_string()),
        priority_class: text(&spec.priority_class),
        requested_ms: found.requested_at.0,
        placed_ms: ms(found.placed_at),
        cpu_milli: spec.cpu_milli as i64,
        memory_bytes: spec.memory_bytes as i64,
        gpu_count: gpu.map_or(0, |gpu| gpu.count.into()),
        gpu_milli: gpu.map_or(0, |gpu| gpu.milli.into()),
        attempts: found.attempts.unsigned_abs(),
        cpu_milli_limit: spec.limits.cpu_milli as i64,
        memory_bytes_limit: spec.limits.memory_bytes as i64,
        qos: spec.qos() as i32,
        gpu_models: models(gpu),
        run_time_ms: spec.run_time_ms,
        nominated_node: found.nominated_node.clone().unwrap_or_default(),
        preempted: found.preempted,
        last_end_cause: found.last_end_cause.map_or(0, |cause| cause.number()),
        pending_group: found.pending_group.map_or(0, |group| group.0),
        array_index: spec.array_index,
        ttl_ms: spec.bounds.ttl_ms,
        time_limit_ms: spec.bounds.time_limit_ms,
        quota_soft: found.quota_flags.has(QuotaFlags::SOFT),
        quota_burst: found.quota_flags.has(QuotaFlags::BURST),
        quota_borrowed: found.quota_flags.has(QuotaFlags::BORROWED),
        labels: labels(spec),
    }
}

pub(super) fn models(gpu: Option<&GpuRequest>) -> Vec<String> {
    let models = gpu.map_or(&[][..], |gpu| &gpu.models);
    models.iter().map(Token::to_string).collect()
}

pub(super) fn labels(spec: &AllocationSpec) -> Vec<v1::Label> {
    let labels = spec.labels.iter();
    let label = |(name, value): &(Token, Token)| v1::Label {
        name: name.to_string(),
        value: value.to_string(),
    };
    labels.map(label).collect()
}

/// All places that it has had, of which the last is the one that its state speaks of.
fn attempts(found: &Allocation) -> Vec<v1::Attempt> {
    let ms = |at: Option<Millis>| at.map_or(0, |at| at.0);
    let past = found.past.iter().map(|one| v1::Attempt {
        node: one.node.to_string(),
        gpus: one.gpus.iter().map(|share| share.to_prost()).collect(),
        placed_ms: one.placed_at.0,
        started_ms: ms(one.started_at),
        ended_ms: one.ended_at.0,
        cause: one.cause.number(),
        exit: one.exit.map(|exit| exit.to_prost()),
    });
    let last = found.node.as_ref().map(|node| v1::Attempt {
        node: node.clone(),
        gpus: found.gpus.iter().map(|share| share.to_prost()).collect(),
        placed_ms: ms(found.placed_at),
        started_ms: ms(found.started_at),
        ended_ms: ms(found.ended_at),
        cause: found.end_cause.map_or(0, |cause| cause.number()),
        exit: found.exit.map(|exit| exit.to_prost()),
    });
    past.chain(last).collect()
}

/// From the same message in another form.
fn read<T: Message>(written: &impl prost::Message) -> Option<T> {
    T::decode(&written.encode_to_vec()).ok()
}

/// The allocation that the view is of, as it was found; none: the view is none that this version makes. Its tenant is who asked.
pub(super) fn of_view(view: &AllocationView, tenant: &Token) -> Option<Allocation> {
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    let moment = |ms: i64| (ms != 0).then_some(Millis(ms));
    let amount = |amount: i64| u64::try_from(amount).ok();
    let ended = view.ended.as_ref();
    let waiting = view.waiting.as_ref();
    let quota = waiting.and_then(|waiting| waiting.quota.as_ref());
    let reason = waiting.and_then(|waiting| WaitingReason::from_number(waiting.reason));
    let state = match view.state() {
        AllocationState::Waiting if !view.nominated_node.is_empty() => "nominated",
        AllocationState::Waiting if quota.is_some() => "awaiting_quota",
        AllocationState::Ended if ended.is_none() => "denied",
        state => names(state).first()?,
    };
    let token = |text: &str| match text {
        "" => Some(None),
        text => Token::new(text).ok().map(Some),
    };
    let models = view.gpu_models.iter().map(|model| Token::new(model).ok());
    let gpu = match view.gpu_count {
        0 => None,
        count => Some(GpuRequest {
            count: count.try_into().ok()?,
            milli: view.gpu_milli.try_into().ok()?,
            models: models.collect::<Option<_>>()?,
        }),
    };
    let labels = view.labels.iter();
    let labels = labels.map(|label| Some((token(&label.name)??, token(&label.value)??)));
    let (cpu, memory) = (amount(view.cpu_milli)?, amount(view.memory_bytes)?);
    let spec = AllocationSpec {
        name: token(&view.name)?,
        priority: view.priority,
        gpu,
        queue: token(&view.queue)?.filter(|queue| queue != tenant),
        priority_class: token(&view.priority_class)?,
        // Of a gang, a view has the name alone.
        gang: token(&view.gang)?.map(|name| Gang {
            name,
            size: 0,
            min: 0,
            uniform_label: None,
        }),
        run_time_ms: view.run_time_ms,
        team: token(&view.team)?,
        namespace: token(&view.namespace)?,
        limits: RunLimits {
            cpu_milli: amount(view.cpu_milli_limit)?,
            memory_bytes: amount(view.memory_bytes_limit)?,
        },
        labels: labels.collect::<Option<_>>()?,
        bounds: TimeBounds {
            ttl_ms: view.ttl_ms,
            time_limit_ms: view.time_limit_ms,
        },
        array_index: view.array_index,
        ..AllocationSpec::plain(token(&view.job_set)??, cpu, memory)
    };
    Some(Allocation {
        id: AllocationId::parse(&view.allocation_id)?,
        tenant: tenant.to_string(),
        // Neither stands in a view.
        operation: None,
        past: Vec::new(),
        spec,
        queue: view.queue.clone(),
        state: state.to_owned(),
        quota_flags: flags(view),
        quota: match quota {
            Some(refusal) => Some(read(refusal)?),
            None => None,
        },
        waiting_reason: reason.filter(|_| quota.is_none()),
        pending_group: (view.pending_group > 0).then_some(PendingGroupNo(view.pending_group)),
        nominated_node: text(&view.nominated_node),
        node: text(&view.node),
        gpus: (view.gpus.iter()).map(read).collect::<Option<_>>()?,
        preempted: view.preempted,
        attempts: view.attempts.try_into().ok()?,
        last_end_cause: EndCause::from_number(view.last_end_cause),
        end_cause: ended.and_then(|ended| EndCause::from_number(ended.cause)),
        exit: match ended.and_then(|ended| ended.exit.as_ref()) {
            Some(exit) => Some(read(exit)?),
            None => None,
        },
        requested_at: Millis(view.requested_ms),
        placed_at: moment(view.placed_ms),
        started_at: moment(ended.map_or(view.started_ms, |ended| ended.started_ms)),
        ended_at: moment(ended.map_or(0, |ended| ended.ended_ms)),
        lsn: Lsn(view.lsn),
    })
}

fn flags(view: &AllocationView) -> QuotaFlags {
    let flags = [
        (view.quota_soft, QuotaFlags::SOFT),
        (view.quota_burst, QuotaFlags::BURST),
        (view.quota_borrowed, QuotaFlags::BORROWED),
    ];
    let set = flags.into_iter().filter(|(is_set, _)| *is_set);
    set.fold(QuotaFlags::default(), |all, (_, flag)| all.with(flag))
}

fn waiting(quota: Option<&Refusal>, reason: Option<WaitingReason>) -> Option<v1::Waiting> {
    match (quota, reason) {
        (Some(refusal), _) => Some(v1::Waiting {
            reason: refusal.waiting_reason().number(),
            quota: Some(refusal.to_prost()),
            explanation: refusal.explanation(),
        }),
        (None, Some(reason)) => Some(v1::Waiting {
            reason: reason.number(),
            ..v1::Waiting::default()
        }),
        (None, None) => None,
    }
}
