//! Answers for finance.

use crate::questions::{
    Answer,
    answer::{hours, money, percent, rows, when},
    plan::{BEGIN, KNOWN, PRICES, Price, Run},
    platform::{booked, uncharged},
    truth::{Key, Truth, group, per_unit_hour, price, price_of, rounded, units},
};
use crate::row;
use std::{cmp::Reverse, collections::BTreeMap};
use vocab::{DAY_MS, HOUR_MS};

const NOVEMBER: (&str, &str) = ("month", "2026-11-01");
const OCTOBER: (&str, &str) = ("month", "2026-10-01");

pub const ANSWERS: &[Answer] = &[
    Answer {
        question: "What has each tenant spent so far this month?",
        with: &[NOVEMBER],
        expect: |truth| {
            let tenants = group(
                truth
                    .billed(when::NOVEMBER)
                    .map(|line| (line.key.tenant, [line.micro])),
            );
            rows(tenants, |(tenant, [micro])| {
                row![tenant, money(micro), "EUR", when::millis(KNOWN)]
            })
        },
    },
    Answer {
        question: "Who spends most, and how has that changed since the month before?",
        with: &[NOVEMBER],
        expect: |truth| {
            let both = truth
                .lines
                .iter()
                .filter(|line| line.key.bill >= when::OCTOBER);
            let tenants = group(both.map(|line| {
                let is = |month| {
                    if line.key.bill == month {
                        line.micro
                    } else {
                        0
                    }
                };
                (line.key.tenant, [is(when::NOVEMBER), is(when::OCTOBER)])
            }));
            let mut tenants: Vec<_> = tenants.into_iter().collect();
            tenants.sort_by_key(|(_, [micro, _])| Reverse(*micro));
            rows(tenants, |(tenant, [now, before])| {
                row![
                    tenant,
                    money(now),
                    money(before),
                    money(now - before),
                    percent(now - before, before)
                ]
            })
        },
    },
    Answer {
        question: "What do the invoices come to, and are they final?",
        with: &[],
        expect: |truth| {
            let bills = group(
                truth
                    .lines
                    .iter()
                    .map(|line| ((line.key.bill, line.key.tenant), [line.micro])),
            );
            rows(bills, |((bill, tenant), [micro])| {
                row![
                    when::date(bill),
                    tenant,
                    money(micro),
                    "EUR",
                    i32::from(bill < when::NOVEMBER)
                ]
            })
        },
    },
    Answer {
        question: "What was corrected in a month's bill?",
        with: &[NOVEMBER],
        expect: |truth| {
            let lines = || truth.lines.iter().filter(|line| line.is_correction());
            for more in [true, false] {
                assert!(
                    lines().any(|line| (line.quantity > 0) == more),
                    "of both kinds"
                );
            }
            let each = group(lines().map(|line| {
                let key = (
                    line.key.tenant,
                    when::date(line.month()),
                    &line.key.resource,
                );
                (key, [line.quantity, line.micro])
            }));
            rows(each, |((tenant, month, resource), [quantity, micro])| {
                row![tenant, month, resource, quantity, money(micro), "EUR"]
            })
        },
    },
    Answer {
        question: "What did changes of prices do to a month's bill?",
        with: &[OCTOBER],
        expect: |truth| {
            let lines = || {
                let billed = truth.billed(when::OCTOBER);
                billed.filter(|line| !line.is_correction())
            };
            let priced = lines().filter_map(|line| {
                let old = price(&line.key.resource, line.key.scope(), when::OCTOBER)?;
                let old = line.quantity * i128::from(old);
                Some((&line.key.resource, [old, line.micro]))
            });
            let (reaching_back, others): (Vec<Price>, Vec<Price>) =
                (PRICES.iter().cloned()).partition(|price| price.from == 0 && price.said > BEGIN);
            let [correction] = &reaching_back[..] else {
                panic!("one price corrects the past: {reaching_back:?}");
            };
            // Lines of hours that had ended when it was set.
            let known = lines().filter(|line| line.key.hour + HOUR_MS <= correction.said);
            let corrected = known.map(|line| {
                let (resource, scope) = (&line.key.resource, line.key.scope());
                let old = price_of(&others, resource, scope, line.key.hour).unwrap_or(0);
                let more = i128::from(line.key.price.unwrap_or(0)) - i128::from(old);
                // No other price of the resource is changed in the middle of an hour.
                let is_its = *resource == correction.resource;
                (resource, [if is_its { line.quantity * more } else { 0 }])
            });
            let corrected = group(corrected);
            assert!(corrected.values().any(|[exact]| *exact != 0));
            rows(group(priced), |(resource, [old, micro])| {
                let before = old / per_unit_hour(resource);
                let [exact] = corrected.get(resource).copied().unwrap_or([0]);
                let corrections = exact / per_unit_hour(resource);
                row![
                    resource,
                    money(micro),
                    money(before),
                    money(micro - before),
                    money(corrections)
                ]
            })
        },
    },
    Answer {
        question: "What was used that has no price?",
        with: &[],
        expect: |truth| {
            let lines = || truth.lines.iter().filter(|line| line.key.price.is_none());
            let each =
                group(lines().map(|line| ((line.key.tenant, &line.key.resource), [line.quantity])));
            rows(
                each,
                |((tenant, resource), [quantity]): ((&str, &String), [i128; 1])| {
                    let of = lines()
                        .filter(|line| (line.key.tenant, &line.key.resource) == (tenant, resource));
                    let hour: Vec<i64> = of.map(|line| line.key.hour).collect();
                    let [first, last] = [hour.iter().min(), hour.iter().max()]
                        .map(|at| at.map(|at| when::seconds(*at)));
                    row![
                        tenant,
                        resource,
                        first,
                        last,
                        quantity,
                        hours(units(resource, quantity))
                    ]
                },
            )
        },
    },
    Answer {
        question: "What is each tenant charged less than the list price?",
        with: &[NOVEMBER],
        expect: |truth| {
            let lines = truth.billed(when::NOVEMBER);
            let each = group(lines.map(|line| {
                let key = &line.key;
                (
                    (key.tenant, key.class, &key.resource),
                    [line.micro, line.discount()],
                )
            }));
            let some = each.into_iter().filter(|(_, [_, discount])| *discount != 0);
            rows(some, |((tenant, class, resource), [micro, discount])| {
                let list = money(micro + discount);
                row![
                    tenant,
                    class,
                    resource,
                    list,
                    money(discount),
                    money(micro),
                    "EUR"
                ]
            })
        },
    },
    Answer {
        question: "Which prices are in force from when on?",
        with: &[],
        expect: |_| {
            let mut prices: Vec<_> = PRICES.iter().collect();
            prices.sort_by_key(|price| (price.resource, price.scope, price.applied()));
            rows(prices, |price: &crate::questions::plan::Price| {
                let [tenant, class, pool, cluster] = price.scope;
                row![
                    price.resource,
                    tenant,
                    class,
                    pool,
                    cluster,
                    when::millis(price.applied()),
                    money(price.micro.unwrap_or(0).into()),
                    price.micro.is_none(),
                    "EUR"
                ]
            })
        },
    },
    Answer {
        question: "Does the cost of the capacity come to what was charged and what was not?",
        with: &[],
        expect: |truth| {
            let each = group(
                reconciled(truth)
                    .into_iter()
                    .map(|((month, cluster, ..), parts)| ((month, cluster), parts)),
            );
            rows(
                each,
                |((month, cluster), [capacity, charged, discount, idle, otherwise])| {
                    row![
                        when::date(month),
                        cluster,
                        money(capacity),
                        money(charged),
                        money(discount),
                        money(idle),
                        money(otherwise),
                        0
                    ]
                },
            )
        },
    },
    Answer {
        question: "Which share of the capacity's cost is charged to tenants?",
        with: &[OCTOBER],
        expect: |truth| {
            let all = reconciled(truth)
                .into_iter()
                .filter(|((month, ..), _)| *month == when::OCTOBER);
            let each = group(all.map(|((_, cluster, pool, _), parts)| ((cluster, pool), parts)));
            rows(each, |((cluster, pool), [capacity, charged, ..])| {
                row![
                    cluster,
                    pool,
                    money(capacity),
                    money(charged),
                    percent(charged, capacity)
                ]
            })
        },
    },
    Answer {
        question: "Who bears what the capacity costs?",
        with: &[
            OCTOBER,
            ("method", "proportional"),
            ("cost_centre", ""),
            ("credited", "preempted,node_lost"),
        ],
        expect: |truth| {
            rows(shared(truth), |((tenant, part), [micro])| {
                row![tenant, part, money(micro), "EUR"]
            })
        },
    },
    Answer {
        question: "What does each tenant pay for an hour of a GPU?",
        with: &[NOVEMBER],
        expect: |truth| {
            let lines = truth.billed(when::NOVEMBER).filter(|line| line.is_gpu());
            let each = group(lines.map(|line| {
                let model = line.key.resource.strip_prefix("gpu:").unwrap_or("");
                ((line.key.tenant, model), [line.micro, line.quantity])
            }));
            rows(each, |((tenant, model), [micro, quantity])| {
                row![
                    tenant,
                    model,
                    money(micro),
                    money(micro * 3_600_000_000 / quantity)
                ]
            })
        },
    },
    Answer {
        question: "Which runs make up a line of the bill?",
        with: LINE,
        expect: |truth| {
            let mut runs: Vec<&Run> = of_the_line(truth).collect();
            runs.sort_by_key(|run| (run.used(), run.of.id()));
            rows(&runs, |run: &&Run| {
                let (start, end) = run.used().expect("it ran");
                let ms = end.min(LINE_HOUR + HOUR_MS) - start.max(LINE_HOUR);
                let quantity = run.of.amounts()[2] * i128::from(ms);
                let ended = run.ended.map(|ended| when::millis(ended.at));
                let lsn = truth
                    .ledger
                    .ends
                    .get(&(run.of.allocation, run.wait.attempt));
                row![
                    run.of.id(),
                    "gpu:H100",
                    run.place().name,
                    when::millis(start),
                    ended,
                    lsn.copied().unwrap_or(0),
                    ms,
                    quantity
                ]
            })
        },
    },
    Answer {
        question: "Where in the ledger does a line of the bill come from?",
        with: LINE,
        expect: |truth| {
            let lines = truth.lines.iter().filter(|line| {
                let key = &line.key;
                (key.tenant, key.job_set, key.resource.as_str(), key.hour)
                    == ("acme", "drill", "gpu:H100", LINE_HOUR)
            });
            rows(lines, |line: &crate::questions::truth::Line| {
                let key = &line.key;
                let (first, last) = positions(truth, key);
                let micro = i128::from(key.price.expect("it has one"));
                row![
                    &key.resource,
                    key.team,
                    key.namespace,
                    key.queue,
                    key.class,
                    key.cluster,
                    key.pool,
                    when::date(key.bill),
                    money(micro),
                    line.quantity,
                    money(line.micro),
                    first,
                    last,
                ]
            })
        },
    },
    Answer {
        question: "What do the rows of FOCUS come to?",
        with: &[],
        expect: |truth| {
            let charged = truth.lines.iter().map(|line| {
                let class = if line.is_correction() {
                    "Correction"
                } else {
                    ""
                };
                (
                    (line.key.bill, "Allocations", class),
                    [line.micro, line.micro],
                )
            });
            // What list prices and prices differ by is in the lines.
            let free = uncharged(truth).into_iter();
            let free = free.filter(|line| line.state != "discount").map(|line| {
                let class = if line.is_correction() {
                    "Correction"
                } else {
                    ""
                };
                ((line.bill, "Unallocated Capacity", class), [0, line.micro])
            });
            rows(
                group(charged.chain(free)),
                |((month, service, class), [billed, effective])| {
                    row![
                        when::date(month),
                        service,
                        class,
                        money(billed),
                        money(effective),
                        "EUR"
                    ]
                },
            )
        },
    },
];

