//! What a batch comes to by the hour, in whole unit-milliseconds: from the runs, what is billed, and from the nodes'
//! books, what was allocated. The two are added up apart, so that each can be held against the other.

use super::change::{Account, Amounts, Change, Fact, Owner};
use std::{
    collections::BTreeMap,
    ops::{AddAssign, Mul},
};
use vocab::{HOUR_MS, Millis, ResourceKey, ResourceKind, Token};

/// Full hours since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hour(pub i64);

impl Hour {
    fn of(at: Millis) -> Self {
        Self(at.0.div_euclid(HOUR_MS))
    }

    fn begin(self) -> Millis {
        Millis(self.0.saturating_mul(HOUR_MS))
    }

    /// The first moment of the next one.
    fn end(self) -> Millis {
        Self(self.0 + 1).begin()
    }
}

/// Cuts `[from, to)` at the full hours: each with its milliseconds, of which there is at least one.
fn cut(from: Millis, to: Millis) -> impl Iterator<Item = (Hour, i64)> {
    let last = Hour::of(Millis(to.0 - 1));
    (Hour::of(from).0..=last.0).map(Hour).map(move |hour| {
        let (begin, end) = (from.max(hour.begin()), to.min(hour.end()));
        (hour, end.0 - begin.0)
    })
}

/// Of a resource that the bill tells apart: GPUs by their model.
fn key(kind: ResourceKind, gpu_model: Option<&Token>) -> ResourceKey {
    let model = gpu_model.filter(|_| kind == ResourceKind::Gpu).cloned();
    ResourceKey { kind, model }
}

/// One number for each resource type: runs of one line differ in them, so that a run is looked up once and not three times.
#[derive(Debug, Clone, Copy, Default)]
struct Each<N>([N; ResourceKind::ALL.len()]);

impl<N: Copy> Each<N> {
    fn of(amounts: &Amounts, number: impl Fn(i128) -> N) -> Self {
        Self(ResourceKind::ALL.map(|kind| number(amounts.get(kind))))
    }

    fn by_resource(self, gpu_model: Option<&Token>) -> impl Iterator<Item = (ResourceKey, N)> {
        let kinds = ResourceKind::ALL.into_iter().zip(self.0);
        kinds.map(move |(kind, number)| (key(kind, gpu_model), number))
    }
}

impl<N: AddAssign + Copy> AddAssign for Each<N> {
    fn add_assign(&mut self, other: Self) {
        let both = self.0.iter_mut().zip(other.0);
        both.for_each(|(number, more)| *number += more);
    }
}

impl<N: Mul<Output = N> + Copy> Mul<N> for Each<N> {
    type Output = Self;

    fn mul(self, times: N) -> Self {
        Self(self.0.map(|number| number * times))
    }
}

/// What is summed up by the hour: a tenant's job set and a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line<'c> {
    pub tenant: &'c Token,
    pub hour: Hour,
    pub resource: ResourceKey,
    pub job_set: &'c Token,
}

/// An amount is below 2^64 and an hour's milliseconds are below 2^22, so 2^41 runs of one line fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Unit-milliseconds.
    pub quantity: u128,
    /// Milliseconds of runs that had some of it.
    pub ms: u64,
}

