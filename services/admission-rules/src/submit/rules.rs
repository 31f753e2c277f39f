//! Where it may run: terms that can be, in their one form.

use crate::check::{bounded, by_name, in_order, names, optional, token};
use smol_str::SmolStr;
use vocab::{GroupTerm, NumaPolicy, Operator, PlacementRules, Refusal, Requirement, Rule, Spread};
use vocab::{Token, Toleration};
use wire::Open;

/// Placement rules as they were written. Empty names mean none.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "PlacementRules")]
pub struct PlacementRequest {
    #[wire(1)]
    pub selector: Vec<RequirementRequest>,
    #[wire(2)]
    pub tolerations: Vec<TolerationRequest>,
    #[wire(3)]
    pub group: SmolStr,
    #[wire(4)]
    pub affinity: Vec<TermRequest>,
    #[wire(5)]
    pub anti_affinity: Vec<TermRequest>,
    #[wire(6)]
    pub spread: Vec<SpreadRequest>,
    #[wire(7)]
    pub numa: Open<NumaPolicy>,
    #[wire(8)]
    pub preferred: Vec<RequirementRequest>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "Requirement")]
pub struct RequirementRequest {
    #[wire(1)]
    pub label: SmolStr,
    #[wire(2)]
    pub operator: Open<Operator>,
    #[wire(3)]
    pub values: Vec<SmolStr>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "Toleration")]
pub struct TolerationRequest {
    #[wire(1)]
    pub key: SmolStr,
    #[wire(2)]
    pub value: SmolStr,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "GroupTerm")]
pub struct TermRequest {
    #[wire(1)]
    pub group: SmolStr,
    #[wire(2)]
    pub topology_key: SmolStr,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "Spread")]
pub struct SpreadRequest {
    #[wire(1)]
    pub topology_key: SmolStr,
    #[wire(2)]
    pub max_skew: u32,
}

fn invalid(field: &str) -> Refusal {
    Refusal::new(Rule::PlacementRuleInvalid, field)
}

impl PlacementRequest {
    /// None when they rule out nothing and say nothing.
    pub(super) fn check(&self) -> Result<Option<Box<PlacementRules>>, Refusal> {
        let rules = PlacementRules {
            selector: requirements(&self.selector, "rules.selector")?,
            tolerations: self.tolerations()?,
            group: optional(&self.group, "rules.group")?,
            affinity: terms(&self.affinity, "rules.affinity")?,
            anti_affinity: terms(&self.anti_affinity, "rules.anti_affinity")?,
            spread: self.spread()?,
            numa: self.numa.known().ok_or_else(|| invalid("rules.numa"))?,
            preferred: self.preferred()?,
        };
        // Near a group and apart from it in the same domain is nowhere.
        if rules
            .anti_affinity
            .iter()
            .any(|term| rules.affinity.contains(term))
        {
            return Err(invalid("rules.anti_affinity"));
        }
        // What is spread is the own group.
        if !rules.spread.is_empty() && rules.group.is_none() {
            return Err(invalid("rules.group"));
        }
        Ok((rules != PlacementRules::default()).then(|| Box::new(rules)))
    }

    fn preferred(&self) -> Result<Vec<Requirement>, Refusal> {
        let field = "rules.preferred";
        bounded(&self.preferred, PlacementRules::PREFERRED_MAX, field)?;
        requirements(&self.preferred, field)
    }

    fn tolerations(&self) -> Result<Vec<Toleration>, Refusal> {
        let field = "rules.tolerations";
        bounded(&self.tolerations, PlacementRules::TOLERATIONS_MAX, field)?;
        let toleration = |written: &TolerationRequest| {
            let key = optional(&written.key, field)?;
            let value = optional(&written.value, field)?;
            if key.is_none() && value.is_some() {
                return Err(invalid(field));
            }
            Ok(Toleration { key, value })
        };
        let found: Result<Vec<_>, _> = self.tolerations.iter().map(toleration).collect();
        found.map(in_order)
    }

    fn spread(&self) -> Result<Vec<Spread>, Refusal> {
        let field = "rules.spread";
        bounded(&self.spread, PlacementRules::TERMS_MAX, field)?;
        let spread = |written: &SpreadRequest| match written.max_skew {
            0 => Err(invalid(field)),
            max_skew => Ok((optional(&written.topology_key, field)?, max_skew)),
        };
        let found: Result<Vec<(Option<Token>, u32)>, _> = self.spread.iter().map(spread).collect();
        let found = by_name(found?, field)?.into_iter();
        Ok(found
            .map(|(topology_key, max_skew)| Spread {
                topology_key,
                max_skew,
            })
            .collect())
    }
}

/// A selector of nodes, of an allocation or of a reservation.
pub fn requirements(
    written: &[RequirementRequest],
    field: &str,
) -> Result<Vec<Requirement>, Refusal> {
    bounded(written, PlacementRules::REQUIREMENTS_MAX, field)?;
    let requirement = |one: &RequirementRequest| {
        let label = token(&one.label, field)?;
        let operator = one.operator.known().ok_or_else(|| invalid(field))?;
        let values = names(&one.values, PlacementRules::VALUES_MAX, field)?;
        let fits = match operator {
            Operator::In | Operator::NotIn => !values.is_empty(),
            Operator::Exists | Operator::Missing => values.is_empty(),
        };
        if !fits {
            return Err(invalid(field));
        }
        Ok(Requirement {
            label,
            operator,
            values,
        })
    };
    let found: Result<Vec<_>, _> = written.iter().map(requirement).collect();
    found.map(in_order)
}

fn terms(written: &[TermRequest], field: &str) -> Result<Vec<GroupTerm>, Refusal> {
    bounded(written, PlacementRules::TERMS_MAX, field)?;
    let term = |one: &TermRequest| {
        Ok(GroupTerm {
            group: token(&one.group, field)?,
            topology_key: optional(&one.topology_key, field)?,
        })
    };
    let found: Result<Vec<_>, _> = written.iter().map(term).collect();
    found.map(in_order)
}

impl From<&Requirement> for RequirementRequest {
    fn from(requirement: &Requirement) -> Self {
        Self {
            label: requirement.label.as_str().into(),
            operator: Open::Known(requirement.operator),
            values: requirement
                .values
                .iter()
                .map(|value| value.as_str().into())
                .collect(),
        }
    }
}
