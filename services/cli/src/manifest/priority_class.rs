//! `kind: PriorityClass`

use super::{
    fields::{Fields, Wrong, needed},
    kind::Manifest,
    units::{Small, Span, Word},
};
use schemas::v1;
use serde::{Deserialize, Serialize};
use vocab::{PlacementPolicy, Token};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorityClass {
    class: Token,
    value: Small,
    preemptible: Option<bool>,
    preempts: Option<bool>,
    grace: Option<Span>,
    placement: Option<Word<PlacementPolicy>>,
    /// No allocation is accepted with it.
    closed: Option<bool>,
}

impl Manifest for PriorityClass {
    type Message = v1::SetPriorityClass;
    const NAMED_BY: &'static [&'static str] = &["class"];

    fn key(fields: &Fields, _: i64) -> Result<String, Wrong> {
        Ok(needed::<Token>(fields, "class")?.to_string())
    }

    fn of(set: &v1::SetPriorityClass) -> Result<Self, Wrong> {
        let placement = set.placement.map(Word::of).transpose();
        Ok(Self {
            class: Token::new(&set.priority_class)?,
            value: Small(set.value),
            preemptible: Some(set.preemptible),
            preempts: Some(set.preempts),
            grace: Some(Span(set.grace_ms)),
            placement: placement.map_err(Wrong::at("placement"))?,
            closed: Some(set.closed),
        })
    }

    fn message(self) -> Result<v1::SetPriorityClass, Wrong> {
        Ok(v1::SetPriorityClass {
            priority_class: self.class.into(),
            value: self.value.0,
            preemptible: self.preemptible.unwrap_or(false),
            preempts: self.preempts.unwrap_or(false),
            grace_ms: self.grace.map_or(0, |grace| grace.0),
            placement: self.placement.map(Word::number),
            closed: self.closed.unwrap_or(false),
            expected_version: None,
        })
    }

    /// The ledger names it for ever, so it is closed.
    fn taken_back(set: &v1::SetPriorityClass) -> Result<v1::SetPriorityClass, &'static str> {
        let closed = true;
        Ok(v1::SetPriorityClass {
            closed,
            ..set.clone()
        })
    }
}
