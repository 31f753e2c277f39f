//! The leases that are not forgotten, by number.

use super::index::ResourceNo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{LeaseNo, LeaseState, Slot, Token};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub state: LeaseState,
    pub holder: Token,
    /// Grows when authority is taken from the holder, or given back.
    pub fencing_token: u64,
    pub deadline: Slot,
    /// The last slot at which it is remembered; no slot lies beyond that of a live one.
    pub retire_after: Slot,
    pub members: Members,
}

impl Lease {
    pub fn new(holder: Token, deadline: Slot, members: Vec<ResourceNo>) -> Self {
        Self {
            state: LeaseState::Granted,
            holder,
            fencing_token: 1,
            deadline,
            retire_after: Slot::MAX,
            members: members.into(),
        }
    }
}

/// Numbers grow, but they leave in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Leases {
    by_no: BTreeMap<LeaseNo, Lease>,
}

impl Leases {
    pub fn len(&self) -> usize {
        self.by_no.len()
    }

    pub fn get(&self, no: LeaseNo) -> Option<&Lease> {
        self.by_no.get(&no)
    }

    pub fn get_mut(&mut self, no: LeaseNo) -> Option<&mut Lease> {
        self.by_no.get_mut(&no)
    }

    pub fn last(&self) -> Option<LeaseNo> {
        self.by_no.last_key_value().map(|(no, _)| *no)
    }

    pub fn insert(&mut self, no: LeaseNo, lease: Lease) {
        self.by_no.insert(no, lease);
    }

    pub fn remove(&mut self, no: LeaseNo) {
        self.by_no.remove(&no);
    }

    /// In order of number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (LeaseNo, &Lease)> {
        self.by_no.iter().map(|(no, lease)| (*no, lease))
    }
}

/// The members of a lease; one is the usual.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<ResourceNo>", into = "Vec<ResourceNo>")]
pub enum Members {
    One(ResourceNo),
    Many(Box<[ResourceNo]>),
}

impl Members {
    pub fn as_slice(&self) -> &[ResourceNo] {
        match self {
            Self::One(no) => std::slice::from_ref(no),
            Self::Many(many) => many,
        }
    }
}

impl From<Vec<ResourceNo>> for Members {
    fn from(members: Vec<ResourceNo>) -> Self {
        match members[..] {
            [one] => Self::One(one),
            _ => Self::Many(members.into()),
        }
    }
}

impl From<Members> for Vec<ResourceNo> {
    fn from(members: Members) -> Self {
        members.as_slice().to_vec()
    }
}
