//! A refusal names the broken rule. Numbers are part of the contract.

mod sentence;

pub use sentence::Teaching;

use crate::WaitingReason;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The broken rule; `subject`, `limit` and `actual` say what it was about.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Refusal {
    #[wire(1)]
    pub rule: Rule,
    /// The field, resource or feature; never the offending value.
    #[wire(2)]
    pub subject: String,
    #[wire(3)]
    pub limit: u64,
    #[wire(4)]
    pub actual: u64,
}

impl Refusal {
    pub fn new(rule: Rule, subject: impl Into<String>) -> Self {
        Self::over(rule, subject, 0, 0)
    }

    /// A message that is longer or shorter than it is as it would be `written` here: it has a field that is not known, which
    /// is named, or is not canonical.
    pub fn not_as_written(given: &[u8], written: &[u8]) -> Self {
        match wire::unknown_field(given, written) {
            Some(path) => Self::new(Rule::UnknownField, format!("field {path}")),
            None => Self::new(Rule::UnknownField, sentence::NOT_CANONICAL),
        }
    }

    pub fn over(rule: Rule, subject: impl Into<String>, limit: u64, actual: u64) -> Self {
        Self {
            rule,
            subject: subject.into(),
            limit,
            actual,
        }
    }

    /// Returns why an allocation waits that quota refused for now. A gang asks for quota once all of it is there, and an
    /// allocation with dependencies once they have ended.
    pub fn waiting_reason(&self) -> WaitingReason {
        match self.rule {
            Rule::IncompleteGang => WaitingReason::GangIncomplete,
            Rule::DependencyPending => WaitingReason::Dependency,
            _ => WaitingReason::Quota,
        }
    }
}

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal, $retryable:literal;)*) => {
        /// Stable numbers, the same as the contract's `Rule`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire)]
        #[wire(prefix = "")]
        pub enum Rule { $($(#[$doc])* $name = $number,)* }

        impl Rule {
            /// The name on reports and metrics, in snake case.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Whether the same request can succeed later without a change to it.
            pub fn retryable(self) -> bool {
                match self { $(Self::$name => $retryable,)* }
            }
        }
    };
}

rules! {
    /// The bytes are not a request.
    MalformedMessage = 1, "malformed_message", false;
    /// No verb, or none that this version knows on this subject.
    UnknownVerb = 2, "unknown_verb", false;
    /// The message has fields, or an encoding, that this version does not know.
    UnknownField = 3, "unknown_field", false;
    PayloadTooLarge = 4, "payload_too_large", false;
    OperationIdInvalid = 5, "operation_id_invalid", false;
    /// The operation id was used with other content.
    OperationConflict = 6, "operation_conflict", false;
    /// As many of the tenant's operations are remembered as may be. Nothing of it was recorded.
    OperationTableFull = 7, "operation_table_full", true;
    TenantUnknown = 8, "tenant_unknown", true;
    /// A name is not a token.
    NameInvalid = 9, "name_invalid", false;
    QuantityZero = 10, "quantity_zero", false;
    QuantityNegative = 11, "quantity_negative", false;
    QuantityTooLarge = 12, "quantity_too_large", false;
    /// Shares are of one device, 1 to 1000 thousandths.
    GpuShareInvalid = 13, "gpu_share_invalid", false;
    TooManyElements = 14, "too_many_elements", false;
    /// Not one of this tenant's allocations.
    AllocationNotFound = 15, "allocation_not_found", false;
    AllocationEnded = 16, "allocation_ended", false;
    /// `limit` is the amount that the account may hold now, `actual` the amount that it would hold.
    QuotaExceeded = 17, "quota_exceeded", true;
    /// A feature that this version does not have.
    NotSupported = 18, "not_supported", false;
    /// `limit` is the current version, `actual` the expected one.
    VersionConflict = 19, "version_conflict", false;
    /// Rates were of full hours once.
    RateNotOnTheHour = 20, "rate_not_on_the_hour", false;
    ResourceUnknown = 21, "resource_unknown", false;
    PriorityOutOfRange = 22, "priority_out_of_range", false;
    AllocationIdInvalid = 23, "allocation_id_invalid", false;
    /// The tenant has as many allocations that have not ended as the cell lets any have. Nothing of it was recorded.
    AllocationTableFull = 24, "allocation_table_full", true;
    /// A rate may not change what was already billed.
    RateForAPastHour = 25, "rate_for_a_past_hour", false;
    QueueUnknown = 26, "queue_unknown", true;
    /// The tenant may not submit to this queue.
    QueueForbidden = 27, "queue_forbidden", false;
    PriorityClassUnknown = 28, "priority_class_unknown", true;
    /// Size, minimum or members that cannot be.
    GangInvalid = 29, "gang_invalid", false;
    /// A selector, toleration, affinity or spread term that cannot be.
    PlacementRuleInvalid = 30, "placement_rule_invalid", false;
    /// A queue above itself, too deep, or below one that is not there.
    QueueTreeInvalid = 31, "queue_tree_invalid", false;
    /// It ends before it begins, or has ended.
    IntervalInvalid = 32, "interval_invalid", false;
    /// A setting outside of its range.
    SettingInvalid = 33, "setting_invalid", false;
    /// A name that may stand there once stands there twice.
    NameRepeated = 34, "name_repeated", false;
    /// More requests than the tenant may send in this time. Nothing of it was recorded.
    RateLimited = 35, "rate_limited", true;
    /// The tenant has as many allocations that have not ended as it may. Nothing of it was recorded.
    BacklogFull = 36, "backlog_full", true;
    /// The tenant may not use this priority class.
    PriorityClassForbidden = 37, "priority_class_forbidden", false;
    /// `limit` is the budget, `actual` what was used of it.
    BudgetExhausted = 38, "budget_exhausted", true;
    /// It asks for more than its account may ever hold; `limit` is the most, `actual` what was asked for.
    QuotaNeverFits = 39, "quota_never_fits", false;
    /// `limit` is the slot that was seen, `actual` the one that lies before it. Nothing of it was recorded.
    SlotBackwards = 40, "slot_backwards", false;
    /// A deadline, or the end of a window, would lie beyond the last slot. Nothing of it was recorded.
    SlotOverflow = 41, "slot_overflow", false;
    TtlOutOfRange = 42, "ttl_out_of_range", false;
    AlreadyExists = 43, "already_exists", false;
    ResourceTableFull = 44, "resource_table_full", true;
    ResourceNotFound = 45, "resource_not_found", true;
    ResourceBusy = 46, "resource_busy", true;
    BundleTooLarge = 47, "bundle_too_large", false;
    LeaseTableFull = 48, "lease_table_full", true;
    /// As many leases end at this deadline as may.
    ExpirationIndexFull = 49, "expiration_index_full", true;
    LeaseNotFound = 50, "lease_not_found", false;
    /// It has ended, and its history is over.
    LeaseRetired = 51, "lease_retired", false;
    HolderMismatch = 52, "holder_mismatch", false;
    /// `limit` is the fencing token of the lease, `actual` the one that was named.
    StaleFencingToken = 53, "stale_fencing_token", false;
    /// The lease is in a state that this does not apply to.
    InvalidState = 54, "invalid_state", false;
    /// A read that names a position which is not applied yet; `limit` is how far it is, `actual` what was asked for.
    NotApplied = 55, "not_applied", true;
    LeaseIdInvalid = 56, "lease_id_invalid", false;
    /// Members of its gang are missing; `limit` is its size, `actual` how many there are.
    IncompleteGang = 57, "incomplete_gang", true;
    /// It is to start after what is not one of this tenant's allocations, or ended longer ago than is remembered.
    DependencyUnknown = 58, "dependency_unknown", false;
    /// A member that is to start after a fellow of its gang, or after what waits for one: the gang could never start.
    GangWaitsForItself = 59, "gang_waits_for_itself", false;
    /// What it depends on has not ended. It holds no quota before that.
    DependencyPending = 60, "dependency_pending", true;
    /// It fits in a burst only, and none may begin now; `limit` is the quota, `actual` what was asked for.
    BurstOver = 61, "burst_over", true;
    /// The message has a header of the bus's own, by which it could be taken for another one, or another one for it.
    HeaderReserved = 62, "header_reserved", false;
    /// What is kept of the tenant would take more memory than its own share, and more than it may have of the room that all
    /// share; `limit` is what it may have now, in bytes. Nothing of it was recorded.
    CellFull = 63, "cell_full", true;
    /// No operator has approved a node of this name, or it has not joined.
    NodeNotApproved = 65, "node_not_approved", true;
    /// A node says that it has more than was approved; `limit` is what was, `actual` what it said.
    CapacityNotApproved = 66, "capacity_not_approved", false;
    /// Another token than the node's, or one by which another key has joined.
    JoinTokenInvalid = 67, "join_token_invalid", false;
    /// `limit` is the moment from which on the token is void, `actual` now.
    JoinTokenExpired = 68, "join_token_expired", false;
    /// Who spoke for the node before can do so until the moment `limit`; `actual` is now.
    NodeNameHeld = 69, "node_name_held", true;
    /// The month cannot be closed yet; `limit` is the moment from which on it can be, `actual` now.
    PeriodNotOver = 70, "period_not_over", true;
    /// The bill of this time is final. `limit` is the last month that is closed.
    PeriodClosed = 71, "period_closed", false;
    /// Months are closed one after the other; `limit` is the one whose turn it is.
    PeriodOutOfTurn = 72, "period_out_of_turn", false;
    /// A command, directory, image or environment that no system takes.
    WorkInvalid = 73, "work_invalid", false;
    /// The node's agent does not answer, or keeps no log of this run.
    LogUnavailable = 74, "log_unavailable", true;
    /// Another node that is there, which `subject` names, has the same label `hostname`.
    HostnameTaken = 75, "hostname_taken", true;
    /// The part of a node's capacity that `subject` names changes only with a new life of the agent.
    CapacityStays = 76, "capacity_stays", false;
    /// Nothing is known of a node of this name.
    NodeNotFound = 77, "node_not_found", false;
    /// The tenant, queue or priority class, whichever `subject` names, accepts nothing new.
    Closed = 78, "closed", true;
    /// What `subject` names was never set, so it cannot be taken back: a rate, quota, budget or reservation.
    NeverSet = 79, "never_set", true;
    /// The tenant has a list of its teams, and this team or namespace is not on it.
    TeamUnknown = 80, "team_unknown", true;
    /// Of a question: what its answer is read from is away.
    AnswerUnavailable = 81, "answer_unavailable", true;
}

/// Short and exact, for logs and tests; people are told [`Refusal::explanation`].
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rule.name().replace('_', " "))?;
        if !self.subject.is_empty() {
            write!(f, ": {}", self.subject)?;
        }
        if self.limit != 0 || self.actual != 0 {
            write!(f, " (limit {}, actual {})", self.limit, self.actual)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique() {
        for (i, a) in Rule::ALL.iter().enumerate() {
            assert_eq!(Rule::from_number(a.number()), Some(*a));
            for b in &Rule::ALL[i + 1..] {
                assert_ne!(a.number(), b.number());
                assert_ne!(a.name(), b.name());
            }
        }
        assert_eq!(Rule::from_number(0), None);
    }

    #[test]
    fn a_refusal_reads_as_a_sentence() {
        let refusal = Refusal::over(Rule::QuotaExceeded, "gpu", 8000, 9000);
        assert_eq!(
            refusal.to_string(),
            "quota exceeded: gpu (limit 8000, actual 9000)"
        );
    }
}
