//! Answers for those who run the platform.

use crate::questions::{
    Answer,
    answer::{Cell, hours, milli_hours, money, percent, rows, when},
    plan::{AWAY, KNOWN, NAMED, PLACES, Run},
    truth::{
        Free, Line, Span, Truth, group, list, lost, per_unit_hour, price, quantile, rounded, units,
    },
};
use crate::row;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};
use vocab::{DAY_MS, HOUR_MS};

const NOVEMBER: (&str, &str) = ("month", "2026-11-01");
const OCTOBER: (&str, &str) = ("month", "2026-10-01");

pub const ANSWERS: &[Answer] = &[
    Answer {
        question: "How far is the data?",
        with: &[],
        expect: |truth| {
            let (last, lsn) = *truth.ledger.frames.last().expect("a ledger");
            let accrued = when::millis(when::hour(last));
            vec![row![when::millis(KNOWN), accrued, lsn, 0, "EUR"]]
        },
    },
    Answer {
        question: "How many GPUs are idle at which hour of the day?",
        with: &[
            ("from", "2026-10-05 00:00:00"),
            ("until", "2026-11-06 13:00:00"),
        ],
        expect: |truth| {
            let until = when::NOVEMBER + 5 * DAY_MS + 13 * HOUR_MS;
            let spans = truth.within(when::OCTOBER + 4 * DAY_MS, until);
            let each = group(
                spans
                    .filter(|span| PLACES[span.place].gpus > 0)
                    .map(|span| {
                        let hour = (when::hour(span.from) / HOUR_MS) % 24;
                        let idle = span.of(2, Free::Idle) * span.ms();
                        (
                            (PLACES[span.place].model, hour),
                            [idle, span.capacity[2] * span.ms()],
                        )
                    }),
            );
            rows(each, |((model, hour), [idle, capacity])| {
                row![model, hour, idle, capacity, percent(idle, capacity)]
            })
        },
    },
    Answer {
        question: "How much of each cluster and pool is used, day by day?",
        with: &[
            ("from", "2026-10-30 00:00:00"),
            ("until", "2026-11-03 00:00:00"),
        ],
        expect: |truth| {
            let spans = truth.within(when::NOVEMBER - 2 * DAY_MS, when::NOVEMBER + 2 * DAY_MS);
            let each = group(spans.flat_map(|span| {
                let place = &PLACES[span.place];
                let kinds = (0..3).filter(|kind| span.capacity[*kind] > 0);
                kinds.map(move |kind| {
                    let key = (
                        place.cluster,
                        place.pool,
                        place.resource(kind),
                        when::date(span.from),
                    );
                    (
                        key,
                        [
                            span.allocated[kind] * span.ms(),
                            span.capacity[kind] * span.ms(),
                        ],
                    )
                })
            }));
            rows(
                each,
                |((cluster, pool, resource, day), [allocated, capacity]): (
                    (_, _, String, String),
                    [i128; 2],
                )| {
                    row![
                        cluster,
                        pool,
                        resource,
                        day,
                        allocated,
                        capacity,
                        percent(allocated, capacity)
                    ]
                },
            )
        },
    },
    Answer {
        question: "Which GPUs are free now, and how are they scattered?",
        with: &[],
        expect: |truth| {
            let mut models: BTreeMap<&str, Vec<&Span>> = BTreeMap::new();
            for span in truth
                .spans
                .iter()
                .filter(|span| span.until == KNOWN && span.capacity[2] > 0)
            {
                models
                    .entry(PLACES[span.place].model)
                    .or_default()
                    .push(span);
            }
            rows(models, |(model, nodes): (&str, Vec<&Span>)| {
                let free: Vec<i128> = nodes.iter().map(|span| span.of(2, Free::Idle)).collect();
                let all = nodes.iter().map(|span| span.capacity[2]).sum::<i128>();
                let allocated = nodes.iter().map(|span| span.allocated[2]).sum::<i128>();
                let fragments = free.iter().map(|free| free % 1000).sum::<i128>();
                let partly = nodes
                    .iter()
                    .zip(&free)
                    .filter(|(span, free)| **free > 0 && **free < span.capacity[2]);
                row![
                    model,
                    nodes.len(),
                    all,
                    allocated,
                    free.iter().sum::<i128>(),
                    free.iter().max().copied(),
                    fragments,
                    partly.count(),
                ]
            })
        },
    },
    Answer {
        question: "Which nodes were available, and for how long?",
        with: &[FROM, UNTIL],
        expect: |truth| {
            let nodes = group(truth.within(FROM_MS, KNOWN).map(|span| {
                let lost = if span.of(0, Free::Unavailable) > 0 {
                    span.ms()
                } else {
                    0
                };
                (PLACES[span.place].name, [span.ms(), lost])
            }));
            assert!(nodes.values().any(|[_, lost]| *lost > 0));
            rows(nodes, |(node, [all, lost])| {
                let available = 100.0 * (all - lost) as f64 / all as f64;
                row![node, all, lost, hours(available)]
            })
        },
    },
    Answer {
        question: "What was wrong with which node, and when?",
        with: &[FROM, UNTIL],
        expect: |truth| {
            let known = truth.within(FROM_MS, KNOWN);
            let nodes: BTreeSet<&str> = known.map(|span| PLACES[span.place].name).collect();
            let lost = AWAY.iter().filter(|away| away.lost);
            let lost = lost.map(|it| (it.node, it.from, "Ready", "lost", Some(it.until)));
            let named = NAMED.iter();
            let named = named.map(|it| (it.node, it.from, it.condition, it.reason, it.until));
            let overlaps = |until: Option<i64>| until.is_none_or(|until| until > FROM_MS);
            let mut held: Vec<_> = lost
                .chain(named)
                .filter(|(node, _, _, _, until)| nodes.contains(node) && overlaps(*until))
                .collect();
            held.sort_unstable();
            rows(held, |(node, from, condition, reason, until)| {
                row![
                    node,
                    condition,
                    reason,
                    when::millis(from),
                    until.map(when::millis)
                ]
            })
        },
    },
    Answer {
        question: "How much capacity was lost with each node?",
        with: &[FROM, UNTIL],
        expect: |truth| {
            let mut nodes = group(truth.within(FROM_MS, KNOWN).flat_map(|span| {
                let node = PLACES[span.place].name;
                [(0, "cpu"), (2, "gpu")].map(|(kind, resource)| {
                    (
                        (node, resource),
                        [span.of(kind, Free::Unavailable) * span.ms()],
                    )
                })
            }));
            nodes.retain(|_, [lost]| *lost > 0);
            rows(nodes, |((node, resource), [lost])| {
                row![node, resource, lost, milli_hours(lost)]
            })
        },
    },
    Answer {
        question: "What do cordoned nodes cost?",
        with: &[NOVEMBER],
        expect: |truth| {
            let lines = uncharged(truth)
                .into_iter()
                .filter(|line| line.is("cordoned", when::NOVEMBER));
            let each = group(lines.map(|line| {
                (
                    (line.cluster, line.pool, line.resource),
                    [line.quantity, line.micro],
                )
            }));
            let row =
                |((cluster, pool, resource), [quantity, micro]): ((_, _, String), [i128; 2])| {
                    let units = hours(units(&resource, quantity));
                    row![
                        cluster,
                        pool,
                        resource,
                        quantity,
                        units,
                        money(micro),
                        "EUR"
                    ]
                };
            each.into_iter().map(row).collect()
        },
    },
    Answer {
        question: "What does the capacity cost that nobody is charged for?",
        with: &[OCTOBER],
        expect: |truth| {
            let lines = uncharged(truth)
                .into_iter()
                .filter(|line| line.bill == when::OCTOBER);
            let each = group(lines.map(|line| ((line.cluster, line.state), [line.micro])));
            rows(each, |((cluster, state), [micro])| {
                row![cluster, state, money(micro), "EUR"]
            })
        },
    },
    Answer {
        question: "What do preemptions cost, and whom?",
        with: &[],
        expect: |truth| {
            let runs = truth.over().filter(|run| run.cause() == "preempted");
            let each = group(runs.map(|run| {
                let (start, end) = run.used().expect("it ran");
                let mut decided = truth.plan.preempted.iter().filter(|decided| {
                    decided.of.allocation == run.of.allocation
                        && (start..=end).contains(&decided.at)
                });
                let cause = decided.next().expect("one of them").cause.name();
                (
                    (run.of.tenant, cause),
                    [1, run.ms().into(), run.gpu_quantity(), run.micro()],
                )
            }));
            rows(each, |((tenant, cause), [runs, ms, gpu, micro])| {
                row![tenant, cause, runs, ms, milli_hours(gpu), money(micro)]
            })
        },
    },
    Answer {
        question: "Who made whom go?",
        with: &[],
        expect: |truth| {
            let each = group(truth.plan.preempted.iter().map(|it| {
                let by = it.by.as_ref().map_or(("", ""), |by| (by.tenant, by.class));
                ((by, (it.of.tenant, it.of.class), it.cause.name()), [1])
            }));
            rows(
                each,
                |(((by, by_class), (tenant, class), cause), [count])| {
                    row![by, by_class, tenant, class, cause, count]
                },
            )
        },
    },
    Answer {
        question: "How do runs end?",
        with: &[OCTOBER],
        expect: |truth| {
            let causes = group(
                truth
                    .ended_in(when::OCTOBER)
                    .map(|run| (run.cause(), [1, run.ms().into()])),
            );
            let [runs, ms] = causes
                .values()
                .fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
            rows(causes, |(cause, [some, some_ms])| {
                row![
                    cause,
                    some,
                    percent(some, runs),
                    some_ms,
                    percent(some_ms, ms)
                ]
            })
        },
    },
    Answer {
        question: "How much of what they asked for did runs use?",
        with: &[OCTOBER],
        expect: |truth| {
            let mut each: BTreeMap<_, (i128, i128, i128, f64)> = BTreeMap::new();
            for run in truth.ended_in(when::OCTOBER).filter(|run| run.ms() > 0) {
                let Some(used) = run.measured() else {
                    continue;
                };
                let [cpu, memory, _] = run.of.amounts();
                let key = (run.of.tenant, run.of.job_set);
                let (runs, cpu_us, had, most) = each.entry(key).or_default();
                *runs += 1;
                *cpu_us += i128::from(used.cpu_us);
                *had += cpu * i128::from(run.ms());
                if memory > 0 {
                    *most = most.max(100.0 * used.memory_peak_bytes as f64 / memory as f64);
                }
            }
            rows(each, |((tenant, job_set), (runs, cpu_us, had, most))| {
                row![
                    tenant,
                    job_set,
                    runs,
                    cpu_us,
                    percent(cpu_us, had),
                    Cell::About(most, 2)
                ]
            })
        },
    },
    Answer {
        question: "How much machine time was lost with runs that did not finish?",
        with: &[OCTOBER],
        expect: |truth| {
            let runs = truth.ended_in(when::OCTOBER);
            let runs = runs.filter(|run| run.ended.is_some_and(|ended| lost(ended.cause)));
            let each = group(runs.map(|run| {
                let cpu = run.of.amounts()[0] * i128::from(run.ms());
                (
                    (run.of.tenant, run.cause()),
                    [1, cpu, run.gpu_quantity(), run.micro()],
                )
            }));
            rows(each, |((tenant, cause), [runs, cpu, gpu, micro])| {
                row![
                    tenant,
                    cause,
                    runs,
                    cpu,
                    milli_hours(cpu),
                    milli_hours(gpu),
                    money(micro)
                ]
            })
        },
    },
    Answer {
        question: "On which nodes do runs fail?",
        with: &[],
        expect: |truth| {
            let nodes = group(truth.over().map(|run| {
                let is = |cause| i128::from(run.cause() == cause);
                (run.place().name, [1, is("failed"), is("node_lost")])
            }));
            let mut nodes: Vec<_> = nodes
                .into_iter()
                .filter(|(_, [_, failed, lost])| failed + lost > 0)
                .collect();
            nodes.sort_by_key(|(_, [runs, failed, lost])| {
                Reverse((failed + lost) * 1_000_000_000 / runs)
            });
            rows(nodes, |(node, [runs, failed, lost])| {
                row![node, runs, failed, lost, percent(failed + lost, runs)]
            })
        },
    },
    Answer {
        question: "How long does a run take to start once it has a place?",
        with: &[OCTOBER],
        expect: |truth| {
            let mut clusters: BTreeMap<&str, Vec<(i128, i128)>> = BTreeMap::new();
            for run in truth.ended_in(when::OCTOBER) {
                let ms = run.used().expect("it ran").0 - run.placed;
                clusters
                    .entry(run.place().cluster)
                    .or_default()
                    .push((ms.into(), 1));
            }
            rows(clusters, |(cluster, starts): (&str, Vec<(i128, i128)>)| {
                let [p50, p95, longest] = [50, 95, 100].map(|part| quantile(part, &starts));
                row![cluster, starts.len(), p50, p95, longest]
            })
        },
    },
    Answer {
        question: "Who has which share of each GPU model?",
        with: &[OCTOBER],
        expect: |truth| {
            let lines = truth
                .lines
                .iter()
                .filter(|line| line.is_gpu() && line.month() == when::OCTOBER);
            let each = group(lines.map(|line| {
                let model = line.key.resource.strip_prefix("gpu:").unwrap_or("");
                ((model, line.key.tenant), [line.quantity])
            }));
            let all = group(
                each.iter()
                    .map(|((model, _), quantity)| (*model, *quantity)),
            );
            rows(each, |((model, tenant), [quantity])| {
                let [whole] = all[model];
                row![model, tenant, quantity, percent(quantity, whole)]
            })
        },
    },
    Answer {
        question: "What does each tenant hold right now?",
        with: &[],
        expect: |truth| {
            let running: BTreeSet<u64> = truth.running().map(|run| run.of.allocation).collect();
            assert!(running.len() > 3);
            let each = group(truth.running().map(|run: &Run| {
                let [cpu, memory, gpu] = run.of.amounts();
                (run.of.tenant, [1, cpu, memory, gpu])
            }));
            rows(each, |(tenant, [runs, cpu, memory, gpu])| {
                row![
                    tenant,
                    runs,
                    cpu,
                    memory,
                    hours(memory as f64 / (1u64 << 30) as f64),
                    gpu
                ]
            })
        },
    },
    Answer {
        question: "Does everything add up?",
        with: &[],
        expect: |_| Vec::new(),
    },
];

