//! The result of a replay on half a screen, so that the two replays of `make run` fit on one.

use super::{
    draw,
    print::{self, Shown, count},
    report::Report,
    witness::Interval,
};
use std::{collections::BTreeMap, fmt::Display};
use vocab::human;

const COLUMNS_MAX: usize = 100;
/// Columns and lines of the chart, without its scale; each column holds two values.
const CHART_COLUMNS: usize = 88;
const CHART_ROWS: usize = 3;
/// A run with problems has no chart, which leaves room for these.
const PROBLEMS_MAX: usize = 3;

/// Returns the lines: an empty one, and at most 19 others of at most 100 characters. Only paths can be longer.
pub fn screen(shown: &Shown<'_>) -> Vec<String> {
    let mut lines = vec![String::new(), title(shown)];
    if shown.report.good() {
        lines.extend(gpus(shown));
    }
    lines.extend(figures(shown.report));
    let mut lines: Vec<String> = lines.iter().map(|line| clipped(line)).collect();
    lines.push(row("details", &paths(shown)));
    let verdict = print::verdict(shown.report, PROBLEMS_MAX);
    lines.extend(verdict.iter().map(|line| clipped(line)));
    lines
}

fn title(shown: &Shown<'_>) -> String {
    let (workload, report) = (shown.workload, shown.report);
    format!(
        "Replay: {} nodes, {} pods, {} recorded days in {:.1} s",
        count(workload.nodes.len() as u64),
        count(workload.pods.len() as u64),
        (workload.last_ms() - workload.first_ms()) / vocab::DAY_MS,
        report.replay_s
    )
}

fn gpus(shown: &Shown<'_>) -> Vec<String> {
    let from_ms = shown.workload.first_ms();
    let ends = shown.intervals.iter().map(|interval| interval.ended_ms);
    let Some(to_ms) = ends.max() else {
        return Vec::new();
    };
    let run = |run: &Interval| (run.started_ms, run.ended_ms, run.gpu_milli as f64 / 1000.0);
    let runs = shown.intervals.iter().map(run);
    let values = draw::means(runs, from_ms, to_ms, CHART_COLUMNS * 2);
    let title = format!(
        "GPUs allocated, of {}; the pods request {} % of the GPU time",
        count(shown.workload.gpu_capacity_milli() / 1000),
        shown.workload.load_percent()
    );
    draw::chart(&title, &values, CHART_ROWS, from_ms, to_ms)
}

/// Returns one line for each subject.
fn figures(report: &Report) -> Vec<String> {
    let latency = &report.latency;
    let mut lines = vec![
        row(
            "requests",
            &format!(
                "{} with {} outcomes, {:.0}/s; {} retries, {} lost, {} duplicated",
                count(report.requests),
                count(report.outcomes),
                report.decisions_per_s,
                count(report.retries),
                count(report.lost),
                count(report.duplicated)
            ),
        ),
        row("accepted", &sum(report.accepted, &report.first_state)),
        row("refused", &total(&report.refused)),
        row("waited", &total(&report.waiting)),
        row(
            "ended",
            &format!(
                "{}; queued again {}",
                total(&report.ended),
                total(&report.requeued)
            ),
        ),
        row(
            "latency",
            &format!(
                "p50 {:.1} ms, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}",
                latency.p50_ms, latency.p90_ms, latency.p99_ms, latency.p999_ms, latency.max_ms
            ),
        ),
        row("bill", &bill(report)),
        row("capacity", &capacity(report)),
        row(
            "conservation",
            &format!(
                "{}, error {} unit-milliseconds",
                human::count(report.conservation.len() as u128, "sum"),
                report.conservation_error_ms
            ),
        ),
        row("peak memory", &memory(report)),
    ];
    if !report.faults.is_empty() {
        let faults = report.faults.iter().map(|fault| fault.what.as_str());
        lines.push(row("faults", &faults.collect::<Vec<_>>().join(", ")));
    }
    lines
}

fn bill(report: &Report) -> String {
    let sum = report.charges_micro.values().flat_map(BTreeMap::values);
    format!(
        "{} for {}; {} billed hours, {} runs",
        draw::money(sum.sum()),
        human::count(report.charges_micro.len() as u128, "tenant"),
        count(report.hours_billed),
        count(report.intervals_billed)
    )
}

