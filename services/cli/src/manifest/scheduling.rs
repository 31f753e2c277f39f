//! `kind: Scheduling`: the cell's policy, of which there is one.

use super::{
    fields::{Fields, Wrong},
    kind::Manifest,
    units::{Part, Span, Whole, Word},
};
use schemas::v1;
use serde::{Deserialize, Serialize};
use vocab::{PlacementPolicy, SchedulingPolicy};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduling {
    placement: Option<Word<PlacementPolicy>>,
    half_life: Option<Span>,
    fair_share_preemption: Option<bool>,
    protected: Option<Part>,
    preemptions_per_minute: Option<Whole>,
    aging: Option<Span>,
    backfill: Option<bool>,
    backoff: Option<Span>,
    backoff_max: Option<Span>,
}

impl Manifest for Scheduling {
    type Message = v1::SetScheduling;
    const NAMED_BY: &'static [&'static str] = &[];

    fn key(_: &Fields, _: i64) -> Result<String, Wrong> {
        Ok("cell".to_owned())
    }

    fn of(set: &v1::SetScheduling) -> Result<Self, Wrong> {
        let usual = SchedulingPolicy::default();
        let usual_ms = |usual: u64| usual.try_into().unwrap_or(i64::MAX);
        let backoff = set.backoff_ms.unwrap_or(usual_ms(usual.backoff_ms));
        let backoff_max = set.backoff_ms_max.unwrap_or(usual_ms(usual.backoff_ms_max));
        let per_minute = i64::from(usual.preemptions_per_minute);
        let fair_share = set.fair_share_preemption;
        Ok(Self {
            placement: Some(Word::of(set.placement).map_err(Wrong::at("placement"))?),
            half_life: Some(Span(set.half_life_ms)),
            fair_share_preemption: Some(fair_share.unwrap_or(usual.fair_share_preemption)),
            protected: Some(Part(set.protected_milli)),
            preemptions_per_minute: Some(Whole(set.preemptions_per_minute.unwrap_or(per_minute))),
            aging: Some(Span(set.aging_ms)),
            backfill: Some(set.backfill),
            backoff: Some(Span(backoff)),
            backoff_max: Some(Span(backoff_max)),
        })
    }

    fn message(self) -> Result<v1::SetScheduling, Wrong> {
        let ms = |span: Option<Span>| span.map(|span| span.0);
        Ok(v1::SetScheduling {
            placement: self.placement.map_or(0, Word::number),
            half_life_ms: ms(self.half_life).unwrap_or(0),
            fair_share_preemption: self.fair_share_preemption,
            protected_milli: self.protected.map_or(0, |part| part.0),
            preemptions_per_minute: self.preemptions_per_minute.map(|most| most.0),
            aging_ms: ms(self.aging).unwrap_or(0),
            backfill: self.backfill.unwrap_or(false),
            backoff_ms: ms(self.backoff),
            backoff_ms_max: ms(self.backoff_max),
            expected_version: None,
        })
    }

    fn taken_back(_: &v1::SetScheduling) -> Result<v1::SetScheduling, &'static str> {
        Err("the cell always has a policy; clear its fields with null")
    }
}
