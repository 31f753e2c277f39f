//! Amounts and moments as people read them, each with its unit. What is exact is `Display` or a number.

use crate::{
    ResourceKind,
    time::{DAY_MS, HOUR_MS, Millis, date},
};

/// Thousandths as a decimal number without noughts at its end: `9.5`, `8`.
pub fn thousandths(amount: u128) -> String {
    let text = format!("{}.{:03}", amount / 1000, amount % 1000);
    // There is a point.
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Millionths of the currency: `3.5`.
pub fn money(micro: u128) -> String {
    let text = format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `1 node`, `2 nodes`.
pub fn count(number: u128, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {one}s"),
    }
}

/// Binary units of memory, the largest first.
const MEMORY: [(&str, u128); 6] = [
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// In the largest unit of which there is one, to its thousandth: `64 MiB`, `1.5 GiB`.
pub fn memory(bytes: u128) -> String {
    let fitting = MEMORY.iter().find(|(_, unit)| bytes >= *unit);
    let (name, unit) = fitting.unwrap_or(&("B", 1));
    let number = thousandths(bytes / unit * 1000 + bytes % unit * 1000 / unit);
    format!("{number} {name}")
}

/// Thousandths of a core or of a GPU, or bytes.
pub fn resource(kind: ResourceKind, amount: u128) -> String {
    let parts = |one| match amount {
        1000 => format!("1 {one}"),
        _ => format!("{} {one}s", thousandths(amount)),
    };
    match kind {
        ResourceKind::Cpu => parts("core"),
        ResourceKind::Memory => memory(amount),
        ResourceKind::Gpu => parts("GPU"),
    }
}

/// In UTC, to the second: `2026-01-31T08:00:00Z`.
pub fn moment(at: Millis) -> String {
    let (year, month, day) = date(at.0.div_euclid(DAY_MS));
    let second = at.0.rem_euclid(DAY_MS) / 1000;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A length of time in the largest unit that it is a whole number of: `90 s`, `2 h`, `250 ms`.
pub fn duration(ms: u128) -> String {
    let units = [
        ("d", DAY_MS),
        ("h", HOUR_MS),
        ("min", 60_000),
        ("s", 1000),
        ("ms", 1),
    ];
    let units = units.map(|(name, unit)| (name, u128::from(unit.unsigned_abs())));
    let whole = units
        .iter()
        .find(|(_, unit)| ms >= *unit && ms.is_multiple_of(*unit));
    let (name, unit) = whole.unwrap_or(&("ms", 1));
    format!("{} {name}", ms / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_unit_in_which_they_are_read() {
        let check = |found: String, expected: &str| assert_eq!(found, expected);
        check(memory(0), "0 B");
        check(memory(1023), "1023 B");
        check(memory(64 << 20), "64 MiB");
        check(memory(3 << 29), "1.5 GiB");
        check(memory(16 << 30), "16 GiB");
        check(memory(u64::MAX.into()), "16383.999 PiB");
        check(resource(ResourceKind::Cpu, 9500), "9.5 cores");
        check(resource(ResourceKind::Cpu, 1000), "1 core");
        check(resource(ResourceKind::Gpu, 250), "0.25 GPUs");
        check(money(250_500_000), "250.5");
        check(duration(0), "0 ms");
        check(duration(90_000), "90 s");
        check(duration(7_200_000), "2 h");
        check(count(1, "node"), "1 node");
        check(count(0, "node"), "0 nodes");
    }

    #[test]
    fn moments_are_dates_of_the_calendar() {
        let check = |ms: i64, expected: &str| assert_eq!(moment(Millis(ms)), expected);
        check(0, "1970-01-01T00:00:00Z");
        check(-1, "1969-12-31T23:59:59Z");
        check(951_782_400_000, "2000-02-29T00:00:00Z");
        check(1_769_846_400_999, "2026-01-31T08:00:00Z");
        check(1_798_761_599_000, "2026-12-31T23:59:59Z");
    }
}
