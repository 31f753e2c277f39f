//! What was forecast, and what became of it: day by day, by hand.

use crate::questions::{
    Answer,
    answer::{hours, money, percent, rows, when},
    plan::{BEGIN, BUDGETS, KNOWN, Run, Set, TODAY},
    truth::{Key, Line, Truth, units},
};
use crate::row;
use std::collections::{BTreeMap, BTreeSet};
use vocab::{DAY_MS, HOUR_MS, Period};

pub const ANSWERS: &[Answer] = &[
    Answer {
        question: "What will a tenant need next week?",
        with: &[("tenant", "acme")],
        expect: |truth| {
            let mut found = Vec::new();
            for resource in resources(truth, "acme") {
                let of = |line: &Line| line.key.tenant == "acme" && line.key.resource == resource;
                let [used, paid] = series(truth, "acme", of);
                for (used, paid) in used.coming().zip(paid.coming()).take(7) {
                    let (low, high) = used.interval.expect("some errors are known");
                    let (cheap, dear) = paid.interval.expect("some errors are known");
                    found.push(row![
                        &resource,
                        when::date(used.day),
                        used.expected,
                        low,
                        high,
                        hours(units(&resource, used.expected)),
                        money(paid.expected),
                        money(cheap),
                        money(dear),
                    ]);
                }
            }
            found
        },
    },
    Answer {
        question: "How good were the forecasts?",
        with: &[],
        expect: |truth| {
            let mut found = Vec::new();
            for tenant in ["acme", "birch", "cedar"] {
                for resource in resources(truth, tenant) {
                    let of =
                        |line: &Line| line.key.tenant == tenant && line.key.resource == resource;
                    for (series, measure) in
                        series(truth, tenant, of).iter().zip(["quantity", "amount"])
                    {
                        found.extend(tested(series).map(|[days, judged, within, off, all]| {
                            row![
                                tenant,
                                &resource,
                                measure,
                                days,
                                judged,
                                percent(within, judged),
                                percent(off, all)
                            ]
                        }));
                    }
                }
            }
            found.sort_by_key(|row| {
                row[..3]
                    .iter()
                    .map(|cell| cell.to_string())
                    .collect::<Vec<_>>()
            });
            found
        },
    },
    Answer {
        question: "What will this month come to?",
        with: &[],
        expect: |truth| {
            let tenants = truth.lines.iter().map(|line| line.key.tenant);
            let tenants: BTreeSet<&str> = tenants.collect();
            let row = |tenant: &str| {
                let of_month =
                    |line: &&Line| line.key.tenant == tenant && line.key.hour >= when::NOVEMBER;
                let lines = truth.lines.iter().filter(of_month);
                let so_far: i128 = lines.map(|line| line.micro).sum();
                let mut ends = [so_far; 3];
                for resource in resources(truth, tenant) {
                    let [_, paid] = series(truth, tenant, |line| line.key.resource == resource);
                    for coming in paid.coming().filter(|coming| coming.day < when::DECEMBER) {
                        let (low, high) = coming.interval.expect("some errors are known");
                        let left = coming.day + DAY_MS - coming.day.max(KNOWN);
                        for (end, of_day) in ends.iter_mut().zip([coming.expected, low, high]) {
                            *end += of_day * i128::from(left) / i128::from(DAY_MS);
                        }
                    }
                }
                let [expected, low, high] = ends.map(money);
                row![tenant, money(so_far), expected, low, high, "EUR"]
            };
            tenants.into_iter().map(row).collect()
        },
    },
    Answer {
        question: "When is each budget exhausted?",
        with: &[],
        expect: |truth| {
            let partly = |budget: &Budget| truth.runs().any(|run| budget.ended_before(run) > 0);
            assert!(in_force().iter().filter(|budget| partly(budget)).count() >= 2);
            rows(in_force(), |budget| {
                let outcome = budget.outcome(truth);
                let [tenant, team, namespace] = budget.account;
                let (_, end) = bounds(budget.period);
                let moment = |at: Option<i64>| at.map(when::millis);
                row![
                    tenant,
                    team,
                    namespace,
                    budget.of,
                    budget.period.name(),
                    when::seconds(end),
                    budget.amount,
                    outcome.spent,
                    outcome.paths.map(|paths| paths[1].0),
                    outcome.paths.map(|paths| paths[0].0),
                    outcome.paths.map(|paths| paths[2].0),
                    moment(outcome.paths.and_then(|paths| paths[2].1)),
                    moment(outcome.paths.and_then(|paths| paths[1].1)),
                    moment(outcome.paths.and_then(|paths| paths[0].1)),
                ]
            })
        },
    },
    Answer {
        question: "How were a tenant's budgets changed?",
        with: &[("tenant", "birch")],
        expect: |_| {
            let mut sets: Vec<&Set> = BUDGETS
                .iter()
                .filter(|set| set.account[0] == "birch")
                .collect();
            sets.sort_by_key(|set| set.said);
            rows(sets, |set: &Set| {
                let [_, team, namespace] = set.account;
                let period = set.budget.map_or("", |(_, period)| period.name());
                let amount = set.budget.map(|(amount, _)| amount);
                row![
                    when::millis(set.said),
                    team,
                    namespace,
                    set.of,
                    amount,
                    period
                ]
            })
        },
    },
    Answer {
        question: "Whom did quota refuse, and why?",
        with: &[],
        expect: |truth| {
            let mut denied: BTreeMap<(&str, &str), (usize, u64, i64)> = BTreeMap::new();
            for it in &truth.plan.denied {
                let sums = denied.entry((it.of.tenant, &it.subject)).or_default();
                sums.0 += 1;
                sums.1 = sums.1.max(it.of.cpu);
                sums.2 = sums.2.max(it.at + 1);
            }
            rows(denied, |((tenant, subject), (count, most, last))| {
                row![
                    tenant,
                    "quota_never_fits",
                    subject,
                    count,
                    most,
                    when::millis(last)
                ]
            })
        },
    },
];

