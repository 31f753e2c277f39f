//! `kind: Taints`: all that an operator gave to one node.

use super::{
    fields::{Fields, Wrong, needed},
    kind::Manifest,
};
use crate::operate::{taint, taint_text};
use schemas::v1;
use serde::{Deserialize, Serialize};
use vocab::Token;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taints {
    node: Token,
    /// As in `apportion taint`: KEY=VALUE:EFFECT.
    taints: Vec<String>,
}

impl Manifest for Taints {
    type Message = v1::SetTaints;
    const NAMED_BY: &'static [&'static str] = &["node"];

    fn key(fields: &Fields, _: i64) -> Result<String, Wrong> {
        Ok(needed::<Token>(fields, "node")?.to_string())
    }

    fn of(set: &v1::SetTaints) -> Result<Self, Wrong> {
        let taints = set.taints.iter().map(taint_text);
        let mut taints: Vec<_> = taints
            .collect::<Result<_, _>>()
            .map_err(Wrong::at("taints"))?;
        taints.sort();
        Ok(Self {
            node: Token::new(&set.node)?,
            taints,
        })
    }

    fn message(self) -> Result<v1::SetTaints, Wrong> {
        let taints = self.taints.iter().map(|text| taint(text));
        Ok(v1::SetTaints {
            node: self.node.into(),
            taints: taints
                .collect::<Result<_, _>>()
                .map_err(Wrong::at("taints"))?,
            expected_version: None,
        })
    }

    fn is_absent(set: &v1::SetTaints) -> bool {
        set.taints.is_empty()
    }

    fn taken_back(set: &v1::SetTaints) -> Result<v1::SetTaints, &'static str> {
        Ok(v1::SetTaints {
            node: set.node.clone(),
            ..v1::SetTaints::default()
        })
    }
}
