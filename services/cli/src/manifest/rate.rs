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
    /// Per core-hour, GiB-hour or GPU-hour.
    price: Price,
    /// Absent: from the beginning of time, which only the first can be.
    effective_from: Option<Moment>,
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
            price: Price(set.micro_per_unit_hour),
            effective_from: Some(set.effective_from_ms)
                .filter(|from| *from != 0)
                .map(Moment),
        })
    }

    fn message(self) -> Result<v1::SetRate, Wrong> {
        Ok(v1::SetRate {
            resource: self.resource,
            micro_per_unit_hour: self.price.0,
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
        let same = current.filter(|set| set.micro_per_unit_hour == wanted.micro_per_unit_hour);
        let planned = current.map(|set| set.effective_from_ms);
        let planned = planned.filter(|planned| *planned > now_ms);
        match (current, same, from) {
            // Prices are added and not replaced: that one would come to hold all the same.
            (_, _, Some(from)) if planned.is_some_and(|planned| planned != from) => {
                let planned = amount::moment(Millis(planned.unwrap_or(0)));
                let why = format!(
                    "another price counts from {planned} on and cannot be put off: change that one, with this moment, or wait until it counts"
                );
                return Err(Wrong::new("effective_from", why));
            }
            (_, _, Some(from)) if from > now_ms => wanted.effective_from_ms = from,
            (_, Some(same), _) => wanted.effective_from_ms = same.effective_from_ms,
            // Nothing was billed by another one.
            (None, None, Some(_)) => wanted.effective_from_ms = 0,
            (Some(_), None, Some(from)) => {
                let from = amount::moment(Millis(from));
                let why = format!(
                    "{from}: what was used is billed by the old price already; write a moment to come"
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

    fn taken_back(_: &v1::SetRate) -> Result<v1::SetRate, &'static str> {
        Err("a rate cannot be deleted; set its price to 0 from a moment on")
    }
}
