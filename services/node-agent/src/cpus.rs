//! Sets of CPUs, as the kernel writes them: `0-3,8`.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt, str::FromStr};

/// The kernel's own bound in our system calls; a machine with more is shared out as if it ended there.
const CPUS_MAX: u32 = rustix::thread::CpuSet::MAX_CPU as u32;

/// Numbers of CPUs, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(BTreeSet<u32>);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no list of CPUs such as 0-3,8: {0:?}")]
pub struct NoCpuList(String);

impl CpuSet {
    /// As many as a system call can speak of.
    pub(crate) fn all() -> CpuSet {
        (0..CPUS_MAX).collect()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    pub fn both(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.intersection(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        CpuSet(cpus.into_iter().filter(|cpu| *cpu < CPUS_MAX).collect())
    }
}

impl FromStr for CpuSet {
    type Err = NoCpuList;

    fn from_str(text: &str) -> Result<CpuSet, NoCpuList> {
        let wrong = || NoCpuList(text.to_owned());
        let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
        let mut cpus = BTreeSet::new();
        // A node without CPUs of its own has an empty list.
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let (low, high) = (number(low)?, number(high)?);
            if low > high || high >= CPUS_MAX {
                return Err(wrong());
            }
            cpus.extend(low..=high);
        }
        Ok(CpuSet(cpus))
    }
}

impl TryFrom<String> for CpuSet {
    type Error = NoCpuList;

    fn try_from(text: String) -> Result<CpuSet, NoCpuList> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(cpus: CpuSet) -> String {
        cpus.to_string()
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut rest = self.0.iter().copied().peekable();
        while let Some(low) = rest.next() {
            let mut high = low;
            while let Some(next) = rest.next_if_eq(&(high + 1)) {
                high = next;
            }
            if low == high {
                write!(f, "{comma}{low}")?;
            } else {
                write!(f, "{comma}{low}-{high}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_written_as_the_kernel_does() {
        let check = |text: &str, expected: Option<&str>| {
            let read = text.parse::<CpuSet>().ok().map(|cpus| cpus.to_string());
            assert_eq!(read.as_deref(), expected, "{text:?}");
        };
        check("0-3,8\n", Some("0-3,8"));
        check("0", Some("0"));
        check("3,1,2,0", Some("0-3"));
        check("0,2,4-5", Some("0,2,4-5"));
        check("\n", Some(""));
        check("1023", Some("1023"));
        check("1024", None);
        check("0-4294967295", None);
        check("3-1", None);
        check("a", None);
        check("0,,1", None);
        check("-1", None);
    }
}
