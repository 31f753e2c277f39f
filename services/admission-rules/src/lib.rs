//! Admission's rules: who may ask for what, each operation once. Pure; one file per verb.

mod admin;
mod allocations;
mod cancel;
mod check;
mod command;
mod config;
mod gangs;
mod operations;
mod priority;
mod rate;
mod resource;
mod room;
mod settings;
mod submit;
mod trial;

pub use admin::{
    AccountRequest, ApprovalRequest, BudgetRequest, ChangeRequest, ClassRequest, CordonRequest,
    QueueRequest, QuotaRequest, RateRequest, ReservationRequest, SchedulingRequest, TaintRequest,
    TaintsRequest, TenantRequest,
};
pub use command::{Command, Turned, Verb};
pub use config::Config;
pub use operations::{is_kept, is_recorded};
pub use priority::TargetRequest;
pub use resource::ResourceRequest;
pub use room::Shares;
pub use settings::{SETTINGS, named};
pub use submit::{
    ArrayRequest, DependencyRequest, GangRequest, IndexRange, PlacementRequest, RequirementRequest,
    SpreadRequest, SubmitRequest, TermRequest, TolerationRequest,
};
pub use trial::SettingsTrial;
use vocab::fact::AdmissionFact as Fact;
use vocab::fact::{
    AllocationEnded, AllocationRequested, Applied, CancelRequested, JobSetCancelRequested,
    OperationRefused, OperationRepeated, OperationsForgotten, PriorityClassSet, PriorityRequested,
    QueueSet, QuotaDenied, ResourceAsked, TenantSet,
};
use vocab::inputs;

use allocations::{Allocations, EndedBy, Over};
use ledger::{Decider, Draft, IllegalEvent};
use operations::{Known, Operations, OverBySlot};
use rate::Bucket;
use room::{Of, Room};
use serde::{Deserialize, Serialize};
use settings::{Closable, Closed, Sets, Settings, Teams};
use std::{collections::BTreeMap, fmt};
use vocab::{
    AllocationNo, AllocationSpec, At, EndCause, Event, EventNo, Level, Millis, Month, Operation,
    Refusal, Rule, Slot, Token, Writer,
};

/// Everything that admission knows, folded from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    operations: Operations,
    settings: Settings,
    allocations: Allocations,
    /// What is kept of tenants, in bytes.
    room: Room,
    /// Of tenants with a rate.
    buckets: BTreeMap<Token, Bucket>,
    /// The latest slots of the tenants' requests, where requests say them.
    slots: BTreeMap<Token, Slot>,
    /// The last month whose bill is final. States of version 9 and below end before it.
    closed_through: Option<Month>,
    /// States of version 10 and below end before it.
    closed: Closed,
    /// Of tenants that have a list. States of version 11 and below end before it.
    teams: Teams,
    #[serde(skip)]
    turned: Vec<Turned>,
}

/// A fact of its own, to be recorded.
type Written = vocab::fact::Written<vocab::fact::Admission>;

inputs! {
    /// What it reads of the other writers.
    pub enum Input { AllocationEnded, QuotaDenied }
}

impl Decider for Admission {
    type Command = Command;
    type Config = Config;
    type Effect = Turned;
    type By = vocab::fact::Admission;
    type Input<'a> = Input<'a>;

    /// Version 13 keeps the minimum and the uniform label of each gang. A gang of an older snapshot is checked by size only.
    const STATE_VERSION: u32 = 13;

    fn upgrade(version: u32, state: &[u8]) -> Option<Self> {
        const NO_MONTH_IS_CLOSED: u8 = 0;
        const NOTHING_IS_CLOSED: u8 = 0;
        const NOBODY_HAS_A_LIST: u8 = 0;
        let rest: &[u8] = match version {
            8 | 9 => &[NO_MONTH_IS_CLOSED, NOTHING_IS_CLOSED, NOBODY_HAS_A_LIST],
            10 => &[NOTHING_IS_CLOSED, NOBODY_HAS_A_LIST],
            11 => &[NOBODY_HAS_A_LIST],
            12 => &[],
            _ => return None,
        };
        let whole = [state, rest].concat();
        let mut state: Self = ledger::decode_state(&whole)?;
        let before = match version {
            8 => Some(room::LIVE_UP_TO_8),
            9 | 10 => Some(room::LIVE_UP_TO_10),
            _ => None,
        };
        if let Some(before) = before {
            state.allocations.live_took(before, &mut state.room);
        }
        Some(state)
    }

