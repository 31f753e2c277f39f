//! The taints that an operator gives to a node.

use super::{
    Expected,
    patch::{Attempt, insist},
    told,
};
use crate::{
    Failure,
    context::Context,
    nodes,
    print::{Page, Sheet, column, plain},
};
use clap::Args;
use client::{Client, NodeView};
use schemas::v1;
use vocab::TaintEffect;

/// Give taints to a node, or take them from it; without any, show them. Taints that a node says of itself stay.
#[derive(Args)]
pub struct Taint {
    /// The node's name.
    node: String,
    /// KEY[=VALUE]:EFFECT gives it one, KEY[:EFFECT]- takes it away. NoSchedule: nobody comes who does not tolerate it;
    /// PreferNoSchedule: only where there is no other room; NoExecute: and what runs there goes.
    #[arg(value_name = "TAINT", value_parser = change)]
    changes: Vec<Change>,
    /// Also of a node that the cell does not know: it has them when it comes.
    #[arg(long)]
    unknown: bool,
    #[command(flatten)]
    expected: Expected,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Give {
        key: String,
        value: String,
        effect: TaintEffect,
    },
    /// None: whatever its effect.
    Take {
        key: String,
        effect: Option<TaintEffect>,
    },
}

fn change(text: &str) -> Result<Change, String> {
    let wrong = || {
        let effects = TaintEffect::ALL.map(TaintEffect::name).join(", ");
        format!(
            "{text}: write KEY[=VALUE]:EFFECT or KEY[:EFFECT]-, the effect being one of {effects}"
        )
    };
    let effect = |text: &str| {
        let found = TaintEffect::ALL.into_iter().find(|it| it.name() == text);
        found.ok_or_else(wrong)
    };
    let found = match text.strip_suffix('-') {
        Some(rest) => match rest.split_once(':') {
            Some((key, name)) => Change::Take {
                key: key.to_owned(),
                effect: Some(effect(name)?),
            },
            None => Change::Take {
                key: rest.to_owned(),
                effect: None,
            },
        },
        None => {
            let (taint, name) = text.split_once(':').ok_or_else(wrong)?;
            let (key, value) = taint.split_once('=').unwrap_or((taint, ""));
            Change::Give {
                key: key.to_owned(),
                value: value.to_owned(),
                effect: effect(name)?,
            }
        }
    };
    match &found {
        Change::Give { key, .. } | Change::Take { key, .. } if key.is_empty() => Err(wrong()),
        _ => Ok(found),
    }
}

impl Change {
    fn apply(&self, taints: &mut Vec<v1::Taint>) {
        match self {
            Self::Give { key, value, effect } => {
                let effect = *effect as i32;
                taints.retain(|it| it.key != *key || it.effect != effect);
                taints.push(v1::Taint {
                    key: key.clone(),
                    value: value.clone(),
                    effect,
                });
            }
            Self::Take { key, effect } => taints.retain(|it| {
                it.key != *key || effect.is_some_and(|effect| effect as i32 != it.effect)
            }),
        }
    }
}

/// KEY[=VALUE]:EFFECT.
pub fn taint(text: &str) -> Result<v1::Taint, String> {
    match change(text)? {
        Change::Give { key, value, effect } => Ok(v1::Taint {
            key,
            value,
            effect: effect as i32,
        }),
        Change::Take { .. } => Err(format!(
            "{text}: write KEY[=VALUE]:EFFECT, without a - behind it"
        )),
    }
}

/// What `taint` reads as that.
pub fn taint_text(taint: &v1::Taint) -> Result<String, String> {
    let effect = TaintEffect::ALL
        .into_iter()
        .find(|it| *it as i32 == taint.effect);
    let effect = effect.ok_or_else(|| format!("{}: no effect that is known", taint.effect))?;
    let value = match taint.value.as_str() {
        "" => String::new(),
        value => format!("={value}"),
    };
    Ok(format!("{}{value}:{}", taint.key, effect.name()))
}

impl Taint {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let sending = &self.expected.sending;
        let operator = sending.operator(context).await?;
        if !self.unknown {
            nodes::check_known(&operator, &self.node).await?;
        }
        if self.changes.is_empty() {
            let (known, lsn) = self.known(&operator).await?;
            let texts = known.taints.iter().map(taint_text);
            let rows = texts.map(|text| Ok(vec![plain(text?)]));
            let rows = rows.collect::<Result<_, String>>()?;
            let sheet = Sheet::new(vec![column("taint", "taint")], 1, rows);
            return Page::of(sheet, lsn, "no taints").print(self.expected.output);
        }
        let expected = &self.expected;
        let applied = insist(async || {
            let (known, _) = self.known(&operator).await?;
            if expected.is_ahead_of(known.taints_version) {
                return Ok(Attempt::Stale(expected.ahead()));
            }
            let done = operator.set_taints(self.request(&known), sending.id());
            expected.attempted(done.await, true)
        })
        .await?;
        told(&format!("taint {}", self.node), &applied, expected.output)
    }

    async fn known(&self, operator: &Client) -> Result<(NodeView, u64), Failure> {
        let known = nodes::said_of(operator, &self.node).await?;
        Ok(known.unwrap_or_default())
    }

    /// The taints that are known, with the change.
    fn request(&self, known: &NodeView) -> v1::SetTaints {
        let mut taints = known.taints.clone();
        for change in &self.changes {
            change.apply(&mut taints);
        }
        let expected = self.expected.expected_version;
        v1::SetTaints {
            node: self.node.clone(),
            taints,
            expected_version: Some(expected.unwrap_or(known.taints_version)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_are_written_as_elsewhere() {
        let give = |text: &str, key: &str, value: &str, effect| {
            let expected = Change::Give {
                key: key.into(),
                value: value.into(),
                effect,
            };
            assert_eq!(change(text), Ok(expected));
        };
        give("k:NoSchedule", "k", "", TaintEffect::NoSchedule);
        give("k=v:NoExecute", "k", "v", TaintEffect::NoExecute);
        let take = |text: &str, effect| {
            let key = "k".to_owned();
            assert_eq!(change(text), Ok(Change::Take { key, effect }));
        };
        take("k-", None);
        take("k:PreferNoSchedule-", Some(TaintEffect::PreferNoSchedule));
        for bad in [
            "",
            "-",
            ":NoExecute",
            "k",
            "k:noexecute",
            "k:-",
            "=v:NoExecute",
        ] {
            assert!(change(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let mut taints = Vec::new();
        for text in [
            "a=1:NoSchedule",
            "a=2:NoSchedule",
            "a:NoExecute",
            "b:NoExecute",
        ] {
            change(text).unwrap().apply(&mut taints);
        }
        let kept = |taints: &[v1::Taint]| -> Vec<String> {
            let text = |it: &v1::Taint| format!("{}={}:{}", it.key, it.value, it.effect);
            taints.iter().map(text).collect()
        };
        assert_eq!(kept(&taints), ["a=2:0", "a=:2", "b=:2"]);
        change("a:NoExecute-").unwrap().apply(&mut taints);
        assert_eq!(kept(&taints), ["a=2:0", "b=:2"]);
        change("a-").unwrap().apply(&mut taints);
        assert_eq!(kept(&taints), ["b=:2"]);
    }
}
