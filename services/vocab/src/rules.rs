//! Where an allocation may run, and how a node is built inside.

use crate::{NodeCapacity, Token};
use serde::{Deserialize, Serialize};

/// All of them must hold, but for what is preferred. The words are those of Kubernetes, the meaning too unless said.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
#[serde(from = "stored::Rules", into = "stored::Rules")]
pub struct PlacementRules {
    /// Node selector and required node affinity.
    #[wire(1)]
    pub selector: Vec<Requirement>,
    #[wire(2)]
    pub tolerations: Vec<Toleration>,
    /// The group it belongs to, of which other allocations of the tenant can speak.
    #[wire(3)]
    pub group: Option<Token>,
    /// Only in a domain where such a group runs (or would run: the first of its own group may go anywhere).
    #[wire(4)]
    pub affinity: Vec<GroupTerm>,
    /// Only in a domain where no such group runs.
    #[wire(5)]
    pub anti_affinity: Vec<GroupTerm>,
    /// Its own group, spread over the domains of a label.
    #[wire(6)]
    pub spread: Vec<Spread>,
    #[wire(7)]
    pub numa: NumaPolicy,
    /// Nodes that meet all of these go before all others.
    #[wire(8)]
    pub preferred: Vec<Requirement>,
}

impl PlacementRules {
    pub const REQUIREMENTS_MAX: usize = 16;
    pub const PREFERRED_MAX: usize = 8;
    pub const VALUES_MAX: usize = 32;
    pub const TOLERATIONS_MAX: usize = 16;
    pub const TERMS_MAX: usize = 8;
}

/// What a node's label must be like.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Requirement {
    #[wire(1)]
    pub label: Token,
    #[wire(2)]
    pub operator: Operator,
    /// Empty with `Exists` and `Missing`.
    #[wire(3)]
    pub values: Vec<Token>,
}

impl Requirement {
    pub fn is_met_by(&self, capacity: &NodeCapacity) -> bool {
        let value = capacity.label(self.label.as_str());
        let among = |value: &Token| self.values.contains(value);
        match self.operator {
            Operator::In => value.is_some_and(among),
            Operator::NotIn => !value.is_some_and(among),
            Operator::Exists => value.is_some(),
            Operator::Missing => value.is_none(),
        }
    }
}

/// Stable numbers, the same as the contract's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub enum Operator {
    In = 1,
    /// Holds for a node without the label, too.
    NotIn = 2,
    Exists = 3,
    Missing = 4,
}

/// Keeps off whoever does not tolerate it. As text: `{"key": "k", "value": null, "effect": "NoSchedule"}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, wire::Wire)]
pub struct Taint {
    #[wire(1)]
    pub key: Token,
    #[wire(2)]
    pub value: Option<Token>,
    #[wire(3)]
    pub effect: TaintEffect,
}

/// Stable numbers, the same as the contract's.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
pub enum TaintEffect {
    /// Nobody comes who does not tolerate it; what runs already stays.
    #[default]
    NoSchedule = 0,
    /// Who does not tolerate it comes where there is no other room.
    PreferNoSchedule = 1,
    /// Nobody comes who does not tolerate it, and what runs already goes.
    NoExecute = 2,
}

impl TaintEffect {
    /// As Kubernetes writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    /// Whether it rules the node out for those who do not tolerate it.
    pub fn forbids(self) -> bool {
        self != Self::PreferNoSchedule
    }
}

/// As they stand in snapshots, whose bytes have no names: what came later is in a variant that the field before did not have,
/// so that what was written before it is read as it is.
mod stored {
    use super::{GroupTerm, NumaPolicy, Requirement, Spread, TaintEffect, Toleration};
    use crate::Token;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    pub(super) struct Rules {
        selector: Vec<Requirement>,
        tolerations: Vec<Toleration>,
        group: Option<Token>,
        affinity: Vec<GroupTerm>,
        anti_affinity: Vec<GroupTerm>,
        spread: Vec<Spread>,
        rest: RulesRest,
    }

