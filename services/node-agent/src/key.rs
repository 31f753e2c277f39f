//! Which attempt of which allocation.

use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

/// One attempt to run an allocation. It names the run's directory and cgroup, so it is made of nothing that a path could
/// be led astray by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunKey {
    pub allocation: Uuid,
    /// Of the assignment that started it.
    pub revision: u64,
}

/// An allocation is named by the text of a UUID.
#[derive(Debug, thiserror::Error)]
#[error("no UUID: {0}")]
pub struct NoUuid(#[from] uuid::Error);

impl RunKey {
    pub fn new(allocation: &str, revision: u64) -> Result<RunKey, NoUuid> {
        let allocation = Uuid::try_parse(allocation)?;
        Ok(RunKey {
            allocation,
            revision,
        })
    }

    /// Reads what `Display` writes, and nothing else: two spellings of a key would be two directories of one run.
    pub(crate) fn from_name(name: &str) -> Option<RunKey> {
        let (allocation, revision) = name.split_once('.')?;
        let key = RunKey::new(allocation, revision.parse().ok()?).ok()?;
        (key.to_string() == name).then_some(key)
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.allocation, self.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOCATION: &str = "0190f1c2-7e3a-7000-8000-00000000000a";

    #[test]
    fn a_name_has_one_spelling() {
        let check = |name: &str, expected: Option<u64>| {
            let key = RunKey::from_name(name);
            assert_eq!(key.map(|key| key.revision), expected, "{name}");
        };
        check(&format!("{ALLOCATION}.7"), Some(7));
        check(&format!("{ALLOCATION}.0"), Some(0));
        check(
            &format!("{ALLOCATION}.18446744073709551615"),
            Some(u64::MAX),
        );
        check(&format!("{ALLOCATION}.18446744073709551616"), None);
        check(&format!("{ALLOCATION}.07"), None);
        check(&format!("{ALLOCATION}.+7"), None);
        check(&format!("{ALLOCATION}.-1"), None);
        check(&format!("{}.7", ALLOCATION.to_uppercase()), None);
        check(ALLOCATION, None);
        check("../../etc.7", None);
        check("", None);
    }

    #[test]
    fn an_allocation_is_a_uuid() {
        assert!(RunKey::new("../../../etc", 1).is_err());
        let key = RunKey::new(&ALLOCATION.to_uppercase(), 1).expect("a UUID in capitals");
        assert_eq!(key.to_string(), format!("{ALLOCATION}.1"));
    }
}
