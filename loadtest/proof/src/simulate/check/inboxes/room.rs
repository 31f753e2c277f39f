//! The memory that a tenant's operations may take. Allocations have all that they want of their own in every world.

use super::{OPERATOR, Operation};
use crate::simulate::check::Checker;

/// What an operation is said to take that is remembered.
const OPERATION: u64 = 470;
/// A name up to this length takes nothing beside.
const NAME: usize = 24;

/// The id is kept three times.
pub fn operation(tenant: &str, id: &str) -> u64 {
    let beside = |name: &str| match name.len() > NAME {
        true => name.len() as u64,
        false => 0,
    };
    OPERATION + beside(tenant) + 3 * beside(id)
}

impl Checker {
    /// Whether there is room for it, in a slot if it says one. Nobody's use of anything takes a tenant's own room; of what all
    /// share it may have as much as it leaves. Operators' operations are not counted.
    pub(super) fn has_room(&self, of: &Operation, slot: Option<u64>) -> bool {
        let (table, tenant) = (&self.inboxes.table, of.ask.tenant.as_str());
        let own = self.limits.own_bytes;
        let (mut would_be, mut others) = (0, 0);
        for (whose, bytes) in table.bytes().filter(|(whose, _)| *whose != OPERATOR) {
            match whose == tenant {
                true => would_be += bytes,
                false => others += bytes.saturating_sub(own),
            }
        }
        let id = of.read.id.as_ref();
        would_be += id.map_or(0, |id| operation(tenant, id));
        let window = self.limits.bounds.window_slots;
        would_be -= slot.map_or(0, |slot| table.bytes_over(tenant, slot, window));
        let borrows = would_be.saturating_sub(own);
        borrows == 0 || others + borrows <= self.limits.shared_bytes_max.saturating_sub(borrows)
    }
}