    const READERS: &'static [Writer] = &[Writer::Quota, Writer::Scheduler];

    fn observe(&mut self, at: &At, input: Input<'_>) -> Result<(), IllegalEvent> {
        match input {
            Input::AllocationEnded(AllocationEnded {
                allocation, cause, ..
            }) => {
                let by = EndedBy::Scheduler { ran: ran(*cause) };
                self.ended(*allocation, by, at);
                Ok(())
            }
            Input::QuotaDenied(QuotaDenied { allocation, .. }) => {
                let by = EndedBy::Quota;
                self.ended(*allocation, by, at);
                Ok(())
            }
        }
    }

    fn evolve(&mut self, at: &At, fact: Fact<'_>) -> Result<(), IllegalEvent> {
        match fact {
            Fact::TenantSet(set) => {
                self.tenant_set(&set.change);
                self.set(set, at)
            }
            Fact::QueueSet(set) => {
                self.queue_set(&set.change);
                self.set(set, at)
            }
            Fact::PriorityClassSet(set) => {
                self.class_set(&set.change);
                self.set(set, at)
            }
            Fact::QuotaSet(set) => self.set(set, at),
            Fact::BudgetSet(set) => self.set(set, at),
            Fact::RateSet(set) => self.set(set, at),
            Fact::SchedulingSet(set) => self.set(set, at),
            Fact::CordonSet(set) => self.set(set, at),
            Fact::TaintsSet(set) => self.set(set, at),
            Fact::ReservationSet(set) => self.set(set, at),
            Fact::NodeSet(set) => self.set(set, at),
            Fact::PeriodClosed(set) => {
                self.closed_through = Some(set.change.month);
                self.set(set, at)
            }
            Fact::AllocationRequested(fact) => {
                self.taken_up(&fact.operation, at);
                let no = AllocationNo(at.no.0);
                let (tenant, room) = (&fact.operation.tenant, &mut self.room);
                self.allocations.requested(no, tenant, &fact.spec, room);
                Ok(())
            }
            Fact::CancelRequested(CancelRequested { operation, .. })
            | Fact::JobSetCancelRequested(JobSetCancelRequested { operation, .. })
            | Fact::PriorityRequested(PriorityRequested { operation, .. }) => {
                self.taken_up(operation, at);
                Ok(())
            }
            Fact::ResourceAsked(fact) => {
                self.resource_asked(fact, at);
                Ok(())
            }
            Fact::OperationRefused(fact) => {
                let operation = &fact.operation;
                self.take(&operation.tenant, at.now);
                if is_kept(fact.refusal.rule) {
                    self.operations.remember(operation, at, &mut self.room);
                }
                Ok(())
            }
            Fact::OperationRepeated(fact) => {
                self.take(&fact.tenant, at.now);
                Ok(())
            }
            Fact::OperationsForgotten(fact) => {
                self.forgotten(fact);
                Ok(())
            }
        }
    }

