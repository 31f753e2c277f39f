//! Which nodes may join, and as what.

use crate::check::{TIME_MS_MAX, amount};
use vocab::fact::NodeSet;
use vocab::{Millis, NodeApproval, NodeCapacity, Refusal, Rule};

/// An approval as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "NodeApprovalRequest")]
pub struct ApprovalRequest {
    #[wire(1)]
    pub capacity: Option<NodeCapacity>,
    #[wire(2)]
    pub token_digest: Option<[u8; 32]>,
    #[wire(3)]
    pub token_until_ms: i64,
}

impl ApprovalRequest {
    pub(super) fn read(&self) -> Result<NodeApproval, Refusal> {
        let invalid = |field: &str| Refusal::new(Rule::SettingInvalid, field);
        amount(self.token_until_ms, TIME_MS_MAX, "token_until_ms")?;
        let approval = NodeApproval {
            capacity: self.capacity.clone().ok_or_else(|| invalid("capacity"))?,
            token: self.token_digest.ok_or_else(|| invalid("token_digest"))?,
            until: Millis(self.token_until_ms),
        };
        approval.check()?;
        Ok(approval)
    }
}

/// Requires that the token of an approval is valid for some time.
pub(super) fn check_node(set: &NodeSet, now: Millis) -> Result<(), Refusal> {
    match &set.approval {
        Some(approval) if approval.until <= now => {
            Err(Refusal::new(Rule::IntervalInvalid, "token_until_ms"))
        }
        _ => Ok(()),
    }
}

impl From<&NodeApproval> for ApprovalRequest {
    fn from(approval: &NodeApproval) -> Self {
        Self {
            capacity: Some(approval.capacity.clone()),
            token_digest: Some(approval.token),
            token_until_ms: approval.until.0,
        }
    }
}
