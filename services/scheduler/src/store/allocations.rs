//! The table `allocations`.

use super::{
    history::Told,
    names::{self, joined},
};
use crate::project::{AllocationRow, AllocationState, Written};
use chassis::warm::{CopyRows, Moment, OutOfRange, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgExecutor, PgPool, types::Json};
use uuid::Uuid;
use vocab::{
    AllocationId, CellNo, EndCause, GpuShare, LineNo, Lsn, Millis, QosClass, Refusal, Token,
    WaitingReason,
};

/// Rows of allocations that no batch has written before.
pub async fn insert(
    tx: &mut PgConnection,
    cell: CellNo,
    written: &[&Written],
) -> Result<(), WarmError> {
    if written.is_empty() {
        return Ok(());
    }
    let columns = Columns::of(cell, written)?;
    let mut copy = CopyRows::new(40);
    for at in 0..written.len() {
        copy.row();
        columns.copy(at, &mut copy)?;
    }
    let statement = "COPY allocations
             (allocation_id, tenant, job_set, name, priority, cpu_milli, memory_bytes, gpu_count, gpu_milli,
              gpu_models, state, waiting_reason, node, gpu_devices, gpu_shares, end_cause, requested_at, placed_at,
              started_at, ended_at, lsn, queue, priority_class, gang, run_time_ms, line, attempts, last_end_cause,
              nominated_node, preempted, team, namespace, qos, cpu_milli_most, memory_bytes_most, quota_rule,
              quota_subject, quota_limit, quota_actual, facts)
         FROM STDIN (FORMAT binary)";
    copy.send(tx, statement).await
}

