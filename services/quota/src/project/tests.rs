//! Tables of steps and the rows that they lead to.

mod accounts;
mod budgets;
mod history;
mod life;
mod steps;
mod waiting;

use super::*;
use std::{collections::BTreeMap, fmt::Write};
use vocab::{BudgetOf, EventNo, Limits, Lsn};

/// The tables, as the sink would have them.
#[derive(Default)]
struct Tables {
    accounts: BTreeMap<Key, AccountState>,
    hours: BTreeMap<(Key, Millis), HourRow>,
    planned: BTreeMap<(Key, u64), Planned>,
    tenants: BTreeMap<Token, TenantRow>,
    budgets: BTreeMap<(Account, BudgetOf), BudgetState>,
    waiting: BTreeMap<AllocationNo, WaitingState>,
}

fn put<K: Ord, V>(table: &mut BTreeMap<K, V>, key: K, row: Option<Box<V>>) {
    match row {
        Some(row) => table.insert(key, *row),
        None => table.remove(&key),
    };
}

impl Tables {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Account(key, row) => put(&mut self.accounts, key, row),
            Change::Hour(key, row) => put(&mut self.hours, (key, row.hour), Some(row)),
            Change::Planned(key, version, row) => put(&mut self.planned, (key, version), row),
            Change::Tenant(row) => put(&mut self.tenants, row.tenant.clone(), Some(row)),
            Change::Budget(key, row) => put(&mut self.budgets, key, row),
            Change::Waiting(allocation, row) => put(&mut self.waiting, allocation, row),
        }
    }
}

struct Run {
    tables: Tables,
    illegal: Option<&'static str>,
}

/// Steps, divided by commas: `@ms` moves the clock, and every other step is a frame, a millisecond after the one before. In
/// the order in which quota sees them.
fn run(steps: &str) -> Run {
    let mut projection = WarmProjection::default();
    let mut tables = Tables::default();
    let (mut now, mut lsn, mut illegal) = (0, 0, None);
    for step in steps.split(',').map(str::trim) {
        if let Some(ms) = step.strip_prefix('@') {
            now = ms.parse().unwrap();
            continue;
        }
        now += 1;
        lsn += 1;
        let (no, event) = steps::event(step, Millis(now));
        let at = At {
            lsn: Lsn(lsn),
            index: 0,
            // Beyond those that have a meaning.
            no: EventNo(if no > 0 { no } else { (1 << 32) + lsn }),
            now: Millis(now),
        };
        let mut changes = Vec::new();
        if let Err(error) = projection.project_event(&at, &event, &mut changes) {
            illegal = Some(error.state);
            break;
        }
        projection.end_batch(&mut changes);
        changes.into_iter().for_each(|change| tables.apply(change));
    }
    Run { tables, illegal }
}

fn name((account, resource): &Key) -> String {
    format!("{account} {resource}")
}

fn limits(limits: Option<Limits>) -> String {
    let Some(limits) = limits else {
        return "none".into();
    };
    let mut text = limits.hard.to_string();
    let parts = [
        ("soft", limits.soft),
        ("burst", limits.burst),
        ("borrow", limits.borrow),
        ("lend", limits.lend),
    ];
    for (what, value) in parts {
        if let Some(value) = value {
            write!(text, " {what} {value}").unwrap();
        }
    }
    text
}

fn since(what: &str, at: Option<Millis>) -> String {
    at.map_or(String::new(), |at| format!(" {what}@{}", at.0))
}

/// Every row but those of pods: `account resource limit reserved/used peak@ms`, and what is remarkable.
fn accounts(run: &Run) -> Vec<String> {
    let rows = run.tables.accounts.iter();
    let rows = rows.filter(|((_, resource), _)| *resource != QuotaResource::Pods);
    let rows = rows.map(|(key, row)| {
        let peak = row.peak.map_or("-".into(), |peak| {
            let Peak { used, at } = peak;
            format!("{used}@{}", at.0)
        });
        let borrowed = match row.borrowed {
            0 => String::new(),
            borrowed => format!(" borrowed {borrowed}"),
        };
        format!(
            "{} [{}] {}/{} {peak}{}{}{borrowed}",
            name(key),
            limits(row.limits),
            row.reserved,
            row.used,
            since("soft", row.soft_since),
            since("over", row.over_since),
        )
    });
    rows.collect()
}

fn hours(run: &Run) -> Vec<String> {
    let rows = run.tables.hours.iter();
    let rows = rows.filter(|(((_, resource), _), _)| *resource != QuotaResource::Pods);
    let rows = rows.map(|((key, hour), row)| {
        format!(
            "{} h{}+{} {}..{} {} in {} reserved {} of {}",
            name(key),
            hour.0 / vocab::HOUR_MS,
            row.hours,
            row.used_min,
            row.used_max,
            row.used_ms,
            row.covered_ms,
            row.reserved_max,
            row.hard.map_or("none".into(), |hard| hard.to_string()),
        )
    });
    rows.collect()
}

fn planned(run: &Run) -> Vec<String> {
    let rows = run.tables.planned.iter();
    let rows = rows.map(|((key, version), row)| {
        let Validity { from, until } = row.validity;
        format!(
            "{} v{version} [{}]{}{}",
            name(key),
            limits(row.limits),
            since("from", from),
            since("until", until),
        )
    });
    rows.collect()
}

fn waiting(run: &Run) -> Vec<String> {
    let rows = run.tables.waiting.iter();
    let rows = rows.map(|(allocation, row)| {
        let refusal = row.refusal.as_ref();
        let refusal = refusal.map_or(String::new(), |refusal| format!(" for {refusal}"));
        let reclaimed = match row.reclaimed {
            None => String::new(),
            Some(Reclaimed { by: None }) => " reclaimed".into(),
            Some(Reclaimed { by: Some(by) }) => format!(" reclaimed by {}", by.0),
        };
        format!(
            "{} of {} priority {} since {}{refusal}{reclaimed}",
            allocation.0, row.account, row.priority, row.since.0,
        )
    });
    rows.collect()
}

fn budgets(run: &Run) -> Vec<String> {
    let rows = run.tables.budgets.iter();
    let rows = rows.map(|((account, of), row)| {
        format!(
            "{account} {} {}/{} per {} @{} burns {}{}",
            of.name(),
            row.spent,
            row.budget.amount,
            row.budget.period.name(),
            row.as_of.0,
            row.burn,
            since("until", row.exhausted_at),
        )
    });
    rows.collect()
}

/// What a table holds after some steps, and what was illegal about the last.
fn check(table: fn(&Run) -> Vec<String>, steps: &str, expected: &[&str]) {
    let run = run(steps);
    let mut found = table(&run);
    found.extend(run.illegal.map(|state| format!("illegal: {state}")));
    assert_eq!(found, expected, "{steps}");
}
