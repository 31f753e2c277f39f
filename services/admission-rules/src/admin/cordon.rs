//! What an operator says of a node: cordon, drain, taints.

use crate::check::{bounded, in_order, optional, token};
use smol_str::SmolStr;
use vocab::fact::{CordonSet, TaintsSet};
use vocab::{NodeCapacity, Refusal, Rule, Taint, TaintEffect};
use wire::Open;

/// A cordon as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "SetCordon")]
pub struct CordonRequest {
    #[wire(1)]
    pub node: String,
    #[wire(2)]
    pub cordoned: bool,
    #[wire(3, optional)]
    pub expected_version: Option<u64>,
    #[wire(4)]
    pub drain: bool,
    #[wire(5)]
    pub at_once: u32,
}

impl CordonRequest {
    pub(super) fn read(&self) -> Result<CordonSet, Refusal> {
        let node = token(&self.node, "node")?;
        // What is told to go would come back.
        if self.drain && !self.cordoned {
            return Err(Refusal::new(Rule::SettingInvalid, "drain"));
        }
        if self.at_once > 0 && !self.drain {
            return Err(Refusal::new(Rule::SettingInvalid, "at_once"));
        }
        Ok(CordonSet {
            node,
            cordoned: self.cordoned,
            drain: self.drain,
            at_once: self.at_once,
        })
    }
}

/// The taints of a node as they were written.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "SetTaints")]
pub struct TaintsRequest {
    #[wire(1)]
    pub node: String,
    #[wire(2)]
    pub taints: Vec<TaintRequest>,
    #[wire(3, optional)]
    pub expected_version: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "Taint")]
pub struct TaintRequest {
    #[wire(1)]
    pub key: SmolStr,
    #[wire(2)]
    pub value: SmolStr,
    #[wire(3)]
    pub effect: Open<TaintEffect>,
}

impl TaintsRequest {
    pub(super) fn read(&self) -> Result<TaintsSet, Refusal> {
        let field = "taints";
        let invalid = || Refusal::new(Rule::SettingInvalid, field);
        bounded(&self.taints, NodeCapacity::TAINTS_MAX, field)?;
        let taint = |written: &TaintRequest| {
            Ok(Taint {
                key: token(&written.key, field)?,
                value: optional(&written.value, field)?,
                effect: written.effect.known().ok_or_else(invalid)?,
            })
        };
        let taints: Result<Vec<_>, _> = self.taints.iter().map(taint).collect();
        let taints = in_order(taints?);
        let same = |one: &Taint, other: &Taint| one.key == other.key && one.effect == other.effect;
        let twice = |(at, one): (usize, &Taint)| taints[at + 1..].iter().any(|it| same(one, it));
        if taints.iter().enumerate().any(twice) {
            return Err(invalid());
        }
        Ok(TaintsSet {
            node: token(&self.node, "node")?,
            taints,
        })
    }
}

impl From<&CordonSet> for CordonRequest {
    fn from(set: &CordonSet) -> Self {
        Self {
            node: set.node.to_string(),
            cordoned: set.cordoned,
            expected_version: None,
            drain: set.drain,
            at_once: set.at_once,
        }
    }
}

impl From<&TaintsSet> for TaintsRequest {
    fn from(set: &TaintsSet) -> Self {
        let taint = |taint: &Taint| TaintRequest {
            key: taint.key.as_str().into(),
            value: taint
                .value
                .as_ref()
                .map_or("", |value| value.as_str())
                .into(),
            effect: Open::Known(taint.effect),
        };
        Self {
            node: set.node.to_string(),
            taints: set.taints.iter().map(taint).collect(),
            expected_version: None,
        }
    }
}
