//! The operators' changes, each with a version that the change may name.

mod cordon;
mod node;
mod period;
mod priority_class;
mod queue;
mod quota;
mod rate;
mod reservation;
mod scheduling;
mod tenant;

use super::settings::{Sets, named};
pub use cordon::{CordonRequest, TaintRequest, TaintsRequest};
pub use node::ApprovalRequest;
use node::check_node;
pub use priority_class::ClassRequest;
pub use queue::QueueRequest;
pub use quota::{AccountRequest, BudgetRequest, QuotaRequest};
pub use rate::RateRequest;
pub use reservation::ReservationRequest;
pub use scheduling::SchedulingRequest;
pub use tenant::TenantRequest;
use vocab::fact::{NodeSet, ReservationSet, SchedulingSet};

use super::{Admission, check::token};
use vocab::{AdminChange, Millis, Month, PlacementPolicy, Refusal, Rule, Verb};
use wire::Open;

/// A change as it was written. Each has the version that it is a change of; none: whichever it is.
#[derive(Debug, Clone, PartialEq, Eq, wire::Wire)]
#[wire(oneof)]
pub enum ChangeRequest {
    #[wire(30)]
    SetTenant(TenantRequest),
    #[wire(31)]
    SetQuota(QuotaRequest),
    #[wire(32)]
    SetRate(RateRequest),
    #[wire(33)]
    SetQueue(QueueRequest),
    #[wire(34)]
    SetPriorityClass(ClassRequest),
    #[wire(35)]
    SetScheduling(SchedulingRequest),
    #[wire(36)]
    SetCordon(CordonRequest),
    #[wire(37)]
    SetReservation {
        #[wire(1)]
        reservation: String,
        /// None takes it back.
        #[wire(2)]
        wanted: Option<ReservationRequest>,
        #[wire(3, optional)]
        expected_version: Option<u64>,
    },
    #[wire(38)]
    SetBudget(BudgetRequest),
    #[wire(39)]
    SetNode {
        #[wire(1)]
        node: String,
        /// None: it is forgotten.
        #[wire(2)]
        approved: Option<Box<ApprovalRequest>>,
        #[wire(3, optional)]
        expected_version: Option<u64>,
    },
    #[wire(40)]
    ClosePeriod {
        #[wire(1)]
        month: Month,
        #[wire(2, optional)]
        expected_version: Option<u64>,
    },
    #[wire(41)]
    SetTaints(TaintsRequest),
}

impl ChangeRequest {
    pub(super) fn asked(&self) -> Verb {
        match self {
            Self::SetTenant(_) => Verb::SetTenant,
            Self::SetQuota(_) => Verb::SetQuota,
            Self::SetRate(_) => Verb::SetRate,
            Self::SetQueue(_) => Verb::SetQueue,
            Self::SetPriorityClass(_) => Verb::SetPriorityClass,
            Self::SetScheduling(_) => Verb::SetScheduling,
            Self::SetCordon(_) => Verb::SetCordon,
            Self::SetReservation { .. } => Verb::SetReservation,
            Self::SetBudget(_) => Verb::SetBudget,
            Self::SetNode { .. } => Verb::SetNode,
            Self::ClosePeriod { .. } => Verb::ClosePeriod,
            Self::SetTaints(_) => Verb::SetTaints,
        }
    }

    fn expected_version(&self) -> Option<u64> {
        match self {
            Self::SetTenant(request) => request.expected_version,
            Self::SetQuota(request) => request.expected_version,
            Self::SetQueue(request) => request.expected_version,
            Self::SetPriorityClass(request) => request.expected_version,
            Self::SetScheduling(request) => request.expected_version,
            Self::SetBudget(request) => request.expected_version,
            Self::SetRate(request) => request.expected_version,
            Self::SetCordon(request) => request.expected_version,
            Self::SetTaints(request) => request.expected_version,
            Self::SetReservation {
                expected_version, ..
            }
            | Self::SetNode {
                expected_version, ..
            }
            | Self::ClosePeriod {
                expected_version, ..
            } => *expected_version,
        }
    }
}

