//! One call per verb, once sent, typed by what success means.

use crate::{Client, Failed, Operation};
use schemas::v1::{
    Applied, Cancel, Cancelled, Outcome, SetCordon, SetPriorityClass, SetQueue, SetQuota, SetRate,
    SetReservation, SetScheduling, SetTenant, Submit, Submitted, outcome::Result as Decided,
    request::Verb,
};

impl Client {
    /// Asks for one allocation.
    pub async fn submit(
        &self,
        submit: Submit,
        operation_id: impl Into<String>,
    ) -> Result<Submitted, Failed> {
        match self
            .decide(operation_id.into(), Verb::Submit(submit))
            .await?
        {
            (_, Decided::Submitted(submitted)) => Ok(submitted),
            (operation_id, other) => Err(against(operation_id, other)),
        }
    }

    /// Ends one of the tenant's allocations, or takes it out of the queue.
    pub async fn cancel(
        &self,
        allocation_id: impl Into<String>,
        operation_id: impl Into<String>,
    ) -> Result<Cancelled, Failed> {
        let verb = Verb::Cancel(Cancel {
            allocation_id: allocation_id.into(),
        });
        match self.decide(operation_id.into(), verb).await? {
            (_, Decided::Cancelled(cancelled)) => Ok(cancelled),
            (operation_id, other) => Err(against(operation_id, other)),
        }
    }

    /// Operators only: brings a tenant into being.
    pub async fn set_tenant(
        &self,
        change: SetTenant,
        operation_id: impl Into<String>,
    ) -> Result<Applied, Failed> {
        self.administer(Verb::SetTenant(change), operation_id.into())
            .await
    }

    /// Operators only: limits one resource of a tenant.
    pub async fn set_quota(
        &self,
        change: SetQuota,
        operation_id: impl Into<String>,
    ) -> Result<Applied, Failed> {
        self.administer(Verb::SetQuota(change), operation_id.into())
            .await
    }

    /// Operators only: says what a resource costs from an hour on.
    pub async fn set_rate(
        &self,
        change: SetRate,
        operation_id: impl Into<String>,
    ) -> Result<Applied, Failed> {
        self.administer(Verb::SetRate(change), operation_id.into())
            .await
    }

    /// Operators only: sets all of one queue.
    pub async fn set_queue(
        &self,
        change: SetQueue,
        operation_id: impl Into<String>,
    ) -> Result<Applied, Failed> {
        self.administer(Verb::SetQueue(change), operation_id.into())
            .await
    }

    /// Operators only: sets all of one priority class.
    pub async fn set_priority_class(
        &self,
        change: SetPriorityClass,
        operation_id: impl Into<String>,
    ) -> Result<Applied, Failed> {
        self.administer(Verb::SetPriorityClass(change), operation_id.into())
            .await
    }

    /// Operators only: sets the cell's whole scheduling policy.
    pub async fn set_scheduling(
        &self,
        change: SetScheduling,
        operation_id: impl Into<String>,
    ) -> Result<Applied, Failed> {
        self.administer(Verb::SetScheduling(change), operation_id.into())
            .await
    }

    /// Operators only: keeps new allocations off a node, or lets them on again.
    pub async fn set_cordon(
        &self,
        change: SetCordon,
        operation_id: impl Into<String>,
    ) -> Result<Applied, Failed> {
        self.administer(Verb::SetCordon(change), operation_id.into())
            .await
    }

    /// Operators only: reserves nodes for an interval, or takes that back.
    pub async fn set_reservation(
        &self,
        change: SetReservation,
        operation_id: impl Into<String>,
    ) -> Result<Applied, Failed> {
        self.administer(Verb::SetReservation(change), operation_id.into())
            .await
    }

    async fn administer(&self, verb: Verb, operation_id: String) -> Result<Applied, Failed> {
        match self.decide(operation_id, verb).await? {
            (_, Decided::Applied(applied)) => Ok(applied),
            (operation_id, other) => Err(against(operation_id, other)),
        }
    }

    async fn decide(&self, operation_id: String, verb: Verb) -> Result<(String, Decided), Failed> {
        let operation = Operation::new(operation_id, verb);
        let Outcome { result, .. } = self.call(&operation).await?;
        let operation_id = operation.id().to_owned();
        match result {
            Some(decided) => Ok((operation_id, decided)),
            // A kind of outcome that this version does not know.
            None => Err(Failed::OtherVerb { operation_id }),
        }
    }
}

fn against(operation_id: String, decided: Decided) -> Failed {
    match decided {
        Decided::Refused(refused) => Failed::Refused(refused),
        Decided::Submitted(_) | Decided::Cancelled(_) | Decided::Applied(_) => {
            Failed::OtherVerb { operation_id }
        }
    }
}
