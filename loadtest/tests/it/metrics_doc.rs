//! `docs/metrics.md`: every metric that a program of the suite exports, from the declarations that they are registered by.
//! `APPORTION_WRITE=1 cargo test -p loadtest --test it metrics_doc` writes it again. That nothing else is exported is tested on a
//! running stack, by `infra/local/tests/test_dashboards.py`.

use chassis::metrics::{Kind, Metric, OF_DECIDERS, OF_EVERY_SERVICE, OF_READERS};
use std::{collections::BTreeSet, fmt::Write};
use testkit::check_made;

const INTRODUCTION: &str = "\
# Metrics

Every service and every node agent answers `GET /metrics` on its HTTP address in the OpenMetrics text format. This page is
made by `loadtest/tests/it/metrics_doc.rs` of the declarations in the code; `infra/local/tests/test_dashboards.py` checks on
a running stack that nothing else is exported, with no other labels.

Names are in the namespace `apportion_`, with the unit last; only what the operating system says of a process has the names
that all exporters give it. Units are seconds and bytes; a ratio of 1 is full. Every sample has two labels more than the
tables say: `cell` and `service` (`admission`, `quota`, `scheduler`, `node-heartbeat`, `analytics`, `node-agent`).
Prometheus adds `instance`.

A counter begins at 0 with its process. What a decider's state shows (the sections of the scheduler and of quota) is exported by the
process that leads, and by no other: it is looked at every 2 s, or less often if a look takes more than 1/500 of the time.

The number of series is bounded whatever tenants do: by the number of rules, kinds and verbs in the code, and where a label
names a queue, a tenant or a GPU model, by the bound in the table.
";

/// Where it is exported, and what.
const SECTIONS: [(&str, &str, &[&[&Metric]]); 8] = [
    ("Every service", "Also the node agent.", &[OF_EVERY_SERVICE]),
    (
        "Services that read the ledger",
        "All five. The node agent answers no query and has no projection.",
        &[OF_READERS],
    ),
    (
        "Services that decide",
        "Admission, quota, scheduler and node-heartbeat.",
        &[OF_DECIDERS],
    ),
    ("Quota", "", &[quota::METRICS]),
    ("Scheduler", "", &[scheduler::METRICS]),
    ("Node-heartbeat", "", &[node_heartbeat::METRICS]),
    ("Analytics", "", &[analytics::metrics::METRICS]),
    ("Node agent", "", &[node_agent::METRICS]),
];

fn all() -> impl Iterator<Item = &'static Metric> {
    let lists = SECTIONS.iter().flat_map(|(_, _, lists)| lists.iter());
    lists.flat_map(|list| list.iter().copied())
}

fn rendered() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut put = |text: String| page.push_str(&text);
    for (title, note, lists) in SECTIONS {
        put(format!("\n## {title}\n\n"));
        if !note.is_empty() {
            put(format!("{note}\n\n"));
        }
        put("| Name | Type | Unit | Labels | Meaning |\n|---|---|---|---|---|\n".to_owned());
        for metric in lists.iter().flat_map(|list| list.iter()) {
            put(row(metric));
        }
    }
    page
}

fn row(metric: &Metric) -> String {
    let (name, kind, unit) = (metric.name, metric.kind.name(), metric.unit());
    let labels = metric.labels.iter().map(|label| format!("`{label}`"));
    let labels = labels.collect::<Vec<_>>().join(", ");
    let mut row = String::new();
    // A string takes every write.
    let _ = writeln!(
        row,
        "| `{name}` | {kind} | {unit} | {labels} | {} |",
        metric.help
    );
    row
}

#[test]
fn the_document_says_what_is_declared() {
    check_made(
        "docs/metrics.md",
        &rendered(),
        "-p loadtest --test it metrics_doc",
    );
}

#[test]
fn names_follow_the_conventions() {
    let mut names = BTreeSet::new();
    for metric in all() {
        let name = metric.name;
        assert!(names.insert(name), "{name} is declared twice");
        assert!(
            name.starts_with("apportion_") || name.starts_with("process_"),
            "{name}"
        );
        let counts = name.ends_with("_total");
        assert_eq!(metric.kind == Kind::Counter, counts, "{name}");
        assert!(
            metric.kind != Kind::Histogram || !metric.unit().is_empty(),
            "{name} has no unit"
        );
        for part in ["_ms", "_milliseconds", "_kb", "_mb", "_percent"] {
            assert!(!name.contains(part), "{name} is not in a base unit");
        }
        for label in metric.labels {
            assert!(!["cell", "service"].contains(label), "{name}: {label}");
        }
        assert!(
            !metric.help.ends_with('.') && !metric.help.is_empty(),
            "{name}"
        );
        assert!(!metric.help.contains('|'), "{name} breaks the table");
    }
}