const DAYS_BACK: i64 = 28;

/// What was used or paid, by the day.
struct Series {
    first: i64,
    days: BTreeMap<i64, i128>,
}

struct Coming {
    day: i64,
    expected: i128,
    interval: Option<(i128, i128)>,
}

fn day(at: i64) -> i64 {
    at / DAY_MS * DAY_MS
}

fn resources(truth: &Truth, tenant: &str) -> BTreeSet<String> {
    let lines = truth.lines.iter().filter(|line| line.key.tenant == tenant);
    lines.map(|line| line.key.resource.clone()).collect()
}

/// The quantities and the amounts of some of the tenant's lines.
fn series(truth: &Truth, tenant: &str, of: impl Fn(&Line) -> bool) -> [Series; 2] {
    let lines = || truth.lines.iter().filter(|line| line.key.tenant == tenant);
    let first = lines()
        .map(|line| day(line.key.hour))
        .min()
        .expect("it used something");
    let known = || lines().filter(|line| line.key.hour < TODAY && of(line));
    let sums = |value: fn(&Line) -> i128| {
        let mut days = BTreeMap::new();
        for line in known() {
            *days.entry(day(line.key.hour)).or_default() += value(line);
        }
        Series { first, days }
    };
    [sums(|line| line.quantity), sums(|line| line.micro)]
}

fn mean(values: &[i128]) -> Option<i128> {
    let count = values.len() as i128;
    (count > 0).then(|| values.iter().sum::<i128>() / count)
}

impl Series {
    fn known(&self, day: i64) -> Option<i128> {
        let is_known = (self.first..TODAY).contains(&day);
        is_known.then(|| self.days.get(&day).copied().unwrap_or(0))
    }

    /// What is said of a day so many weeks before.
    fn said(&self, day: i64, weeks: i64) -> Option<i128> {
        let before = (weeks..weeks + 4).filter_map(|week| self.known(day - 7 * week * DAY_MS));
        mean(&before.collect::<Vec<_>>())
    }

    fn errors(&self, through: i64, weeks: i64) -> Vec<i128> {
        let days = (0..DAYS_BACK).map(|back| through - back * DAY_MS);
        days.filter_map(|day| Some(self.known(day)? - self.said(day, weeks)?))
            .collect()
    }

    /// Of what is expected so many weeks ahead of the last day that is known.
    fn interval(&self, expected: i128, through: i64, weeks: i64) -> Option<(i128, i128)> {
        let mut errors = self.errors(through, weeks);
        if errors.len() < 14 {
            errors = (1..=5)
                .flat_map(|weeks| self.errors(through, weeks))
                .collect();
        }
        errors.sort_unstable();
        let place = ((errors.len() + 1) / 10).max(1);
        let low = errors.get(place - 1)?;
        let high = errors.get(errors.len() - place)?;
        Some(((expected + low.min(&0)).max(0), expected + high.max(&0)))
    }

    fn coming(&self) -> impl Iterator<Item = Coming> {
        let all: Vec<i128> = (1..=DAYS_BACK)
            .filter_map(|back| self.known(TODAY - back * DAY_MS))
            .collect();
        let all = mean(&all).expect("a day is known");
        (0..35).map(move |ahead| {
            let (day, weeks) = (TODAY + ahead * DAY_MS, ahead / 7 + 1);
            let expected = self.said(day, weeks).unwrap_or(all);
            Coming {
                day,
                expected,
                interval: self.interval(expected, TODAY - DAY_MS, weeks),
            }
        })
    }
}

/// Days of which something was said, of which there was an interval, that lay in it; the sum of what was wrong, and of all.
fn tested(series: &Series) -> Option<[i128; 5]> {
    let mut sums = [0; 5];
    for back in 1..=DAYS_BACK {
        let day = TODAY - back * DAY_MS;
        let (Some(actual), Some(expected)) = (series.known(day), series.said(day, 1)) else {
            continue;
        };
        sums[0] += 1;
        if let Some((low, high)) = series.interval(expected, day - 7 * DAY_MS, 1) {
            sums[1] += 1;
            sums[2] += i128::from((low..=high).contains(&actual));
        }
        sums[3] += (actual - expected).abs();
        sums[4] += actual;
    }
    (sums[0] > 0).then_some(sums)
}

