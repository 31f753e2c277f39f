//! What a claim needs of each account, and what may be in its way.

use super::{
    account::AccountId,
    claim::{Order, Point},
    resource::ResourceId,
};

/// What is asked of one account for one resource type. Demands on one account stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Demand {
    pub account: AccountId,
    pub part: ResourceId,
    pub amount: u64,
}

/// What is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shortage {
    pub point: Point,
    pub why: Why,
    pub limit: u64,
    pub actual: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Limit,
    /// The tenant's own limit would allow it, but others of its cohort have borrowed what is left.
    Lent,
    /// Somebody waits there who goes first.
    Behind(Order),
    Budget,
}

/// What the demands on one account come to on a resource type.
pub(super) fn amount_on(group: &[Demand], resource: ResourceId) -> u64 {
    let demand = group.iter().find(|demand| demand.part == resource);
    demand.map_or(0, |demand| demand.amount)
}

/// The demands on one account.
pub(super) fn group(demands: &[Demand], account: AccountId) -> &[Demand] {
    let mut groups = demands.chunk_by(|a, b| a.account == b.account);
    // A group is never empty.
    groups
        .find(|group| group[0].account == account)
        .unwrap_or(&[])
}
