//! Admission's rules: who may ask for what, each operation once. Pure; one file per verb.

mod admin;
mod cancel;
mod check;
mod command;
mod operations;
mod settings;
mod submit;

pub use admin::{ChangeRequest, ClassRequest, QueueRequest, ReservationRequest, SchedulingRequest};
pub use command::{Command, Rules, Verb};
pub use operations::is_kept;
pub use submit::{
    DependencyRequest, GangRequest, PlacementRequest, RequirementRequest, SpreadRequest,
    SubmitRequest, TermRequest, TolerationRequest,
};

use ledger::{Decider, Draft, IllegalEvent};
use operations::Operations;
use serde::{Deserialize, Serialize};
use settings::Settings;
use std::collections::BTreeMap;
use vocab::{AllocationNo, At, Event, Millis, Operation, Refusal, Rule, Token, Writer};

/// Everything that admission knows, folded from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    operations: Operations,
    settings: Settings,
    /// Whose the allocations are, live or ended within the retention window.
    allocations: BTreeMap<AllocationNo, Owned>,
    live: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owned {
    tenant: Token,
    ended: bool,
}

impl Decider for Admission {
    type Command = Command;
    type Rules = Rules;
    type Effect = std::convert::Infallible;

    const WRITER: Writer = Writer::Admission;
    const STATE_VERSION: u32 = 2;