/// October, by tenant and part: what was charged; what others did not use, in proportion to that; and what is given back for
/// runs that were preempted or lost. In a pool and resource of which nobody was charged anything, nobody bears it.
fn shared(truth: &Truth) -> BTreeMap<(&'static str, &'static str), [i128; 1]> {
    let place = |line: &crate::questions::truth::Line| {
        (line.key.cluster, line.key.pool, line.key.resource.clone())
    };
    let charged = group(
        truth
            .billed(when::OCTOBER)
            .map(|line| ((place(line), line.key.tenant), [line.micro])),
    );
    let mut parts: Vec<((&str, &str), [i128; 1])> = charged
        .iter()
        .map(|((_, tenant), micro)| ((*tenant, "charged"), *micro))
        .collect();
    let idle = uncharged(truth)
        .into_iter()
        .filter(|line| line.bill == when::OCTOBER);
    let idle = group(
        idle.map(|line| {
            (
                (line.cluster, line.pool, line.resource),
                line.state,
                [line.micro],
            )
        })
        .map(|(place, state, micro)| ((place, state), micro)),
    );
    for ((place, state), [micro]) in idle {
        let bearers: Vec<(&str, i128)> = charged
            .iter()
            .filter(|((at, _), [weight])| *at == place && *weight > 0)
            .map(|((_, tenant), [weight])| (*tenant, *weight))
            .collect();
        let all: i128 = bearers.iter().map(|(_, weight)| weight).sum();
        if all == 0 || state == "discount" {
            parts.push((("", state), [micro]));
            continue;
        }
        // Rounded down, and what is left goes to the largest remainders, a millionth each.
        let mut shares: Vec<(i128, &str, i128)> = bearers
            .iter()
            .map(|(tenant, weight)| {
                let exact = micro.abs() * weight;
                (exact % all, *tenant, exact / all)
            })
            .collect();
        shares.sort_by_key(|(rest, tenant, _)| (Reverse(*rest), *tenant));
        let left = micro.abs() - shares.iter().map(|(.., share)| share).sum::<i128>();
        for (no, (_, tenant, share)) in (0..).zip(shares) {
            let share = share + i128::from(no < left);
            parts.push(((tenant, state), [share * micro.signum()]));
        }
    }
    for run in truth.ended_in(when::OCTOBER) {
        if ["preempted", "node_lost"].contains(&run.cause()) {
            let micro = run.micro();
            parts.push(((run.of.tenant, "credited"), [-micro]));
            parts.push((("", "credited"), [micro]));
        }
    }
    let mut sums = group(parts);
    sums.retain(|_, [micro]| *micro != 0);
    sums
}

