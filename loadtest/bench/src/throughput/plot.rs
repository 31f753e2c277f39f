//! Latency against load as a page with one drawing for each case: no library, no script.

mod scale;

use super::{figures::CaseFigures, rate::RateFigures};
use scale::{Linear, Log};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
/// Around the plane: left, right, top, bottom.
const MARGIN: [f64; 4] = [70.0, 90.0, 40.0, 50.0];

type Figure = fn(&RateFigures) -> f64;

/// Name, colour, figure.
const LINES: [(&str, &str, Figure); 3] = [
    ("p50", "#1b7f4d", |rate| rate.p50_ms),
    ("p99", "#1f5fa8", |rate| rate.p99_ms),
    ("p99.9", "#b3372b", |rate| rate.p999_ms),
];

pub fn page(cases: &[CaseFigures]) -> String {
    let mut page = String::from(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Latency against load</title>\n\
         <style>body{font:14px sans-serif;margin:2em;background:#fff;color:#222}</style>\n\
         <h1>Latency against load</h1>\n\
         <p>From the moment that a request was due to its durable outcome. Hollow: the rate was not sustained.</p>\n",
    );
    for case in cases.iter().filter(|case| !case.rates.is_empty()) {
        page.push_str(&drawing(case));
        page.push('\n');
    }
    page
}

/// A drawing that stands on its own.
pub fn drawing(case: &CaseFigures) -> String {
    let [left, right, top, bottom] = MARGIN;
    let most = case.rates.iter().map(|rate| rate.offered_per_s);
    let x = Linear::to(most.fold(1.0, f64::max), left, WIDTH - right);
    let all = case.rates.iter();
    let all = all.flat_map(|rate| LINES.map(|(_, _, figure)| figure(rate)));
    let y = Log::around(all, HEIGHT - bottom, top);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    let title = format!(
        "{}: highest sustained rate {} tasks/s",
        case.case.name(),
        grouped(case.highest_tasks_per_s)
    );
    text(&mut svg, (left, 22.0), "start", &title);
    grid(&mut svg, &x, &y);
    let mut lowest_label = f64::INFINITY;
    for (name, colour, figure) in LINES.iter().rev() {
        let points: Vec<(f64, f64)> = case
            .rates
            .iter()
            .map(|rate| (x.at(rate.offered_per_s), y.at(figure(rate))))
            .collect();
        let path: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        put(
            &mut svg,
            format_args!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" ")
            ),
        );
        for ((x, y), rate) in points.iter().zip(&case.rates) {
            let fill = if rate.sustained { colour } else { "#fff" };
            put(
                &mut svg,
                format_args!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"2\"/>"
                ),
            );
        }
        if let Some((x, y)) = points.last() {
            // From the top down, and not on top of each other.
            let apart = if lowest_label.is_finite() {
                lowest_label + 14.0
            } else {
                *y
            };
            lowest_label = y.max(apart);
            text(&mut svg, (x + 10.0, lowest_label + 4.0), "start", name);
        }
    }
    svg.push_str("</svg>");
    svg
}

fn grid(svg: &mut String, x: &Linear, y: &Log) {
    let [left, right, top, bottom] = MARGIN;
    for tick in y.ticks() {
        let at = y.at(tick);
        let to = WIDTH - right;
        put(
            svg,
            format_args!("<path d=\"M{left},{at:.1}H{to}\" stroke=\"#ddd\"/>"),
        );
        text(svg, (left - 8.0, at + 4.0), "end", &format!("{tick} ms"));
    }
    let foot = HEIGHT - bottom;
    for tick in x.ticks() {
        let at = x.at(tick);
        put(
            svg,
            format_args!("<path d=\"M{at:.1},{top}V{foot}\" stroke=\"#eee\"/>"),
        );
        text(svg, (at, foot + 18.0), "middle", &grouped(tick));
    }
    let to = WIDTH - right;
    put(
        svg,
        format_args!("<path d=\"M{left},{top}V{foot}H{to}\" fill=\"none\" stroke=\"#444\"/>"),
    );
    let middle = (left + to) / 2.0;
    text(svg, (middle, HEIGHT - 12.0), "middle", "offered, tasks/s");
}

fn put(svg: &mut String, what: std::fmt::Arguments<'_>) {
    // A string takes whatever is written to it.
    let _ = svg.write_fmt(what);
    svg.push('\n');
}

/// The words are this file's own, and the cases' names: nothing to escape.
fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    put(
        svg,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#222\">{words}</text>"
        ),
    );
}

/// 70,000
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn thousands_are_grouped() {
        let all = [0.0, 999.0, 1000.0, 70_000.0, 1_234_567.0].map(grouped);
        assert_eq!(all, ["0", "999", "1,000", "70,000", "1,234,567"]);
    }
}
