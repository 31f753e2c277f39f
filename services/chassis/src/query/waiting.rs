//! Queries that were heard and wait for their turn: a bounded queue for each tenant, served in turns, so that a tenant that asks
//! more than can be answered delays only itself. Nothing of a query is read before its turn but whose it is.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

/// Queries of one tenant that wait.
pub const TENANT_WAITING_MAX: usize = 64;
/// Queries of all tenants that wait. With as many tenants, each has one.
pub const WAITING_MAX: usize = 8192;
/// Refusals that one tenant gets in a second because its queue is full; further queries get no answer, and are asked again.
pub const TENANT_REFUSED_MAX: u32 = 64;
const SECOND: Duration = Duration::from_secs(1);

/// Result of a query's arrival.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<T> {
    Waits,
    /// Its tenant's queue is full, and the tenant is told.
    Refused(T),
    /// The same, and the tenant is not told.
    Dropped,
}

#[derive(Debug)]
struct Line<T> {
    /// With the moment of its arrival.
    waiting: VecDeque<(Duration, T)>,
    /// Beginning of the second in which refusals are counted, and their number.
    refused: (Duration, u32),
}

/// Queries by tenant. Moments are counted from a common beginning.
#[derive(Debug)]
pub struct Waiting<T> {
    lines: HashMap<String, Line<T>>,
    /// Tenants with queries, in the order of their turns.
    turns: VecDeque<String>,
    count: usize,
    patience: Duration,
}

impl<T> Waiting<T> {
    /// `patience`: the time after which a query is not answered any more.
    pub fn new(patience: Duration) -> Self {
        Self {
            lines: HashMap::new(),
            turns: VecDeque::new(),
            count: 0,
            patience,
        }
    }

