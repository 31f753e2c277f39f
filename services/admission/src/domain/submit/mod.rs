//! Submit: a request's quantities and names, checked one by one.

mod account;
mod depends;
mod gang;
mod queue;
mod resources;
mod rules;

pub use depends::DependencyRequest;
pub use gang::GangRequest;
pub use rules::TolerationRequest;
pub(super) use rules::requirements;
pub use rules::{PlacementRequest, RequirementRequest, SpreadRequest, TermRequest};

use super::{
    Admission, Rules,
    check::{amount, optional, small_amount},
};
use vocab::{AllocationSpec, Refusal, Restart, Rule, Token};

/// A submit as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubmitRequest {
    pub job_set: String,
    pub name: String,
    pub priority: i32,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub gpu_count: i64,
    pub gpu_milli: i64,
    pub gpu_models: Vec<String>,
    pub queue: String,
    pub priority_class: String,
    /// Name and amount.
    pub extended: Vec<(String, i64)>,
    pub rules: Option<PlacementRequest>,
    pub gang: Option<GangRequest>,
    pub depends_on: Vec<DependencyRequest>,
    pub retries: i64,
    pub never_requeue: bool,
    pub run_time_ms: i64,
    pub team: String,
    pub namespace: String,
    pub cpu_milli_most: i64,
    pub memory_bytes_most: i64,
    pub best_effort: bool,
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
}

impl Admission {
    /// The specification in its one form, or the first rule that it breaks.
    pub(super) fn check_submit(
        &self,
        tenant: &Token,
        request: &SubmitRequest,
        rules: &Rules,
    ) -> Result<AllocationSpec, Refusal> {
        let job_set = request
            .job_set_token()
            .ok_or_else(|| Refusal::new(Rule::NameInvalid, "job_set"))?;
        let name = optional(&request.name, "name")?;
        let (team, namespace) = request.team_and_namespace()?;
        if request.priority_class.is_empty() {
            self.check_priority(tenant, request.priority)?;
        }
        let (cpu_milli, memory_bytes) = self.cpu_and_memory(tenant, request)?;
        let most = request.most(cpu_milli, memory_bytes)?;
        let gpu = request.gpu()?;
        let extended = request.extended()?;
        let queue = self.check_queue(tenant, &request.queue)?;
        let (priority_class, priority) =
            self.check_class(tenant, &request.priority_class, request.priority)?;
        let placement = request.rules.as_ref().map(PlacementRequest::check);
        let gang = request.gang.as_ref().map(GangRequest::check).transpose()?;
        let restart = Restart {
            retries: small_amount(request.retries, AllocationSpec::RETRIES_MAX, "retries")?,
            never: request.never_requeue,
        };
        let max = AllocationSpec::RUN_TIME_MS_MAX;
        let wanted = &request.depends_on;
        let depends_on = self.check_dependencies(tenant, wanted, gang.as_ref(), rules)?;
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
            rules: placement.transpose()?.flatten(),
            gang,
            depends_on,
            restart,
            run_time_ms: amount(request.run_time_ms, max, "run_time_ms")?,
            team,
            namespace,
            most,
        })
    }
}
