//! Amounts as people write them.

use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use vocab::Millis;

/// `4` cores or `1500m`.
pub fn cpu_milli(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text}: write cores as 4, or millicores as 1500m");
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().map_err(|_| wrong()),
        None => {
            let cores: i64 = text.parse().map_err(|_| wrong())?;
            cores.checked_mul(1000).ok_or_else(wrong)
        }
    }
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
        assert_eq!(money(1_234_567), "1.234567");
        assert_eq!(human(vocab::ResourceKind::Gpu, 460), "0.460 GPUs");
        assert_eq!(moment(Millis(0)), "1970-01-01T00:00:00Z");
    }
}
