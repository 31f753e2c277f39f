//! The memory of a machine.

use super::{DiscoverError, text};
use std::path::Path;

pub(super) fn total_bytes(root: &Path) -> Result<u64, DiscoverError> {
    let (path, text) = text(root.join("proc/meminfo"))?;
    field_bytes(&text, "MemTotal:").ok_or(DiscoverError::Content { path })
}

/// What stands behind the name, in any line: `MemTotal: 16 kB`, and in a zone's file `Node 0 MemTotal: 16 kB`.
pub(crate) fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let mut values = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != name);
        words.next()?;
        Some((words.next()?, words.next()?))
    });
    let (amount, unit) = values.next()?;
    let kib = amount.parse::<u64>().ok().filter(|_| unit == "kB")?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_an_amount_in_kib() {
        let check = |text: &str, expected| {
            assert_eq!(field_bytes(text, "MemTotal:"), expected, "{text:?}");
        };
        check("MemTotal:       16 kB\n", Some(16_384));
        check("MemFree: 1 kB\nMemTotal: 2 kB\n", Some(2048));
        check("Node 0 MemTotal:       3 kB\n", Some(3072));
        check("MemTotal: 16 MB\n", None);
        check("MemTotal: 16\n", None);
        check("MemTotal: x kB\n", None);
        check("MemTotal: 18446744073709551615 kB\n", None);
        check("", None);
    }
}