fn capacity(report: &Report) -> String {
    // Without the digits behind the point, so that large amounts fit.
    let sum = |amount: fn(&analytics::store::ReconciledMonth) -> i128| {
        let money = draw::money(report.months.iter().map(amount).sum());
        money.split('.').next().unwrap_or_default().to_owned()
    };
    let differing = report.months.iter().filter(|line| line.variance != "0");
    format!(
        "{} of {} months differ; {} = {} charged + {} idle + {} other",
        differing.count(),
        report.months.len(),
        sum(|line| line.capacity_micro),
        sum(|line| line.charged_micro),
        sum(|line| line.idle_micro),
        sum(|line| line.discount_micro
            + line.reserved_micro
            + line.cordoned_micro
            + line.unavailable_micro)
    )
}

/// The largest processes first.
fn memory(report: &Report) -> String {
    let mut peaks: Vec<(&String, &f64)> = report.peak_rss_mb.iter().collect();
    peaks.sort_by(|a, b| b.1.total_cmp(a.1));
    let sum = peaks.iter().fold(0.0, |sum, (_, mb)| sum + **mb);
    let each = peaks.iter().map(|(name, mb)| format!("{name} {mb:.0}"));
    let each = each.collect::<Vec<_>>().join(", ");
    match peaks.is_empty() {
        true => "unknown".to_owned(),
        false => format!("{sum:.0} MB: {each}"),
    }
}

fn paths(shown: &Shown<'_>) -> String {
    let summary = shown.report_path.with_file_name("summary.txt");
    format!(
        "{}; as JSON: {}",
        summary.display(),
        shown.report_path.display()
    )
}

fn total<K: Display>(by_name: &BTreeMap<K, u64>) -> String {
    sum(by_name.values().sum(), by_name)
}

/// Returns `12: 10 placed, 2 queued`.
fn sum<K: Display>(all: u64, by_name: &BTreeMap<K, u64>) -> String {
    if by_name.is_empty() {
        return count(all);
    }
    let each = by_name
        .iter()
        .map(|(name, number)| format!("{} {}", count(*number), name.to_string().replace('_', " ")));
    format!("{}: {}", count(all), each.collect::<Vec<_>>().join(", "))
}

fn row(name: &str, text: &str) -> String {
    format!("{name:<12}  {text}")
}

