//! What the suite wants to reach on two cores with everything on one machine, and whether it does.

use super::{case::Case, figures::CaseFigures, plot::grouped, report::Report};
use crate::{kit::figures::round, peers::AIM_TASK_TABLES};
use replay::command::Size;

/// One line of the table.
#[derive(Debug)]
pub struct Line {
    pub what: String,
    pub unit: &'static str,
    aim: Aim,
    /// None: the case was not measured, or has no such figure.
    pub measured: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

impl Line {
    pub fn met(&self) -> Option<bool> {
        self.measured.map(|measured| match self.aim {
            Aim::AtLeast(aim) => measured >= aim,
            Aim::AtMost(aim) => measured <= aim,
        })
    }

    pub fn aim(&self) -> String {
        match self.aim {
            Aim::AtLeast(aim) => format!(">= {aim}"),
            Aim::AtMost(aim) => format!("<= {aim}"),
        }
    }
}

type Figure = fn(&CaseFigures) -> Option<f64>;

/// Of the cases `batched` and `single`.
const LATENCIES: [(&str, f64, Figure); 4] = [
    ("p50 at half of the highest rate", 5.0, |f| f.p50_ms_at_half),
    ("p99 at half of the highest rate", 25.0, |f| {
        f.p99_ms_at_half
    }),
    ("p99.9 at half of the highest rate", 100.0, |f| {
        f.p999_ms_at_half
    }),
    ("p99 at 1,000 tasks/s", 10.0, |f| f.p99_ms_at_1k),
];

/// Tasks through their whole life per second.
const RATES: [(Case, f64); 2] = [(Case::Batched, 70_000.0), (Case::Single, 25_000.0)];
/// A task's CPU time where there is much, beside that of the case `batched`.
const DEARER_MAX: f64 = 1.5;
/// Of the case `live`, whatever was measured.
const LIVE_AIM: u64 = 1_000_000;

pub fn lines(report: &Report) -> Vec<Line> {
    let of = |case: Case| report.cases.iter().find(|figures| figures.case == case);
    let mut lines = Vec::new();
    let mut line = |name: &str, what: &str, unit, aim, measured| {
        lines.push(Line {
            what: format!("{name}: {what}"),
            unit,
            aim,
            measured,
        });
    };
    for (case, aim) in RATES {
        // None was sustained: that is no rate at all, and not one that was not measured.
        let highest = of(case).map(|figures| figures.highest_tasks_per_s);
        let what = "highest sustained rate";
        line(case.name(), what, "tasks/s", Aim::AtLeast(aim), highest);
    }
    for (case, _) in RATES {
        for (what, aim, figure) in LATENCIES {
            let measured = of(case).and_then(figure);
            line(case.name(), what, "ms", Aim::AtMost(aim), measured);
        }
    }
    let name = Case::Batched.name();
    let cpu = |case| of(case).and_then(|figures| figures.cpu_us_per_task);
    let whole = "CPU per task, whole stack";
    line(name, whole, "us", Aim::AtMost(30.0), cpu(Case::Batched));
    let services = of(Case::Batched).and_then(|figures| figures.services_us_per_task);
    let alone = "CPU per task, services alone";
    line(name, alone, "us", Aim::AtMost(10.0), services);
    let tracing = of(Case::Batched).and_then(|figures| figures.tracing.as_ref());
    let what = "more CPU per task with sampled traces (1 message in 100)";
    let percent = tracing.map(|tracing| tracing.percent);
    line(name, what, "%", Aim::AtMost(5.0), percent);
    let waiting = of(Case::Deep).map(|figures| figures.waiting);
    let nodes = of(Case::Nodes).map(|_| Case::Nodes.nodes(Size::default()) as u64);
    let dearer = [
        (Case::Deep, waiting, "waiting"),
        (Case::Nodes, nodes, "nodes"),
    ];
    for (case, count, of_what) in dearer {
        let what = format!("CPU per task beside batched{}", with(count, of_what));
        let times = cpu(case).zip(cpu(Case::Batched)).map(|(a, b)| a / b);
        let times = times.map(|times| round(times, 2));
        line(case.name(), &what, "times", Aim::AtMost(DEARER_MAX), times);
    }
    let live = report.live.as_ref();
    let scale = with(live.map(|live| live.live), "live");
    let name = Case::Live.name();
    let restart = live.map(|live| live.scheduler_restart_s);
    let what = format!("scheduler decides again after a kill{scale}");
    line(name, &what, "s", Aim::AtMost(3.0), restart);
    let fewer = live.is_some_and(|live| live.live < LIVE_AIM);
    let aimed = if fewer { " (aim: 1,000,000)" } else { "" };
    let memory = live.map(|live| live.services_rss_mb);
    let what = format!("memory of the services{scale}{aimed}");
    line(name, &what, "MB", Aim::AtMost(500.0), memory);
    let peers = report.peers.as_ref();
    let times = peers.map(|peers| round(peers.ratio_vs_task_tables, 2));
    let what = "tasks/s beside task tables in Postgres";
    line("peers", what, "times", Aim::AtLeast(AIM_TASK_TABLES), times);
    lines
}

/// How many there were, where it was measured.
fn with(count: Option<u64>, of_what: &str) -> String {
    count.map_or(String::new(), |count| {
        format!(", with {} {of_what}", grouped(count as f64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(aim: Aim, measured: Option<f64>, met: Option<bool>) {
        let line = Line {
            what: String::new(),
            unit: "ms",
            aim,
            measured,
        };
        assert_eq!(line.met(), met, "{line:?}");
    }

    #[test]
    fn an_aim_is_met_missed_or_not_measured() {
        check(Aim::AtLeast(70.0), Some(70.0), Some(true));
        check(Aim::AtLeast(70.0), Some(69.9), Some(false));
        check(Aim::AtMost(10.0), Some(10.0), Some(true));
        check(Aim::AtMost(10.0), Some(10.1), Some(false));
        check(Aim::AtMost(10.0), None, None);
    }

    #[test]
    fn without_figures_every_aim_is_not_measured() {
        let lines = lines(&Report::default());
        assert_eq!(lines.len(), 18);
        assert!(lines.iter().all(|line| line.met().is_none()));
    }

    #[test]
    fn a_scale_is_said_where_it_was_measured() {
        assert_eq!(with(Some(200_000), "live"), ", with 200,000 live");
        assert_eq!(with(None, "live"), "");
    }
}