/// What may change of rows that are there. What was told of them before stays.
pub async fn update(
    tx: &mut PgConnection,
    cell: CellNo,
    written: &[&Written],
) -> Result<(), WarmError> {
    let columns = Columns::of(cell, written)?;
    sqlx::query!(
        "UPDATE allocations AS a SET
             priority = row.priority, state = row.state, waiting_reason = row.waiting_reason, node = row.node,
             gpu_devices = string_to_array(row.gpu_devices, ',')::integer[],
             gpu_shares = string_to_array(row.gpu_shares, ',')::integer[], end_cause = row.end_cause,
             placed_at = row.placed_at, started_at = row.started_at, ended_at = row.ended_at, lsn = row.lsn,
             line = row.line, attempts = row.attempts, last_end_cause = row.last_end_cause,
             nominated_node = row.nominated_node, preempted = row.preempted, quota_rule = row.quota_rule,
             quota_subject = row.quota_subject, quota_limit = row.quota_limit, quota_actual = row.quota_actual,
             facts = a.facts || row.facts
         FROM UNNEST($1::uuid[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                     $8::text[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::bigint[],
                     $13::bigint[], $14::integer[], $15::text[], $16::text[], $17::boolean[], $18::text[],
                     $19::text[], $20::bigint[], $21::bigint[], $22::jsonb[])
             AS row (allocation_id, priority, state, waiting_reason, node, gpu_devices, gpu_shares, end_cause,
                     placed_at, started_at, ended_at, lsn, line, attempts, last_end_cause, nominated_node, preempted,
                     quota_rule, quota_subject, quota_limit, quota_actual, facts)
         WHERE a.allocation_id = row.allocation_id",
        &columns.ids,
        &columns.priorities,
        &columns.states as _,
        &columns.reasons as _,
        &columns.nodes as _,
        &lists(&columns.gpu_devices),
        &lists(&columns.gpu_shares),
        &columns.causes as _,
        &columns.placed as _,
        &columns.started as _,
        &columns.ended as _,
        &columns.lsns,
        &columns.lines as _,
        &columns.attempts,
        &columns.last_causes as _,
        &columns.nominated as _,
        &columns.preempted,
        &columns.quota_rules as _,
        &columns.quota_subjects as _,
        &columns.quota_limits as _,
        &columns.quota_actuals as _,
        &columns.facts as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Each list as text: an `UNNEST` takes no lists of lists.
fn lists<T: ToString>(lists: &[Vec<T>]) -> Vec<String> {
    let text = |list: &Vec<T>| joined(list, ToString::to_string);
    lists.iter().map(text).collect()
}

/// The rows, column by column.
#[derive(Default)]
struct Columns<'a> {
    ids: Vec<Uuid>,
    tenants: Vec<&'a str>,
    job_sets: Vec<&'a str>,
    names: Vec<Option<&'a str>>,
    priorities: Vec<i32>,
    cpus: Vec<i64>,
    memories: Vec<i64>,
    gpu_counts: Vec<i32>,
    gpu_millis: Vec<i32>,
    gpu_models: Vec<Vec<&'a str>>,
    states: Vec<&'static str>,
    reasons: Vec<Option<&'static str>>,
    nodes: Vec<Option<&'a str>>,
    gpu_devices: Vec<Vec<i32>>,
    gpu_shares: Vec<Vec<i32>>,
    causes: Vec<Option<&'static str>>,
    requested: Vec<Moment>,
    placed: Vec<Option<Moment>>,
    started: Vec<Option<Moment>>,
    ended: Vec<Option<Moment>>,
    lsns: Vec<i64>,
    queues: Vec<&'a str>,
    classes: Vec<Option<&'a str>>,
    gangs: Vec<Option<&'a str>>,
    run_times: Vec<i64>,
    lines: Vec<Option<i64>>,
    attempts: Vec<i32>,
    last_causes: Vec<Option<&'static str>>,
    nominated: Vec<Option<&'a str>>,
    preempted: Vec<bool>,
    teams: Vec<Option<&'a str>>,
    namespaces: Vec<Option<&'a str>>,
    qos: Vec<&'static str>,
    cpus_most: Vec<i64>,
    memories_most: Vec<i64>,
    quota_rules: Vec<Option<&'static str>>,
    quota_subjects: Vec<Option<&'a str>>,
    quota_limits: Vec<Option<i64>>,
    quota_actuals: Vec<Option<i64>>,
    facts: Vec<Json<Vec<Told<'a>>>>,
}

impl<'a> Columns<'a> {
    fn of(cell: CellNo, written: &[&'a Written]) -> Result<Self, OutOfRange> {
        let mut columns = Self::default();
        for Written { row, told, .. } in written {
            columns.push(cell, row)?;
            columns.push_state(&row.state)?;
            columns.facts.push(Json(Told::all(cell, told)?));
        }
        Ok(columns)
    }

    /// The values of one row, in the order of the statement.
    fn copy(&self, at: usize, copy: &mut CopyRows) -> Result<(), WarmError> {
        copy.value(&self.ids[at])?;
        copy.value(&self.tenants[at])?;
        copy.value(&self.job_sets[at])?;
        copy.value(&self.names[at])?;
        copy.value(&self.priorities[at])?;
        copy.value(&self.cpus[at])?;
        copy.value(&self.memories[at])?;
        copy.value(&self.gpu_counts[at])?;
        copy.value(&self.gpu_millis[at])?;
        copy.value(&self.gpu_models[at])?;
        copy.value(&self.states[at])?;
        copy.value(&self.reasons[at])?;
        copy.value(&self.nodes[at])?;
        copy.value(&self.gpu_devices[at])?;
        copy.value(&self.gpu_shares[at])?;
        copy.value(&self.causes[at])?;
        copy.value(&self.requested[at])?;
        copy.value(&self.placed[at])?;
        copy.value(&self.started[at])?;
        copy.value(&self.ended[at])?;
        copy.value(&self.lsns[at])?;
        copy.value(&self.queues[at])?;
        copy.value(&self.classes[at])?;
        copy.value(&self.gangs[at])?;
        copy.value(&self.run_times[at])?;
        copy.value(&self.lines[at])?;
        copy.value(&self.attempts[at])?;
        copy.value(&self.last_causes[at])?;
        copy.value(&self.nominated[at])?;
        copy.value(&self.preempted[at])?;
        copy.value(&self.teams[at])?;
        copy.value(&self.namespaces[at])?;
        copy.value(&self.qos[at])?;
        copy.value(&self.cpus_most[at])?;
        copy.value(&self.memories_most[at])?;
        copy.value(&self.quota_rules[at])?;
        copy.value(&self.quota_subjects[at])?;
        copy.value(&self.quota_limits[at])?;
        copy.value(&self.quota_actuals[at])?;
        copy.value(&self.facts[at])?;
        Ok(())
    }

    fn push(&mut self, cell: CellNo, row: &'a AllocationRow) -> Result<(), OutOfRange> {
        let spec = &row.spec;
        let gpu = spec.gpu.as_ref();
        self.ids.push(row.allocation.id(cell).0);
        self.tenants.push(row.tenant.as_str());
        self.job_sets.push(spec.job_set.as_str());
        self.names.push(spec.name.as_ref().map(Token::as_str));
        self.priorities.push(spec.priority);
        self.cpus.push(bigint("cpu_milli", spec.cpu_milli)?);
        self.memories
            .push(bigint("memory_bytes", spec.memory_bytes)?);
        self.gpu_counts.push(gpu.map_or(0, |gpu| gpu.count.into()));
        self.gpu_millis.push(gpu.map_or(0, |gpu| gpu.milli.into()));
        let models = gpu.map_or(&[][..], |gpu| &gpu.models);
        self.gpu_models
            .push(models.iter().map(Token::as_str).collect());
        self.requested.push(row.requested_at.try_into()?);
        self.lsns.push(bigint("lsn", row.lsn.0)?);
        self.queues.push(row.queue().as_str());
        self.classes
            .push(spec.priority_class.as_ref().map(Token::as_str));
        self.gangs
            .push(spec.gang.as_ref().map(|gang| gang.name.as_str()));
        self.run_times
            .push(bigint("run_time_ms", spec.run_time_ms)?);
        let attempts = i32::try_from(row.attempts);
        self.attempts
            .push(attempts.map_err(|_| OutOfRange::new("attempts", row.attempts))?);
        self.last_causes.push(row.last_cause.map(EndCause::name));
        self.teams.push(spec.team.as_ref().map(Token::as_str));
        self.namespaces
            .push(spec.namespace.as_ref().map(Token::as_str));
        self.qos.push(spec.qos().name());
        self.cpus_most
            .push(bigint("cpu_milli_most", spec.limits.cpu_milli)?);
        self.memories_most
            .push(bigint("memory_bytes_most", spec.limits.memory_bytes)?);
        Ok(())
    }

    fn push_state(&mut self, state: &'a AllocationState) -> Result<(), OutOfRange> {
        let moment = |at: Option<Millis>| at.map(Moment::try_from).transpose();
        let place = state.place();
        let gpus = place.map_or(&[][..], |place| &place.gpus);
        let (mut reason, mut in_line, mut nominated) = (None, None, None);
        let (mut cause, mut ended) = (None, None);
        match state {
            AllocationState::Queued {
                reason: why, line, ..
            } => (reason, in_line) = (why.map(WaitingReason::name), *line),
            AllocationState::Nominated { node, .. } => nominated = Some(node.as_str()),
            AllocationState::Ended { cause: why, at, .. } => {
                (cause, ended) = (Some(why.name()), Some(*at));
            }
            AllocationState::Denied { at, .. } => ended = Some(*at),
            AllocationState::Requested { .. } | AllocationState::Held { .. } => {}
        }
        // What use would have come to is a sum that nothing bounds.
        let amount = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        let refusal = state.refusal();
        self.quota_rules
            .push(refusal.map(|refusal| refusal.rule.name()));
        self.quota_subjects
            .push(refusal.map(|refusal| refusal.subject.as_str()));
        self.quota_limits
            .push(refusal.map(|refusal| amount(refusal.limit)));
        self.quota_actuals
            .push(refusal.map(|refusal| amount(refusal.actual)));
        self.states.push(state.name());
        self.reasons.push(reason);
        self.lines.push(
            in_line
                .map(|LineNo(line)| bigint("line", line))
                .transpose()?,
        );
        self.nominated.push(nominated);
        self.preempted.push(state.preemption().is_some());
        self.nodes.push(place.map(|place| place.node.as_str()));
        self.gpu_devices
            .push(gpus.iter().map(|share| share.device.into()).collect());
        self.gpu_shares
            .push(gpus.iter().map(|share| share.milli.into()).collect());
        self.causes.push(cause);
        self.placed
            .push(moment(place.map(|place| place.placed_at))?);
        self.started
            .push(moment(place.and_then(|place| place.started_at))?);
        self.ended.push(moment(ended)?);
        Ok(())
    }
}

/// An allocation as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    pub id: AllocationId,
    pub tenant: String,
    pub job_set: String,
    pub name: Option<String>,
    pub queue: String,
    pub priority: i32,
    pub priority_class: Option<String>,
    pub gang: Option<String>,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpu_count: i32,
    pub gpu_milli: i32,
    pub gpu_models: Vec<String>,
    /// The account below the tenant that its quota is of.
    pub team: Option<String>,
    pub namespace: Option<String>,
    pub qos: QosClass,
    /// 0: no more than it asks for.
    pub cpu_milli_most: u64,
    pub memory_bytes_most: u64,
    /// As the tenant believes; 0: not known.
    pub run_time_ms: u64,
    /// `requested`, `queued`, `nominated`, `placed`, `running`, `stopping`, `ended` or `denied`.
    pub state: String,
    /// Which rule keeps it waiting for quota, or has denied it.
    pub quota: Option<Refusal>,
    pub waiting_reason: Option<WaitingReason>,
    pub line: Option<LineNo>,
    /// Is being cleared for it.
    pub nominated_node: Option<String>,
    pub node: Option<String>,
    pub gpus: Vec<GpuShare>,
    /// It is stopping for the sake of another.
    pub preempted: bool,
    /// How often it was queued again, and what ended the run before the last time.
    pub attempts: i32,
    pub last_end_cause: Option<EndCause>,
    pub end_cause: Option<EndCause>,
    pub requested_at: Millis,
    pub placed_at: Option<Millis>,
    pub started_at: Option<Millis>,
    pub ended_at: Option<Millis>,
    pub lsn: Lsn,
}

/// One of the tenant's own; another tenant's is not found.
pub async fn allocation(
    db: impl PgExecutor<'_>,
    tenant: &Token,
    id: AllocationId,
) -> Result<Option<Allocation>, WarmError> {
    let record = sqlx::query!(
        r#"SELECT tenant, job_set, name, queue, priority, priority_class, gang, cpu_milli, memory_bytes, gpu_count,
                  gpu_milli, gpu_models, run_time_ms, state, waiting_reason, line, nominated_node, node, gpu_devices,
                  gpu_shares, preempted, attempts, last_end_cause, end_cause, team, namespace, qos, cpu_milli_most,
                  memory_bytes_most, quota_rule, quota_subject, quota_limit, quota_actual,
                  requested_at AS "requested_at: Moment", placed_at AS "placed_at: Moment",
                  started_at AS "started_at: Moment", ended_at AS "ended_at: Moment", lsn
           FROM allocations WHERE allocation_id = $1 AND tenant = $2"#,
        id.0,
        tenant.as_str(),
    )
    .fetch_optional(db)
    .await?;
    let Some(record) = record else {
        return Ok(None);
    };
    let reason = record.waiting_reason.as_deref();
    let line = record.line.map(|line| unsigned("line", line));
    let last_end_cause = record.last_end_cause.as_deref();
    let quota = match (record.quota_rule, record.quota_subject) {
        (Some(rule), Some(subject)) => Some(Refusal {
            rule: names::rule(&rule)?,
            subject,
            limit: unsigned("quota_limit", record.quota_limit.unwrap_or(0))?,
            actual: unsigned("quota_actual", record.quota_actual.unwrap_or(0))?,
        }),
        _ => None,
    };
    Ok(Some(Allocation {
        id,
        tenant: record.tenant,
        job_set: record.job_set,
        name: record.name,
        queue: record.queue,
        priority: record.priority,
        priority_class: record.priority_class,
        gang: record.gang,
        cpu_milli: unsigned("cpu_milli", record.cpu_milli)?,
        memory_bytes: unsigned("memory_bytes", record.memory_bytes)?,
        gpu_count: record.gpu_count,
        gpu_milli: record.gpu_milli,
        gpu_models: record.gpu_models,
        team: record.team,
        namespace: record.namespace,
        qos: names::qos(&record.qos)?,
        cpu_milli_most: unsigned("cpu_milli_most", record.cpu_milli_most)?,
        memory_bytes_most: unsigned("memory_bytes_most", record.memory_bytes_most)?,
        quota,
        run_time_ms: unsigned("run_time_ms", record.run_time_ms)?,
        state: record.state,
        waiting_reason: reason.map(names::waiting_reason).transpose()?,
        line: line.transpose()?.map(LineNo),
        nominated_node: record.nominated_node,
        node: record.node,
        gpus: names::shares(&record.gpu_devices, &record.gpu_shares)?,
        preempted: record.preempted,
        attempts: record.attempts,
        last_end_cause: last_end_cause.map(names::end_cause).transpose()?,
        end_cause: record
            .end_cause
            .as_deref()
            .map(names::end_cause)
            .transpose()?,
        requested_at: record.requested_at.into(),
        placed_at: record.placed_at.map(Millis::from),
        started_at: record.started_at.map(Millis::from),
        ended_at: record.ended_at.map(Millis::from),
        lsn: Lsn(unsigned("lsn", record.lsn)?),
    }))
}

/// The allocations that have changed behind a position, as `<id> of <tenant> <name>`: for who looks for what a ledger has lost.
pub async fn changed_behind(pool: &PgPool, lsn: Lsn) -> Result<Vec<String>, WarmError> {
    let rows: Vec<(Uuid, String, Option<String>)> = sqlx::query_as(
        "SELECT allocation_id, tenant, name FROM allocations WHERE lsn > $1 ORDER BY allocation_id",
    )
    .bind(bigint("lsn", lsn.0)?)
    .fetch_all(pool)
    .await?;
    let line = |(id, tenant, name): (Uuid, String, Option<String>)| {
        let name = name.unwrap_or_default();
        format!("{id} of {tenant} {name}").trim_end().to_owned()
    };
    Ok(rows.into_iter().map(line).collect())
}
