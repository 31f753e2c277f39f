//! Sets of kinds of facts: what somebody reads.

use crate::EventKind;

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds(u128);

impl Kinds {
    pub const ALL: Self = Self(u128::MAX);

    /// These and no others.
    pub const fn of(kinds: &[EventKind]) -> Self {
        let (mut set, mut i) = (0, 0);
        while i < kinds.len() {
            set |= 1 << (kinds[i] as u8);
            i += 1;
        }
        Self(set)
    }

    /// These and those.
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub const fn has(self, kind: EventKind) -> bool {
        self.0 & 1 << (kind as u8) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_it_was_made_of() {
        let set = Kinds::of(&[EventKind::TenantSet, EventKind::RunReported]);
        let has: Vec<_> = EventKind::ALL
            .iter()
            .filter(|kind| set.has(**kind))
            .collect();
        assert_eq!(has, [&EventKind::TenantSet, &EventKind::RunReported]);
        let more = set.and(Kinds::of(&[EventKind::NodeLost]));
        assert!(more.has(EventKind::NodeLost) && more.has(EventKind::TenantSet));
        assert!(EventKind::ALL.iter().all(|kind| Kinds::ALL.has(*kind)));
        assert_eq!(EventKind::from_number(73), Some(EventKind::RunReported));
        assert_eq!(EventKind::from_number(39), None);
    }
}