fn clipped(line: &str) -> String {
    match line.chars().count() > COLUMNS_MAX {
        true => line.chars().take(COLUMNS_MAX - 1).chain(['…']).collect(),
        false => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        drive::faults::FaultDone,
        workload::{EPOCH_MS, Workload},
    };
    use std::path::Path;

    const LINES_MAX: usize = 20;

    fn check(report: &Report, expected: &str) {
        let workload = Workload {
            nodes: Vec::new(),
            pods: Vec::new(),
            is_as_recorded: true,
        };
        let interval = |gpu_milli, from_h: i64, to_h: i64| Interval {
            tenant: String::new(),
            pod: String::new(),
            job_set: String::new(),
            node: String::new(),
            gpu_model: String::new(),
            cpu_milli: 1,
            memory_bytes: 1,
            gpu_milli,
            started_ms: EPOCH_MS + from_h * vocab::HOUR_MS,
            ended_ms: EPOCH_MS + to_h * vocab::HOUR_MS,
            cause: "finished",
        };
        let lines = screen(&Shown {
            report,
            workload: &workload,
            intervals: &[interval(1_000, 0, 44), interval(2_000, 11, 22)],
            trace: &[],
            report_path: Path::new("target/run/crowded/report.json"),
            stack_path: Path::new("stack.json"),
        });
        assert!(lines.len() <= LINES_MAX, "{lines:#?}");
        let fits = |line: &String| line.chars().count() <= COLUMNS_MAX;
        assert!(lines.iter().all(fits), "{lines:#?}");
        let words = lines.iter().filter(|line| !line.contains('┤'));
        let words: Vec<&str> = words.map(String::as_str).collect();
        assert_eq!(words.join("\n"), expected.trim_end());
    }

    fn fault() -> FaultDone {
        FaultDone {
            what: "kill:quota".to_owned(),
            at: 0.4,
            began_s: 1.0,
            ended_s: 2.0,
        }
    }

    #[test]
    fn a_good_run_fits_on_half_a_screen_and_ends_with_its_verdict() {
        let month = |name: &str| analytics::store::ReconciledMonth {
            month: name.to_owned(),
            closed: true,
            capacity_micro: 1_000_000_000_000,
            charged_micro: 600_000_000_000,
            discount_micro: 1_000_000,
            reserved_micro: 20_000_000,
            idle_micro: 399_976_000_000,
            cordoned_micro: 3_000_000,
            unavailable_micro: 0,
            rounding_micro: 0.0,
            variance: "0".to_owned(),
            first_lsn: 1,
            last_lsn: 2,
        };
        let good = Report {
            requests: 8152,
            outcomes: 8152,
            accepted: 8000,
            first_state: [("placed", 7000), ("pending", 1000)].into(),
            refused: [("tenant_quota", 152)].into(),
            waiting: [("insufficient_gpu", 1000)].into(),
            ended: [("finished", 6500), ("cancelled", 1500)].into(),
            requeued: [("preempted", 12)].into(),
            decisions_per_s: 108.7,
            replay_s: 75.04,
            charges_micro: [(
                "team-a".to_owned(),
                [("2024-01".to_owned(), 1_200_000)].into(),
            )]
            .into(),
            months: vec![month("2024-01"), month("2024-02")],
            conservation: [("nodes cpu".to_owned(), 0)].into(),
            peak_rss_mb: [("nats".to_owned(), 50.4), ("clickhouse".to_owned(), 300.0)].into(),
            faults: vec![fault()],
            wall_s: 91.26,
            ..Report::default()
        };
        check(
            &good,
            "
Replay: 0 nodes, 0 pods, 0 recorded days in 75.0 s
GPUs allocated, of 0; the pods request 0 % of the GPU time, highest 3.0
          Jan
requests      8,152 with 8,152 outcomes, 109/s; 0 retries, 0 lost, 0 duplicated
accepted      8,000: 1,000 pending, 7,000 placed
refused       152: 152 tenant quota
waited        1,000: 1,000 insufficient gpu
ended         8,000: 1,500 cancelled, 6,500 finished; queued again 12: 12 preempted
latency       p50 0.0 ms, p90 0.0, p99 0.0, p99.9 0.0, max 0.0
bill          1.20 for 1 tenant; 0 billed hours, 0 runs
capacity      0 of 2 months differ; 2,000,000 = 1,200,000 charged + 799,952 idle + 48 other
conservation  1 sum, error 0 unit-milliseconds
peak memory   350 MB: clickhouse 300, nats 50
faults        kill:quota
details       target/run/crowded/summary.txt; as JSON: target/run/crowded/report.json
Good: 8,152 requests, 8,152 outcomes, none lost, none twice; 91.3 s.
",
        );
    }

    #[test]
    fn a_run_with_problems_fits_on_half_a_screen() {
        let bad = Report {
            problems: vec!["x".repeat(300); 50],
            peak_rss_mb: (0..40)
                .map(|number| (format!("process-{number}"), f64::from(number)))
                .collect(),
            faults: vec![fault()],
            ..Report::default()
        };
        let problem = format!("  - {}…", "x".repeat(COLUMNS_MAX - 5));
        check(
            &bad,
            &format!(
                "
Replay: 0 nodes, 0 pods, 0 recorded days in 0.0 s
requests      0 with 0 outcomes, 0/s; 0 retries, 0 lost, 0 duplicated
accepted      0
refused       0
waited        0
ended         0; queued again 0
latency       p50 0.0 ms, p90 0.0, p99 0.0, p99.9 0.0, max 0.0
bill          0.00 for 0 tenants; 0 billed hours, 0 runs
capacity      0 of 0 months differ; 0 = 0 charged + 0 idle + 0 other
conservation  0 sums, error 0 unit-milliseconds
peak memory   780 MB: process-39 39, process-38 38, process-37 37, process-36 36, process-35 35, pr…
faults        kill:quota
details       target/run/crowded/summary.txt; as JSON: target/run/crowded/report.json
NOT good, 50 problems:
{problem}
{problem}
{problem}
  - and 47 more, in the report
"
            ),
        );
    }
}
