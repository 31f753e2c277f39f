//! Quota's rows say what quota's books say, at each of quota's frames: on simulated ledgers, where quota reads late, others
//! act on what they have not heard of, and processes die.

use ledger::{Chain, Projection, Record, Replica, Snapshot, memory::Seeded};
use proof::simulate::run_seed;
use quota::project::{
    AccountState, BudgetKey, BudgetState, Change, Input, Key, WaitingState, WarmProjection,
};
use quota_rules::Quota;
use std::collections::{BTreeMap, BTreeSet};
use vocab::{AllocationNo, Event, QuotaResource, Writer, fact::Inputs};

const SEEDS: u64 = 100;

/// The tables, as the sink would have them.
#[derive(Default)]
struct Rows {
    accounts: BTreeMap<Key, AccountState>,
    planned: BTreeSet<(Key, u64)>,
    budgets: BTreeMap<BudgetKey, BudgetState>,
    waiting: BTreeMap<AllocationNo, WaitingState>,
}

fn put<K: Ord, V>(table: &mut BTreeMap<K, V>, key: K, row: Option<Box<V>>) {
    match row {
        Some(row) => table.insert(key, *row),
        None => table.remove(&key),
    };
}

impl Rows {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Account(key, row) => put(&mut self.accounts, key, row),
            Change::Planned(key, version, Some(_)) => drop(self.planned.insert((key, version))),
            Change::Planned(key, version, None) => drop(self.planned.remove(&(key, version))),
            Change::Budget(key, row) => put(&mut self.budgets, key, row),
            Change::Waiting(allocation, row) => put(&mut self.waiting, allocation, row),
            Change::Hour(..) | Change::Tenant(_) => {}
        }
    }
}

/// All that there may be rows of.
#[derive(Default)]
struct Named {
    keys: BTreeSet<Key>,
    budgets: BTreeSet<BudgetKey>,
    allocations: BTreeSet<AllocationNo>,
}

impl Named {
    fn note(&mut self, no: u64, event: &Event) {
        match event {
            Event::QuotaSet(set) => {
                let key = (set.change.account.clone(), set.change.resource.clone());
                self.keys.insert(key);
            }
            Event::BudgetSet(set) => {
                let key = (set.change.account.clone(), set.change.of.clone());
                self.budgets.insert(key);
            }
            Event::AllocationRequested(_) => drop(self.allocations.insert(AllocationNo(no))),
            _ => {}
        }
    }

    /// How often something was compared.
    fn compare(&mut self, rows: &Rows, quota: &Quota) -> usize {
        for allocation in &self.allocations {
            quota.each_counted(*allocation, |account, resource| {
                self.keys.insert((account, resource));
            });
        }
        self.keys.extend(rows.accounts.keys().cloned());
        for key in &self.keys {
            account(key, rows, quota);
        }
        for (account, of) in &self.budgets {
            let key = (account.clone(), of.clone());
            let row = rows.budgets.get(&key);
            let said = row.map(|row| (row.budget, row.period, row.spent, row.burn));
            let now = row.map_or(vocab::Millis(0), |row| row.as_of);
            let found = quota.forecast(account, of, now);
            let found = found.map(|it| (it.budget, it.period, it.spent.into(), it.burn));
            assert_eq!(said, found, "{key:?}");
        }
        for allocation in &self.allocations {
            let row = rows.waiting.get(allocation);
            let said = row.map(|row| (&row.account, row.priority));
            let asks = quota.asks(*allocation);
            assert!(
                said.is_none() || said == asks,
                "{allocation:?}: {row:?} {asks:?}"
            );
            assert!(
                said.is_some() || !quota.waits(*allocation),
                "{allocation:?}"
            );
        }
        self.keys.len() + self.budgets.len() + self.allocations.len()
    }
}

fn account(key: &Key, rows: &Rows, quota: &Quota) {
    let planned = rows.planned.iter().filter(|(of, _)| of == key);
    assert_eq!(
        planned.count(),
        quota.planned(&key.0, &key.1).len(),
        "{key:?}"
    );
    let held = quota.holding(&key.0, &key.1);
    let Some(row) = rows.accounts.get(key) else {
        assert!(held.limits.is_none() && held.own == 0, "{key:?} has no row");
        return;
    };
    let above = |limit: Option<u64>| limit.is_some_and(|limit| row.reserved + row.used > limit);
    let since = (row.soft_since.is_some(), row.over_since.is_some());
    let hard = row.limits.map(|limits| limits.hard);
    let soft = row.limits.and_then(|limits| limits.soft);
    assert_eq!(since, (above(soft), above(hard)), "{key:?}: {row:?}");
    assert!(
        row.peak.map_or(0, |peak| peak.used) >= row.used,
        "{key:?}: {row:?}"
    );
    assert_eq!(row.limits, held.limits, "{key:?}");
    if key.1 != QuotaResource::Leases {
        let found = (row.reserved, row.used, row.borrowed);
        assert_eq!(
            found,
            (held.reserved, held.used, held.borrowed()),
            "{key:?}"
        );
    }
}

fn restored(projection: &WarmProjection) -> WarmProjection {
    let version = WarmProjection::STATE_VERSION;
    let snapshot = Snapshot::of(version, Chain::default(), projection);
    snapshot.state(version).expect("it was just taken")
}

fn check(records: &[Record], random: &mut Seeded) -> usize {
    let (mut chain, mut replica) = (Chain::default(), Replica::<Quota>::default());
    let (mut projection, mut changes) = (WarmProjection::default(), Vec::new());
    let (mut rows, mut named, mut compared) = (Rows::default(), Named::default(), 0);
    for record in records {
        // At its end the simulation has had the bus lose some records.
        let Ok(Some(frame)) = chain.accept(record, Input::KINDS) else {
            break;
        };
        replica.receive(record).expect("a legal record");
        for (at, event) in frame.placed() {
            named.note(at.no.0, event);
        }
        projection
            .take(&frame, &mut changes)
            .expect("a legal frame");
        let own = frame.writer == Writer::Quota;
        if own || random.chance(300) {
            projection.end_batch(&mut changes);
            changes.drain(..).for_each(|change| rows.apply(change));
            if random.chance(100) {
                projection = restored(&projection);
            }
        }
        if own {
            compared += named.compare(&rows, replica.state());
        }
    }
    compared
}

#[test]
fn quotas_rows_are_quotas_books() {
    let mut compared = 0;
    for seed in 1..=SEEDS {
        let records = run_seed(seed).ledger;
        let result = std::panic::catch_unwind(|| check(&records, &mut Seeded::new(seed)));
        compared += result.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(compared > 50_000, "{compared}");
}