    /// The first three are the policies of NUMA, which came last.
    #[derive(Serialize, Deserialize)]
    enum RulesRest {
        None,
        BestEffort,
        Single,
        Prefers {
            numa: NumaPolicy,
            preferred: Vec<Requirement>,
        },
    }

    impl From<Rules> for super::PlacementRules {
        fn from(stored: Rules) -> Self {
            let (numa, preferred) = match stored.rest {
                RulesRest::None => (NumaPolicy::None, Vec::new()),
                RulesRest::BestEffort => (NumaPolicy::BestEffort, Vec::new()),
                RulesRest::Single => (NumaPolicy::Single, Vec::new()),
                RulesRest::Prefers { numa, preferred } => (numa, preferred),
            };
            Self {
                selector: stored.selector,
                tolerations: stored.tolerations,
                group: stored.group,
                affinity: stored.affinity,
                anti_affinity: stored.anti_affinity,
                spread: stored.spread,
                numa,
                preferred,
            }
        }
    }

    impl From<super::PlacementRules> for Rules {
        fn from(rules: super::PlacementRules) -> Self {
            Self {
                selector: rules.selector,
                tolerations: rules.tolerations,
                group: rules.group,
                affinity: rules.affinity,
                anti_affinity: rules.anti_affinity,
                spread: rules.spread,
                rest: match (rules.numa, rules.preferred) {
                    (numa, preferred) if !preferred.is_empty() => {
                        RulesRest::Prefers { numa, preferred }
                    }
                    (NumaPolicy::None, _) => RulesRest::None,
                    (NumaPolicy::BestEffort, _) => RulesRest::BestEffort,
                    (NumaPolicy::Single, _) => RulesRest::Single,
                },
            }
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Taint {
        key: Token,
        rest: TaintRest,
    }

    #[derive(Serialize, Deserialize)]
    struct TaintText {
        key: Token,
        value: Option<Token>,
        #[serde(default)]
        effect: TaintEffect,
    }

    impl Serialize for super::Taint {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let taint = self.clone();
            if serializer.is_human_readable() {
                let super::Taint { key, value, effect } = taint;
                TaintText { key, value, effect }.serialize(serializer)
            } else {
                Taint::from(taint).serialize(serializer)
            }
        }
    }

    impl<'de> Deserialize<'de> for super::Taint {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            if deserializer.is_human_readable() {
                let TaintText { key, value, effect } = TaintText::deserialize(deserializer)?;
                Ok(Self { key, value, effect })
            } else {
                Taint::deserialize(deserializer).map(Self::from)
            }
        }
    }

    /// The first two are `Option<Token>`, the value, which came last.
    #[derive(Serialize, Deserialize)]
    enum TaintRest {
        Bare,
        Value(Token),
        Effect {
            value: Option<Token>,
            effect: TaintEffect,
        },
    }

    impl From<Taint> for super::Taint {
        fn from(stored: Taint) -> Self {
            let (value, effect) = match stored.rest {
                TaintRest::Bare => (None, TaintEffect::NoSchedule),
                TaintRest::Value(value) => (Some(value), TaintEffect::NoSchedule),
                TaintRest::Effect { value, effect } => (value, effect),
            };
            Self {
                key: stored.key,
                value,
                effect,
            }
        }
    }

