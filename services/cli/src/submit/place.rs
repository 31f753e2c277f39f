//! Where it may run, as flags.

use clap::Args;
use schemas::v1::{self, NumaPolicy, Operator};

#[derive(Debug, Clone, Args)]
pub struct Place {
    /// What the node's labels must be like: KEY=V1,V2 KEY!=V1,V2 KEY !KEY; may be repeated, and all must hold.
    #[arg(long = "node-label", value_name = "SELECTOR", value_parser = requirement)]
    selector: Vec<v1::Requirement>,
    /// The nodes that it would rather go to, as in --node-label; may be repeated. Those that meet all of them go first.
    #[arg(long = "prefer-node-label", value_name = "SELECTOR", value_parser = requirement)]
    preferred: Vec<v1::Requirement>,
    /// A taint that does not keep it off; `any` is every taint. May be repeated.
    #[arg(long = "tolerate", value_name = "KEY[=VALUE]", value_parser = toleration)]
    tolerations: Vec<v1::Toleration>,
    /// The group that it belongs to, of which the next flags can speak.
    #[arg(long, default_value = "")]
    group: String,
    /// Only where this group runs: on its nodes, or in its domains of a label. May be repeated.
    #[arg(long, value_name = "GROUP[:LABEL]", value_parser = term)]
    affinity: Vec<v1::GroupTerm>,
    /// Only where this group does not run. May be repeated.
    #[arg(long, value_name = "GROUP[:LABEL]", value_parser = term)]
    anti_affinity: Vec<v1::GroupTerm>,
    /// Its own group in no domain more than SKEW above the least; without a label over the nodes. May be repeated.
    #[arg(long, value_name = "[LABEL:]SKEW", value_parser = spread)]
    spread: Vec<v1::Spread>,
    /// none, best-effort (close together if it can be), or single (in one NUMA zone).
    #[arg(long, default_value = "none", value_parser = numa)]
    numa: NumaPolicy,
}

impl Place {
    pub fn rules(self) -> Option<v1::PlacementRules> {
        let rules = v1::PlacementRules {
            selector: self.selector,
            tolerations: self.tolerations,
            group: self.group,
            affinity: self.affinity,
            anti_affinity: self.anti_affinity,
            spread: self.spread,
            numa: self.numa.into(),
            preferred: self.preferred,
        };
        (rules != v1::PlacementRules::default()).then_some(rules)
    }
}

/// One condition on a label. The inbox checks the names.
pub fn requirement(text: &str) -> Result<v1::Requirement, String> {
    let values = |text: &str| text.split(',').map(str::to_owned).collect();
    let (label, operator, values) = if let Some((label, list)) = text.split_once("!=") {
        (label, Operator::NotIn, values(list))
    } else if let Some((label, list)) = text.split_once('=') {
        (label, Operator::In, values(list))
    } else if let Some(label) = text.strip_prefix('!') {
        (label, Operator::Missing, Vec::new())
    } else {
        (text, Operator::Exists, Vec::new())
    };
    if label.is_empty() {
        return Err(format!("{text}: write KEY=VALUE, KEY!=VALUE, KEY or !KEY"));
    }
    Ok(v1::Requirement {
        label: label.to_owned(),
        operator: operator.into(),
        values,
    })
}

/// What `requirement` reads as that.
pub fn requirement_text(of: &v1::Requirement) -> String {
    let (label, values) = (&of.label, of.values.join(","));
    match of.operator() {
        Operator::In => format!("{label}={values}"),
        Operator::NotIn => format!("{label}!={values}"),
        Operator::Missing | Operator::Unspecified => format!("!{label}"),
        Operator::Exists => label.clone(),
    }
}

/// What `toleration` reads as that, and so on.
pub fn toleration_text(of: &v1::Toleration) -> String {
    match (of.key.as_str(), of.value.as_str()) {
        ("", _) => "any".to_owned(),
        // With this name a taint, and not every one.
        ("any", "") => "any=".to_owned(),
        (key, "") => key.to_owned(),
        (key, value) => format!("{key}={value}"),
    }
}