    /// A repeated operation first, whatever it says; then what the operation table can take; then the verb's own rules.
    fn handle(&mut self, command: Command, config: &Config, draft: &mut Draft) {
        self.room.divide(config.room);
        self.forget(config, draft);
        let Command {
            mut operation,
            verb,
        } = command;
        if !draft.is_at(Level::NAMED_OPERATORS) {
            operation.by = None;
        }
        let (mut verb, is_trial) = match verb {
            Ok(Verb::TrySubmit(request)) => (Ok(Verb::Submit(request)), true),
            verb => (verb, false),
        };
        let slot = match &mut verb {
            Ok(Verb::Resource(request)) => {
                Some(self.check_slot(&operation.tenant, *request.slot(), config, draft.now))
            }
            _ => None,
        };
        // The window, where it is counted in the request's own slots.
        let later = match slot {
            Some(Ok((slot, true))) => Some((slot, config.window_slots)),
            _ => None,
        };
        let known = self.operations.known(&operation, later);
        // A repeat is always answered: who asks again does not know whether the first was heard.
        if let Some(Known::Repeated(original)) = known {
            let repeated = OperationRepeated {
                tenant: operation.tenant,
                original,
                reply_to: operation.reply_to,
            };
            draft.emit(self, repeated);
            return;
        }
        let asked = verb.as_ref().ok().map(Verb::asked);
        let job_set = match &verb {
            Ok(Verb::Submit(request)) => request.job_set_token(),
            _ => None,
        };
        let conflict = known.map(|_| Refusal::new(Rule::OperationConflict, "operation_id"));
        let accepted = self
            .may_ask(&operation.tenant, draft.now)
            .and_then(|()| match conflict {
                Some(conflict) => Err(conflict),
                None => self.accept(&operation, verb, slot, config, draft.now),
            })
            .and_then(|event| match draft.is_at(event.since()) {
                true => Ok(event),
                false => Err(Refusal::new(Rule::NotSupported, "feature level")),
            });
        match accepted {
            // As if it were asked, up to here.
            Ok(event) if is_trial => {
                // A trial is of a submit.
                if let Event::AllocationRequested(asked) = event.into() {
                    self.tell(operation, Ok(Box::new(asked.spec)));
                }
            }
            Ok(event) => {
                if let Some(later) = later {
                    self.forget_slots(&operation.tenant, later, draft);
                }
                draft.emit(self, event);
            }
            Err(refusal) if !is_trial && is_recorded(refusal.rule) => draft.emit(
                self,
                OperationRefused {
                    operation,
                    job_set,
                    refusal,
                    verb: asked.filter(|verb| draft.is_at(verb.since())),
                },
            ),
            Err(refusal) => self.tell(operation, Err(refusal)),
        }
    }

    fn decide(&mut self, config: &Config, draft: &mut Draft) {
        if !draft.full() {
            self.forget(config, draft);
        }
    }

    fn take_effects(&mut self) -> Vec<Turned> {
        std::mem::take(&mut self.turned)
    }

    fn wake_at(&self) -> Option<Millis> {
        // Forgetting is no matter of urgency: the next frame does it.
        None
    }
}

impl Admission {
    fn tenant_set(&mut self, set: &TenantSet) {
        let closable = Closable::Tenant(set.tenant.clone());
        self.closed.set(closable, set.closed);
        self.teams.set(set);
        self.settings.set_tenant(set);
    }

    fn queue_set(&mut self, set: &QueueSet) {
        let closable = Closable::Queue(set.queue.clone());
        self.closed.set(closable, set.closed);
        self.settings.set_queue(set);
    }

    fn class_set(&mut self, set: &PriorityClassSet) {
        let closable = Closable::PriorityClass(set.class.clone());
        self.closed.set(closable, set.closed);
        self.settings.set_class(set);
    }

    fn resource_asked(&mut self, fact: &ResourceAsked, at: &At) {
        let operation = &fact.operation;
        if !fact.by_requests {
            return self.taken_up(operation, at);
        }
        self.take(&operation.tenant, at.now);
        let room = &mut self.room;
        (self.operations).remember_by_slot(operation, at, fact.slot, room);
        self.slots.insert(operation.tenant.clone(), fact.slot);
    }

    fn forgotten(&mut self, fact: &OperationsForgotten) {
        let room = &mut self.room;
        if let Some(tenant) = &fact.slots_of {
            return self.operations.forget_by_slot(tenant, fact.through, room);
        }
        self.operations.forget(fact.through, room);
        let over = Over {
            ended: fact.ended_through,
            denied: fact.denied_through,
        };
        self.allocations.forget(over, room);
    }

    fn set<C: Sets + fmt::Debug>(&mut self, set: &Applied<C>, at: &At) -> Result<(), IllegalEvent> {
        (self.operations).remember(&set.operation, at, &mut self.room);
        self.settings.apply(set)
    }

