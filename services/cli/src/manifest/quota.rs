//! `kind: Quota`: all limits of one resource of one account, for good, planned, or for a while.

use super::{
    fields::{Fields, Wrong, needed, one},
    kind::{Manifest, account_of, text},
    units::{Moment, OfResource, Span, Whose, Written},
};
use crate::amount;
use schemas::v1;
use serde::{Deserialize, Serialize};
use vocab::{Account, Millis, QuotaResource};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    account: Whose,
    resource: OfResource,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Moment>,
    /// Or `unlimited`, of a tenant `none`.
    hard: Written,
    soft: Option<Written>,
    burst: Option<Written>,
    burst_for: Option<Span>,
    borrow: Option<Written>,
    lend: Option<Written>,
}

/// A team or namespace without limits of its own is bounded by those above it alone.
const UNLIMITED: &str = "unlimited";
/// A tenant without limits may hold nothing.
const NONE: &str = "none";

fn without_limits(is_tenant: bool) -> &'static str {
    match is_tenant {
        true => NONE,
        false => UNLIMITED,
    }
}

impl Manifest for Quota {
    type Message = v1::SetQuota;
    const NAMED_BY: &'static [&'static str] = &["account", "resource", "from", "until"];

    fn key(fields: &Fields, now_ms: i64) -> Result<String, Wrong> {
        let account: Whose = needed(fields, "account")?;
        let resource: OfResource = needed(fields, "resource")?;
        let (from, until) = (
            one::<Moment>(fields, "from")?,
            one::<Moment>(fields, "until")?,
        );
        // What has begun holds now, whether it was planned or not.
        let from = from.filter(|from| from.0 > now_ms);
        let moment = |word: &str, at: Option<Moment>| {
            at.map_or(String::new(), |at| {
                format!(" {word} {}", amount::moment(Millis(at.0)))
            })
        };
        let (from, until) = (moment("from", from), moment("until", until));
        Ok(format!("{} {}{from}{until}", account.0, resource.0))
    }

    fn counter(set: &v1::SetQuota) -> Option<String> {
        let (tenant, team, namespace) = (&set.tenant, &set.team, &set.namespace);
        Some(format!("{tenant}/{team}/{namespace} {}", set.resource))
    }

    fn of(set: &v1::SetQuota) -> Result<Self, Wrong> {
        let resource = amount::resource(&set.resource).map_err(Wrong::at("resource"))?;
        let written = |amount: i64| Written(amount::resource_text(&resource, amount));
        let hard = match set.unlimited {
            true => Written(without_limits(set.team.is_empty()).to_owned()),
            false => written(set.limit),
        };
        Ok(Self {
            account: Whose(account_of(&set.tenant, &set.team, &set.namespace)?),
            from: set.from_ms.map(Moment),
            until: set.until_ms.map(Moment),
            hard,
            soft: set.soft.map(written),
            burst: set.burst.map(written),
            burst_for: set.burst.map(|_| Span(set.burst_ms)),
            borrow: set.borrow.map(written),
            lend: set.lend.map(written),
            resource: OfResource(resource),
        })
    }

    fn message(self) -> Result<v1::SetQuota, Wrong> {
        let resource = self.resource.0;
        let word = without_limits(self.account.0.team.is_none());
        let unlimited = self.hard.0 == word;
        if !unlimited && self.hard.0 == UNLIMITED {
            let why = "a tenant without limits may hold nothing: write an amount, or none";
            return Err(Wrong::new("hard", why));
        }
        if !unlimited && self.hard.0 == NONE {
            let why = "write unlimited: those above it bound it then";
            return Err(Wrong::new("hard", why));
        }
        let others = [&self.soft, &self.burst, &self.borrow, &self.lend];
        if unlimited && others.into_iter().any(Option::is_some) {
            let why = format!(
                "{word} goes with no other limit: set soft, burst, burst_for, borrow and lend to null"
            );
            return Err(Wrong::new("hard", why));
        }
        if self.burst.is_some() != self.burst_for.is_some() {
            return Err(Wrong::new("burst", "burst and burst_for go together"));
        }
        let limit = match unlimited {
            true => 0,
            false => read(&resource, "hard", self.hard)?,
        };
        let optional = |field, written: Option<Written>| {
            written
                .map(|written| read(&resource, field, written))
                .transpose()
        };
        let Account {
            tenant,
            team,
            namespace,
        } = self.account.0;
        Ok(v1::SetQuota {
            limit,
            soft: optional("soft", self.soft)?,
            burst: optional("burst", self.burst)?,
            burst_ms: self.burst_for.map_or(0, |span| span.0),
            borrow: optional("borrow", self.borrow)?,
            lend: optional("lend", self.lend)?,
            from_ms: self.from.map(|from| from.0),
            until_ms: self.until.map(|until| until.0),
            unlimited,
            resource: resource.to_string(),
            tenant: tenant.into(),
            team: text(team),
            namespace: text(namespace),
            expected_version: None,
        })
    }

    /// For a while, no limits are something as well.
    fn is_absent(set: &v1::SetQuota) -> bool {
        set.unlimited && set.from_ms.is_none() && set.until_ms.is_none()
    }

    fn is_over(set: &v1::SetQuota, now_ms: i64) -> bool {
        set.until_ms.is_some_and(|until| until <= now_ms)
    }

    fn begin(set: &mut v1::SetQuota, now_ms: i64) {
        set.from_ms = set.from_ms.filter(|from| *from > now_ms);
    }

    fn taken_back(set: &v1::SetQuota) -> Result<v1::SetQuota, &'static str> {
        if set.from_ms.is_some() || set.until_ms.is_some() {
            return Err(
                "what is planned or holds for a while cannot be deleted; it ends by itself, or is set again",
            );
        }
        if set.team.is_empty() {
            return Err("a tenant without limits may hold nothing; write hard: 0 if that is meant");
        }
        Ok(v1::SetQuota {
            tenant: set.tenant.clone(),
            team: set.team.clone(),
            namespace: set.namespace.clone(),
            resource: set.resource.clone(),
            unlimited: true,
            ..v1::SetQuota::default()
        })
    }
}

fn read(resource: &QuotaResource, field: &'static str, written: Written) -> Result<i64, Wrong> {
    amount::of_resource(resource, &written.0).map_err(Wrong::at(field))
}
