//! What became of an operation, as the view `operations` has it.
//!
//! The view has no more than a person asks for. It cannot tell the outcome's position, nor where an allocation was placed
//! or why it waits: repeating the operation can, and so can the verb `allocation`.

use crate::store::{self, StoredOperation, StoredRefusal};
use chassis::query::{Asked, Trouble, Verb};
use schemas::{
    ToProst as _,
    v1::{
        self, OperationQuery, OperationReply, OperationState, OperationView,
        outcome::Result as Reply, submitted::State as Stands,
    },
};
use sqlx::PgPool;
use vocab::{Lsn, Refusal, Rule, Token};

/// The verb `operation`.
pub struct OperationQueries {
    pub pool: PgPool,
}

impl Verb for OperationQueries {
    const NAME: &'static str = "operation";
    type Query = OperationQuery;
    type Reply = OperationReply;

    fn position(query: &OperationQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<OperationQuery>) -> Result<OperationReply, Trouble> {
        let Ok(id) = Token::new(&asked.query.operation_id) else {
            return Err(Trouble::refused(Rule::OperationIdInvalid, "operation_id"));
        };
        let found = store::operation(&self.pool, &asked.tenant, &id).await?;
        Ok(OperationReply {
            view: Some(view(id.to_string(), found.as_ref(), asked.applied)),
            refusal: None,
        })
    }
}

fn view(operation_id: String, found: Option<&StoredOperation>, lsn: Lsn) -> OperationView {
    let result = found.and_then(result);
    let state = match (found, &result) {
        (None, _) => OperationState::Unknown,
        (Some(_), None) => OperationState::Open,
        (Some(_), Some(_)) => OperationState::Decided,
    };
    OperationView {
        state: state.into(),
        outcome: result.map(|result| v1::Outcome {
            operation_id: operation_id.clone(),
            lsn: 0,
            result: Some(result),
        }),
        operation_id,
        lsn: lsn.0,
    }
}

/// None while it is pending.
fn result(found: &StoredOperation) -> Option<Reply> {
    let allocation_id = || found.allocation.map(|id| id.to_string());
    let submitted = |state| {
        let allocation_id = allocation_id().unwrap_or_default();
        let state = Some(state);
        Reply::Submitted(v1::Submitted {
            allocation_id,
            state,
        })
    };
    // What a state has beside it, the tables' constraints say.
    let fencing_token = found.fencing_token.unwrap_or_default();
    let allocations = found.allocations.unwrap_or_default();
    Some(match found.state.as_str() {
        "placed" => submitted(Stands::Placed(v1::Placed::default())),
        "waiting" => submitted(Stands::Waiting(v1::Waiting::default())),
        "ended" => submitted(Stands::Ended(v1::Ended::default())),
        "cancelled" => Reply::Cancelled(v1::Cancelled {
            allocation_id: allocation_id().unwrap_or_default(),
        }),
        "job_set_cancelled" => Reply::JobSetCancelled(v1::JobSetCancelled { allocations }),
        "priority_set" => Reply::PrioritySet(v1::PrioritySet { allocations }),
        "applied" => Reply::Applied(v1::Applied {
            version: found.version.unwrap_or_default(),
        }),
        "created" => Reply::ResourceCreated(v1::ResourceCreated { version: 0 }),
        "granted" => Reply::LeaseGranted(v1::LeaseGranted {
            lease_id: found.lease.map(|id| id.to_string()).unwrap_or_default(),
            fencing_token,
            deadline_slot: found.deadline_slot.unwrap_or_default(),
        }),
        "confirmed" => Reply::Confirmed(v1::Confirmed {}),
        "released" => Reply::Released(v1::Released { fencing_token }),
        "revoked" => Reply::Revoked(v1::Revoked { fencing_token }),
        "reclaimed" => Reply::Reclaimed(v1::Reclaimed {}),
        "refused" => Reply::Refused(broken(found.refusal.as_ref()?)),
        _ => return None,
    })
}

/// The rule that was broken, as the contract has it.
pub(super) fn broken(stored: &StoredRefusal) -> v1::Refused {
    let rule = Rule::ALL.iter().find(|rule| rule.name() == stored.rule);
    // The rule of a later version still reads as a refusal.
    let Some(rule) = rule else {
        let explanation = format!("{}: {}", stored.rule, stored.subject);
        return v1::Refused {
            explanation,
            ..v1::Refused::default()
        };
    };
    let refusal = Refusal::over(*rule, &*stored.subject, stored.limit, stored.actual);
    v1::Refused {
        refusal: Some(refusal.to_prost()),
        retryable: rule.retryable(),
        explanation: refusal.explanation(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::{AllocationNo, CellNo, EventNo, Millis};

    fn stored(state: &str) -> StoredOperation {
        let refusal = StoredRefusal {
            rule: "quota_exceeded".into(),
            subject: "gpu".into(),
            limit: 1,
            actual: 2,
        };
        StoredOperation {
            no: EventNo(1),
            verb: None,
            state: state.into(),
            allocation: Some(AllocationNo(7).id(CellNo(1))),
            version: Some(3),
            refusal: (state == "refused").then_some(refusal),
            lease: None,
            fencing_token: Some(2),
            deadline_slot: None,
            allocations: Some(9),
            requested_at: Millis(0),
            decided_at: None,
        }
    }

    fn check(found: Option<&str>, state: OperationState, said: &str) {
        let found = found.map(stored);
        let view = view("op".into(), found.as_ref(), Lsn(5));
        assert_eq!((view.state(), view.lsn), (state, 5), "{found:?}");
        let result = view.outcome.and_then(|outcome| outcome.result);
        let text = result.map(|result| format!("{result:?}"));
        assert!(text.unwrap_or_default().contains(said), "{found:?}");
    }

    #[test]
    fn a_row_reads_as_the_outcome_that_it_is_of() {
        use OperationState::{Decided, Open, Unknown};
        check(None, Unknown, "");
        check(Some("pending"), Open, "");
        check(Some("placed"), Decided, "-000000000007");
        check(Some("priority_set"), Decided, "allocations: 9");
        check(Some("revoked"), Decided, "fencing_token: 2");
        check(Some("refused"), Decided, "quota exceeded: gpu");
        check(Some("what a later version knows"), Open, "");
    }
}
