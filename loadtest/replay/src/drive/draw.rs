//! Pictures of text: charts, tables, trees. Pure.

use crate::otlp::{Span, SpanId};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{Millis, Month};

/// Dots of a braille character, from the bottom up, left and right.
const LEFT: [u32; 4] = [0x40, 0x04, 0x02, 0x01];
const RIGHT: [u32; 4] = [0x80, 0x20, 0x10, 0x08];
const BLANK: u32 = 0x2800;

/// Mean of something over each of `columns` equal parts of a stretch of time. Each run counts with its amount for as
/// long as it lasts.
pub fn means(
    runs: impl Iterator<Item = (i64, i64, f64)>,
    from_ms: i64,
    to_ms: i64,
    columns: usize,
) -> Vec<f64> {
    let mut sums = vec![0.0; columns];
    let width = (to_ms - from_ms).max(1) as f64 / columns.max(1) as f64;
    for (start_ms, end_ms, amount) in runs {
        let start = (start_ms.max(from_ms) - from_ms) as f64 / width;
        let end = (end_ms.min(to_ms) - from_ms) as f64 / width;
        let mut column = start as usize;
        while column < columns && (column as f64) < end {
            let overlap = end.min((column + 1) as f64) - start.max(column as f64);
            sums[column] += overlap * amount;
            column += 1;
        }
    }
    sums
}

/// A filled curve of braille dots, two values and four dots in each character. The lowest dot shows for whatever is not
/// zero.
pub fn braille(values: &[f64], rows: usize, top: f64) -> Vec<String> {
    let dots = rows * 4;
    let height = |value: Option<&f64>| match value.copied().unwrap_or(0.0) {
        value if value <= 0.0 || top <= 0.0 => 0,
        value => ((value / top * dots as f64).round() as usize).clamp(1, dots),
    };
    let cell = |pair: &[f64], row: usize| {
        let below = (rows - 1 - row) * 4;
        let column = |value, bits: [u32; 4]| {
            let filled = height(value).saturating_sub(below).min(4);
            bits[..filled].iter().sum::<u32>()
        };
        let bits = column(pair.first(), LEFT) + column(pair.get(1), RIGHT);
        // Eight bits above the blank are all braille.
        char::from_u32(BLANK + bits).unwrap_or(' ')
    };
    let line = |row| values.chunks(2).map(|pair| cell(pair, row)).collect();
    (0..rows).map(line).collect()
}

/// Names of months under a chart, each where it begins, as far as they fit.
pub fn months(from_ms: i64, to_ms: i64, width: usize) -> String {
    let mut line = String::new();
    let span = (to_ms - from_ms).max(1) as f64;
    let mut before = None;
    for column in 0..width {
        let ms = from_ms + (span * column as f64 / width as f64) as i64;
        let month = Month::of(Millis(ms));
        let begins = before != Some(month);
        before = Some(month);
        let written = line.chars().count();
        if begins && written <= column && column + 3 <= width {
            line.push_str(&" ".repeat(column - written));
            line.push_str(short(month));
            line.push(' ');
        }
    }
    line.trim_end().to_owned()
}

fn short(month: Month) -> &'static str {
    const NAMES: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    // The last two digits of a month are 1 to 12.
    NAMES[month.0 as usize % 100 - 1]
}

/// A chart of the number of rows, with its title, its scale at the left and the months below.
pub fn chart(title: &str, values: &[f64], rows: usize, from_ms: i64, to_ms: i64) -> Vec<String> {
    const MARGIN: usize = 8;
    let top = values.iter().copied().fold(0.0, f64::max);
    let mut lines = vec![format!("{title}, highest {}", number(top))];
    for (row, line) in braille(values, rows, top).into_iter().enumerate() {
        let scale = match row {
            0 => number(top),
            _ if row + 1 == rows => "0".to_owned(),
            _ => String::new(),
        };
        lines.push(format!("{scale:>MARGIN$} ┤{line}"));
    }
    let axis = months(from_ms, to_ms, values.len().div_ceil(2));
    lines.push(format!("{:MARGIN$}  {axis}", ""));
    lines
}