    pub fn push(&mut self, tenant: &str, query: T, now: Duration) -> Arrival<T> {
        if !self.lines.contains_key(tenant) {
            self.forget(now);
            let line = Line {
                waiting: VecDeque::new(),
                refused: (now, 0),
            };
            self.lines.insert(tenant.to_owned(), line);
        }
        let full = self.count >= WAITING_MAX;
        let Some(line) = self.lines.get_mut(tenant) else {
            return Arrival::Dropped;
        };
        // Also when others have taken all the room, a tenant has a place for one.
        if line.waiting.len() < TENANT_WAITING_MAX && (!full || line.waiting.is_empty()) {
            if line.waiting.is_empty() {
                self.turns.push_back(tenant.to_owned());
            }
            line.waiting.push_back((now, query));
            self.count += 1;
            return Arrival::Waits;
        }
        let (began, count) = &mut line.refused;
        if now.saturating_sub(*began) >= SECOND {
            (*began, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        match *count <= TENANT_REFUSED_MAX {
            true => Arrival::Refused(query),
            false => Arrival::Dropped,
        }
    }

    /// Returns the next query; its tenant's next turn comes after all others'. Queries that have waited too long are dropped, and
    /// counted in `dropped`.
    pub fn pop(&mut self, now: Duration, dropped: &mut u64) -> Option<T> {
        while let Some(tenant) = self.turns.pop_front() {
            let Some(line) = self.lines.get_mut(&tenant) else {
                continue;
            };
            let mut found = None;
            while let Some((since, query)) = line.waiting.pop_front() {
                self.count -= 1;
                if now.saturating_sub(since) <= self.patience {
                    found = Some(query);
                    break;
                }
                *dropped += 1;
            }
            if !line.waiting.is_empty() {
                self.turns.push_back(tenant);
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Tenants that ask nothing are not kept longer than their refusals count.
    fn forget(&mut self, now: Duration) {
        if self.lines.len() >= 2 * self.turns.len().max(WAITING_MAX) {
            self.lines.retain(|_, line| {
                !line.waiting.is_empty() || now.saturating_sub(line.refused.0) < SECOND
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_flood_fills_its_own_queue_and_is_told_so_often() {
        let mut waiting = Waiting::new(ms(5000));
        let mut counts = [0; 3];
        for query in 0..1000 {
            counts[match waiting.push("a", query, ms(0)) {
                Arrival::Waits => 0,
                Arrival::Refused(refused) => {
                    assert_eq!(refused, query);
                    1
                }
                Arrival::Dropped => 2,
            }] += 1;
        }
        assert_eq!(counts, [64, 64, 872]);
        assert_eq!(waiting.push("b", 2000, ms(1)), Arrival::Waits);
        let mut dropped = 0;
        assert_eq!(waiting.pop(ms(1), &mut dropped), Some(0));
        assert_eq!(waiting.pop(ms(1), &mut dropped), Some(2000));
        assert_eq!(waiting.pop(ms(1), &mut dropped), Some(1));
        // The next second has refusals again.
        for query in 0..2 {
            assert_eq!(waiting.push("a", query, ms(999)), Arrival::Waits);
        }
        assert_eq!(waiting.push("a", 7, ms(999)), Arrival::Dropped);
        assert_eq!(waiting.push("a", 7, ms(1000)), Arrival::Refused(7));
        // Those that are too old are not answered.
        assert_eq!(waiting.pop(ms(5001), &mut dropped), Some(0));
        assert_eq!(
            (dropped, waiting.pop(ms(5001), &mut dropped)),
            (62, Some(1))
        );
        assert_eq!(waiting.pop(ms(5001), &mut dropped), None);
        assert_eq!(waiting.count, 0);
    }

    #[test]
    fn when_all_room_is_taken_each_tenant_still_has_a_place() {
        let mut waiting = Waiting::new(ms(1000));
        for tenant in 0..WAITING_MAX / TENANT_WAITING_MAX {
            for _ in 0..TENANT_WAITING_MAX {
                assert_eq!(
                    waiting.push(&format!("t{tenant}"), 0, ms(0)),
                    Arrival::Waits
                );
            }
        }
        assert_eq!(waiting.push("other", 1, ms(0)), Arrival::Waits);
        assert_eq!(waiting.push("other", 2, ms(0)), Arrival::Refused(2));
        assert_eq!(waiting.push("another", 3, ms(0)), Arrival::Waits);
    }

    #[test]
    fn tenants_that_ask_no_more_are_forgotten() {
        let mut waiting = Waiting::new(ms(1000));
        for tenant in 0..100_000_u64 {
            waiting.push(&format!("t{tenant}"), (), ms(tenant));
            waiting.pop(ms(tenant), &mut 0);
        }
        assert!(waiting.lines.len() <= 2 * WAITING_MAX);
    }

    proptest! {
        /// The reference is a list: of the queries that were let in, none is lost or doubled, each tenant's come in their order,
        /// and a tenant that waits is served before any other one is served twice.
        #[test]
        fn turns_are_fair(steps in proptest::collection::vec((0..5_u8, 0..3_u8, 0..400_u64), 1..400)) {
            let mut waiting = Waiting::new(ms(2000));
            let mut model: BTreeMap<u8, VecDeque<(u64, usize)>> = BTreeMap::new();
            let mut passed: BTreeMap<u8, BTreeMap<u8, u32>> = BTreeMap::new();
            let mut now = 0;
            for (no, (tenant, kind, later)) in steps.into_iter().enumerate() {
                now += later;
                if kind > 0 {
                    if waiting.push(&tenant.to_string(), (tenant, no), ms(now)) == Arrival::Waits {
                        model.entry(tenant).or_default().push_back((now, no));
                    } else {
                        let line = &waiting.lines[&tenant.to_string()];
                        prop_assert_eq!(line.waiting.len(), TENANT_WAITING_MAX);
                    }
                    continue;
                }
                let mut dropped = 0;
                let popped = waiting.pop(ms(now), &mut dropped);
                let is_fresh = |(since, _): &&(u64, usize)| now - since <= 2000;
                match popped {
                    None => {
                        prop_assert!(model.values().flatten().all(|one| !is_fresh(&one)));
                        passed.clear();
                    }
                    Some((tenant, no)) => {
                        let first = model[&tenant].iter().find(is_fresh).copied();
                        prop_assert_eq!(first.map(|(_, no)| no), Some(no));
                        for (other, theirs) in &model {
                            let waits = theirs.iter().any(|one| is_fresh(&one));
                            let count = passed.entry(*other).or_default();
                            if *other == tenant || !waits {
                                count.clear();
                            } else {
                                let twice = count.entry(tenant).or_default();
                                *twice += 1;
                                prop_assert!(*twice <= 1, "{} before {}", tenant, other);
                            }
                        }
                    }
                }
                for queue in model.values_mut() {
                    // What was dropped, and what was served, is gone.
                    let served = popped.map(|(_, no)| no);
                    queue.retain(|(since, no)| now - since <= 2000 && Some(*no) != served);
                }
                let left: usize = model.values().map(VecDeque::len).sum();
                prop_assert!(waiting.count >= left);
            }
        }
    }
}