const FROM_MS: i64 = when::OCTOBER + DAY_MS;
const FROM: (&str, &str) = ("from", "2026-10-02 00:00:00");
/// Beyond what is known.
const UNTIL: (&str, &str) = ("until", "2026-12-01 00:00:00");

/// What an hour of a pool's resource costs that nobody is charged for.
pub struct Uncharged {
    /// The first moment of the month in whose reconciliation it is.
    pub bill: i64,
    pub hour: i64,
    pub cluster: &'static str,
    pub pool: &'static str,
    pub resource: String,
    pub state: &'static str,
    pub quantity: i128,
    pub micro: i128,
}

impl Uncharged {
    fn is(&self, state: &str, month: i64) -> bool {
        self.state == state && self.bill == month
    }

    pub fn is_correction(&self) -> bool {
        when::month(self.hour) != self.bill
    }
}

/// The bill's month, cluster, pool, hour, resource and list price.
type Booked = (i64, &'static str, &'static str, i64, String, u64);

/// Capacity, and what of it was reserved, cordoned, unavailable and idle. What was not believed of October when it was
/// closed was only whether a place was used or still reserved, and that is put right in November.
pub fn booked(truth: &Truth) -> BTreeMap<Booked, [i128; 5]> {
    let mut each = group(truth.spans.iter().flat_map(|span| {
        let place = &PLACES[span.place];
        (0..3)
            .filter(|kind| span.capacity[*kind] > 0)
            .map(move |kind| {
                let resource = place.resource(kind);
                let micro = price(&resource, list(place), span.from).unwrap_or(0);
                let parts = [
                    span.capacity[kind],
                    span.reserved[kind],
                    span.of(kind, Free::Cordoned),
                    span.of(kind, Free::Unavailable),
                    span.of(kind, Free::Idle),
                ];
                let hour = when::hour(span.from);
                let key = (
                    when::month(hour),
                    place.cluster,
                    place.pool,
                    hour,
                    resource,
                    micro,
                );
                (key, parts.map(|amount| amount * span.ms()))
            })
    }));
    for line in truth.lines.iter().filter(|line| line.is_correction()) {
        let key = booked_key(line);
        let believed = (line.month(), key.1, key.2, key.3, key.4.clone(), key.5);
        each.entry(believed).or_default()[1] += line.quantity;
        each.entry(key).or_default()[1] -= line.quantity;
    }
    each
}