impl From<&AdminChange> for ChangeRequest {
    /// What would set it again.
    fn from(change: &AdminChange) -> Self {
        let expected_version = None;
        match change {
            AdminChange::Tenant(set) => Self::SetTenant(set.into()),
            AdminChange::Quota(set) => Self::SetQuota(set.into()),
            AdminChange::Budget(set) => Self::SetBudget(set.into()),
            AdminChange::Rate(set) => Self::SetRate(set.into()),
            AdminChange::Queue(set) => Self::SetQueue(set.into()),
            AdminChange::PriorityClass(set) => Self::SetPriorityClass(set.into()),
            AdminChange::Scheduling(set) => Self::SetScheduling((&set.policy).into()),
            AdminChange::Cordon(set) => Self::SetCordon(set.into()),
            AdminChange::Taints(set) => Self::SetTaints(set.into()),
            AdminChange::Reservation(set) => Self::SetReservation {
                reservation: set.reservation.to_string(),
                wanted: set.wanted.as_ref().map(ReservationRequest::from),
                expected_version,
            },
            AdminChange::Node(set) => Self::SetNode {
                node: set.node.to_string(),
                approved: set.approval.as_deref().map(|it| Box::new(it.into())),
                expected_version,
            },
            AdminChange::Period(set) => Self::ClosePeriod {
                month: set.month,
                expected_version,
            },
        }
    }
}

impl Admission {
    /// Checks the rules that need the state or the time.
    fn check_change(
        &self,
        request: &ChangeRequest,
        change: &AdminChange,
        now: Millis,
    ) -> Result<(), Refusal> {
        match change {
            AdminChange::Tenant(set) => self.check_tenant(set),
            AdminChange::Quota(set) => self.check_quota(set, now),
            AdminChange::Budget(set) => self.check_budget(set),
            AdminChange::Rate(set) => {
                let at_once = matches!(request, ChangeRequest::SetRate(rate) if rate.is_at_once());
                self.check_rate(set, now, at_once)
            }
            AdminChange::Queue(set) => self.check_queue_settings(set),
            AdminChange::Reservation(set) => self.check_reservation(set, now),
            AdminChange::Node(set) => check_node(set, now),
            AdminChange::Period(set) => self.check_period(set.month, now),
            AdminChange::PriorityClass(_)
            | AdminChange::Scheduling(_)
            | AdminChange::Cordon(_)
            | AdminChange::Taints(_) => Ok(()),
        }
    }

    /// The change, and the version that it makes.
    pub(super) fn check_admin(
        &self,
        request: &ChangeRequest,
        now: Millis,
    ) -> Result<(AdminChange, u64), Refusal> {
        let change = request.read(now)?;
        self.check_change(request, &change, now)?;
        let current = self.settings.version(&change.setting());
        match request.expected_version() {
            Some(expected) if expected != current => Err(Refusal::over(
                Rule::VersionConflict,
                "expected_version",
                current,
                expected,
            )),
            _ if current == 0 && takes_back(&change) => {
                Err(Refusal::new(Rule::NeverSet, named(&change).1))
            }
            _ => Ok((change, current + 1)),
        }
    }
}

impl ChangeRequest {
    /// Returns the change. Checks the rules that need no state; `now` is only the earliest moment to take a rate back.
    pub fn read(&self, now: Millis) -> Result<AdminChange, Refusal> {
        Ok(match self {
            Self::SetTenant(request) => AdminChange::Tenant(request.read()?),
            Self::SetQuota(request) => AdminChange::Quota(request.read()?),
            Self::SetBudget(request) => AdminChange::Budget(request.read()?),
            Self::SetRate(request) => AdminChange::Rate(request.read(now)?),
            Self::SetQueue(request) => AdminChange::Queue(request.read()?),
            Self::SetPriorityClass(request) => AdminChange::PriorityClass(request.read()?),
            Self::SetScheduling(request) => AdminChange::Scheduling(SchedulingSet {
                policy: request.read()?,
            }),
            Self::SetCordon(request) => AdminChange::Cordon(request.read()?),
            Self::SetTaints(request) => AdminChange::Taints(request.read()?),
            Self::SetReservation {
                reservation,
                wanted,
                ..
            } => AdminChange::Reservation(ReservationSet {
                reservation: token(reservation, "reservation")?,
                wanted: wanted.as_ref().map(ReservationRequest::read).transpose()?,
            }),
            Self::SetNode { node, approved, .. } => {
                let approved = approved.as_deref().map(ApprovalRequest::read);
                AdminChange::Node(NodeSet {
                    node: token(node, "node")?,
                    approval: approved.transpose()?.map(Box::new),
                })
            }
            Self::ClosePeriod { month, .. } => AdminChange::Period(period::read(*month)?),
        })
    }
}

/// A registered node may be forgotten without an approval, and a rate is checked together with its moment.
fn takes_back(change: &AdminChange) -> bool {
    match change {
        AdminChange::Quota(set) => set.limits.is_none(),
        AdminChange::Budget(set) => set.budget.is_none(),
        AdminChange::Reservation(set) => set.wanted.is_none(),
        _ => false,
    }
}

fn placement(written: Open<PlacementPolicy>) -> Result<PlacementPolicy, Refusal> {
    let known = written.known();
    known.ok_or_else(|| Refusal::new(Rule::SettingInvalid, "placement"))
}
