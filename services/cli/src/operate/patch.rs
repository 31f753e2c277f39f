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
use client::Failed;
use schemas::v1::{self, SettingView, setting_view::Change};
use serde_json::Value;

/// How much of a setting is changed.
#[derive(Args)]
pub struct Patch {
    /// Set all of it: what is not given goes back to its default, which without this flag holds for what is new alone.
    #[arg(long)]
    replace: bool,
    /// Give a field back its default, by its name in `settings get`, or a part of one, as `limits.cpu`; may be repeated.
    #[arg(long, value_name = "FIELD", conflicts_with = "replace")]
    clear: Vec<String>,
    #[command(flatten)]
    pub expected: Expected,
}

impl Patch {
    pub fn replaces(&self) -> bool {
        self.replace
    }
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

    /// What would be sent where these settings stand, and the version that it is a change of; none: of whichever stands.
    fn over(&self, standing: &Standing, now_ms: i64) -> Result<(Change, Option<u64>), Failure> {
        let (patch, whole) = (self.patch(), self.whole().map_err(Failure::usage)?);
        if patch.replace {
            return Ok((whole, None));
        }
        let given = self.given();
        let (kind, said) = said(&whole, &given, &patch.clear)?;
        if given.is_empty() && patch.clear.is_empty() {
            let (_, key) = named(&whole, now_ms)?;
            if standing.get(kind, &key).is_some() {
                let text = format!(
                    "nothing is given that would change it; apportion settings get {} shows it",
                    self.title()
                );
                return Err(Failure::usage(text));
            }
        }
        let send = manifest::patched(kind, &said, standing, now_ms);
        let Send {
            change, version, ..
        } = send.map_err(|wrong| Failure::usage(wrong.to_string()))?;
        let expected = patch.expected.expected_version.unwrap_or(version);
        Ok((manifest::expecting(change, expected), Some(version)))
    }

    async fn run(self, context: &Context) -> Result<(), Failure> {
        let expected = &self.patch().expected;
        let operator = expected.sending.operator(context).await?;
        let now_ms = context.clock().now_ms();
        let whole = self.whole().map_err(Failure::usage)?;
        let (kind, key) = named(&whole, now_ms)?;
        let applied = insist(async || {
            // What replaces all of it need not know what stands, and is the same message when it is sent again.
            let views = match self.patch().replace {
                true => Vec::new(),
                false => settings::views(&operator, kind.setting(), first_word(&key)).await?,
            };
            // Sent again with its id, it is not laid over what it has set itself.
            let of_it = views.iter().filter(|view| is_of(view, &key, now_ms));
            if let Some(version) = expected.sending.has_set(of_it) {
                return Ok(Attempt::Done(v1::Applied { version }));
            }
            let standing = Standing::of(&views, now_ms).map_err(|wrong| wrong.why)?;
            let (change, version) = self.over(&standing, now_ms)?;
            if version.is_some_and(|version| expected.is_ahead_of(version)) {
                return Ok(Attempt::Stale(expected.ahead()));
            }
            let done = apply::set(&operator, change, expected.sending.id()).await;
            expected.attempted(done, version.is_some())
        })
        .await?;
        // A later command, also another user's, sees this version.
        apply::seen(&operator).await;
        told(&self.title(), &applied, expected.output)
    }
}

/// What came of a change that is laid over what was read.
pub enum Attempt {
    Done(v1::Applied),
    /// What was read may be a moment old.
    Stale(Failure),
}

/// Looks again where somebody was faster than what was read.
pub async fn insist(
    mut attempt: impl AsyncFnMut() -> Result<Attempt, Failure>,
) -> Result<v1::Applied, Failure> {
    let mut stale = None;
    let applied = look_again::<_, Failure>(async || {
        Ok(match attempt().await? {
            Attempt::Done(applied) => Some(applied),
            Attempt::Stale(failure) => {
                stale = Some(failure);
                None
            }
        })
    });
    match applied.await? {
        Some(applied) => Ok(applied),
        None => Err(stale.unwrap_or_else(|| "nothing was read".into())),
    }
}

impl Expected {
    /// It names a version that was not read yet, so that nothing can be laid over it.
    pub fn is_ahead_of(&self, version: u64) -> bool {
        self.expected_version
            .is_some_and(|expected| expected > version)
    }

    pub fn ahead(&self) -> Failure {
        let version = self.expected_version.unwrap_or_default();
        Failure::refused(format!(
            "version conflict: the cell tells of no version {version} of it"
        ))
    }

    /// `laid_over`: it was a change of what was read. Somebody else may have changed it since, if nobody asked for that version or
    /// that operation; or this operation has, and is not told of yet.
    pub fn attempted(
        &self,
        done: Result<v1::Applied, Failed>,
        laid_over: bool,
    ) -> Result<Attempt, Failure> {
        let refused = match done {
            Ok(applied) => return Ok(Attempt::Done(applied)),
            Err(Failed::Refused(refused)) if laid_over => refused,
            Err(other) => return Err(other.into()),
        };
        let repeated = self.sending.is_repeated();
        let may_be = match refused.refusal.as_ref().map(v1::Refusal::rule) {
            Some(v1::Rule::VersionConflict) => self.expected_version.is_none() && !repeated,
            Some(v1::Rule::OperationConflict) => repeated,
            _ => false,
        };
        let failure = Failed::Refused(refused).into();
        match may_be {
            true => Ok(Attempt::Stale(failure)),
            false => Err(failure),
        }
    }
}

fn named(whole: &Change, now_ms: i64) -> Result<(Kind, String), Failure> {
    let key = Setting(whole).key(now_ms);
    let key = key.map_err(|wrong| Failure::usage(wrong.to_string()))?;
    Ok((kind(whole)?, key))
}