/// What the runs used that are over.
pub fn used(changes: &[Change]) -> BTreeMap<Line<'_>, Used> {
    let mut sums: BTreeMap<(&Token, &Token, Hour, Option<&Token>), Sums> = BTreeMap::new();
    for change in changes {
        let Fact::Interval(run) = &change.fact else {
            continue;
        };
        let Owner {
            tenant, job_set, ..
        } = &run.of;
        let quantity = Each::of(&run.moved.amounts, i128::unsigned_abs);
        let has = Each::of(&run.moved.amounts, |amount| u64::from(amount != 0));
        for (hour, ms) in cut(run.started_at, run.ended_at) {
            // At least one, and no more than an hour has.
            let ms = ms.unsigned_abs();
            let model = run.moved.gpu_model.as_ref();
            let sums = sums.entry((tenant, job_set, hour, model)).or_default();
            sums.quantity += quantity * u128::from(ms);
            sums.ms += has * ms;
        }
    }
    let mut lines: BTreeMap<Line<'_>, Used> = BTreeMap::new();
    for ((tenant, job_set, hour, model), sums) in sums {
        let (quantities, ms) = (sums.quantity.by_resource(model), sums.ms.by_resource(model));
        for ((resource, quantity), (_, ms)) in quantities.zip(ms).filter(|(_, (_, ms))| *ms > 0) {
            let line = Line {
                tenant,
                hour,
                resource,
                job_set,
            };
            let used = lines.entry(line).or_default();
            used.quantity += quantity;
            used.ms += ms;
        }
    }
    lines
}

#[derive(Default)]
struct Sums {
    quantity: Each<u128>,
    ms: Each<u64>,
}

/// What the transfers of an hour change about what is allocated of all nodes. With what was allocated before the hour,
/// times its length, `quantity` is the integral over it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Booked {
    /// What is allocated more at the end of the hour than at its beginning.
    pub risen: i128,
    /// The same, times the rest of the hour: unit-milliseconds.
    pub quantity: i128,
}

/// What the nodes' books say was allocated, as they say it: transfer by transfer.
pub fn booked(changes: &[Change]) -> BTreeMap<(Hour, ResourceKey), Booked> {
    let mut sums: BTreeMap<(Hour, Option<&Token>), BookedSums> = BTreeMap::new();
    for change in changes {
        let Fact::Transfer(transfer) = &change.fact else {
            continue;
        };
        let sign = match (transfer.from, transfer.to) {
            (_, Account::Allocated) => 1,
            (Account::Allocated, _) => -1,
            _ => continue,
        };
        let hour = Hour::of(transfer.at);
        let rest = i128::from(hour.end().0 - transfer.at.0);
        let amounts = &transfer.moved.amounts;
        let moved = Each::of(amounts, |amount| sign * amount);
        let model = transfer.moved.gpu_model.as_ref();
        let sums = sums.entry((hour, model)).or_default();
        sums.risen += moved;
        sums.quantity += moved * rest;
        sums.some += Each::of(amounts, |amount| u64::from(amount != 0));
    }
    let mut hours: BTreeMap<(Hour, ResourceKey), Booked> = BTreeMap::new();
    for ((hour, model), sums) in sums {
        let risen = sums.risen.by_resource(model).zip(sums.some.0);
        for (((resource, risen), some), quantity) in risen.zip(sums.quantity.0) {
            if some > 0 {
                let booked = hours.entry((hour, resource)).or_default();
                booked.risen += risen;
                booked.quantity += quantity;
            }
        }
    }
    hours
}

#[derive(Default)]
struct BookedSums {
    risen: Each<i128>,
    quantity: Each<i128>,
    /// How many had some of it: what comes to nothing in the end was there all the same.
    some: Each<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: i64, to: i64, expected: &[(i64, i64)]) {
        let found: Vec<(i64, i64)> = cut(Millis(from), Millis(to))
            .map(|(hour, ms)| (hour.0, ms))
            .collect();
        assert_eq!(found, expected, "[{from}, {to})");
    }

    #[test]
    fn a_run_is_cut_at_the_full_hours() {
        check(0, 1, &[(0, 1)]);
        check(0, HOUR_MS, &[(0, HOUR_MS)]);
        check(HOUR_MS - 1, HOUR_MS + 1, &[(0, 1), (1, 1)]);
        check(
            5,
            2 * HOUR_MS + 7,
            &[(0, HOUR_MS - 5), (1, HOUR_MS), (2, 7)],
        );
        // Before 1970, which no clock should say.
        check(-1, 1, &[(-1, 1), (0, 1)]);
        check(i64::MAX - 1, i64::MAX, &[(i64::MAX / HOUR_MS, 1)]);
    }
}