    impl From<super::Taint> for Taint {
        fn from(taint: super::Taint) -> Self {
            Self {
                key: taint.key,
                rest: match (taint.value, taint.effect) {
                    (None, TaintEffect::NoSchedule) => TaintRest::Bare,
                    (Some(value), TaintEffect::NoSchedule) => TaintRest::Value(value),
                    (value, effect) => TaintRest::Effect { value, effect },
                },
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::super::{PlacementRules, Taint};
        use super::*;

        fn token(text: &str) -> Token {
            Token::new(text).unwrap()
        }

        fn same<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(
            value: T,
            before: Option<&impl Serialize>,
        ) {
            let bytes = postcard::to_allocvec(&value).unwrap();
            assert_eq!(postcard::from_bytes::<T>(&bytes).unwrap(), value);
            if let Some(before) = before {
                assert_eq!(postcard::to_allocvec(before).unwrap(), bytes);
            }
        }

        #[test]
        fn what_was_written_before_there_were_effects_is_read() {
            for value in [None, Some(token("v"))] {
                let key = token("k");
                let before = (key.clone(), value.clone());
                for effect in TaintEffect::ALL {
                    let taint = Taint {
                        key: key.clone(),
                        value: value.clone(),
                        effect,
                    };
                    same(
                        taint,
                        Some(&before).filter(|_| effect == TaintEffect::NoSchedule),
                    );
                }
            }
        }

        #[test]
        fn a_taint_as_text_may_lack_its_effect() {
            let before = r#"{"key":"k","value":"v"}"#;
            let taint: Taint = serde_json::from_str(before).unwrap();
            assert_eq!(taint.effect, TaintEffect::NoSchedule);
            let text = r#"{"key":"k","value":"v","effect":"NoExecute"}"#;
            let effect = TaintEffect::NoExecute;
            let taint = Taint { effect, ..taint };
            assert_eq!(serde_json::to_string(&taint).unwrap(), text);
            assert_eq!(serde_json::from_str::<Taint>(text).unwrap(), taint);
        }

        #[test]
        fn what_was_written_before_there_were_preferences_is_read() {
            let exists = Requirement {
                label: token("ssd"),
                operator: super::super::Operator::Exists,
                values: Vec::new(),
            };
            for numa in [NumaPolicy::None, NumaPolicy::BestEffort, NumaPolicy::Single] {
                let rules = PlacementRules {
                    selector: vec![exists.clone()],
                    group: Some(token("g")),
                    numa,
                    ..PlacementRules::default()
                };
                let none: [u8; 0] = [];
                let before = (
                    &rules.selector,
                    none.as_slice(),
                    &rules.group,
                    none.as_slice(),
                    none.as_slice(),
                    none.as_slice(),
                    numa,
                );
                same(rules.clone(), Some(&before));
                let preferred = vec![exists.clone()];
                same(PlacementRules { preferred, ..rules }, None::<&u8>);
            }
        }
    }
}

#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Toleration {
    /// None: every taint.
    #[wire(1)]
    pub key: Option<Token>,
    /// None: every value.
    #[wire(2)]
    pub value: Option<Token>,
}

impl Toleration {
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && (self.value.is_none() || self.value == taint.value)
    }
}

/// A group of the same tenant within one domain.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct GroupTerm {
    #[wire(1)]
    pub group: Token,
    /// The label whose values are the domains; none: each node is one.
    #[wire(2)]
    pub topology_key: Option<Token>,
}

/// No domain may have more than `max_skew` members above the domain with the fewest.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Spread {
    /// As in `GroupTerm`.
    #[wire(1)]
    pub topology_key: Option<Token>,
    /// At least 1.
    #[wire(2)]
    pub max_skew: u32,
}

/// Stable numbers, the same as the contract's.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
pub enum NumaPolicy {
    /// Wherever there is room; devices by the fewest free.
    #[default]
    None = 0,
    /// In one zone if one has room, else in zones and devices close to each other.
    BestEffort = 1,
    /// All of it in one zone, or not on this node.
    Single = 2,
}

wire::pair! {
    /// Two devices with a direct link.
    pub DeviceLink { low, high }
}

/// A node's NUMA zones and the direct links between its devices.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Topology {
    /// 1..=8. Their sums are the node's capacity, each device is in one of them.
    #[wire(1)]
    pub zones: Vec<Zone>,
    /// Zone to zone, row by row; 10 is local, as the firmware's table has it.
    #[wire(2)]
    pub distances: Vec<u8>,
    /// Pairs of devices with a direct link, lower index first.
    #[wire(3, with = wire::Pairs<DeviceLink>)]
    pub links: Vec<(u8, u8)>,
}

impl Topology {
    pub const ZONES_MAX: usize = 8;
    pub const LINKS_MAX: usize = 120;
}

#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Zone {
    #[wire(1)]
    pub cpu_milli: u64,
    #[wire(2)]
    pub memory_bytes: u64,
    /// Bit n: device n.
    #[wire(3)]
    pub gpus: u16,
}