fn booked_key(line: &Line) -> Booked {
    let key = &line.key;
    (
        key.bill,
        key.cluster,
        key.pool,
        key.hour,
        key.resource.clone(),
        key.list,
    )
}

/// Each part is rounded, but what is idle is what remains of the rounded whole; and what was charged less than the list price.
pub fn uncharged(truth: &Truth) -> Vec<Uncharged> {
    let lines = truth.lines.iter();
    let charged = group(lines.map(|line| (booked_key(line), [line.micro, line.discount()])));
    let mut lines = Vec::new();
    for (key, [capacity, reserved, cordoned, unavailable, idle]) in booked(truth) {
        let [charged, discount] = charged.get(&key).copied().unwrap_or_default();
        let (bill, cluster, pool, hour, resource, micro) = key;
        let per = per_unit_hour(&resource);
        let cost = |quantity: i128| rounded(quantity * i128::from(micro), per);
        let others = cost(reserved) + cost(cordoned) + cost(unavailable);
        for (state, quantity, micro) in [
            ("reserved", reserved, cost(reserved)),
            (Free::Cordoned.name(), cordoned, cost(cordoned)),
            (Free::Unavailable.name(), unavailable, cost(unavailable)),
            ("discount", 0, discount),
            (
                Free::Idle.name(),
                idle,
                cost(capacity) - others - charged - discount,
            ),
        ] {
            if (quantity, micro) != (0, 0) {
                let resource = resource.clone();
                lines.push(Uncharged {
                    bill,
                    hour,
                    cluster,
                    pool,
                    resource,
                    state,
                    quantity,
                    micro,
                });
            }
        }
    }
    lines
}