    /// The memory of the cell's services that is counted for what is kept of the tenant.
    pub fn bytes_of(&self, tenant: &Token) -> u64 {
        let held = |of| self.room.held(of, tenant);
        held(Of::Operations) + held(Of::Allocations)
    }

    /// Before anything is looked up, so that nothing is answered after its window.
    fn forget(&mut self, config: &Config, draft: &mut Draft) {
        let window_ms = config.operation_window_ms;
        let operations = self.operations.over(draft.now, window_ms);
        let allocations = self.allocations.over(draft.now, window_ms);
        if operations.is_some() || allocations != Over::default() {
            let forgotten = OperationsForgotten {
                through: operations.unwrap_or(self.operations.forgotten()),
                slots_of: None,
                ended_through: allocations.ended,
                denied_through: allocations.denied,
            };
            draft.emit(self, forgotten);
        }
    }

    /// Only when something is recorded in the slot: what is not leaves everything as it was.
    fn forget_slots(&mut self, tenant: &Token, later: (Slot, Slot), draft: &mut Draft) {
        let over = self.operations.over_by_slot(tenant, later);
        if let Some(through) = over.through {
            let forgotten = OperationsForgotten {
                through,
                slots_of: Some(tenant.clone()),
                ended_through: EventNo(0),
                denied_through: EventNo(0),
            };
            draft.emit(self, forgotten);
        }
    }

    fn taken_up(&mut self, operation: &Operation, at: &At) {
        self.take(&operation.tenant, at.now);
        self.operations.remember(operation, at, &mut self.room);
    }

    fn ended(&mut self, allocation: AllocationNo, by: EndedBy, at: &At) {
        let when = (at.no, at.now);
        self.allocations.ended(allocation, by, when, &mut self.room);
    }

    /// Counts a request against the tenant's rate.
    fn take(&mut self, tenant: &Token, now: Millis) {
        let Some(settings) = self.settings.tenants.get(tenant) else {
            return;
        };
        if settings.rate_milli == 0 {
            self.buckets.remove(tenant);
            return;
        }
        let bucket = self.buckets.entry(tenant.clone());
        let bucket = bucket.or_insert_with(|| Bucket::full(settings, now));
        bucket.take(settings, now);
    }

    /// The tenant is known and within its rate.
    fn may_ask(&self, tenant: &Token, now: Millis) -> Result<(), Refusal> {
        if tenant.as_str() == vocab::subjects::OPERATOR {
            return Ok(());
        }
        let settings = self.settings.tenants.get(tenant);
        let settings = settings.ok_or_else(|| Refusal::new(Rule::TenantUnknown, "tenant"))?;
        match self.buckets.get(tenant) {
            Some(bucket) => bucket.check(settings, now),
            None => Ok(()),
        }
    }

    /// Of what is not recorded.
    fn tell(&mut self, operation: Operation, answer: Result<Box<AllocationSpec>, Refusal>) {
        if let Some(reply_to) = operation.reply_to {
            self.turned.push(Turned {
                tenant: operation.tenant,
                operation_id: operation.operation_id,
                reply_to,
                answer,
            });
        }
    }

