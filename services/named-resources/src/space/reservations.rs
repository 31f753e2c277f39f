//! The reservations that are not forgotten, by number.

use super::index::ResourceNo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{ReservationNo, ReservationState, Slot, Token};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub state: ReservationState,
    pub holder: Token,
    /// Grows when authority is taken from the holder, or given back.
    pub epoch: u64,
    pub deadline: Slot,
    /// The last slot at which it is remembered; no slot lies beyond that of a live one.
    pub retire_after: Slot,
    pub members: Members,
}

impl Reservation {
    pub fn new(holder: Token, deadline: Slot, members: Vec<ResourceNo>) -> Self {
        Self {
            state: ReservationState::Reserved,
            holder,
            epoch: 1,
            deadline,
            retire_after: Slot::MAX,
            members: members.into(),
        }
    }
}

/// Numbers grow, but they leave in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reservations {
    by_no: BTreeMap<ReservationNo, Reservation>,
}

impl Reservations {
    pub fn len(&self) -> usize {
        self.by_no.len()
    }

    pub fn get(&self, no: ReservationNo) -> Option<&Reservation> {
        self.by_no.get(&no)
    }

    pub fn get_mut(&mut self, no: ReservationNo) -> Option<&mut Reservation> {
        self.by_no.get_mut(&no)
    }

    pub fn last(&self) -> Option<ReservationNo> {
        self.by_no.last_key_value().map(|(no, _)| *no)
    }

    pub fn insert(&mut self, no: ReservationNo, reservation: Reservation) {
        self.by_no.insert(no, reservation);
    }

    pub fn remove(&mut self, no: ReservationNo) {
        self.by_no.remove(&no);
    }

    /// In order of number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ReservationNo, &Reservation)> {
        self.by_no
            .iter()
            .map(|(no, reservation)| (*no, reservation))
    }
}

/// The members of a reservation; one is the usual.
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
