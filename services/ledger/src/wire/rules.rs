//! Where an allocation may run.

use super::{WireError, find, numa_from_number, optional_token, text, texts, token, tokens};
use schemas::v1;
use vocab::{GroupTerm, Operator, PlacementRules, Requirement, Spread, Toleration};

pub(super) fn requirements_to_proto(requirements: &[Requirement]) -> Vec<v1::Requirement> {
    let requirement = |wanted: &Requirement| v1::Requirement {
        label: wanted.label.to_string(),
        operator: wanted.operator as i32,
        values: texts(&wanted.values),
    };
    requirements.iter().map(requirement).collect()
}

pub(super) fn requirements_from_proto(
    requirements: &[v1::Requirement],
) -> Result<Vec<Requirement>, WireError> {
    let requirement = |given: &v1::Requirement| {
        Ok(Requirement {
            label: token(&given.label, "selector.label")?,
            operator: find(
                &Operator::ALL,
                given.operator,
                |operator| operator as i32,
                "selector.operator",
            )?,
            values: tokens(&given.values, "selector.values")?,
        })
    };
    requirements.iter().map(requirement).collect()
}

fn terms_to_proto(terms: &[GroupTerm]) -> Vec<v1::GroupTerm> {
    let term = |term: &GroupTerm| v1::GroupTerm {
        group: term.group.to_string(),
        domain: text(&term.domain),
    };
    terms.iter().map(term).collect()
}

fn terms_from_proto(
    terms: &[v1::GroupTerm],
    field: &'static str,
) -> Result<Vec<GroupTerm>, WireError> {
    let term = |given: &v1::GroupTerm| {
        Ok(GroupTerm {
            group: token(&given.group, field)?,
            domain: optional_token(&given.domain, field)?,
        })
    };
    terms.iter().map(term).collect()
}

pub(super) fn rules_to_proto(rules: &PlacementRules) -> v1::PlacementRules {
    let toleration = |toleration: &Toleration| v1::Toleration {
        key: text(&toleration.key),
        value: text(&toleration.value),
    };
    let spread = |spread: &Spread| v1::Spread {
        domain: text(&spread.domain),
        skew_max: spread.skew_max,
    };
    v1::PlacementRules {
        selector: requirements_to_proto(&rules.selector),
        tolerations: rules.tolerations.iter().map(toleration).collect(),
        group: text(&rules.group),
        near: terms_to_proto(&rules.near),
        apart: terms_to_proto(&rules.apart),
        spread: rules.spread.iter().map(spread).collect(),
        numa: rules.numa as i32,
    }
}

pub(super) fn rules_from_proto(rules: &v1::PlacementRules) -> Result<PlacementRules, WireError> {
    let toleration = |given: &v1::Toleration| {
        Ok(Toleration {
            key: optional_token(&given.key, "tolerations.key")?,
            value: optional_token(&given.value, "tolerations.value")?,
        })
    };
    let spread = |given: &v1::Spread| {
        Ok(Spread {
            domain: optional_token(&given.domain, "spread.domain")?,
            skew_max: given.skew_max,
        })
    };
    Ok(PlacementRules {
        selector: requirements_from_proto(&rules.selector)?,
        tolerations: rules
            .tolerations
            .iter()
            .map(toleration)
            .collect::<Result<_, _>>()?,
        group: optional_token(&rules.group, "rules.group")?,
        near: terms_from_proto(&rules.near, "rules.near")?,
        apart: terms_from_proto(&rules.apart, "rules.apart")?,
        spread: rules.spread.iter().map(spread).collect::<Result<_, _>>()?,
        numa: numa_from_number(rules.numa)?,
    })
}