/// An hour in which the price changes.
const LINE: &[(&str, &str)] = &[
    ("tenant", "acme"),
    ("job_set", "drill"),
    ("resource", "gpu"),
    ("hour", "2026-11-03 09:00:00"),
];
const LINE_HOUR: i64 = when::NOVEMBER + 2 * DAY_MS + 9 * HOUR_MS;

/// Runs that had some of it.
fn of_the_line(truth: &Truth) -> impl Iterator<Item = &Run> {
    truth.runs().filter(|run| {
        let (start, end) = run.used().expect("it ran");
        let of = (run.of.tenant, run.of.job_set, run.place().model) == ("acme", "drill", "H100");
        of && run.of.gpu > 0 && start < LINE_HOUR + HOUR_MS && end > LINE_HOUR
    })
}

/// The first and the last event that have something to do with a line: ends, starts that were told late, and whatever
/// event was the first one after the hour, because by that all is accrued that runs.
fn positions(truth: &Truth, key: &Key) -> (u64, u64) {
    let accrued = truth
        .ledger
        .frames
        .iter()
        .find(|(now, _)| *now >= key.hour + HOUR_MS);
    let (_, accrued) = *accrued.expect("the hour is over");
    let changes = PRICES.iter().map(|price| price.applied());
    let changes = changes.filter(|at| (key.hour..key.hour + HOUR_MS).contains(at));
    let stretches = crate::questions::truth::cut(key.hour, key.hour + HOUR_MS, changes);
    let stretches: Vec<_> = stretches
        .filter(|(from, _)| price(&key.resource, key.scope(), *from) == key.price)
        .collect();
    let mut found = Vec::new();
    for run in &truth.plan.runs {
        let (of, place) = (&run.of, run.place());
        let whose = (
            of.tenant,
            of.team,
            of.namespace,
            of.queue,
            of.class,
            of.job_set,
            place.cluster,
            place.pool,
        );
        let line = (
            key.tenant,
            key.team,
            key.namespace,
            key.queue,
            key.class,
            key.job_set,
            key.cluster,
            key.pool,
        );
        let Some((start, _)) = run.started.filter(|_| whose == line && run.of.gpu > 0) else {
            continue;
        };
        let no = (of.allocation, run.wait.attempt);
        let end = run.ended.map(|ended| (truth.ledger.ends[&no], ended.at));
        let told = truth.ledger.starts[&no];
        let hour_ends = key.hour + HOUR_MS;
        let known = [
            // From, until, and by which event.
            match end {
                Some((lsn, end)) if lsn < accrued => (start, end, lsn),
                _ => (start, hour_ends, told.max(accrued)),
            },
            match end {
                Some((lsn, end)) if lsn >= accrued => (end.max(start), hour_ends, lsn),
                _ => (0, 0, 0),
            },
        ];
        for (from, until, lsn) in known {
            if stretches
                .iter()
                .any(|(begin, end)| from.max(*begin) < until.min(*end))
            {
                found.push(lsn);
            }
        }
    }
    let (first, last) = (found.iter().min(), found.iter().max());
    (*first.expect("some event"), *last.expect("some event"))
}