pub fn term_text(of: &v1::GroupTerm) -> String {
    match (of.group.as_str(), of.topology_key.as_str()) {
        (group, "") => group.to_owned(),
        (group, label) => format!("{group}:{label}"),
    }
}

pub fn spread_text(of: &v1::Spread) -> String {
    match (of.topology_key.as_str(), of.max_skew) {
        ("", skew) => skew.to_string(),
        (label, skew) => format!("{label}:{skew}"),
    }
}

/// Empty where nothing is said.
pub fn numa_text(of: NumaPolicy) -> &'static str {
    match of {
        NumaPolicy::None => "",
        NumaPolicy::BestEffort => "best-effort",
        NumaPolicy::Single => "single",
    }
}

fn toleration(text: &str) -> Result<v1::Toleration, String> {
    if text == "any" {
        return Ok(v1::Toleration::default());
    }
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if key.is_empty() {
        return Err(format!("{text}: write KEY, KEY=VALUE or any"));
    }
    Ok(v1::Toleration {
        key: key.to_owned(),
        value: value.to_owned(),
    })
}

fn term(text: &str) -> Result<v1::GroupTerm, String> {
    let (group, domain) = text.split_once(':').unwrap_or((text, ""));
    if group.is_empty() {
        return Err(format!("{text}: write GROUP or GROUP:LABEL"));
    }
    Ok(v1::GroupTerm {
        group: group.to_owned(),
        topology_key: domain.to_owned(),
    })
}

fn spread(text: &str) -> Result<v1::Spread, String> {
    let (domain, skew) = text.split_once(':').unwrap_or(("", text));
    let max_skew = skew
        .parse()
        .map_err(|_| format!("{text}: write SKEW or LABEL:SKEW"))?;
    Ok(v1::Spread {
        topology_key: domain.to_owned(),
        max_skew,
    })
}

fn numa(text: &str) -> Result<NumaPolicy, String> {
    match text {
        "none" => Ok(NumaPolicy::None),
        "best-effort" => Ok(NumaPolicy::BestEffort),
        "single" => Ok(NumaPolicy::Single),
        _ => Err(format!("{text}: write none, best-effort or single")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_as_they_are_written_elsewhere() {
        let check = |text: &str, label: &str, operator, values: &[&str]| {
            let found = requirement(text).unwrap();
            assert_eq!((found.label.as_str(), found.operator()), (label, operator));
            assert_eq!(found.values, values, "{text}");
            assert_eq!(requirement_text(&found), text);
        };
        check("zone=z1", "zone", Operator::In, &["z1"]);
        check("zone=z1,z2", "zone", Operator::In, &["z1", "z2"]);
        check("zone!=z1", "zone", Operator::NotIn, &["z1"]);
        check("zone", "zone", Operator::Exists, &[]);
        check("!zone", "zone", Operator::Missing, &[]);
        for bad in ["", "=z1", "!=z1", "!"] {
            assert!(requirement(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn terms_name_their_domain_or_mean_nodes() {
        let found = term("workers:rack").unwrap();
        assert_eq!(
            (found.group.as_str(), found.topology_key.as_str()),
            ("workers", "rack")
        );
        assert_eq!(term("workers").unwrap().topology_key, "");
        let found = spread("zone:2").unwrap();
        assert_eq!((found.topology_key.as_str(), found.max_skew), ("zone", 2));
        assert_eq!(spread("1").unwrap().topology_key, "");
        assert_eq!(toleration("any"), Ok(v1::Toleration::default()));
        assert_eq!(toleration("k=v").unwrap().value, "v");
        let called_any = toleration("any=").unwrap();
        assert_eq!(
            (called_any.key.as_str(), called_any.value.as_str()),
            ("any", "")
        );
        assert_eq!(toleration_text(&called_any), "any=");
        for bad in ["", ":rack"] {
            assert!(term(bad).is_err(), "{bad}");
        }
        for bad in ["", "zone", "zone:", "zone:-1"] {
            assert!(spread(bad).is_err(), "{bad}");
        }
        assert!(toleration("=v").is_err());
        assert!(numa("both").is_err());
    }
}
