//! Admission's rules: who may ask for what, each operation once. Pure; one file per verb.

mod admin;
mod cancel;
mod operations;
mod submit;

pub use operations::is_kept;
pub use submit::SubmitRequest;

use ledger::{Decider, Draft, IllegalEvent};
use operations::Operations;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{
    AdminChange, AllocationNo, At, CellNo, Event, Millis, Operation, Refusal, ResourceKey,
    ResourceKind, Rule, Token, Writer,
};

/// Everything that admission knows, folded from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    operations: Operations,
    /// Versions of the tenants.
    tenants: BTreeMap<Token, u64>,
    quotas: BTreeMap<(Token, ResourceKind), u64>,
    /// Versions of the rates.
    rates: BTreeMap<ResourceKey, u64>,
    /// Whose the allocations are, live or ended within the retention window.
    allocations: BTreeMap<AllocationNo, Owned>,
    live: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owned {
    tenant: Token,
    ended: bool,
}

/// What a message at the door comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub operation: Operation,
    /// Or the rule that reading it has broken already.
    pub verb: Result<Verb, Refusal>,
}

/// What is asked, as it was written: nothing but its shape has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    Submit(SubmitRequest),
    Cancel {
        allocation_id: String,
    },
    SetTenant {
        tenant: String,
        expected: Option<u64>,
    },
    SetQuota {
        tenant: String,
        resource: String,
        limit: i64,
        expected: Option<u64>,
    },
    SetRate {
        resource: String,
        micro_per_unit_hour: i64,
        effective_from_ms: i64,
        expected: Option<u64>,
    },
}

/// Settings that decisions depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub cell: CellNo,
    /// How long an operation is remembered, in milliseconds of the cell's clock.
    pub operation_window_ms: i64,
    /// Operations remembered at the same time.
    pub operations_max: u64,
    /// Allocations that have not ended.
    pub allocations_max: u64,
}

impl Decider for Admission {
    type Command = Command;
    type Rules = Rules;
    type Effect = std::convert::Infallible;

    const WRITER: Writer = Writer::Admission;
    const STATE_VERSION: u32 = 1;

    fn observe(&mut self, _at: &At, event: &Event) -> Result<(), IllegalEvent> {
        match event {
            Event::AllocationEnded { allocation, .. } | Event::QuotaDenied { allocation, .. } => {
                self.ended(*allocation);
                Ok(())
            }
            // Not admission's business.
            Event::QuotaReserved { .. }
            | Event::QuotaReleased { .. }
            | Event::AllocationPlaced { .. }
            | Event::AllocationWaiting { .. }
            | Event::AllocationStarted { .. }
            | Event::AllocationStopping { .. }
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
                self.applied(change, *version, event)
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
        if !operator && !self.tenants.contains_key(&operation.tenant) {
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
        match (verb, operator) {
            (Verb::Submit(request), false) => {
                let spec = request.check()?;
                self.check_room(rules)?;
                Ok(Event::AllocationRequested {
                    operation: operation.clone(),
                    spec,
                })
            }
            (Verb::Cancel { allocation_id }, false) => {
                let allocation = self.check_cancel(operation, &allocation_id, rules)?;
                Ok(Event::CancelRequested {
                    operation: operation.clone(),
                    allocation,
                })
            }
            (
                verb @ (Verb::SetTenant { .. } | Verb::SetQuota { .. } | Verb::SetRate { .. }),
                true,
            ) => {
                let (change, version) = self.check_admin(verb, now)?;
                Ok(Event::AdminApplied {
                    operation: operation.clone(),
                    change,
                    version,
                })
            }
            // Right words at the wrong door.
            (Verb::Submit(_) | Verb::Cancel { .. }, true)
            | (Verb::SetTenant { .. } | Verb::SetQuota { .. } | Verb::SetRate { .. }, false) => {
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

/// What `AdminApplied` sets; beside `admin.rs`, which checks it.
impl Admission {
    fn applied(
        &mut self,
        change: &AdminChange,
        version: u64,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        let current = match change {
            AdminChange::Tenant { tenant } => self.tenants.entry(tenant.clone()).or_default(),
            AdminChange::Quota {
                tenant, resource, ..
            } => self.quotas.entry((tenant.clone(), *resource)).or_default(),
            AdminChange::Rate { resource, .. } => self.rates.entry(resource.clone()).or_default(),
        };
        if version != *current + 1 {
            return Err(IllegalEvent::new("another version", event));
        }
        *current = version;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
