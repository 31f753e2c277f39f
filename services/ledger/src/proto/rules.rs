//! Where an allocation may run.

use super::{text, texts};
use schemas::v1;
use vocab::{GroupTerm, PlacementRules, Requirement, Spread, Toleration};

pub(super) fn requirements_to_proto(requirements: &[Requirement]) -> Vec<v1::Requirement> {
    let requirement = |wanted: &Requirement| v1::Requirement {
        label: wanted.label.to_string(),
        operator: wanted.operator as i32,
        values: texts(&wanted.values),
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
