//! Amounts as people write them.

use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use vocab::Millis;

/// `4` cores or `1500m`.
pub fn cpu_milli(text: &str) -> Result<i64, String> {
    milli(text).ok_or_else(|| format!("{text}: write cores as 4, or millicores as 1500m"))
}

/// `4` of anything or `1500m`.
pub fn thousandths(text: &str) -> Result<i64, String> {
    milli(text).ok_or_else(|| format!("{text}: write whole ones as 4, or thousandths as 1500m"))
}

fn milli(text: &str) -> Option<i64> {
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().ok(),
        None => text.parse::<i64>().ok()?.checked_mul(1000),
    }
}

/// `500ms`, `90s`, `10m`, `2h` or `7d`, in milliseconds.
pub fn duration_ms(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text}: write a duration as 500ms, 90s, 10m, 2h or 7d");
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let number = text.strip_suffix(unit).unwrap_or_default();
    let number: i64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit_ms).ok_or_else(wrong)
}

/// A moment with its zone, as Unix milliseconds.
pub fn moment_ms(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text}: write a moment as 2026-01-31T08:00:00Z");
    let moment = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| wrong())?;
    i64::try_from(moment.unix_timestamp_nanos() / 1_000_000).map_err(|_| wrong())
}

/// `16GiB`, `512MiB`, or bytes.
pub fn bytes(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text}: write memory as 16GiB, 512MiB, or bytes");
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units
        .iter()
        .find_map(|(name, shift)| Some((text.strip_suffix(name)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let number: i64 = number.trim().parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Micro-units as a decimal amount, without rounding.
pub fn money(micro: u128) -> String {
    format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000)
}

/// A moment in UTC.
pub fn moment(at: Millis) -> String {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{} ms", at.0))
}

/// What one billed unit is called and how many of the resource's units it has.
pub fn human(kind: vocab::ResourceKind, amount: u64) -> String {
    let per = kind.per_billed_unit();
    let thousandths = u128::from(amount) * 1000 / u128::from(per);
    let unit = match kind {
        vocab::ResourceKind::Cpu => "cores",
        vocab::ResourceKind::Memory => "GiB",
        vocab::ResourceKind::Gpu => "GPUs",
    };
    format!("{}.{:03} {unit}", thousandths / 1000, thousandths % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_exactly() {
        assert_eq!(cpu_milli("4"), Ok(4000));
        assert_eq!(cpu_milli("1500m"), Ok(1500));
        assert_eq!(bytes("16GiB"), Ok(16 << 30));
        assert_eq!(bytes("7"), Ok(7));
        for bad in ["", "x", "4.5", "9223372036854775807"] {
            assert!(cpu_milli(bad).is_err(), "{bad}");
        }
        for bad in ["", "GiB", "1GB", "9223372036854775807KiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(thousandths("8"), Ok(8000));
        assert_eq!(money(1_234_567), "1.234567");
        assert_eq!(human(vocab::ResourceKind::Gpu, 460), "0.460 GPUs");
        assert_eq!(moment(Millis(0)), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn durations_and_moments_have_units_and_zones() {
        for (text, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("90s", 90_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
        }
        for bad in ["", "90", "s", "-1s", "1.5h", "9223372036854775807h", "1 s"] {
            assert!(duration_ms(bad).is_err(), "{bad}");
        }
        assert_eq!(moment_ms("1970-01-01T00:00:01Z"), Ok(1000));
        assert_eq!(moment_ms("1970-01-01T01:00:00.5+01:00"), Ok(500));
        for bad in ["", "now", "2026-01-31", "2026-01-31T08:00:00"] {
            assert!(moment_ms(bad).is_err(), "{bad}");
        }
    }
}
