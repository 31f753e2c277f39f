//! The operators' changes, each with a version that the change may name.

mod node;
mod priority_class;
mod queue;
mod quota;
mod rate;
mod reservation;
mod scheduling;
mod tenant;

use super::settings::Sets;
pub use node::ApprovalRequest;
pub use priority_class::ClassRequest;
pub use queue::QueueRequest;
pub use quota::{AccountRequest, BudgetRequest, QuotaRequest};
pub use reservation::ReservationRequest;
pub use scheduling::SchedulingRequest;
pub use tenant::TenantRequest;
use vocab::fact::{CordonSet, NodeSet, ReservationSet, SchedulingSet};

use super::{
    Admission,
    check::{numbered, token},
};
use vocab::{AdminChange, Millis, PlacementPolicy, Refusal, Rule};

/// A change as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeRequest {
    Tenant(TenantRequest),
    Quota(QuotaRequest),
    Budget(BudgetRequest),
    Rate {
        resource: String,
        micro_per_unit_hour: i64,
        effective_from_ms: i64,
    },
    Queue(QueueRequest),
    PriorityClass(ClassRequest),
    Scheduling(SchedulingRequest),
    Cordon {
        node: String,
        cordoned: bool,
    },
    Reservation {
        reservation: String,
        /// None takes it back.
        wanted: Option<ReservationRequest>,
    },
    Node {
        node: String,
        /// None: it is forgotten.
        approved: Option<Box<ApprovalRequest>>,
    },
}

impl Admission {
    /// The change, and the version that it makes.
    pub(super) fn check_admin(
        &self,
        change: &ChangeRequest,
        expected: Option<u64>,
        now: Millis,
    ) -> Result<(AdminChange, u64), Refusal> {
        let change = match change {
            ChangeRequest::Tenant(request) => request.check()?,
            ChangeRequest::Quota(request) => self.check_quota(request, now)?,
            ChangeRequest::Budget(request) => self.check_budget(request)?,
            ChangeRequest::Rate {
                resource,
                micro_per_unit_hour,
                effective_from_ms,
            } => self.check_rate(
                resource,
                *micro_per_unit_hour,
                Millis(*effective_from_ms),
                now,
            )?,
            ChangeRequest::Queue(request) => self.check_queue_settings(request)?,
            ChangeRequest::PriorityClass(request) => request.check()?,
            ChangeRequest::Scheduling(request) => AdminChange::Scheduling(SchedulingSet {
                policy: request.check()?,
            }),
            ChangeRequest::Cordon { node, cordoned } => AdminChange::Cordon(CordonSet {
                node: token(node, "node")?,
                cordoned: *cordoned,
            }),
            ChangeRequest::Reservation {
                reservation,
                wanted,
            } => {
                let reservation = token(reservation, "reservation")?;
                let wanted = wanted.as_ref();
                let wanted = wanted.map(|wanted| self.check_reservation(wanted, now));
                AdminChange::Reservation(ReservationSet {
                    reservation,
                    wanted: wanted.transpose()?,
                })
            }
            ChangeRequest::Node { node, approved } => {
                let approved = approved.as_deref().map(|request| request.check(now));
                AdminChange::Node(NodeSet {
                    node: token(node, "node")?,
                    approval: approved.transpose()?.map(Box::new),
                })
            }
        };
        let current = self.settings.version(&change.setting());
        match expected {
            Some(expected) if expected != current => Err(Refusal::over(
                Rule::VersionConflict,
                "expected_version",
                current,
                expected,
            )),
            _ => Ok((change, current + 1)),
        }
    }
}

fn placement(number: i32) -> Result<PlacementPolicy, Refusal> {
    numbered(&PlacementPolicy::ALL, number, |policy| policy as i32)
        .ok_or_else(|| Refusal::new(Rule::SettingInvalid, "placement"))
}
