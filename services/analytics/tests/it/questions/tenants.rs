//! Answers for tenants and team leads.

use crate::questions::{
    Answer,
    answer::{decimal, hours, milli_hours, money, ms_hours, rows, when},
    levels,
    plan::{Asked, KNOWN, REQUEST, Run, Unplaced, Wait},
    truth::{Line, Truth, group, quantile, units},
};
use crate::row;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};
use vocab::{DAY_MS, HOUR_MS};

const NOVEMBER: (&str, &str) = ("month", "2026-11-01");
const OCTOBER: (&str, &str) = ("month", "2026-10-01");
const BIRCH: (&str, &str) = ("tenant", "birch");
const ACME: (&str, &str) = ("tenant", "acme");

pub const ANSWERS: &[Answer] = &[
    Answer {
        question: "What has each team spent on each GPU model this month?",
        with: &[BIRCH, NOVEMBER],
        expect: |truth| {
            let lines = bill(truth, "birch").filter(|line| line.is_gpu());
            let teams = group(lines.map(|line| {
                let model = line.key.resource.strip_prefix("gpu:").unwrap_or("");
                ((line.key.team, model), [line.quantity, line.micro])
            }));
            rows(teams, |((team, model), [quantity, micro])| {
                row![
                    team,
                    model,
                    quantity,
                    milli_hours(quantity),
                    money(micro),
                    "EUR"
                ]
            })
        },
    },
    Answer {
        question: "What has a tenant spent this month on each resource?",
        with: &[BIRCH, NOVEMBER],
        expect: |truth| {
            let lines = bill(truth, "birch");
            let resources =
                group(lines.map(|line| (&line.key.resource, [line.quantity, line.micro])));
            rows(
                resources,
                |(resource, [quantity, micro]): (&String, [i128; 2])| {
                    row![
                        resource,
                        quantity,
                        hours(units(resource, quantity)),
                        money(micro),
                        "EUR"
                    ]
                },
            )
        },
    },
    Answer {
        question: "What does a job set cost, and what does each of its finished runs cost?",
        with: &[BIRCH, NOVEMBER],
        expect: |truth| {
            let sets = group(bill(truth, "birch").map(|line| (line.key.job_set, [line.micro])));
            let mut sets: Vec<_> = sets
                .into_iter()
                .map(|(set, [micro])| (Reverse(micro), set))
                .collect();
            sets.sort_unstable();
            rows(sets, |(Reverse(micro), set)| {
                let finished = truth.ended_in(when::NOVEMBER).filter(|run| {
                    run.of.tenant == "birch" && run.of.job_set == set && run.cause() == "finished"
                });
                let finished = finished.count() as i128;
                let each = (finished > 0).then(|| money(micro / finished));
                row![set, money(micro), finished, each]
            })
        },
    },
    Answer {
        question: "Which allocations cost most?",
        with: &[ACME, OCTOBER],
        expect: |truth| {
            let runs = truth
                .ended_in(when::OCTOBER)
                .filter(|run| run.of.tenant == "acme");
            let each = group(runs.map(|run| {
                (
                    (run.of.id(), run.of.job_set),
                    [run.micro(), 1, run.gpu_quantity()],
                )
            }));
            let mut each: Vec<_> = each.into_iter().collect();
            each.sort_by_key(|(_, [micro, ..])| Reverse(*micro));
            each.truncate(20);
            rows(
                each,
                |((id, set), [micro, runs, quantity]): ((String, _), [i128; 3])| {
                    row![id, set, runs, milli_hours(quantity), money(micro)]
                },
            )
        },
    },
    Answer {
        question: "What did one request cost?",
        with: &[ACME, ("operation_id", REQUEST)],
        expect: |truth| {
            let of = |tenant| {
                let runs = truth.runs().filter(|run| run.of.operation == REQUEST);
                runs.filter(move |run| run.of.tenant == tenant)
            };
            assert!(
                of("birch").count() > 0,
                "another tenant has such a name, too"
            );
            let mut runs: Vec<_> = of("acme").collect();
            assert!(runs.len() > 1, "one with several runs");
            runs.sort_by_key(|run| run.used());
            rows(&runs, |run: &&Run| {
                let (start, _) = run.used().expect("it ran");
                let end = run.ended.map(|ended| when::millis(ended.at));
                let node = run.place().name;
                row![
                    run.of.id(),
                    node,
                    when::millis(start),
                    end,
                    run.cause(),
                    run.ms(),
                    money(run.micro())
                ]
            })
        },
    },
    Answer {
        question: "What does each value of a label cost?",
        with: &[ACME, OCTOBER, ("label", "project")],
        expect: |truth| {
            let runs = || {
                truth
                    .ended_in(when::OCTOBER)
                    .filter(|run| run.of.tenant == "acme")
            };
            let values =
                group(runs().map(|run| (run.of.project, [run.gpu_quantity(), run.micro()])));
            rows(values, |(value, [quantity, micro])| {
                let of = runs().filter(|run| run.of.project == value);
                let allocations: BTreeSet<u64> = of.map(|run| run.of.allocation).collect();
                row![
                    value,
                    allocations.len(),
                    milli_hours(quantity),
                    money(micro)
                ]
            })
        },
    },
    Answer {
        question: "What does each priority class cost?",
        with: &[BIRCH, NOVEMBER],
        expect: |truth| {
            let lines = bill(truth, "birch");
            let classes = group(lines.map(|line| {
                let gpu = if line.is_gpu() { line.quantity } else { 0 };
                (line.key.class, [gpu, line.micro])
            }));
            rows(classes, |(class, [gpu, micro])| {
                row![class, milli_hours(gpu), money(micro), "EUR"]
            })
        },
    },
    Answer {
        question: "What does each namespace hold without using it?",
        with: &[ACME, OCTOBER],
        expect: |truth| {
            let runs = truth
                .ended_in(when::OCTOBER)
                .filter(|run| run.of.tenant == "acme");
            let held = group(runs.map(|run| {
                let (start, end) = run.used().expect("it ran");
                let (before, after) = (
                    start - run.placed,
                    run.ended.expect("it is over").released - end,
                );
                let gpu = run.of.amounts()[2] * i128::from(before + after);
                (
                    (run.of.team, run.of.namespace),
                    [1, before.into(), after.into(), gpu],
                )
            }));
            rows(held, |((team, namespace), [runs, before, after, gpu])| {
                row![team, namespace, runs, before, after, gpu, milli_hours(gpu)]
            })
        },
    },
    Answer {
        question: "Who waited longest, and why?",
        with: &[ACME, FROM_OCTOBER, UNTIL_NOVEMBER],
        expect: |truth| {
            let mut waits: Vec<_> = waits(truth)
                .filter(|wait| wait.of.tenant == "acme" && in_october(wait.queued))
                .map(|wait| (Reverse(wait.ms()), wait.of.id(), wait.attempt, wait))
                .collect();
            waits.sort_by(|a, b| (&a.0, &a.1, a.2).cmp(&(&b.0, &b.1, b.2)));
            waits.truncate(10);
            rows(
                waits,
                |(Reverse(ms), id, attempt, wait): (Reverse<i64>, String, u32, Waited)| {
                    let queued = when::millis(wait.queued);
                    row![
                        id,
                        wait.of.team,
                        wait.of.queue,
                        attempt,
                        queued,
                        ms,
                        ms_hours(ms),
                        wait.reason,
                        wait.placed
                    ]
                },
            )
        },
    },
    Answer {
        question: "How long do allocations wait in each queue?",
        with: &[FROM_OCTOBER, UNTIL_NOVEMBER],
        expect: |truth| {
            let mut queues: BTreeMap<&str, Vec<(i128, i128)>> = BTreeMap::new();
            for wait in waits(truth).filter(|wait| wait.placed && in_october(wait.queued)) {
                queues
                    .entry(wait.of.queue)
                    .or_default()
                    .push((wait.ms().into(), 1));
            }
            rows(queues, |(queue, waits): (&str, Vec<(i128, i128)>)| {
                let [p50, p95, p99, longest] = [50, 95, 99, 100].map(|part| quantile(part, &waits));
                row![queue, waits.len(), p50, p95, p99, longest]
            })
        },
    },
    Answer {
        question: "Why do allocations wait?",
        with: &[ACME],
        expect: |truth| {
            let mut reasons: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
            for wait in waits(truth).filter(|wait| wait.of.tenant == "acme" && wait.ms() > 0) {
                reasons.entry(wait.reason).or_default().push(wait.ms());
            }
            let mut reasons: Vec<_> = reasons.into_iter().collect();
            reasons.sort_by_key(|(_, waits)| Reverse(waits.iter().sum::<i64>()));
            rows(reasons, |(reason, waits): (&str, Vec<i64>)| {
                let total = waits.iter().sum();
                row![
                    reason,
                    waits.len(),
                    total,
                    ms_hours(total),
                    waits.iter().max().copied()
                ]
            })
        },
    },
    Answer {
        question: "Which allocations never got a place, and why?",
        with: &[ACME],
        expect: |truth| {
            let mut unplaced: Vec<_> = truth
                .unplaced()
                .filter(|it| it.of.tenant == "acme")
                .collect();
            unplaced.sort_by_key(|it| (it.wait.queued, it.of.id()));
            rows(&unplaced, |it: &&Unplaced| {
                let reason = it.wait.reason.map_or("", |reason| reason.name());
                let (queued, waited) = (when::millis(it.wait.queued), it.ended - it.wait.queued);
                let [cpu, memory, gpu] = it.of.amounts();
                let gib = hours(memory as f64 / (1i64 << 30) as f64);
                row![
                    it.of.id(),
                    it.of.team,
                    it.of.queue,
                    it.of.job_set,
                    queued,
                    waited,
                    reason,
                    it.cause.name(),
                    decimal(cpu, 3),
                    gib,
                    decimal(gpu, 3),
                ]
            })
        },
    },
    Answer {
        question: "Which allocations ran more than once?",
        with: &[ACME],
        expect: |truth| {
            let mut allocations: BTreeMap<String, Vec<&Run>> = BTreeMap::new();
            for run in truth.over().filter(|run| run.of.tenant == "acme") {
                allocations.entry(run.of.id()).or_default().push(run);
            }
            allocations.retain(|_, runs| runs.len() > 1);
            rows(allocations, |(id, runs): (String, Vec<&Run>)| {
                let attempts = runs.iter().map(|run| run.wait.attempt).max();
                let ends: Vec<&str> = runs.iter().map(|run| run.cause()).collect();
                let ran: i64 = runs.iter().map(|run| run.ms()).sum();
                let between = runs.windows(2).map(|pair| {
                    pair[1].used().expect("it ran").0 - pair[0].used().expect("it ran").1
                });
                row![
                    id,
                    attempts,
                    runs.len(),
                    ends.join(", "),
                    ran,
                    between.sum::<i64>()
                ]
            })
        },
    },
    Answer {
        question: "What runs longest right now?",
        with: &[],
        expect: |truth| {
            let mut running: Vec<_> = truth.running().collect();
            running.sort_by_key(|run| (Reverse(run.ms()), run.of.id()));
            running.truncate(10);
            rows(&running, |run: &&Run| {
                let start = when::millis(run.used().expect("it runs").0);
                row![
                    run.of.tenant,
                    run.of.team,
                    run.of.job_set,
                    run.of.id(),
                    run.place().name,
                    start,
                    run.ms(),
                    ms_hours(run.ms()),
                    money(run.micro()),
                ]
            })
        },
    },
    Answer {
        question: "What has been running for more than some days?",
        with: &[("days", "1")],
        expect: |truth| {
            let mut running: Vec<_> = truth.running().filter(|run| run.ms() >= DAY_MS).collect();
            assert!(running.len() < truth.running().count(), "some run for less");
            running.sort_by_key(|run| (run.used(), run.of.id()));
            rows(&running, |run: &&Run| {
                let start = when::millis(run.used().expect("it runs").0);
                let gpus = decimal(run.of.amounts()[2], 3);
                row![
                    run.of.tenant,
                    run.of.team,
                    run.of.job_set,
                    run.of.id(),
                    run.place().name,
                    start,
                    gpus
                ]
            })
        },
    },
    Answer {
        question: "How many GPUs did a tenant have at once, hour by hour?",
        with: &[
            BIRCH,
            ("from", "2026-11-11 22:00:00"),
            ("until", "2026-11-13 00:00:00"),
        ],
        expect: |truth| {
            let from = when::NOVEMBER + 10 * DAY_MS + 22 * HOUR_MS;
            let all = levels::hourly(
                truth.runs().filter(|run| run.of.tenant == "birch"),
                from,
                KNOWN,
                |run| run.of.gpu,
            );
            assert!(
                all.last().is_some_and(|hour| hour.ms < HOUR_MS),
                "the last hour is not over"
            );
            rows(&all, |it: &levels::Hour| {
                let average = decimal(it.quantity * 1000 / i128::from(it.ms), 3);
                let gpus = |milli: f64| hours(milli / 1000.0);
                row![
                    when::seconds(it.hour),
                    average,
                    it.quantile(100),
                    it.quantile(50),
                    it.quantile(95),
                    it.quantile(99),
                    gpus(it.quantity as f64 / it.ms as f64),
                    gpus(it.quantile(100) as f64),
                ]
            })
        },
    },
    Answer {
        question: "What was the most that each team had at once?",
        // Not at full hours.
        with: &[
            ACME,
            ("from", "2026-10-06 10:20:30"),
            ("until", "2026-10-11 09:00:01"),
        ],
        expect: |truth| {
            let from = when::OCTOBER + 5 * DAY_MS + 10 * HOUR_MS + 1_230_000;
            let until = when::OCTOBER + 10 * DAY_MS + 9 * HOUR_MS + 1000;
            let mut rows = Vec::new();
            for team in ["", "ml", "web"] {
                for (resource, amount) in levels::RESOURCES {
                    let of = |run: &&Run| (run.of.tenant, run.of.team) == ("acme", team);
                    let runs = truth.runs().filter(of);
                    let hours = levels::hourly(runs, from, until, amount);
                    let most = hours
                        .iter()
                        .map(|hour| hour.quantile(100))
                        .max()
                        .unwrap_or(0);
                    let Some(first) = hours
                        .iter()
                        .find(|hour| most > 0 && hour.quantile(100) == most)
                    else {
                        continue;
                    };
                    let quantity: i128 = hours.iter().map(|hour| hour.quantity).sum();
                    let average = decimal(quantity * 1000 / i128::from(until - from), 3);
                    rows.push(row![
                        team,
                        resource,
                        most,
                        when::seconds(first.hour),
                        average
                    ]);
                }
            }
            rows
        },
    },
    Answer {
        question: "How does use develop from day to day?",
        with: &[BIRCH, OCTOBER],
        expect: |truth| {
            let lines = truth
                .lines
                .iter()
                .filter(|line| line.key.tenant == "birch" && line.month() == when::OCTOBER);
            let days = group(lines.map(|line| {
                let cpu = if line.key.resource == "cpu" {
                    line.quantity
                } else {
                    0
                };
                let gpu = if line.is_gpu() { line.quantity } else { 0 };
                (when::date(line.key.hour), [cpu, gpu, line.micro])
            }));
            rows(days, |(day, [cpu, gpu, micro])| {
                row![day, milli_hours(cpu), milli_hours(gpu), money(micro), "EUR"]
            })
        },
    },
    Answer {
        question: "Is less used at weekends?",
        with: &[ACME],
        expect: |truth| {
            let parts = [("weekday", false), ("weekend", true)].map(|(name, weekend)| {
                let lines = || {
                    let lines = truth.lines.iter().filter(|line| line.key.tenant == "acme");
                    lines.filter(move |line| when::at_weekend(line.key.hour) == weekend)
                };
                let days: BTreeSet<String> =
                    lines().map(|line| when::date(line.key.hour)).collect();
                let gpu: i128 = lines()
                    .filter(|line| line.is_gpu())
                    .map(|line| line.quantity)
                    .sum();
                let per_day = hours(gpu as f64 / 3.6e9 / days.len() as f64);
                row![name, days.len(), gpu, milli_hours(gpu), per_day]
            });
            parts.into()
        },
    },
    Answer {
        question: "What became of the gangs?",
        with: &[ACME],
        expect: |truth| {
            let mut gangs: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
            for run in truth
                .over()
                .filter(|run| run.of.tenant == "acme" && !run.of.gang.is_empty())
            {
                gangs.entry(&run.of.gang).or_default().push(run);
            }
            rows(gangs, |(gang, runs): (&str, Vec<&Run>)| {
                let members: BTreeSet<u64> = runs.iter().map(|run| run.of.allocation).collect();
                let starts = || {
                    runs.iter()
                        .filter_map(|run| run.used())
                        .map(|(start, _)| start)
                };
                let (first, last) = (starts().min().expect("one"), starts().max().expect("one"));
                let end = runs
                    .iter()
                    .filter_map(|run| run.used())
                    .map(|(_, end)| end)
                    .max();
                let finished = runs.iter().filter(|run| run.cause() == "finished").count();
                let gpu: i128 = runs.iter().map(|run| run.gpu_quantity()).sum();
                row![
                    gang,
                    members.len(),
                    runs.len(),
                    when::millis(first),
                    end.map(when::millis),
                    last - first,
                    finished,
                    gpu,
                    milli_hours(gpu),
                ]
            })
        },
    },
];

