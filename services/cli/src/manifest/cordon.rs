//! `kind: Cordon`

use super::{
    fields::{Fields, Wrong, needed},
    kind::Manifest,
    units::Count,
};
use schemas::v1;
use serde::{Deserialize, Serialize};
use vocab::Token;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cordon {
    node: Token,
    /// Without a word it is.
    cordoned: Option<bool>,
    drain: Option<bool>,
    at_once: Option<Count>,
}

impl Manifest for Cordon {
    type Message = v1::SetCordon;
    const NAMED_BY: &'static [&'static str] = &["node"];

    fn key(fields: &Fields, _: i64) -> Result<String, Wrong> {
        Ok(needed::<Token>(fields, "node")?.to_string())
    }

    fn of(set: &v1::SetCordon) -> Result<Self, Wrong> {
        Ok(Self {
            node: Token::new(&set.node)?,
            cordoned: Some(set.cordoned),
            drain: Some(set.drain),
            at_once: Some(Count(set.at_once)),
        })
    }

    fn message(self) -> Result<v1::SetCordon, Wrong> {
        let cordoned = self.cordoned.unwrap_or(true);
        let drain = self.drain.unwrap_or(false);
        let at_once = self.at_once.filter(|_| drain && cordoned);
        Ok(v1::SetCordon {
            node: self.node.into(),
            cordoned,
            drain: drain && cordoned,
            at_once: at_once.map_or(0, |at_once| at_once.0),
            expected_version: None,
        })
    }

    fn is_absent(set: &v1::SetCordon) -> bool {
        !set.cordoned
    }

    fn taken_back(set: &v1::SetCordon) -> Result<v1::SetCordon, &'static str> {
        Ok(v1::SetCordon {
            node: set.node.clone(),
            ..v1::SetCordon::default()
        })
    }
}
