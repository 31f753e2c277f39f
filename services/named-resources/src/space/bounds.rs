//! How much one space may hold, and which bounds make no sense.

use super::index::ResourceNo;
use serde::{Deserialize, Deserializer, de::Error};
use std::fmt;

/// Those of one tenant, and who may hold how many of them for how long. What is read of them makes sense.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, remote = "Self")]
pub struct Bounds {
    /// Resources.
    pub resources_max: u64,
    /// Leases: live ones, and ended ones that are not retired.
    pub leases_max: u64,
    /// Resources in one lease.
    pub bundle_max: usize,
    /// The longest time to confirm a lease; the shortest is 1.
    pub ttl_slots_max: u64,
    /// For so many slots an ended lease is remembered.
    pub history_slots: u64,
    /// Leases with the same deadline.
    pub expirations_per_slot_max: usize,
}

impl<'de> Deserialize<'de> for Bounds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The derived one.
        let bounds = Self::deserialize(deserializer)?;
        bounds.validate().map_err(D::Error::custom)?;
        Ok(bounds)
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            resources_max: 4_194_304,
            leases_max: 4_194_304,
            bundle_max: 64,
            ttl_slots_max: 86_400,
            history_slots: 3_600,
            expirations_per_slot_max: 65_536,
        }
    }
}

/// A bound with which a space could not do what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnfitBound {
    pub setting: &'static str,
    pub found: u64,
    pub rule: Range,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// Nothing at all would be let in.
    AtLeast(u64),
    /// There are no more numbers.
    AtMost(u64),
    /// No more than another setting.
    Within(&'static str, u64),
}

impl fmt::Display for UnfitBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            setting,
            found,
            rule,
        } = self;
        match rule {
            Range::AtLeast(least) => write!(f, "{setting} is {found}, must be at least {least}"),
            Range::AtMost(most) => write!(f, "{setting} is {found}, must be at most {most}"),
            Range::Within(other, most) => {
                write!(
                    f,
                    "{setting} is {found}, must not be above {other}, which is {most}"
                )
            }
        }
    }
}

impl Bounds {
    /// # Errors
    ///
    /// Names the first bound that is unfit, and the rule that it breaks.
    pub fn validate(&self) -> Result<(), UnfitBound> {
        let (bundle, deadline) = (self.bundle_max as u64, self.expirations_per_slot_max as u64);
        let resources = ("resources_max", self.resources_max);
        let ttl = ("ttl_slots_max", self.ttl_slots_max);
        let rules = [
            (resources, Range::AtLeast(1)),
            // The highest number stands for nobody.
            (resources, Range::AtMost(ResourceNo::MAX.into())),
            (("leases_max", self.leases_max), Range::AtLeast(1)),
            (("bundle_max", bundle), Range::AtLeast(1)),
            (
                ("bundle_max", bundle),
                Range::Within("resources_max", self.resources_max),
            ),
            (ttl, Range::AtLeast(1)),
            (
                ("history_slots", self.history_slots),
                Range::Within("ttl_slots_max", self.ttl_slots_max),
            ),
            (("expirations_per_slot_max", deadline), Range::AtLeast(1)),
        ];
        let unfit = |((setting, found), rule): ((&'static str, u64), Range)| {
            let fits = match rule {
                Range::AtLeast(least) => found >= least,
                Range::AtMost(most) | Range::Within(_, most) => found <= most,
            };
            (!fits).then_some(UnfitBound {
                setting,
                found,
                rule,
            })
        };
        rules.into_iter().find_map(unfit).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: impl FnOnce(&mut Bounds), expected: &str) {
        let mut bounds = Bounds::default();
        change(&mut bounds);
        let found = bounds.validate().map_err(|unfit| unfit.to_string());
        assert_eq!(found, Err(expected.to_owned()));
    }

    #[test]
    fn every_unfit_bound_is_named_with_the_rule_that_it_breaks() {
        check(
            |b| b.resources_max = 0,
            "resources_max is 0, must be at least 1",
        );
        check(
            |b| b.resources_max = 1 << 32,
            "resources_max is 4294967296, must be at most 4294967295",
        );
        check(|b| b.leases_max = 0, "leases_max is 0, must be at least 1");
        check(|b| b.bundle_max = 0, "bundle_max is 0, must be at least 1");
        check(
            |b| (b.resources_max, b.bundle_max) = (3, 4),
            "bundle_max is 4, must not be above resources_max, which is 3",
        );
        check(
            |b| b.ttl_slots_max = 0,
            "ttl_slots_max is 0, must be at least 1",
        );
        check(
            |b| (b.ttl_slots_max, b.history_slots) = (7, 8),
            "history_slots is 8, must not be above ttl_slots_max, which is 7",
        );
        check(
            |b| b.expirations_per_slot_max = 0,
            "expirations_per_slot_max is 0, must be at least 1",
        );
    }

    #[test]
    fn the_least_that_makes_sense_is_let_in() {
        let least = Bounds {
            resources_max: 1,
            leases_max: 1,
            bundle_max: 1,
            ttl_slots_max: 1,
            history_slots: 0,
            expirations_per_slot_max: 1,
        };
        assert_eq!(least.validate(), Ok(()));
        assert_eq!(Bounds::default().validate(), Ok(()));
    }
}