    fn accept(
        &self,
        operation: &Operation,
        verb: Result<Verb, Refusal>,
        slot: Option<Result<(Slot, bool), Refusal>>,
        config: &Config,
        now: Millis,
    ) -> Result<Written, Refusal> {
        let operator = operation.tenant.as_str() == vocab::subjects::OPERATOR;
        if !operator {
            self.check_table(operation, &slot, config)?;
        }
        let verb = verb?;
        if verb.begins() {
            (self.closed).check(Closable::Tenant(operation.tenant.clone()))?;
        }
        let (tenant, operation) = (&operation.tenant, operation.clone());
        match (verb, operator) {
            (Verb::Submit(request), false) => {
                let spec = self.check_submit(tenant, &request, config)?;
                self.check_room(tenant, &spec, config)?;
                Ok(AllocationRequested { operation, spec }.into())
            }
            (Verb::Cancel { allocation_id }, false) => {
                let allocation = self.check_cancel(tenant, &allocation_id, config)?;
                Ok(CancelRequested {
                    operation,
                    allocation,
                }
                .into())
            }
            (Verb::Admin(request), true) => {
                let (change, version) = self.check_admin(&request, now)?;
                Ok(change.applied(operation, version))
            }
            (Verb::CancelJobSet { job_set }, false) => Ok(JobSetCancelRequested {
                operation,
                job_set: check::token(&job_set, "job_set")?,
            }
            .into()),
            (Verb::SetPriority { target, priority }, false) => {
                let asked = self.check_set_priority(operation, &target, priority, config)?;
                Ok(asked.into())
            }
            (Verb::Resource(request), false) => {
                // A request about resources has been looked at for its slot.
                let slot =
                    slot.unwrap_or_else(|| Err(Refusal::new(Rule::SettingInvalid, "slot")))?;
                let asked = self.check_resource(operation, &request, slot, config)?;
                Ok(asked.into())
            }
            // Its elements are commands; as one it stands in a batch.
            (Verb::SubmitArray(_), _) => Err(Refusal::new(Rule::UnknownVerb, "verb")),
            // Right words at the wrong inbox; and a trial is a submit by now.
            (Verb::TrySubmit(_), _)
            | (
                Verb::Submit(_)
                | Verb::Cancel { .. }
                | Verb::CancelJobSet { .. }
                | Verb::SetPriority { .. }
                | Verb::Resource(_),
                true,
            )
            | (Verb::Admin(_), false) => Err(Refusal::new(Rule::UnknownVerb, "verb")),
        }
    }

    /// One more operation of the tenant can be remembered, in the slot that it says. What the others have in their tables
    /// does not matter as long as it takes no more memory than its own share; the operators' lane has no end.
    fn check_table(
        &self,
        operation: &Operation,
        slot: &Option<Result<(Slot, bool), Refusal>>,
        config: &Config,
    ) -> Result<(), Refusal> {
        let tenant = &operation.tenant;
        let over = match slot {
            Some(Ok((slot, true))) => {
                let later = (*slot, config.window_slots);
                self.operations.over_by_slot(tenant, later)
            }
            _ => OverBySlot::default(),
        };
        let remembered = self.operations.of(tenant) - over.count;
        if remembered >= config.operations_max {
            let (limit, subject) = (config.operations_max, "operations");
            let rule = Rule::OperationTableFull;
            return Err(Refusal::over(rule, subject, limit, remembered + 1));
        }
        let id = operation.operation_id.as_ref();
        let more = id.map_or(0, |id| room::operation(tenant, id));
        let would_be = self.room.held(Of::Operations, tenant) - over.bytes + more;
        self.room.check(Of::Operations, tenant, would_be)
    }

    /// The tenant may have one more allocation: as the cell has it for each, as operators have set it for this one, and as
    /// there is memory for it.
    fn check_room(
        &self,
        tenant: &Token,
        spec: &AllocationSpec,
        config: &Config,
    ) -> Result<(), Refusal> {
        let would_be = self.allocations.live_of(tenant) + 1;
        let settings = self.settings.tenants.get(tenant);
        let most = settings.map_or(0, |settings| settings.allocations_max);
        let (subject, each) = ("allocations", config.allocations_max);
        if would_be > each {
            let rule = Rule::AllocationTableFull;
            return Err(Refusal::over(rule, subject, each, would_be));
        }
        if most > 0 && would_be > most {
            return Err(Refusal::over(Rule::BacklogFull, subject, most, would_be));
        }
        let would_be = self.room.held(Of::Allocations, tenant) + room::live(tenant, spec);
        self.room.check(Of::Allocations, tenant, would_be)
    }
}

/// Whether an end by this cause comes after a place on a node.
fn ran(cause: EndCause) -> bool {
    match cause {
        EndCause::Finished
        | EndCause::Failed
        | EndCause::NodeLost
        | EndCause::RejectedByNode
        | EndCause::Preempted
        | EndCause::TimeLimit
        | EndCause::Evicted => true,
        // What waited may have been cancelled.
        EndCause::Cancelled | EndCause::DependencyFailed | EndCause::Expired => false,
    }
}

#[cfg(test)]
mod tests;