/// Each month's capacity, what of it was charged, the discount, idle, and otherwise not used, in micro-units.
fn reconciled(truth: &Truth) -> BTreeMap<(i64, &'static str, &'static str, String), [i128; 5]> {
    let each = booked(truth).into_iter();
    let exact = group(
        each.map(|((bill, cluster, pool, _, resource, micro), parts)| {
            let [capacity, reserved, cordoned, unavailable, idle] =
                parts.map(|quantity| quantity * i128::from(micro));
            let key = (bill, cluster, pool, resource);
            (key, [capacity, idle, reserved, cordoned, unavailable])
        }),
    );
    let charged = group(truth.lines.iter().map(|line| {
        let key = &line.key;
        (
            (key.bill, key.cluster, key.pool, key.resource.clone()),
            [
                line.micro,
                line.quantity * (i128::from(key.list) - i128::from(key.price.unwrap_or(0))),
            ],
        )
    }));
    let round = |(key, parts): ((i64, &'static str, &'static str, String), [i128; 5])| {
        let per = per_unit_hour(&key.3);
        let [capacity, idle, reserved, cordoned, unavailable] =
            parts.map(|exact| rounded(exact, per));
        let [charged, discount] = charged.get(&key).copied().unwrap_or_default();
        let otherwise = reserved + cordoned + unavailable;
        let discount = rounded(discount, per);
        (key, [capacity, charged, discount, idle, otherwise])
    };
    exact.into_iter().map(round).collect()
}
