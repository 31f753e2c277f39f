//! What a process says of itself on the consumer by which it reads the ledger: whoever would let newer facts be written sees
//! there who reads them.

use std::collections::{BTreeSet, HashMap};
use vocab::Level;

const SERVICES: &str = "apportion_services";
const INSTANCE: &str = "apportion_instance";
const VERSION: &str = "apportion_version";
const LEVEL: &str = "apportion_level";

/// A process with services.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// One, or all that it runs.
    pub services: Vec<String>,
    /// Tells it from other processes of the same services.
    pub instance: String,
    pub version: String,
    /// The newest feature level that it knows.
    pub level: Level,
}

impl Program {
    pub(super) fn to_metadata(&self) -> HashMap<String, String> {
        HashMap::from([
            (SERVICES.to_owned(), self.services.join(" ")),
            (INSTANCE.to_owned(), self.instance.clone()),
            (VERSION.to_owned(), self.version.clone()),
            (LEVEL.to_owned(), self.level.to_string()),
        ])
    }

    /// None of a reader that is no service.
    fn from_metadata(metadata: &HashMap<String, String>) -> Option<Self> {
        let text = |name| metadata.get(name).cloned();
        let level = metadata.get(LEVEL).and_then(|text| text.parse().ok());
        let services = metadata.get(SERVICES)?;
        Some(Self {
            services: services.split(' ').map(str::to_owned).collect(),
            instance: text(INSTANCE).unwrap_or_default(),
            version: text(VERSION).unwrap_or_default(),
            level: level.unwrap_or(Level::FIRST),
        })
    }
}

/// Each process once, however many consumers it has.
pub(super) fn listed<'a>(
    consumers: impl Iterator<Item = &'a HashMap<String, String>>,
) -> Vec<Program> {
    let programs: BTreeSet<Program> = consumers.filter_map(Program::from_metadata).collect();
    programs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_listed_once_and_one_that_is_no_service_is_not() {
        let program = |services: &[&str], level| Program {
            services: services.iter().map(|name| (*name).to_owned()).collect(),
            instance: "host/7".to_owned(),
            version: "1.0.0".to_owned(),
            level: Level(level),
        };
        let (quota, all) = (program(&["quota"], 2), program(&["admission", "quota"], 1));
        let consumers = [
            quota.to_metadata(),
            HashMap::new(),
            all.to_metadata(),
            quota.to_metadata(),
            HashMap::from([("_nats.ver".to_owned(), "2.12.0".to_owned())]),
        ];
        assert_eq!(listed(consumers.iter()), [all, quota]);
        let mut says_nothing = program(&["quota"], 9).to_metadata();
        says_nothing.remove(LEVEL);
        let found = listed(std::iter::once(&says_nothing));
        assert_eq!(found, [program(&["quota"], 1)]);
    }
}