/// A few digits, however large.
fn number(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// Columns as wide as they need to be: the first to the left, the others to the right.
pub fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Micro-units as an amount with two digits, thousands apart.
pub fn money(micro: i128) -> String {
    let cents = (micro.unsigned_abs() + 5_000) / 10_000;
    let sign = if micro < 0 && cents > 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", thousands(cents / 100), cents % 100)
}

pub fn thousands(value: u128) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A trace as a tree: when each span began after the first, how long it took.
pub fn trace(spans: &[Span]) -> Vec<String> {
    let known: BTreeSet<SpanId> = spans.iter().map(|span| span.span_id).collect();
    let mut below: BTreeMap<Option<SpanId>, Vec<&Span>> = BTreeMap::new();
    for span in spans {
        // A parent that was not received is as good as none.
        below
            .entry(span.parent.filter(|parent| known.contains(parent)))
            .or_default()
            .push(span);
    }
    for children in below.values_mut() {
        children.sort_by_key(|span| (span.start_ns, span.end_ns));
    }
    let began_ns = spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
    let mut lines = Vec::new();
    let mut stack: Vec<(&Span, String, String)> = Vec::new();
    let roots = below.remove(&None).unwrap_or_default();
    stack.extend(
        roots
            .into_iter()
            .rev()
            .map(|span| (span, String::new(), String::new())),
    );
    while let Some((span, stem, indent)) = stack.pop() {
        let what = format!("{stem}{} · {}", span.service, span.name);
        let ms = |ns: u64| ns as f64 / 1_000_000.0;
        let start = ms(span.start_ns.saturating_sub(began_ns));
        let took = ms(span.end_ns.saturating_sub(span.start_ns));
        lines.push(format!("{what:<56} {start:>8.2} ms  {took:>8.2} ms"));
        // Taken out, so that a circle of parents ends.
        let children = below.remove(&Some(span.span_id)).unwrap_or_default();
        let count = children.len();
        for (index, child) in children.into_iter().enumerate().rev() {
            let last = index + 1 == count;
            let stem = format!("{indent}{}", if last { "└─ " } else { "├─ " });
            let indent = format!("{indent}{}", if last { "   " } else { "│  " });
            stack.push((child, stem, indent));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_count_for_as_long_as_they_last() {
        let runs = [
            (0, 10, 2.0),
            (5, 20, 4.0),
            (-5, 5, 1.0),
            (15, 99, 1.0),
            (7, 7, 9.0),
        ];
        assert_eq!(means(runs.into_iter(), 0, 20, 2), [4.5, 4.5]);
        assert_eq!(means([].into_iter(), 0, 0, 2), [0.0, 0.0]);
    }

    #[test]
    fn a_curve_is_filled_from_below() {
        assert_eq!(braille(&[0.0, 8.0, 4.0, 1.0, 0.1], 2, 8.0), ["⢸⠀⠀", "⢸⣇⡀"]);
        assert_eq!(braille(&[0.0, 0.0], 1, 0.0), ["⠀"]);
        assert!(braille(&[], 1, 1.0).concat().is_empty());
    }

    #[test]
    fn months_stand_where_they_begin() {
        let day = 86_400_000;
        let january = crate::workload::EPOCH_MS;
        assert_eq!(months(january, january + 60 * day, 12), "Jan    Feb");
        assert_eq!(months(january, january + 366 * day, 12), "Jan May Sep");
    }

    #[test]
    fn numbers_are_set_for_people() {
        assert_eq!(money(1_234_567_895_000), "1,234,567.90");
        assert_eq!(money(4_999), "0.00");
        assert_eq!(money(-1_234_567_895_000), "-1,234,567.90");
        assert_eq!(money(-4_999), "0.00");
        assert_eq!(thousands(1_000), "1,000");
        let rows = [
            vec!["a".to_owned(), "1".to_owned()],
            vec!["bcd".to_owned(), "234".to_owned()],
        ];
        assert_eq!(table(&rows), ["a      1", "bcd  234"]);
    }

    #[test]
    fn a_trace_is_a_tree_of_what_was_received() {
        let span = |id: u8, parent: Option<u8>, start_ns| Span {
            trace_id: [1; 16],
            span_id: [id; 8],
            parent: parent.map(|id| [id; 8]),
            service: format!("s{id}"),
            name: "n".to_owned(),
            start_ns,
            end_ns: start_ns + 1_500_000,
            attributes: BTreeMap::new(),
            links: Vec::new(),
        };
        let lines = trace(&[
            span(2, Some(1), 20),
            span(1, None, 10),
            span(3, Some(2), 30),
            span(4, Some(9), 40),
        ]);
        let heads: Vec<&str> = lines
            .iter()
            .map(|line| line.split(" ·").next().unwrap_or_default())
            .collect();
        assert_eq!(heads, ["s1", "└─ s2", "   └─ s3", "s4"]);
        assert!(lines[0].ends_with("0.00 ms      1.50 ms"), "{}", lines[0]);
        // Two that name each other as parent are below no root, and nothing is drawn for ever.
        assert!(trace(&[span(5, Some(6), 1), span(6, Some(5), 1)]).is_empty());
    }
}
