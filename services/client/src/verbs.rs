//! One call per verb, once sent, typed by what success means.

use crate::{Client, Failed, NoOutcome, Operation};
use schemas::v1::{
    Acquire, AcquireBundle, Applied, Cancel, CancelJobSet, Cancelled, ClosePeriod, Confirm,
    Confirmed, CreateResource, JobSetCancelled, LeaseGranted, Outcome, Passes, PrioritySet,
    Reclaim, Reclaimed, Release, Released, ResourceCreated, Revoke, Revoked, SetBudget, SetCordon,
    SetNode, SetPriority, SetPriorityClass, SetQueue, SetQuota, SetRate, SetReservation,
    SetScheduling, SetTaints, SetTenant, Submit, Submitted, outcome::Result as Decided,
    request::Verb, set_priority::Target,
};

/// A verb's call: the verb, and the kind of outcome that is its success.
macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident, $asked:ident -> $outcome:ident;)*) => {
        impl Client {
            $($(#[$doc])*
            pub async fn $name(
                &self,
                asked: $asked,
                operation_id: impl Into<String>,
            ) -> Result<$outcome, Failed> {
                let operation = Operation::new(operation_id, Verb::$asked(asked));
                match decided(operation.id(), self.insist(&operation).await)? {
                    Decided::$outcome(outcome) => Ok(outcome),
                    other => Err(against(operation.id(), other)),
                }
            })*
        }
    };
}

verbs! {
    /// Asks for one allocation.
    submit, Submit -> Submitted;
    /// Brings a named resource of the tenant's into being.
    create_resource, CreateResource -> ResourceCreated;
    /// Acquires one resource until a deadline, or until it is confirmed.
    acquire, Acquire -> LeaseGranted;
    /// Acquires several resources, all or none.
    acquire_bundle, AcquireBundle -> LeaseGranted;
    /// Holds a lease without a deadline.
    confirm, Confirm -> Confirmed;
    /// Gives a lease back.
    release, Release -> Released;
    /// Withdraws the holder's authority over a confirmed lease.
    revoke, Revoke -> Revoked;
    /// Makes the resources of a revoked lease available.
    reclaim, Reclaim -> Reclaimed;
    /// Operators only: sets all of one tenant.
    set_tenant, SetTenant -> Applied;
    /// Operators only: limits one resource of an account.
    set_quota, SetQuota -> Applied;
    /// Operators only: bounds what an account uses up in every period, or takes that back.
    set_budget, SetBudget -> Applied;
    /// Operators only: says what a resource costs from a moment on.
    set_rate, SetRate -> Applied;
    /// Operators only: makes the bill of a month final.
    close_period, ClosePeriod -> Applied;
    /// Operators only: sets all of one queue.
    set_queue, SetQueue -> Applied;
    /// Operators only: sets all of one priority class.
    set_priority_class, SetPriorityClass -> Applied;
    /// Operators only: sets the cell's whole scheduling policy.
    set_scheduling, SetScheduling -> Applied;
    /// Operators only: keeps new allocations off a node, or lets them on again.
    set_cordon, SetCordon -> Applied;
    set_taints, SetTaints -> Applied;
    /// Operators only: lets a node join the cell, or forgets it.
    set_node, SetNode -> Applied;
    /// Operators only: reserves nodes for an interval, or takes that back.
    set_reservation, SetReservation -> Applied;
}

/// Whose priority is to be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    /// The id of one allocation.
    Allocation(String),
    /// The name of a job set: all of it that has not ended.
    JobSet(String),
}

impl Client {
    /// Asks for many allocations in as few messages as they fit into; the outcomes come in the same order, each with its
    /// operation id.
    pub async fn submit_all(
        &self,
        submits: impl IntoIterator<Item = (String, Submit)>,
    ) -> Vec<(String, Result<Submitted, Failed>)> {
        let operation = |(id, submit)| Operation::new(id, Verb::Submit(submit));
        let operations: Vec<Operation> = submits.into_iter().map(operation).collect();
        let outcomes = self.call_all(&operations).await;
        let typed = |(operation, outcome): (&Operation, _)| {
            let id = operation.id();
            (id.to_owned(), submitted(id, outcome))
        };
        operations.iter().zip(outcomes).map(typed).collect()
    }

    /// Says whether the inbox would accept a submit, by the same checks, and what would be asked for then; nothing is recorded.
    /// What quota and the scheduler would make of that say [`Client::try_quota`] and [`Client::try_place`].
    pub async fn try_submit(&self, submit: Submit) -> Result<Passes, Failed> {
        let operation = Operation::new(Operation::fresh_id(), Verb::TrySubmit(submit));
        match decided(operation.id(), self.insist(&operation).await)? {
            Decided::Passes(passes) => Ok(passes),
            other => Err(against(operation.id(), other)),
        }
    }

    /// Ends one of the tenant's allocations, or takes it out of the queue.
    pub async fn cancel(
        &self,
        allocation_id: impl Into<String>,
        operation_id: impl Into<String>,
    ) -> Result<Cancelled, Failed> {
        let allocation_id = allocation_id.into();
        let operation = Operation::new(operation_id, Verb::Cancel(Cancel { allocation_id }));
        match decided(operation.id(), self.insist(&operation).await)? {
            Decided::Cancelled(cancelled) => Ok(cancelled),
            other => Err(against(operation.id(), other)),
        }
    }

    /// Ends all that has not ended of a job set and was accepted before.
    pub async fn cancel_job_set(
        &self,
        job_set: impl Into<String>,
        operation_id: impl Into<String>,
    ) -> Result<JobSetCancelled, Failed> {
        let job_set = job_set.into();
        let verb = Verb::CancelJobSet(CancelJobSet { job_set });
        let operation = Operation::new(operation_id, verb);
        match decided(operation.id(), self.insist(&operation).await)? {
            Decided::JobSetCancelled(cancelled) => Ok(cancelled),
            other => Err(against(operation.id(), other)),
        }
    }

    /// Changes the priority of what has not ended and has no priority class.
    pub async fn set_priority(
        &self,
        of: Of,
        priority: i32,
        operation_id: impl Into<String>,
    ) -> Result<PrioritySet, Failed> {
        let target = match of {
            Of::Allocation(id) => Target::AllocationId(id),
            Of::JobSet(name) => Target::JobSet(name),
        };
        let verb = Verb::SetPriority(SetPriority {
            target: Some(target),
            priority,
        });
        let operation = Operation::new(operation_id, verb);
        match decided(operation.id(), self.insist(&operation).await)? {
            Decided::PrioritySet(set) => Ok(set),
            other => Err(against(operation.id(), other)),
        }
    }
}

/// What has come of a submit of this operation id.
pub(crate) fn submitted(
    id: &str,
    outcome: Result<Outcome, NoOutcome>,
) -> Result<Submitted, Failed> {
    match decided(id, outcome)? {
        Decided::Submitted(submitted) => Ok(submitted),
        other => Err(against(id, other)),
    }
}

fn decided(id: &str, outcome: Result<Outcome, NoOutcome>) -> Result<Decided, Failed> {
    // A kind of outcome that this version does not know.
    let unknown = || Failed::OtherVerb {
        operation_id: id.to_owned(),
    };
    outcome?.result.ok_or_else(unknown)
}

fn against(operation_id: &str, decided: Decided) -> Failed {
    match decided {
        Decided::Refused(refused) => Failed::Refused(refused),
        _ => Failed::OtherVerb {
            operation_id: operation_id.to_owned(),
        },
    }
}
