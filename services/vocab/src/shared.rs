//! What many have, once in memory.

use foldhash::fast::RandomState;
use std::{collections::HashSet, hash::Hash, sync::Arc};

/// Values that somebody has. What nobody has any more is let go when others come.
#[derive(Debug)]
pub struct Shared<T: ?Sized> {
    known: HashSet<Arc<T>, RandomState>,
    /// How many there may be before it is looked which of them nobody has.
    room: usize,
}

/// Fewer are not worth a look.
const FEW: usize = 64;

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self {
            known: self.known.clone(),
            room: self.room,
        }
    }
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self {
            known: HashSet::default(),
            room: FEW,
        }
    }
}

impl<T: ?Sized + Eq + Hash> Shared<T> {
    /// The value that equals this one, or what `make` makes of it.
    pub fn of<'a>(&mut self, value: &'a T, make: impl FnOnce(&'a T) -> Arc<T>) -> Arc<T> {
        if let Some(known) = self.known.get(value) {
            return known.clone();
        }
        if self.known.len() >= self.room {
            self.known.retain(|value| Arc::strong_count(value) > 1);
            // Looked at again when they are twice as many, so that each costs the same.
            self.room = FEW.max(2 * self.known.len());
            self.known.shrink_to(self.room);
        }
        let made = make(value);
        self.known.insert(made.clone());
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_lie_there_once_for_as_long_as_somebody_has_them() {
        let mut shared = Shared::<str>::default();
        let first = shared.of("a", Arc::from);
        assert!(Arc::ptr_eq(&shared.of("a", Arc::from), &first));
        for no in 0..1000 {
            shared.of(&no.to_string(), Arc::from);
        }
        assert!(shared.known.len() <= FEW, "{}", shared.known.len());
        assert!(Arc::ptr_eq(&shared.of("a", Arc::from), &first));
        let all: Vec<_> = (0..1000)
            .map(|no| shared.of(&no.to_string(), Arc::from))
            .collect();
        assert!(shared.known.len() > all.len());
    }
}
