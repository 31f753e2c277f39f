//! Settings that flags change: what no flag names stays as it is, as with `apply`.

use super::{Expected, told};
use crate::{
    Failure, apply,
    context::Context,
    look::look_again,
    manifest::{self, Fields, Kind, Send, Setting, Standing},
    settings,
};
use clap::Args;
use client::{Client, Failed};
use schemas::v1::{self, setting_view::Change};
use serde_json::Value;

/// How much of a setting is changed.
#[derive(Args)]
pub struct Patch {
    /// Set all of it: what is not given goes back to its default. Without this flag, it stays as it is.
    #[arg(long)]
    replace: bool,
    /// Give a field back its default, by its name in `settings get`; may be repeated.
    #[arg(long, value_name = "FIELD", conflicts_with = "replace")]
    clear: Vec<String>,
    #[command(flatten)]
    pub expected: Expected,
}

/// The flags of one setting.
pub trait Flags: Sized {
    /// For people.
    fn title(&self) -> String;

    /// What would set all of it, with defaults for what is not given.
    fn whole(&self) -> Result<Change, String>;

    /// The fields that are given, by the names that files have for them; those that it is named by need not be among them.
    fn given(&self) -> Vec<&'static str>;

    fn patch(&self) -> &Patch;

    /// What would be sent where these settings stand.
    fn over(&self, standing: &Standing, now_ms: i64) -> Result<Change, Failure> {
        let (patch, whole) = (self.patch(), self.whole().map_err(Failure::usage)?);
        if patch.replace {
            return Ok(whole);
        }
        let (kind, said) = said(&whole, &self.given(), &patch.clear)?;
        let send = manifest::patched(kind, &said, standing, now_ms);
        let Send {
            change, version, ..
        } = send.map_err(|wrong| Failure::usage(wrong.to_string()))?;
        let expected = patch.expected.expected_version.unwrap_or(version);
        Ok(manifest::expecting(change, expected))
    }

    async fn run(self, context: &Context) -> Result<(), Failure> {
        let sending = &self.patch().expected.sending;
        let operator = sending.operator(context).await?;
        let now_ms = context.clock().now_ms();
        let mut stale = None;
        // What was read may be a moment old: it is changed only if it is still so, and otherwise looked at again.
        let applied = look_again::<_, Failure>(async || {
            let change = self.over(&self.standing(&operator, now_ms).await?, now_ms)?;
            match apply::set(&operator, change, sending.id()).await {
                Ok(applied) => Ok(Some(applied)),
                Err(Failed::Refused(refused)) if self.is_stale(&refused) => {
                    stale = Some(refused);
                    Ok(None)
                }
                Err(other) => Err(other.into()),
            }
        })
        .await?;
        match (applied, stale) {
            (Some(applied), _) => told(&self.title(), applied),
            (None, Some(refused)) => Err(Failed::Refused(refused).into()),
            (None, None) => Ok(()),
        }
    }

    /// Of its kind and its name.
    async fn standing(&self, operator: &Client, now_ms: i64) -> Result<Standing, Failure> {
        if self.patch().replace {
            return Ok(Standing::default());
        }
        let whole = self.whole().map_err(Failure::usage)?;
        let kind = kind(&whole)?;
        let key = Setting(&whole).key(now_ms).map_err(|wrong| wrong.why)?;
        let name = key.split(' ').next().unwrap_or_default();
        let views = settings::views(operator, kind.setting(), name).await?;
        Ok(Standing::of(&views, now_ms).map_err(|wrong| wrong.why)?)
    }

    /// Somebody else changed it after it was read, and nobody asked for this version or this operation.
    fn is_stale(&self, refused: &v1::Refused) -> bool {
        let rule = refused.refusal.as_ref().map(v1::Refusal::rule);
        let Patch {
            replace, expected, ..
        } = self.patch();
        let is_free = expected.expected_version.is_none() && !expected.sending.is_repeated();
        !replace && is_free && rule == Some(v1::Rule::VersionConflict)
    }
}

