//! The whole result of a replay as text, for `summary.txt`.

use super::{draw, report::Report, witness::Interval};
use crate::{otlp::Span, workload::Workload};
use std::{collections::BTreeMap, fmt::Display, path::Path};

/// Columns and rows of the charts; each column holds two values.
const COLUMNS: usize = 72;
const ROWS: usize = 4;
const PROBLEMS_MAX: usize = 12;

/// Result of a replay.
pub struct Shown<'a> {
    pub report: &'a Report,
    pub workload: &'a Workload,
    pub intervals: &'a [Interval],
    pub trace: &'a [Span],
    pub report_path: &'a Path,
    pub stack_path: &'a Path,
}

/// Returns the lines of the summary.
pub fn summary(shown: &Shown<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    decisions(shown.report, &mut lines);
    use_over_time(shown, &mut lines);
    latency(shown.report, &mut lines);
    waiting(shown.report, &mut lines);
    bill(shown.report, &mut lines);
    conservation(shown.report, &mut lines);
    months(shown.report, &mut lines);
    memory(shown.report, &mut lines);
    trace(shown, &mut lines);
    next(shown, &mut lines);
    lines.push(String::new());
    lines.extend(verdict(shown.report, PROBLEMS_MAX));
    lines
}

fn section(title: impl Display, lines: &mut Vec<String>) {
    lines.push(String::new());
    lines.push(format!("── {title} "));
}

fn indented(rows: Vec<String>, lines: &mut Vec<String>) {
    lines.extend(rows.into_iter().map(|row| format!("  {row}")));
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

pub fn count(value: u64) -> String {
    draw::thousands(value.into())
}

fn decisions(report: &Report, lines: &mut Vec<String>) {
    section("Decisions", lines);
    let refused: u64 = report.refused.values().sum();
    let mut rows = vec![
        row(["requests", &count(report.requests)]),
        row(["outcomes", &count(report.outcomes)]),
        row(["accepted", &count(report.accepted)]),
    ];
    for (state, number) in &report.first_state {
        rows.push(row([&format!("  {state} at first"), &count(*number)]));
    }
    rows.push(row(["refused", &count(refused)]));
    for (reason, number) in &report.refused {
        rows.push(row([
            &format!("  {}", reason.replace('_', " ")),
            &count(*number),
        ]));
    }
    rows.push(row(["placed", &count(report.placed)]));
    for (cause, number) in &report.ended {
        rows.push(row([
            &format!("ended: {}", cause.replace('_', " ")),
            &count(*number),
        ]));
    }
    for (cause, number) in &report.requeued {
        rows.push(row([
            &format!("queued again: {}", cause.replace('_', " ")),
            &count(*number),
        ]));
    }
    indented(draw::table(&rows), lines);
    let (rate, seconds) = (report.decisions_per_s, report.replay_s);
    let (retries, lost, duplicated) = (report.retries, report.lost, report.duplicated);
    lines.push(format!("  {rate:.0} outcomes/s over {seconds:.1} s of replay; {retries} sent again, {lost} lost, {duplicated} duplicated"));
    for fault in &report.faults {
        let (began, ended) = (fault.began_s, fault.ended_s);
        lines.push(format!(
            "  fault: {} from {began:.1} s to {ended:.1} s",
            fault.what
        ));
    }
}

fn use_over_time(shown: &Shown<'_>, lines: &mut Vec<String>) {
    let from_ms = shown.workload.first_ms();
    let ends = shown.intervals.iter().map(|interval| interval.ended_ms);
    let Some(to_ms) = ends.max() else {
        return;
    };
    section("Use over the recorded months", lines);
    let runs = |amount: fn(&Interval) -> f64| {
        let runs = shown.intervals.iter();
        let runs = runs.map(move |run| (run.started_ms, run.ended_ms, amount(run)));
        draw::means(runs, from_ms, to_ms, COLUMNS * 2)
    };
    let chart = |title: &str, values: &[f64], lines: &mut Vec<String>| {
        lines.extend(
            draw::chart(title, values, ROWS, from_ms, to_ms)
                .into_iter()
                .map(|line| format!("  {line}")),
        );
    };
    chart("allocations running", &runs(|_| 1.0), lines);
    let gpus = shown.workload.gpu_capacity_milli() / 1000;
    let title = format!(
        "GPUs allocated, of {}; the pods ask for {} % of them and their time",
        count(gpus),
        shown.workload.load_percent()
    );
    chart(&title, &runs(|run| run.gpu_milli as f64 / 1000.0), lines);
}

fn latency(report: &Report, lines: &mut Vec<String>) {
    section(
        "Latency from the moment a request was due to its outcome",
        lines,
    );
    let latency = &report.latency;
    let ms = |value: f64| format!("{value:.1} ms");
    let rows = [
        row(["p50", "p90", "p99", "p99.9", "max"]),
        [
            latency.p50_ms,
            latency.p90_ms,
            latency.p99_ms,
            latency.p999_ms,
            latency.max_ms,
        ]
        .map(ms)
        .to_vec(),
    ];
    // The first column of a table is for names.
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| [vec![String::new()], row].concat())
        .collect();
    indented(draw::table(&rows), lines);
}

fn waiting(report: &Report, lines: &mut Vec<String>) {
    section("Why allocations waited", lines);
    if report.waiting.is_empty() {
        lines.push("  none did".to_owned());
    }
    let rows = report.waiting.iter();
    let rows: Vec<_> = rows
        .map(|(reason, number)| row([&reason.replace('_', " "), &count(*number)]))
        .collect();
    indented(draw::table(&rows), lines);
    if !report.explained.is_empty() {
        section(
            "Why some can never be placed, by `apportion explain`",
            lines,
        );
    }
    for explained in &report.explained {
        let reason = explained.reason.replace('_', " ");
        lines.push(format!("  {}: {reason}", explained.asks_for));
        for (keeps_off, nodes) in &explained.nodes {
            let nodes = count(u64::from(*nodes));
            lines.push(format!(
                "    {nodes} nodes: {}",
                keeps_off.replace('_', " ")
            ));
        }
        for (resource, amount) in &explained.shortfall {
            lines.push(format!(
                "    would be placed with {} more {resource}",
                count(*amount)
            ));
        }
    }
}