fn is_of(view: &SettingView, key: &str, now_ms: i64) -> bool {
    let change = view.change.as_ref();
    let of = change.and_then(|change| Setting(change).key(now_ms).ok());
    of.as_deref() == Some(key)
}

/// All that shares its versions has a key that begins so.
fn first_word(key: &str) -> &str {
    key.split(' ').next().unwrap_or_default()
}

/// The names of those that are given.
pub fn given<const N: usize>(all: [(&'static str, bool); N]) -> Vec<&'static str> {
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
    let all = Setting(whole).fields().map_err(|wrong| wrong.why)?;
    for name in clear {
        let path = name.replace('-', "_");
        let (field, part) = match path.split_once('.') {
            Some((field, part)) => (field, Some(part)),
            None => (path.as_str(), None),
        };
        let known = fields.iter().filter(|name| !named_by.contains(name));
        let is_known = known.clone().any(|known| *known == field);
        let has_part = |part| {
            all.get(field)
                .is_some_and(|value| value.get(part).is_some())
        };
        if !is_known || !part.is_none_or(has_part) {
            let known: Vec<_> = known.copied().collect();
            let known = known.join(", ");
            return Err(Failure::usage(format!("{name}: fields are {known}")));
        }
        match part {
            None if given.contains(&field) => {
                return Err(Failure::usage(format!("{name}: it is given and cleared")));
            }
            None => {
                said.insert(field.to_owned(), Value::Null);
            }
            // Of several amounts in one field, this one.
            Some(part) => {
                let parts = said
                    .entry(field)
                    .or_insert_with(|| Value::Object(Fields::new()));
                if let Value::Object(parts) = parts {
                    parts.insert(part.to_owned(), Value::Null);
                }
            }
        }
    }
    Ok((kind, said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::{Policy, PriorityClass, QueueSet, QuotaSet, Tenant};
    use clap::{FromArgMatches, Parser};
    use std::collections::BTreeMap;

    const NOW_MS: i64 = 1_000_000;

    #[derive(Parser)]
    struct Line<T: Args> {
        #[command(flatten)]
        one: T,
    }

    /// What a command line would send where this stands.
    fn sent<T: Args + FromArgMatches + Flags>(
        stands: Option<Change>,
        line: &str,
    ) -> Result<Change, String> {
        let words = ["test"].into_iter().chain(line.split_whitespace());
        let flags = Line::<T>::try_parse_from(words).unwrap().one;
        let view = |change| SettingView {
            version: 3,
            change: Some(change),
            ..SettingView::default()
        };
        let views: Vec<_> = stands.into_iter().map(view).collect();
        let standing = Standing::of(&views, NOW_MS).unwrap();
        let over = flags.over(&standing, NOW_MS).map(|(change, _)| change);
        over.map_err(|failure| failure.to_string())
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
        let nothing = sent::<Tenant>(Some(a.clone()), "a").unwrap_err();
        assert!(
            nothing.starts_with("nothing is given that would change it"),
            "{nothing}"
        );
        assert!(sent::<Tenant>(None, "a").is_ok());
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
        let limits = "cpu none, gpu 8, memory none";
        check::<QueueSet>(&queue, "q --clear limits.cpu", &[("limits", limits)]);
        let class = Change::PriorityClass(v1::SetPriorityClass {
            priority_class: "gold".into(),
            value: 100,
            preempts: true,
            ..v1::SetPriorityClass::default()
        });
        check::<PriorityClass>(&class, "gold 200", &[("value", "200")]);
        check::<PriorityClass>(&class, "gold --clear preempts", &[("preempts", "false")]);
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
        check::<QuotaSet>(&quota, "a cpu --soft 5", &[("soft", "5")]);
        check::<QuotaSet>(&quota, "a cpu --clear soft", &[("soft", "none")]);
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
            ("a --clear cohort.x", "cohort.x: fields are cohort, "),
            ("a --cohort d --clear cohort", "it is given and cleared"),
        ] {
            let error = sent::<Tenant>(stands(), line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    /// Whether it is looked at again after a refusal; none: it is done or has failed.
    #[test]
    fn only_what_somebody_else_may_have_changed_is_looked_at_again() {
        let check = |line: &str, rule: v1::Rule, laid_over, again: bool| {
            let words = ["test"].into_iter().chain(line.split_whitespace());
            let expected = Line::<Expected>::try_parse_from(words).unwrap().one;
            let refusal = v1::Refusal {
                rule: rule.into(),
                ..v1::Refusal::default()
            };
            let refused = v1::Refused {
                refusal: Some(refusal),
                ..v1::Refused::default()
            };
            let attempt = expected.attempted(Err(Failed::Refused(refused)), laid_over);
            assert_eq!(matches!(attempt, Ok(Attempt::Stale(_))), again, "{line}");
        };
        let (version, operation) = (v1::Rule::VersionConflict, v1::Rule::OperationConflict);
        check("", version, true, true);
        check("", version, false, false);
        check("", operation, true, false);
        check("--expected-version 3", version, true, false);
        // Sent again, it may have been done already. A refusal of its own stands.
        check("--operation-id o", operation, true, true);
        check("--operation-id o", version, true, false);
    }

    #[test]
    fn a_version_that_was_not_read_is_not_laid_over() {
        let words = ["test", "--expected-version", "3"];
        let expected = Line::<Expected>::try_parse_from(words).unwrap().one;
        let ahead = [2, 3, 4].map(|version| expected.is_ahead_of(version));
        assert_eq!(ahead, [true, false, false]);
    }
}