struct Budget {
    account: [&'static str; 3],
    of: &'static str,
    amount: u64,
    period: Period,
    /// When it began to be counted.
    since: i64,
}

struct Outcome {
    spent: i128,
    /// With the low, the expected and the high days: what it comes to, and when nothing is left.
    paths: Option<[(i128, Option<i64>); 3]>,
}

fn in_force() -> Vec<Budget> {
    let mut budgets: BTreeMap<([&str; 3], &str), Budget> = BTreeMap::new();
    for set in &BUDGETS {
        let key = (set.account, set.of);
        let before = budgets.remove(&key);
        if let Some((amount, period)) = set.budget {
            let goes_on = before.filter(|before| before.period == period);
            let budget = Budget {
                account: set.account,
                of: set.of,
                amount,
                period,
                since: goes_on.map_or(set.said, |before| before.since),
            };
            budgets.insert(key, budget);
        }
    }
    budgets.into_values().collect()
}

/// Of the period that is now: 2026-11-12 was a Thursday.
fn bounds(period: Period) -> (i64, i64) {
    match period {
        Period::Hour => (when::hour(KNOWN), when::hour(KNOWN) + HOUR_MS),
        Period::Day => (TODAY, TODAY + DAY_MS),
        Period::Week => (TODAY - 3 * DAY_MS, TODAY + 4 * DAY_MS),
        Period::Month => (when::NOVEMBER, when::DECEMBER),
    }
}

impl Budget {
    fn is_of(&self, account: [&str; 3], resource: &str) -> bool {
        let within = |(mine, other): (&&str, &str)| mine.is_empty() || *mine == other;
        self.account.iter().zip(account).all(within)
            && (self.of == "money" || resource.starts_with(self.of))
    }

    fn counts(
        &self,
        Key {
            tenant,
            team,
            namespace,
            resource,
            ..
        }: &Key,
    ) -> bool {
        self.is_of([tenant, team, namespace], resource)
    }

    /// The part of a run that lies in the period and is not counted, because it had ended before.
    fn ended_before(&self, run: &Run) -> i128 {
        let (begin, _) = bounds(self.period);
        let (Some((start, end)), Some(ended)) = (run.used(), run.ended) else {
            return 0;
        };
        if self.since <= begin || ended.released >= self.since || end <= begin {
            return 0;
        }
        let costs = run.costs().into_iter();
        let account = [run.of.tenant, run.of.team, run.of.namespace];
        let costs = costs.filter(|cost| self.is_of(account, &cost.resource));
        let part =
            |whole: i128| whole * i128::from(end - start.max(begin)) / i128::from(end - start);
        costs
            .map(|cost| {
                part(if self.of == "money" {
                    cost.micro
                } else {
                    cost.quantity
                })
            })
            .sum()
    }

    fn outcome(&self, truth: &Truth) -> Outcome {
        let (begin, end) = bounds(self.period);
        let is_money = self.of == "money";
        let lines = truth
            .lines
            .iter()
            .filter(|line| line.key.hour >= begin && self.counts(&line.key));
        let all: i128 = lines
            .map(|line| if is_money { line.micro } else { line.quantity })
            .sum();
        let spent = all - truth.runs().map(|run| self.ended_before(run)).sum::<i128>();
        let unit = if is_money { 1 } else { i128::from(HOUR_MS) };
        let has_history = truth
            .lines
            .iter()
            .any(|line| line.key.tenant == self.account[0]);
        let paths = has_history.then(|| {
            let [used, paid] = series(truth, self.account[0], |line| self.counts(&line.key));
            let series = if is_money { paid } else { used };
            [0, 1, 2].map(|path| {
                let (mut reached, mut empty) = (spent, None);
                let amount = i128::from(self.amount) * unit;
                if spent >= amount {
                    empty = Some(KNOWN);
                }
                for coming in series.coming().filter(|coming| coming.day < end) {
                    let (low, high) = coming.interval.expect("some errors are known");
                    let of_day = [low, coming.expected, high][path];
                    let (from, until) = (coming.day.max(KNOWN), end.min(coming.day + DAY_MS));
                    let used = of_day * i128::from(until - from) / i128::from(DAY_MS);
                    if empty.is_none() && reached + used >= amount {
                        let ms = (amount - reached) * i128::from(until - from);
                        let at = from + ((ms + used - 1) / used) as i64;
                        empty = Some(at).filter(|at| *at < end);
                    }
                    reached += used;
                }
                (reached / unit, empty)
            })
        });
        Outcome {
            spent: spent / unit,
            paths,
        }
    }
}

#[test]
fn the_plan_has_each_kind_of_budget() {
    let budgets = in_force();
    assert_eq!(budgets.len(), 9);
    let begun = budgets
        .iter()
        .filter(|budget| budget.since > bounds(budget.period).0.max(BEGIN));
    assert!(begun.count() >= 2, "counted from within the period on");
}
