//! `kind: Tenant`

use super::{
    fields::{Fields, Wrong, needed},
    kind::{Manifest, name, names, text, texts},
    units::{Cores, Memory, OfTeam, Part, Small, Whole, Word},
};
use crate::amount;
use schemas::v1;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use vocab::{AllocationSpec, OnExceed, ReclaimFrom, TenantSettings, Token};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    tenant: Token,
    cohort: Option<Token>,
    weight: Option<Part>,
    preemptible: Option<bool>,
    on_exceed: Option<Word<OnExceed>>,
    reclaim: Option<Word<ReclaimFrom>>,
    /// Requests per second.
    rate: Option<Part>,
    burst: Option<Whole>,
    backlog: Option<Whole>,
    classes: Option<Vec<Token>>,
    priority_max: Option<Small>,
    default_cpu: Option<Cores>,
    default_memory: Option<Memory>,
    /// Nothing new of it is accepted.
    closed: Option<bool>,
    /// `team` or `team/namespace`; empty: any.
    teams: Option<Vec<OfTeam>>,
}

const RATE_MILLI: i64 = TenantSettings::RATE_MILLI_USUAL as i64;
const BURST: i64 = TenantSettings::RATE_BURST_USUAL as i64;

/// In their order, each once.
fn teams(texts: &[String]) -> Result<Vec<OfTeam>, Wrong> {
    let teams = texts.iter().map(|text| amount::team(text));
    let teams = teams
        .collect::<Result<BTreeSet<_>, _>>()
        .map_err(Wrong::at("teams"))?;
    Ok(teams.into_iter().map(OfTeam).collect())
}

impl Manifest for Tenant {
    type Message = v1::SetTenant;
    const NAMED_BY: &'static [&'static str] = &["tenant"];

    fn key(fields: &Fields, _: i64) -> Result<String, Wrong> {
        Ok(needed::<Token>(fields, "tenant")?.to_string())
    }

    fn of(set: &v1::SetTenant) -> Result<Self, Wrong> {
        let burst = match (set.rate_milli, set.rate_burst) {
            (None, 0) => BURST,
            (_, burst) => burst,
        };
        let priority_max = set.priority_max.unwrap_or(AllocationSpec::PRIORITY_MAX);
        Ok(Self {
            tenant: Token::new(&set.tenant)?,
            cohort: name(&set.cohort)?,
            weight: Some(Part(set.weight_milli.unwrap_or(1000))),
            preemptible: Some(set.preemptible.unwrap_or(true)),
            on_exceed: Some(Word::of(set.on_exceed).map_err(Wrong::at("on_exceed"))?),
            reclaim: Some(Word::of(set.reclaim).map_err(Wrong::at("reclaim"))?),
            rate: Some(Part(set.rate_milli.unwrap_or(RATE_MILLI))),
            burst: Some(Whole(burst)),
            backlog: Some(Whole(set.allocations_max)),
            classes: Some(names(&set.priority_classes)?),
            priority_max: Some(Small(priority_max)),
            default_cpu: Some(Cores(set.default_cpu_milli)),
            default_memory: Some(Memory(set.default_memory_bytes)),
            closed: Some(set.closed),
            teams: Some(teams(&set.teams)?),
        })
    }

    fn message(self) -> Result<v1::SetTenant, Wrong> {
        Ok(v1::SetTenant {
            tenant: self.tenant.into(),
            cohort: text(self.cohort),
            weight_milli: self.weight.map(|weight| weight.0),
            preemptible: self.preemptible,
            on_exceed: self.on_exceed.map_or(0, Word::number),
            reclaim: self.reclaim.map_or(0, Word::number),
            rate_milli: self.rate.map(|rate| rate.0),
            rate_burst: self.burst.map_or(0, |burst| burst.0),
            allocations_max: self.backlog.map_or(0, |backlog| backlog.0),
            priority_classes: texts(self.classes.unwrap_or_default()),
            priority_max: self.priority_max.map(|most| most.0),
            default_cpu_milli: self.default_cpu.map_or(0, |cpu| cpu.0),
            default_memory_bytes: self.default_memory.map_or(0, |memory| memory.0),
            closed: self.closed.unwrap_or(false),
            teams: self
                .teams
                .into_iter()
                .flatten()
                .map(|it| it.0.to_string())
                .collect(),
            expected_version: None,
        })
    }

    /// The ledger names it for ever, so it is closed.
    fn taken_back(set: &v1::SetTenant) -> Result<v1::SetTenant, &'static str> {
        let closed = true;
        Ok(v1::SetTenant {
            closed,
            ..set.clone()
        })
    }
}
