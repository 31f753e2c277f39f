//! What a batch comes to by the hour, in whole unit-milliseconds: from the runs, what is billed, and from the nodes'
//! books, what was allocated. The two are added up apart, so that each can be held against the other.

use super::change::{Account, Amounts, Change, Fact};
use std::collections::BTreeMap;
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

fn amounts(
    amounts: &Amounts,
    gpu_model: Option<&Token>,
) -> impl Iterator<Item = (ResourceKey, i128)> {
    let of_kind = |kind| (key(kind, gpu_model), amounts.get(kind));
    let some = ResourceKind::ALL.map(of_kind).into_iter();
    some.filter(|(_, amount)| *amount != 0)
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
    let mut lines: BTreeMap<Line<'_>, Used> = BTreeMap::new();
    for change in changes {
        let Fact::Interval(run) = &change.fact else {
            continue;
        };
        for (hour, ms) in cut(run.started_at, run.ended_at) {
            // At least one, and no more than an hour has.
            let ms = ms.unsigned_abs();
            for (resource, amount) in amounts(&run.amounts(), run.gpu_model.as_ref()) {
                let (tenant, job_set) = (&run.tenant, &run.job_set);
                let line = lines.entry(Line {
                    tenant,
                    hour,
                    resource,
                    job_set,
                });
                let used = line.or_default();
                used.quantity += amount.unsigned_abs() * u128::from(ms);
                used.ms += ms;
            }
        }
    }
    lines
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
    let mut hours: BTreeMap<(Hour, ResourceKey), Booked> = BTreeMap::new();
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
        for (resource, amount) in amounts(&transfer.amounts, transfer.gpu_model.as_ref()) {
            let booked = hours.entry((hour, resource)).or_default();
            booked.risen += sign * amount;
            booked.quantity += sign * amount * rest;
        }
    }
    hours
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
