//! Submit: a request's quantities and names, checked one by one.

mod account;
mod array;
mod depends;
mod gang;
mod queue;
mod resources;
mod rules;
mod work;

use work::where_it_runs;

pub use array::{ArrayRequest, IndexRange};
pub use depends::DependencyRequest;
pub use gang::GangRequest;
pub use rules::TolerationRequest;
pub(super) use rules::requirements;
pub use rules::{PlacementRequest, RequirementRequest, SpreadRequest, TermRequest};

use super::{
    Admission, Config,
    check::{amount, bounded, by_name, optional, small_amount, token},
};
use smol_str::SmolStr;
use std::sync::Arc;
use vocab::{AllocationSpec, Label, Refusal, Restart, Rule, TimeBounds, Token, Work};

wire::pair! {
    /// Whatever else nodes count, and how much of it.
    pub ExtendedRequest { name, amount }
}

/// A submit as it was written. Most names are short and lie in it, and what few requests say lies beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "Submit")]
pub struct SubmitRequest {
    #[wire(1)]
    pub job_set: SmolStr,
    #[wire(2)]
    pub name: SmolStr,
    #[wire(3)]
    pub priority: i32,
    #[wire(4)]
    pub cpu_milli: i64,
    #[wire(5)]
    pub memory_bytes: i64,
    #[wire(6)]
    pub gpu_count: i64,
    #[wire(7)]
    pub gpu_milli: i64,
    #[wire(8)]
    pub gpu_models: Vec<SmolStr>,
    #[wire(9)]
    pub queue: SmolStr,
    #[wire(10)]
    pub priority_class: SmolStr,
    #[wire(11, with = wire::Pairs<ExtendedRequest>)]
    pub extended: Vec<(SmolStr, i64)>,
    #[wire(12)]
    pub rules: Option<Box<PlacementRequest>>,
    #[wire(13)]
    pub gang: Option<GangRequest>,
    #[wire(14)]
    pub depends_on: Vec<DependencyRequest>,
    #[wire(15)]
    pub retries: i64,
    #[wire(16)]
    pub never_requeue: bool,
    #[wire(17)]
    pub run_time_ms: i64,
    #[wire(18)]
    pub team: SmolStr,
    #[wire(19)]
    pub namespace: SmolStr,
    #[wire(20)]
    pub cpu_milli_limit: i64,
    #[wire(21)]
    pub memory_bytes_limit: i64,
    #[wire(22)]
    pub best_effort: bool,
    #[wire(23, with = wire::Pairs<Label>)]
    pub labels: Vec<(SmolStr, SmolStr)>,
    #[wire(24)]
    pub work: Option<Arc<Work>>,
    #[wire(25)]
    pub ttl_ms: i64,
    #[wire(26)]
    pub time_limit_ms: i64,
    #[wire(27, optional)]
    pub array_index: Option<u32>,
}

const DEFAULT_JOB_SET: &str = "default";

impl SubmitRequest {
    /// The job set, for the event feed of a refusal, if it can be one.
    pub fn job_set_token(&self) -> Option<Token> {
        if self.job_set.is_empty() {
            return Token::new(DEFAULT_JOB_SET).ok();
        }
        Token::new(&self.job_set).ok()
    }

    fn labels(&self) -> Result<Vec<(Token, Token)>, Refusal> {
        let field = "labels";
        bounded(&self.labels, AllocationSpec::LABELS_MAX, field)?;
        let labels = self.labels.iter();
        let labels = labels.map(|(name, value)| Ok((token(name, field)?, token(value, field)?)));
        by_name(labels.collect::<Result<_, Refusal>>()?, field)
    }
}

impl Admission {
    /// The specification in its one form, or the first rule that it breaks.
    pub(super) fn check_submit(
        &self,
        tenant: &Token,
        request: &SubmitRequest,
        config: &Config,
    ) -> Result<AllocationSpec, Refusal> {
        let job_set = request
            .job_set_token()
            .ok_or_else(|| Refusal::new(Rule::NameInvalid, "job_set"))?;
        let name = optional(&request.name, "name")?;
        let (team, namespace) = request.team_and_namespace()?;
        (self.teams).check(tenant, team.as_ref(), namespace.as_ref())?;
        if request.priority_class.is_empty() {
            self.check_priority(tenant, request.priority)?;
        }
        let (cpu_milli, memory_bytes) = self.cpu_and_memory(tenant, request)?;
        let limits = request.limits(cpu_milli, memory_bytes)?;
        let gpu = request.gpu()?;
        let extended = request.extended()?;
        let queue = self.check_queue(tenant, &request.queue)?;
        let (priority_class, priority) =
            self.check_class(tenant, &request.priority_class, request.priority)?;
        let rules = request.rules.as_deref().map(PlacementRequest::check);
        let rules = rules.transpose()?.flatten();
        let work = request.work()?;
        let rules = match &work {
            Some(work) => Some(where_it_runs(work, rules)?),
            None => rules,
        };
        let gang = request.gang.as_ref().map(GangRequest::check).transpose()?;
        if let Some(gang) = &gang {
            self.allocations.gangs().check_terms(tenant, gang)?;
        }
        let restart = Restart {
            retries: small_amount(request.retries, AllocationSpec::RETRIES_MAX, "retries")?,
            never: request.never_requeue,
        };
        let max = AllocationSpec::RUN_TIME_MS_MAX;
        let wanted = &request.depends_on;
        let depends_on = self.check_dependencies(tenant, wanted, gang.as_ref(), config)?;
        Ok(AllocationSpec {
            job_set,
            name,
            priority,
            cpu_milli,
            memory_bytes,
            gpu,
            queue,
            priority_class,
            extended,
            rules,
            gang,
            depends_on,
            restart,
            run_time_ms: amount(request.run_time_ms, max, "run_time_ms")?,
            team,
            namespace,
            limits,
            labels: request.labels()?,
            work,
            bounds: TimeBounds {
                ttl_ms: amount(request.ttl_ms, max, "ttl_ms")?,
                time_limit_ms: amount(request.time_limit_ms, max, "time_limit_ms")?,
            },
            array_index: request.array_index,
        })
    }
}
