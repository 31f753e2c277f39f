//! `kind: Rate`

use super::{
    fields::{Fields, Wrong, needed, one},
    kind::{Manifest, name, text},
    units::{Moment, Price},
};
use crate::amount;
use schemas::v1;
use serde::{Deserialize, Serialize};
use vocab::{Millis, ResourceKey, Token};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    resource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority_class: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<Token>,
    /// Per core-hour, GiB-hour or GPU-hour; of one that is taken back it says nothing.
    price: Option<Price>,
    /// First moment; `None`: as soon as it is accepted, which only the first rate and a withdrawal can be.
    effective_from: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    withdrawn: Option<bool>,
    /// Flag of a first rate that also prices use of the past, from the beginning of time on.
    #[serde(skip_serializing_if = "Option::is_none")]
    correction: Option<bool>,
}

impl Manifest for Rate {
    type Message = v1::SetRate;
    const NAMED_BY: &'static [&'static str] =
        &["resource", "tenant", "priority_class", "pool", "cluster"];

    fn key(fields: &Fields, _: i64) -> Result<String, Wrong> {
        let mut key: String = needed(fields, "resource")?;
        if ResourceKey::parse(&key).is_none() {
            let why = format!("{key}: rates are of cpu, memory, gpu and gpu:<model>");
            return Err(Wrong::new("resource", why));
        }
        for scope in &Self::NAMED_BY[1..] {
            if let Some(name) = one::<Token>(fields, scope)? {
                key = format!("{key} {scope}={name}");
            }
        }
        Ok(key)
    }

    fn of(set: &v1::SetRate) -> Result<Self, Wrong> {
        Ok(Self {
            resource: set.resource.clone(),
            tenant: name(&set.tenant)?,
            priority_class: name(&set.priority_class)?,
            pool: name(&set.pool)?,
            cluster: name(&set.cluster)?,
            price: (!set.withdrawn).then_some(Price(set.micro_per_unit_hour)),
            effective_from: Some(set.effective_from_ms)
                .filter(|from| *from != 0)
                .map(Moment),
            withdrawn: set.withdrawn.then_some(true),
            correction: set.correction.then_some(true),
        })
    }

    fn message(self) -> Result<v1::SetRate, Wrong> {
        let withdrawn = self.withdrawn.unwrap_or(false);
        let price = match (self.price, withdrawn) {
            (_, true) => 0,
            (Some(price), false) => price.0,
            (None, false) => return Err(Wrong::new("price", "it is missing")),
        };
        Ok(v1::SetRate {
            resource: self.resource,
            micro_per_unit_hour: price,
            withdrawn,
            correction: self.correction.unwrap_or(false),
            effective_from_ms: self.effective_from.map_or(0, |from| from.0),
            tenant: text(self.tenant),
            priority_class: text(self.priority_class),
            pool: text(self.pool),
            cluster: text(self.cluster),
            expected_version: None,
        })
    }

    /// A price that is not changed counts since whenever it does, and a changed one counts from a moment to come.
    fn settle(
        wanted: &mut v1::SetRate,
        current: Option<&v1::SetRate>,
        said: &Fields,
        now_ms: i64,
    ) -> Result<(), Wrong> {
        let from = one::<Moment>(said, "effective_from")?.map(|from| from.0);
        wanted.correction = correction(wanted, current, (from, now_ms))?;
        if wanted.withdrawn {
            return take_back(wanted, current, said, (from, now_ms));
        }
        let priced = current.filter(|set| !set.withdrawn);
        let same = priced.filter(|set| set.micro_per_unit_hour == wanted.micro_per_unit_hour);
        let planned = current.map(|set| set.effective_from_ms);
        let planned = planned.filter(|planned| *planned > now_ms);
        match (current, same, from) {
            // Prices are added and not replaced: that one would come to hold all the same.
            (_, _, Some(from)) if planned.is_some_and(|planned| planned != from) => {
                let planned = amount::moment(Millis(planned.unwrap_or(0)));
                let why = format!(
                    "another change counts from {planned} on and cannot be put off: change that one, with this moment, or wait until it counts"
                );
                return Err(Wrong::new("effective_from", why));
            }
            (_, _, Some(from)) if from > now_ms => wanted.effective_from_ms = from,
            (_, Some(same), _) => wanted.effective_from_ms = same.effective_from_ms,
            // The first one counts as soon as it is accepted.
            (None, None, Some(_)) => wanted.effective_from_ms = 0,
            (Some(_), None, Some(from)) => {
                let from = amount::moment(Millis(from));
                let why = format!(
                    "{from}: what was used before now is billed already; write a moment to come"
                );
                return Err(Wrong::new("effective_from", why));
            }
            (Some(_), None, None) => {
                let why = "it is missing: a changed price counts from a moment to come, such as 2026-01-31T08:00:00Z";
                return Err(Wrong::new("effective_from", why));
            }
            (None, None, None) => wanted.effective_from_ms = 0,
        }
        Ok(())
    }

    fn is_absent(set: &v1::SetRate) -> bool {
        set.withdrawn
    }

    fn taken_back(set: &v1::SetRate) -> Result<v1::SetRate, &'static str> {
        Ok(v1::SetRate {
            micro_per_unit_hour: 0,
            effective_from_ms: 0,
            withdrawn: true,
            ..set.clone()
        })
    }
}

/// Returns whether the change corrects the past. One that was made is not made again.
fn correction(
    wanted: &v1::SetRate,
    current: Option<&v1::SetRate>,
    (from, now_ms): (Option<i64>, i64),
) -> Result<bool, Wrong> {
    let is_set = current
        .is_some_and(|set| !set.withdrawn && set.micro_per_unit_hour == wanted.micro_per_unit_hour);
    if !wanted.correction || is_set && !wanted.withdrawn {
        return Ok(false);
    }
    let why = if wanted.withdrawn {
        "a withdrawal corrects nothing: leave it out"
    } else if current.is_some() {
        "only the first rate of a resource and scope can correct the past: leave it out, and write an effective_from to come"
    } else if from.is_some_and(|from| from > now_ms) {
        "a correction counts from the beginning of time: leave out effective_from, or the correction"
    } else {
        return Ok(true);
    };
    Err(Wrong::new("correction", why))
}

/// From a moment to come on, or as soon as it can be.
fn take_back(
    wanted: &mut v1::SetRate,
    current: Option<&v1::SetRate>,
    said: &Fields,
    (from, now_ms): (Option<i64>, i64),
) -> Result<(), Wrong> {
    if said.get("price").is_some_and(|price| !price.is_null()) {
        return Err(Wrong::new("withdrawn", "it goes with no price"));
    }
    let is_set = current.is_some_and(|set| !set.withdrawn);
    if let Some(past) = from.filter(|from| is_set && *from <= now_ms) {
        let past = amount::moment(Millis(past));
        let why = format!(
            "{past}: what was used before now is billed already; write a moment to come, or none for as soon as it can be"
        );
        return Err(Wrong::new("effective_from", why));
    }
    wanted.effective_from_ms = from.unwrap_or(0);
    Ok(())
}