/// Those of the names that are true.
pub fn names<const N: usize>(all: [(&'static str, bool); N]) -> Vec<&'static str> {
    let given = all.into_iter().filter(|(_, is_given)| *is_given);
    given.map(|(name, _)| name).collect()
}

fn kind(change: &Change) -> Result<Kind, Failure> {
    let kind = Kind::of(change);
    kind.ok_or_else(|| "it is no setting that can be changed in part".into())
}

/// As a file would say it.
fn said(whole: &Change, given: &[&str], clear: &[String]) -> Result<(Kind, Fields), Failure> {
    let kind = kind(whole)?;
    let (fields, named_by) = (kind.field_names(), kind.named_by());
    let mut said = Setting(whole).fields().map_err(|wrong| wrong.why)?;
    said.retain(|name, _| given.contains(&name.as_str()) || named_by.contains(&name.as_str()));
    for value in said.values_mut() {
        // Of several amounts in one field, those that are given.
        if let Value::Object(below) = value {
            below.retain(|_, value| !value.is_null());
        }
    }
    for name in clear {
        let field = name.replace('-', "_");
        if given.contains(&field.as_str()) {
            return Err(Failure::usage(format!("{name}: it is given and cleared")));
        }
        let mut known = fields.iter().filter(|name| !named_by.contains(name));
        if !known.any(|known| *known == field) {
            let known = fields.iter().filter(|name| !named_by.contains(name));
            let known: Vec<_> = known.copied().collect();
            let known = known.join(", ");
            return Err(Failure::usage(format!("{name}: fields are {known}")));
        }
        said.insert(field, Value::Null);
    }
    Ok((kind, said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::{Policy, PriorityClass, QueueSet, QuotaSet, Tenant};
    use clap::{FromArgMatches, Parser};
    use schemas::v1::SettingView;
    use std::collections::BTreeMap;

    const NOW_MS: i64 = 1_000_000;

    /// What a command line would send where this stands.
    fn sent<T: Args + FromArgMatches + Flags>(
        stands: Option<Change>,
        line: &str,
    ) -> Result<Change, String> {
        #[derive(Parser)]
        struct Line<T: Args> {
            #[command(flatten)]
            one: T,
        }
        let words = ["test"].into_iter().chain(line.split_whitespace());
        let flags = Line::<T>::try_parse_from(words).unwrap().one;
        let view = |change| SettingView {
            version: 3,
            change: Some(change),
            ..SettingView::default()
        };
        let views: Vec<_> = stands.into_iter().map(view).collect();
        let standing = Standing::of(&views, NOW_MS).unwrap();
        flags
            .over(&standing, NOW_MS)
            .map_err(|failure| failure.to_string())
    }

    fn tenant() -> v1::SetTenant {
        v1::SetTenant {
            tenant: "a".into(),
            cohort: "c".into(),
            weight_milli: Some(2000),
            rate_milli: Some(20_000),
            rate_burst: 40,
            priority_classes: vec!["gold".into()],
            ..v1::SetTenant::default()
        }
    }

    /// As people read them.
    fn texts(change: &Change) -> BTreeMap<String, String> {
        let fields = Setting(change).fields().unwrap();
        fields
            .into_iter()
            .map(|(name, value)| (name, manifest::text(&value)))
            .collect()
    }

    /// Nothing but these fields differs from what stood.
    fn check<T: Args + FromArgMatches + Flags>(
        stands: &Change,
        line: &str,
        expected: &[(&str, &str)],
    ) {
        let change = sent::<T>(Some(stands.clone()), line).unwrap();
        let mut after = texts(stands);
        for (name, value) in expected {
            after.insert((*name).to_owned(), (*value).to_owned());
        }
        assert_eq!(texts(&change), after, "{line}");
        assert_eq!(change, manifest::expecting(change.clone(), 3), "{line}");
    }

    #[test]
    fn what_is_not_given_stays() {
        let a = Change::Tenant(tenant());
        check::<Tenant>(&a, "a --weight 3", &[("weight", "3")]);
        check::<Tenant>(&a, "a --closed", &[("closed", "true")]);
        check::<Tenant>(&a, "a", &[]);
        check::<Tenant>(&a, "a --clear cohort", &[("cohort", "none")]);
        check::<Tenant>(&a, "a --clear classes", &[("classes", "none")]);
        let limit = |resource: &str, amount| v1::LimitRequest {
            resource: resource.into(),
            amount,
        };
        let queue = Change::Queue(v1::SetQueue {
            queue: "q".into(),
            limits: vec![limit("cpu", 4000), limit("gpu", 8000)],
            tenants: vec!["a".into()],
            closed: true,
            ..v1::SetQueue::default()
        });
        check::<QueueSet>(&queue, "q --closed=false", &[("closed", "false")]);
        check::<QueueSet>(&queue, "q --weight 5", &[("weight", "5")]);
        let limits = "cpu 4, gpu 4, memory none";
        check::<QueueSet>(&queue, "q --limit gpu=4", &[("limits", limits)]);
        let class = Change::PriorityClass(v1::SetPriorityClass {
            priority_class: "gold".into(),
            value: 100,
            preempts: true,
            ..v1::SetPriorityClass::default()
        });
        check::<PriorityClass>(&class, "gold 200", &[("value", "200")]);
        let policy = Change::Scheduling(v1::SetScheduling {
            backfill: true,
            ..v1::SetScheduling::default()
        });
        check::<Policy>(&policy, "--aging 5m", &[("aging", "5m")]);
        let quota = Change::Quota(v1::SetQuota {
            tenant: "a".into(),
            resource: "cpu".into(),
            limit: 8000,
            soft: Some(4000),
            ..v1::SetQuota::default()
        });
        check::<QuotaSet>(&quota, "a cpu 10", &[("hard", "10")]);
        let none = [("hard", "none"), ("soft", "none")];
        check::<QuotaSet>(&quota, "a cpu --none", &none);
    }

    #[test]
    fn replace_sets_all_of_it_and_asks_for_no_version() {
        let change = sent::<Tenant>(Some(Change::Tenant(tenant())), "a --weight 3 --replace");
        let expected = v1::SetTenant {
            tenant: "a".into(),
            weight_milli: Some(3000),
            ..v1::SetTenant::default()
        };
        assert_eq!(change, Ok(Change::Tenant(expected)));
    }

    #[test]
    fn what_is_not_there_is_set_if_it_is_still_not_there() {
        let Ok(Change::Tenant(set)) = sent::<Tenant>(None, "a --weight 3") else {
            panic!("no tenant");
        };
        assert_eq!(
            (set.weight_milli, set.expected_version),
            (Some(3000), Some(0))
        );
    }

    #[test]
    fn only_fields_that_there_are_can_be_cleared() {
        let stands = || Some(Change::Tenant(tenant()));
        for (line, expected) in [
            ("a --clear nosuch", "nosuch: fields are cohort, weight, "),
            ("a --clear tenant", "tenant: fields are cohort, "),
            ("a --cohort d --clear cohort", "it is given and cleared"),
        ] {
            let error = sent::<Tenant>(stands(), line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
