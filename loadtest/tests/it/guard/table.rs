//! Figures per task, by path, and how far they may be from what is written down.

use std::{collections::BTreeMap, fmt::Write, ops::AddAssign};

/// Allocations, or events on the ledger; and the bytes of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Count {
    pub times: u64,
    pub bytes: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.times += other.times;
        self.bytes += other.bytes;
    }
}

/// Per cent by which a figure may be higher, and lower, before the test fails.
const UP: f64 = 3.0;
const DOWN: f64 = 10.0;

const HEAD: &str = "\
# What one task costs, from the inbox to its end; read and written by the test beside this file.
# service/step, projection/name: heap allocations, and bytes allocated (a buffer that grows counts anew).
# ledger/writer: events, and bytes of its frames before the stream's compression.
# 3 % more fails. 10 % less fails too: write it down, so that it stays.
#
";

/// By path: times and bytes, each a figure per task.
#[derive(Debug, Default)]
pub struct Table {
    sums: BTreeMap<String, Count>,
}

/// The same per task, as it is written down.
#[derive(Debug, PartialEq)]
pub struct PerTask(BTreeMap<String, [f64; 2]>);

impl Table {
    pub fn add(&mut self, path: &str, count: Count) {
        *self.sums.entry(path.to_owned()).or_default() += count;
    }

    pub fn per(&self, tasks: u64) -> PerTask {
        let per = |sum: u64| sum as f64 / tasks as f64;
        let rows = self.sums.iter();
        PerTask(
            rows.map(|(path, sum)| (path.clone(), [per(sum.times), per(sum.bytes)]))
                .collect(),
        )
    }
}

impl PerTask {
    pub fn render(&self) -> String {
        let mut text = HEAD.to_owned();
        let _ = writeln!(text, "# {:<28} {:>10} {:>10}", "path", "times", "bytes");
        for (path, [times, bytes]) in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{path:<30} {times:>10.3} {bytes:>10.1}");
        }
        text
    }

    pub fn parse(text: &str) -> Self {
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let path = words.next()?.to_owned();
            let times = words.next()?.parse().ok()?;
            Some((path, [times, words.next()?.parse().ok()?]))
        };
        Self(
            rows.map(|line| {
                row(line).unwrap_or_else(|| panic!("not a path and two figures: {line}"))
            })
            .collect(),
        )
    }

    /// One line for each figure that is too far from the expected one.
    pub fn differences(&self, expected: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, found) in &self.0 {
            let Some(written) = expected.0.get(path) else {
                lines.push(format!("{path}: not written down"));
                continue;
            };
            for (what, found, written) in [
                ("times", found[0], written[0]),
                ("bytes", found[1], written[1]),
            ] {
                let change = 100.0 * (found - written) / written.max(1e-3);
                let verdict = match change {
                    _ if change > UP => "worse",
                    _ if change < -DOWN => "better: write it down",
                    _ => continue,
                };
                lines.push(format!(
                    "{path}: {what} {written} -> {found:.3} ({change:+.1} %), {verdict}"
                ));
            }
        }
        let gone = expected.0.keys().filter(|path| !self.0.contains_key(*path));
        lines.extend(gone.map(|path| format!("{path}: not measured any more")));
        lines
    }
}
