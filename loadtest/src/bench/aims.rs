//! What the suite wants to reach on two cores with everything on one machine, and whether it does.

use super::{case::Case, figures::CaseFigures, report::Report};

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

pub fn lines(report: &Report) -> Vec<Line> {
    let of = |case: Case| report.cases.iter().find(|figures| figures.case == case);
    let mut lines = Vec::new();
    let mut line = |case: Case, what: &str, unit, aim, measured| {
        let what = format!("{}: {what}", case.name());
        lines.push(Line {
            what,
            unit,
            aim,
            measured,
        });
    };
    for (case, aim) in [(Case::Batched, 70_000.0), (Case::Single, 25_000.0)] {
        let highest = of(case).map(|figures| figures.highest_tasks_per_s);
        let what = "highest sustained rate";
        line(case, what, "tasks/s", Aim::AtLeast(aim), highest);
    }
    for case in [Case::Batched, Case::Single] {
        for (what, aim, figure) in LATENCIES {
            line(
                case,
                what,
                "ms",
                Aim::AtMost(aim),
                of(case).and_then(figure),
            );
        }
    }
    let batched = of(Case::Batched);
    let cpu = batched.and_then(|figures| figures.cpu_us_per_task);
    let services = batched.and_then(|figures| figures.services_us_per_task);
    let whole = "CPU per task, whole stack";
    line(Case::Batched, whole, "us", Aim::AtMost(30.0), cpu);
    let alone = "CPU per task, services alone";
    line(Case::Batched, alone, "us", Aim::AtMost(10.0), services);
    let live = report.live.as_ref();
    let restart = live.map(|live| live.scheduler_restart_s);
    let what = "scheduler ready again after a kill";
    line(Case::Live, what, "s", Aim::AtMost(3.0), restart);
    let memory = live.map(|live| live.services_rss_mb);
    let what = "memory of the five services";
    line(Case::Live, what, "MB", Aim::AtMost(500.0), memory);
    lines
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
        assert_eq!(lines.len(), 14);
        assert!(lines.iter().all(|line| line.met().is_none()));
    }
}
