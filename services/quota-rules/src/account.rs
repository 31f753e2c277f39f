//! Accounts as small numbers, and the way from one up to its tenant.

use serde::{Deserialize, Serialize};

#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub(super) struct AccountId(pub u32);

/// From an account up to its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Path {
    ids: [AccountId; Self::MOST],
    len: u8,
}

impl Path {
    /// An account has at most two above it.
    pub const MOST: usize = 3;

    /// From `leaf` on, by whom each has above it.
    pub fn up(leaf: AccountId, parent: impl Fn(AccountId) -> Option<AccountId>) -> Self {
        let mut path = Self {
            ids: [leaf; Self::MOST],
            len: 1,
        };
        let mut at = leaf;
        while let (Some(above), true) = (parent(at), usize::from(path.len) < Self::MOST) {
            path.ids[path.len as usize] = above;
            path.len += 1;
            at = above;
        }
        path
    }

    pub fn ids(&self) -> &[AccountId] {
        // Made by `Path::up` only: 1 to 3.
        &self.ids[..self.len as usize]
    }

    pub fn leaf(&self) -> AccountId {
        self.ids[0]
    }

    pub fn tenant(&self) -> AccountId {
        self.ids[self.len as usize - 1]
    }
}
