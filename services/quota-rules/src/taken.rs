//! What is taken of a resource type, in one sum.

/// What is taken of a resource type at an account, whatever it is counted under.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub reserved: u64,
    pub used: u64,
    pub returning: u64,
    pub owed: u64,
}

impl Taken {
    /// Reserved and used together.
    pub fn held(&self) -> u64 {
        self.reserved.saturating_add(self.used)
    }

    /// What stays when all that has to stop has stopped.
    pub fn staying(&self) -> u64 {
        self.held().saturating_sub(self.returning)
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            reserved: self.reserved.saturating_add(other.reserved),
            used: self.used.saturating_add(other.used),
            returning: self.returning.saturating_add(other.returning),
            owed: self.owed.saturating_add(other.owed),
        }
    }
}