const FROM_OCTOBER: (&str, &str) = ("from", "2026-10-01 00:00:00");
const UNTIL_NOVEMBER: (&str, &str) = ("until", "2026-11-01 00:00:00");

fn in_october(at: i64) -> bool {
    (when::OCTOBER..when::NOVEMBER).contains(&at)
}

/// The tenant's lines of November's bill.
fn bill<'t>(truth: &'t Truth, tenant: &'static str) -> impl Iterator<Item = &'t Line> {
    truth
        .billed(when::NOVEMBER)
        .filter(move |line| line.key.tenant == tenant)
}

/// A wait that is over.
struct Waited<'t> {
    of: &'t Asked,
    attempt: u32,
    queued: i64,
    until: i64,
    reason: &'static str,
    placed: bool,
}

impl Waited<'_> {
    fn ms(&self) -> i64 {
        self.until - self.queued
    }
}

fn waits(truth: &Truth) -> impl Iterator<Item = Waited<'_>> {
    let waited = |of, wait: &Wait, until, placed| Waited {
        of,
        attempt: wait.attempt,
        queued: wait.queued,
        until,
        reason: wait.reason.map_or("", |reason| reason.name()),
        placed,
    };
    let ran = truth
        .over()
        .map(move |run| waited(&run.of, &run.wait, run.placed, true));
    let never = truth
        .unplaced()
        .map(move |it| waited(&it.of, &it.wait, it.ended, false));
    ran.chain(never)
}
