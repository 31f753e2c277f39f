//! Admission bounds the memory that tenants take by what it says that each entry costs. Here the same history is folded by
//! all deciders and projections of a cell, and what they hold is counted: it is never more than was said.

use crate::guard::{
    cell::{Cell, count_held},
    tasks::{self, PER_MESSAGE, PER_ROUND, TENANTS},
};
use admission::feed::Feed;
use admission_rules::Admission;
use analytics::domain::Usage;
use ledger::{Chain, Decider, InboxMessage, Projection, Record, Replica};
use node_heartbeat_rules::Nodes;
use proof::simulate::Role;
use quota_rules::Quota;
use scheduler_rules::Scheduler;
use schemas::v1::{
    Batch, Cancel, GangRequest, Label, PlacementRules, Requirement, Submit, Work, request::Verb,
};
use std::collections::BTreeMap;
use vocab::{Kinds, Token};

/// A table that grows by doubling is twice as large as it need be at some moments, so it is looked at often.
const ROUNDS: usize = 18;
/// Tables that begin are not worth looking at.
const FROM: usize = 8;
/// So much may be said too much: what is counted by its shape is rounded up, and what is said stays as it is when something
/// takes less than before, because it is a part of admission's state.
const TOO_MUCH: f64 = 2.1;

/// What each part holds after these records.
fn held(records: &[Record]) -> BTreeMap<&'static str, i64> {
    // What they say is decoded once for all, and no part's own.
    let mut chain = Chain::default();
    for record in records {
        let read = chain.accept(record, Kinds::ALL);
        read.expect("the chain holds");
    }
    BTreeMap::from([
        ("admission", decider::<Admission>(records)),
        ("quota", decider::<Quota>(records)),
        ("scheduler", decider::<Scheduler>(records)),
        ("node-heartbeat", decider::<Nodes>(records)),
        (
            "rows/admission",
            projection::<admission::project::WarmProjection>(records),
        ),
        (
            "rows/quota",
            projection::<quota::project::WarmProjection>(records),
        ),
        (
            "rows/scheduler",
            projection::<scheduler::project::WarmProjection>(records),
        ),
        (
            "rows/node-heartbeat",
            projection::<node_heartbeat::project::WarmProjection>(records),
        ),
        ("feed", projection::<Feed>(records)),
        ("usage", projection::<Usage>(records)),
    ])
}

fn folded<D: Decider>(records: &[Record]) -> Replica<D> {
    let mut replica = Replica::default();
    for record in records {
        replica.receive(record).expect("a legal record");
    }
    replica.fold_all().expect("legal inputs");
    replica
}

fn decider<D: Decider>(records: &[Record]) -> i64 {
    count_held(|| folded::<D>(records))
}

fn projection<P: Projection>(records: &[Record]) -> i64 {
    count_held(|| {
        let (mut state, mut chain) = (P::default(), Chain::default());
        let mut out = Vec::new();
        for record in records {
            let frame = chain.accept(record, Kinds::ALL).expect("the chain holds");
            let frame = frame.expect("a record of this ledger");
            state.take(&frame, &mut out).expect("legal events");
            state.end_batch(&mut out);
            out.clear();
        }
        drop(out);
        (state, chain)
    })
}

/// What admission says that all this takes.
fn said(records: &[Record]) -> u64 {
    let state = folded::<Admission>(records);
    let tenants = TENANTS.map(|tenant| Token::new(tenant).expect("a name"));
    tenants.iter().map(|it| state.state().bytes_of(it)).sum()
}

/// Looks at a cell after each of its rounds.
struct Watch {
    name: &'static str,
    base: BTreeMap<&'static str, i64>,
    rounds: usize,
    /// The largest part of what is said that was found.
    most: f64,
}

impl Watch {
    fn new(name: &'static str, cell: &Cell) -> Self {
        Self {
            name,
            base: held(&cell.records()),
            rounds: 0,
            most: 0.0,
        }
    }

    /// `per` entries more in each round.
    fn look(&mut self, cell: &Cell, per: usize) {
        self.rounds += 1;
        if self.rounds < FROM {
            return;
        }
        let records = cell.records();
        let (said, held) = (said(&records), held(&records));
        let entries = (self.rounds * per) as f64;
        let of = |part: &&'static str| (held[*part] - self.base[*part]) as f64 / entries;
        let parts: Vec<_> = held
            .keys()
            .map(|part| format!("{part} {:.0}", of(part)))
            .collect();
        let found: f64 = held.keys().map(of).sum();
        let said = said as f64 / entries;
        println!(
            "{} {entries}: said {said:.0}, found {found:.0}: {}",
            self.name,
            parts.join(", ")
        );
        self.most = self.most.max(found / said);
    }

    fn end(self) {
        let (name, most) = (self.name, self.most);
        assert!(most <= 1.0, "{name} takes {most:.2} times what is said");
        assert!(
            most * TOO_MUCH >= 1.0,
            "{name} never takes more than {most:.2} of what is said"
        );
    }
}