    fn observe(&mut self, _at: &At, event: &Event) -> Result<(), IllegalEvent> {
        match event {
            Event::AllocationEnded { allocation, .. } | Event::QuotaDenied { allocation, .. } => {
                self.ended(*allocation);
                Ok(())
            }
            // Not admission's business. What is queued again lives on.
            Event::QuotaReserved { .. }
            | Event::QuotaReleased { .. }
            | Event::AllocationPlaced { .. }
            | Event::AllocationWaiting { .. }
            | Event::AllocationStarted { .. }
            | Event::AllocationStopping { .. }
            | Event::AllocationPreempted { .. }
            | Event::AllocationNominated { .. }
            | Event::AllocationRequeued { .. }
            | Event::LineExplained { .. }
            | Event::ReservationDecided { .. }
            | Event::CancelDecided { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeReady { .. }
            | Event::NodeLost { .. }
            | Event::RunReported { .. } => Ok(()),
            Event::AdminApplied { .. }
            | Event::AllocationRequested { .. }
            | Event::CancelRequested { .. }
            | Event::OperationRefused { .. }
            | Event::OperationRepeated { .. }
            | Event::OperationsForgotten { .. } => {
                Err(IllegalEvent::new("an own fact as input", event))
            }
        }
    }

    fn evolve(&mut self, at: &At, event: &Event) -> Result<(), IllegalEvent> {
        match event {
            Event::AdminApplied {
                operation,
                change,
                version,
            } => {
                self.operations.remember(operation, at);
                self.settings.apply(change, *version, event)
            }
            Event::AllocationRequested { operation, .. } => {
                self.operations.remember(operation, at);
                let owned = Owned {
                    tenant: operation.tenant.clone(),
                    ended: false,
                };
                self.allocations.insert(AllocationNo(at.no.0), owned);
                self.live += 1;
                Ok(())
            }
            Event::CancelRequested { operation, .. } => {
                self.operations.remember(operation, at);
                Ok(())
            }
            Event::OperationRefused {
                operation, refusal, ..
            } => {
                if is_kept(refusal.rule) {
                    self.operations.remember(operation, at);
                }
                Ok(())
            }
            Event::OperationRepeated { .. } => Ok(()),
            Event::OperationsForgotten { through } => {
                self.operations.forget(*through);
                let through = AllocationNo(through.0);
                self.allocations
                    .retain(|no, owned| !owned.ended || *no > through);
                Ok(())
            }
            Event::QuotaReserved { .. }
            | Event::QuotaDenied { .. }
            | Event::QuotaReleased { .. }
            | Event::AllocationPlaced { .. }
            | Event::AllocationWaiting { .. }
            | Event::AllocationStarted { .. }
            | Event::AllocationStopping { .. }
            | Event::AllocationPreempted { .. }
            | Event::AllocationNominated { .. }
            | Event::AllocationRequeued { .. }
            | Event::LineExplained { .. }
            | Event::ReservationDecided { .. }
            | Event::AllocationEnded { .. }
            | Event::CancelDecided { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeReady { .. }
            | Event::NodeLost { .. }
            | Event::RunReported { .. } => {
                Err(IllegalEvent::new("another writer's fact as own", event))
            }
        }
    }

    /// A repeated operation first, whatever it says; then what the operation table can take; then the verb's own rules.
    fn handle(&mut self, command: Command, rules: &Rules, draft: &mut Draft) {
        self.forget(rules, draft);
        let Command { operation, verb } = command;
        if let Some(event) = self.operations.known(&operation) {
            draft.emit(self, event);
            return;
        }
        let job_set = match &verb {
            Ok(Verb::Submit(request)) => request.job_set_token(),
            _ => None,
        };
        let event = match self.accept(&operation, verb, rules, draft.now) {
            Ok(event) => event,
            Err(refusal) => Event::OperationRefused {
                operation,
                job_set,
                refusal,
            },
        };
        draft.emit(self, event);
    }

    fn decide(&mut self, rules: &Rules, draft: &mut Draft) {
        if !draft.full() {
            self.forget(rules, draft);
        }
    }

    fn wake_at(&self) -> Option<Millis> {
        // Forgetting is no matter of urgency: the next frame does it.
        None
    }
}

impl Admission {
    /// Before anything is looked up, so that no operation is answered from the table after its window.
    fn forget(&mut self, rules: &Rules, draft: &mut Draft) {
        let over = self.operations.over(draft.now, rules.operation_window_ms);
        if let Some(through) = over {
            draft.emit(self, Event::OperationsForgotten { through });
        }
    }

    fn accept(
        &self,
        operation: &Operation,
        verb: Result<Verb, Refusal>,
        rules: &Rules,
        now: Millis,
    ) -> Result<Event, Refusal> {
        let verb = verb?;
        let operator = operation.tenant.as_str() == schemas::subjects::OPERATOR;
        if !operator && !self.settings.knows_tenant(&operation.tenant) {
            return Err(Refusal::new(Rule::TenantUnknown, "tenant"));
        }
        if self.operations.len() >= rules.operations_max {
            let (limit, actual) = (rules.operations_max, self.operations.len() + 1);
            return Err(Refusal::over(
                Rule::OperationTableFull,
                "operations",
                limit,
                actual,
            ));
        }
        let (tenant, operation) = (&operation.tenant, operation.clone());
        match (verb, operator) {
            (Verb::Submit(request), false) => {
                let spec = self.check_submit(tenant, &request, rules)?;
                self.check_room(rules)?;
                Ok(Event::AllocationRequested { operation, spec })
            }
            (Verb::Cancel { allocation_id }, false) => {
                let allocation = self.check_cancel(tenant, &allocation_id, rules)?;
                Ok(Event::CancelRequested {
                    operation,
                    allocation,
                })
            }
            (Verb::Admin { change, expected }, true) => {
                let (change, version) = self.check_admin(&change, expected, now)?;
                Ok(Event::AdminApplied {
                    operation,
                    change,
                    version,
                })
            }
            // Right words at the wrong door.
            (Verb::Submit(_) | Verb::Cancel { .. }, true) | (Verb::Admin { .. }, false) => {
                Err(Refusal::new(Rule::UnknownVerb, "verb"))
            }
        }
    }

    fn check_room(&self, rules: &Rules) -> Result<(), Refusal> {
        if self.live < rules.allocations_max {
            return Ok(());
        }
        Err(Refusal::over(
            Rule::AllocationTableFull,
            "allocations",
            rules.allocations_max,
            self.live + 1,
        ))
    }

    fn ended(&mut self, allocation: AllocationNo) {
        let Some(owned) = self.allocations.get_mut(&allocation) else {
            return;
        };
        if !std::mem::replace(&mut owned.ended, true) {
            self.live -= 1;
        }
        if allocation.0 <= self.operations.forgotten().0 {
            self.allocations.remove(&allocation);
        }
    }
}

#[cfg(test)]
mod tests;
