//! What a batch comes to, summed up while it is folded: what is billed, of the runs, and what each account of the nodes'
//! books gained and lost, of the transfers. The two are added up apart, so that each can be held against the other.

use super::{
    Outbox,
    calendar::{Calendar, Hour, Names, Slice},
    change::{Account, Amounts, Fact, Moved, Payer, Site, Sums},
};
use foldhash::fast::RandomState;
use std::{
    collections::HashMap,
    ops::{AddAssign, Mul},
    sync::Arc,
};
use vocab::{Lsn, Millis, Month, ResourceKey, ResourceKind, Token};

/// Of a resource that the bill tells apart: GPUs by their model.
pub fn key(kind: ResourceKind, gpu_model: Option<&Token>) -> ResourceKey {
    let model = gpu_model.filter(|_| kind == ResourceKind::Gpu).cloned();
    ResourceKey { kind, model }
}

/// One number for each resource type: runs of one line differ in them, so that a line is looked up once and not three times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Each<N>(pub [N; ResourceKind::ALL.len()]);

impl<N: Copy> Each<N> {
    fn of(amounts: &Amounts, number: impl Fn(i128) -> N) -> Self {
        Self(ResourceKind::ALL.map(|kind| number(amounts.get(kind))))
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

/// What use is summed up by. With a resource it is a line of the bill, but that a line says its price.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    pub payer: Arc<Payer>,
    pub hour: Hour,
    pub since: Millis,
    pub period: Month,
    pub site: Arc<Site>,
}

/// An amount is below 2^64 and an hour's milliseconds are below 2^22, so 2^41 runs of one line fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Unit-milliseconds; less than 0 where more was accrued before than was used.
    pub quantity: Each<i128>,
    /// Milliseconds of runs that had some of it.
    pub ms: Each<i64>,
    /// Where in the ledger that became known which is in it.
    pub first: Lsn,
    pub last: Lsn,
}

/// A stretch of time in which all list prices are the same, in the books of all nodes of a site.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shelf {
    pub site: Arc<Site>,
    pub hour: Hour,
    pub since: Millis,
    /// Of the reconciliation in which it stands.
    pub period: Month,
}

/// How an account changed. The integral up to a moment is what it had before the hour times the milliseconds since the hour's
/// beginning, and `risen` times the same, less `moment`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Booked {
    /// What it gained.
    pub risen: Each<i128>,
    /// The same, each gain times its milliseconds since the hour's beginning.
    pub moment: Each<i128>,
    /// Transfers that are in it.
    pub transfers: u64,
}

/// The accounts that have hours: all but what is outside.
pub const KEPT: [Account; 5] = [
    Account::Allocated,
    Account::Reserved,
    Account::Idle,
    Account::Cordoned,
    Account::Unavailable,
];

/// The sums of a batch in the making.
#[derive(Debug, Default)]
pub struct Meter {
    lines: HashMap<Line, Used, RandomState>,
    shelves: HashMap<Shelf, [Booked; KEPT.len()], RandomState>,
}

impl Meter {
    /// `moved` was used from `from` to `to`; the other way, that was said too much.
    pub fn used(
        &mut self,
        at: Lsn,
        calendar: &Calendar,
        whose: &Arc<Payer>,
        moved: &Moved,
        (from, to): (Millis, Millis),
    ) {
        let sign = if from <= to { 1 } else { -1 };
        let has = Each::of(&moved.amounts, |amount| i64::from(amount != 0));
        let amounts = Each::of(&moved.amounts, |amount| amount);
        let names = Names::of(whose, &moved.site);
        for slice in calendar.slices(from.min(to), from.max(to), names) {
            let Slice {
                hour,
                since,
                period,
                ms,
            } = slice;
            let line = Line {
                payer: whose.clone(),
                hour,
                since,
                period,
                site: moved.site.clone(),
            };
            let used = self.lines.entry(line).or_insert(Used {
                quantity: Each::default(),
                ms: Each::default(),
                first: at,
                last: at,
            });
            used.quantity += amounts * i128::from(sign * ms);
            used.ms += has * (sign * ms);
            used.last = at;
        }
    }

    pub fn transferred(
        &mut self,
        calendar: &Calendar,
        moved: &Moved,
        way: (Account, Account),
        at: Millis,
    ) {
        let hour = Hour::of(at);
        let shelf = Shelf {
            site: moved.site.clone(),
            hour,
            since: calendar.since_of_capacity(at),
            period: calendar.period(hour),
        };
        let into = i128::from(at.0 - hour.begin().0);
        let accounts = self.shelves.entry(shelf).or_default();
        for (account, sign) in [(way.0, -1), (way.1, 1)] {
            let Some(kept) = KEPT.iter().position(|kept| *kept == account) else {
                continue;
            };
            let risen = Each::of(&moved.amounts, |amount| sign * amount);
            let booked = &mut accounts[kept];
            booked.risen += risen;
            booked.moment += risen * into;
            booked.transfers += 1;
        }
    }

    /// Gives the sums out, and begins anew.
    pub fn finish(&mut self) -> Sums {
        let mut used: Vec<_> = self.lines.drain().collect();
        used.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let shelves = self.shelves.drain().flat_map(|(shelf, accounts)| {
            let accounts = KEPT.into_iter().zip(accounts);
            let some = accounts.filter(|(_, booked)| booked.transfers > 0);
            some.map(move |(account, booked)| (shelf.clone(), account, booked))
        });
        let mut booked: Vec<_> = shelves.collect();
        booked.sort_unstable_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        Sums { used, booked }
    }
}

impl<'n> Names<'n> {
    fn of(payer: &'n Payer, site: &'n Site) -> Self {
        Self {
            tenant: &payer.tenant,
            priority_class: payer.priority_class.as_ref(),
            pool: site.pool.as_ref(),
            cluster: site.cluster.as_ref(),
            gpu_model: site.gpu_model.as_ref(),
        }
    }
}

/// Nothing is no transfer.
pub fn transfer(
    outbox: &mut Outbox<'_>,
    moved: &Arc<Moved>,
    (from, to): (Account, Account),
    at: Millis,
) {
    if !moved.amounts.is_zero() {
        let moved = moved.clone();
        outbox.transferred(&moved, (from, to), at);
        outbox.push(Fact::Transfer(super::change::Transfer {
            moved,
            from,
            to,
            at,
        }));
    }
}