fn round(
    no: usize,
    verb: impl Fn(usize) -> Verb,
    id: impl Fn(usize) -> String,
) -> Vec<InboxMessage> {
    let message = |tenant| {
        let first = no * PER_MESSAGE;
        let requests = (first..first + PER_MESSAGE).map(|no| tasks::request(id(no), verb(no)));
        let batch = Batch {
            requests: requests.collect(),
        };
        tasks::message(tenant, &tasks::request(String::new(), Verb::Batch(batch)))
    };
    TENANTS.into_iter().map(message).collect()
}

/// As a client makes it.
fn usual(no: usize) -> String {
    format!("{no:032x}")
}

fn settle(cell: &mut Cell, messages: Vec<InboxMessage>) {
    for message in messages {
        cell.arrives(message);
    }
    for role in [Role::Admission, Role::Quota, Role::Scheduler, Role::Nodes] {
        cell.settle(role);
    }
}

fn check(name: &'static str, verb: impl Fn(usize) -> Verb, id: impl Fn(usize) -> String) {
    let mut cell = Cell::furnished();
    let mut watch = Watch::new(name, &cell);
    for no in 0..ROUNDS {
        // Batches of long requests would be too long.
        settle(&mut cell, round(no, &verb, &id));
        watch.look(&cell, PER_ROUND);
    }
    watch.end();
}

fn submit(no: usize) -> Submit {
    Submit {
        name: format!("task-{no}"),
        cpu_milli: 500,
        memory_bytes: 1 << 30,
        team: format!("team-{}", no % 2),
        namespace: format!("namespace-{}", no % 5),
        ..Submit::default()
    }
}

/// A task that needs a node of its own: all but a few wait.
fn waiting(no: usize) -> Submit {
    Submit {
        cpu_milli: 64_000,
        ..submit(no)
    }
}

fn long(text: &str, no: usize) -> String {
    format!("{text}-{no:0>width$}", width = 63 - text.len())
}

#[test]
fn what_is_kept_of_an_operation_takes_what_is_said() {
    let nobody = |_| {
        Verb::Cancel(Cancel {
            allocation_id: "00000000-0000-0001-0000-0000000fffff".to_owned(),
        })
    };
    check("short ids", nobody, |no| format!("operation-{no}"));
    check("usual ids", nobody, usual);
    check("long ids", nobody, |no| long("operation", no));
}

#[test]
fn what_is_kept_of_an_allocation_takes_what_is_said() {
    check("running", |no| Verb::Submit(submit(no)), usual);
    check("waiting", |no| Verb::Submit(waiting(no)), usual);
    let sizes = |no| Submit {
        memory_bytes: (1 << 30) + no as i64,
        ..waiting(no)
    };
    check("waiting, none alike", |no| Verb::Submit(sizes(no)), usual);
    let gangs = |no: usize| Submit {
        memory_bytes: (1 << 30) + no as i64,
        gang: Some(GangRequest {
            name: format!("gang-{}", no / 2),
            size: 2,
            ..GangRequest::default()
        }),
        ..waiting(no)
    };
    check("gangs", |no| Verb::Submit(gangs(no)), usual);
    let names = |no| Submit {
        name: long("task", no),
        job_set: long("jobs", no),
        ..waiting(no)
    };
    check("long names", |no| Verb::Submit(names(no)), usual);
    let label = |no: usize, of: usize| Label {
        name: long("label", of),
        value: long("value", no),
    };
    let labels = |no| Submit {
        labels: (0..2).map(|of| label(no, of)).collect(),
        ..waiting(no)
    };
    check("labels", |no| Verb::Submit(labels(no)), usual);
    let rules = |no| Submit {
        rules: Some(PlacementRules {
            selector: vec![Requirement {
                label: long("label", no),
                operator: 1,
                values: (0..3).map(|value| long("value", value + no)).collect(),
            }],
            ..PlacementRules::default()
        }),
        ..waiting(no)
    };
    check("rules", |no| Verb::Submit(rules(no)), usual);
    let work = |no: usize| Submit {
        work: Some(Work {
            command: "/bin/sh".to_owned(),
            args: (0..4).map(|of| long("arg", of + no)).collect(),
            payload: [no.to_le_bytes(); 16].concat(),
            ..Work::default()
        }),
        ..waiting(no)
    };
    check("work", |no| Verb::Submit(work(no)), usual);
}

#[test]
fn what_is_kept_of_an_end_takes_what_is_said() {
    let mut cell = Cell::furnished();
    let mut watch = Watch::new("ended", &cell);
    for no in 0..ROUNDS {
        settle(&mut cell, round(no, |no| Verb::Submit(submit(no)), usual));
        let (runs, _) = cell.assigned();
        cell.pass_ms(60_000);
        for run in &runs {
            cell.reports(run.started());
            cell.reports(run.finished());
        }
        for role in [
            Role::Nodes,
            Role::Scheduler,
            Role::Quota,
            Role::Nodes,
            Role::Admission,
        ] {
            cell.settle(role);
        }
        watch.look(&cell, PER_ROUND);
    }
    watch.end();
}