fn bill(report: &Report, lines: &mut Vec<String>) {
    section("Monthly bill per tenant", lines);
    let mut sums: BTreeMap<&str, i128> = BTreeMap::new();
    for (month, micro) in report.charges_micro.values().flatten() {
        *sums.entry(month).or_default() += micro;
    }
    let months: Vec<&str> = sums.keys().copied().collect();
    let line = |name: &str, amounts: &dyn Fn(&str) -> i128| {
        let all = months.iter().map(|month| amounts(month));
        let sum: i128 = all.clone().sum();
        let cells = all.chain([sum]).map(draw::money);
        std::iter::once(name.to_owned())
            .chain(cells)
            .collect::<Vec<_>>()
    };
    let head = std::iter::once("tenant")
        .chain(months.iter().copied())
        .chain(["all"]);
    let mut rows = vec![head.map(str::to_owned).collect::<Vec<_>>()];
    for (tenant, charges) in &report.charges_micro {
        rows.push(line(tenant, &|month| {
            charges.get(month).copied().unwrap_or(0)
        }));
    }
    rows.push(line("all", &|month| sums.get(month).copied().unwrap_or(0)));
    indented(draw::table(&rows), lines);
    lines.push(format!(
        "  {} hours with a bill; {:.1} hours of allocation in {} runs",
        count(report.hours_billed),
        report.allocation_hours,
        count(report.intervals_billed)
    ));
}

fn conservation(report: &Report, lines: &mut Vec<String>) {
    section("Conservation", lines);
    let checks = report.conservation.len();
    lines.push(match report.conservation_error_ms {
        0 if checks > 0 => format!(
            "  allocated + reserved + idle + unavailable = capacity × time, and the bill covers it: {checks} sums, error 0 ms"
        ),
        error => format!("  {checks} sums, error {error} unit-milliseconds"),
    });
}

fn months(report: &Report, lines: &mut Vec<String>) {
    section("What the capacity costs, and what became of it", lines);
    let head = [
        "month",
        "capacity",
        "charged",
        "discount",
        "reserved",
        "idle",
        "cordoned",
        "unavailable",
        "variance",
    ];
    let mut rows = vec![row(head)];
    rows.extend(report.months.iter().map(|line| {
        let open = if line.closed { "" } else { " (open)" };
        let amounts = [
            line.capacity_micro,
            line.charged_micro,
            line.discount_micro,
            line.reserved_micro,
            line.idle_micro,
            line.cordoned_micro,
            line.unavailable_micro,
        ];
        std::iter::once(format!("{}{open}", line.month))
            .chain(amounts.map(draw::money))
            .chain([line.variance.clone()])
            .collect()
    }));
    indented(draw::table(&rows), lines);
    lines.push("  the variance is exact, before any rounding to millionths".to_owned());
}

fn memory(report: &Report, lines: &mut Vec<String>) {
    section("Peak memory", lines);
    let rows = report.peak_rss_mb.iter();
    let rows: Vec<_> = rows
        .map(|(name, mb)| row([name, &format!("{mb:.1} MB")]))
        .collect();
    indented(draw::table(&rows), lines);
}

fn trace(shown: &Shown<'_>, lines: &mut Vec<String>) {
    section(
        "One request's way through the services (start, length)",
        lines,
    );
    if shown.trace.is_empty() {
        lines.push("  no trace was received".to_owned());
    }
    indented(draw::trace(shown.trace), lines);
}

fn next(shown: &Shown<'_>, lines: &mut Vec<String>) {
    section("Where to look next", lines);
    let report = shown.report_path.display();
    let trace = match shown.workload.is_as_recorded {
        true => "",
        false => " --without-trace",
    };
    let rows = [
        row(["this report as JSON", &report.to_string()]),
        row([
            "every run",
            &shown
                .report_path
                .with_file_name("intervals.csv")
                .display()
                .to_string(),
        ]),
        row([
            "check the bill yourself",
            &format!("python3 loadtest/check_bill.py --report {report}{trace}"),
        ]),
        row(["keep a stack running", "make up"]),
        row([
            "break it on purpose",
            "make run ARGS='--fault kill:quota@0.4'",
        ]),
        row([
            "the stack's addresses",
            &shown.stack_path.display().to_string(),
        ]),
    ];
    // Paths read better to the left.
    let width = rows
        .iter()
        .map(|row| row[0].chars().count())
        .max()
        .unwrap_or(0);
    lines.extend(
        rows.iter()
            .map(|row| format!("  {:<width$}  {}", row[0], row[1])),
    );
}

/// Returns one line for a good run, and otherwise also the first problems.
pub fn verdict(report: &Report, problems_max: usize) -> Vec<String> {
    if report.good() {
        let (requests, wall) = (count(report.requests), report.wall_s);
        return vec![format!(
            "Good: {requests} requests, {requests} outcomes, none lost, none twice; {wall:.1} s."
        )];
    }
    let problems = &report.problems;
    let mut lines = vec![format!("NOT good, {} problems:", problems.len())];
    let first = problems.iter().take(problems_max);
    lines.extend(first.map(|problem| format!("  - {problem}")));
    if problems.len() > problems_max {
        let more = problems.len() - problems_max;
        lines.push(format!("  - and {more} more, in the report"));
    }
    lines
}
