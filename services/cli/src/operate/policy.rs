//! Priority classes, and the cell's scheduling policy.

use super::{
    patch::{Flags, Patch, given},
    placement,
};
use crate::amount;
use clap::{ArgAction, Args};
use schemas::v1::{self, setting_view::Change};

/// Sets a priority class: one that there is keeps what is not given. Those that were asked for before keep the priority that they have.
#[derive(Args)]
pub struct PriorityClass {
    /// The class's name.
    class: String,
    /// The priority of its allocations; higher goes first.
    #[arg(value_parser = amount::priority, required_unless_present_any = ["clear", "preemptible", "preempts", "grace", "placement", "closed"])]
    value: Option<i32>,
    /// It may be sent back to the queue for others.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    preemptible: Option<bool>,
    /// It may send preemptible ones of lower value back.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    preempts: Option<bool>,
    /// Time to stop in, once told to (30s, 5m); without it, the node agent's own grace.
    #[arg(long, value_parser = amount::duration_ms)]
    grace: Option<i64>,
    /// default, best-fit, spread, gpu-packing or fgd; the queue's where nothing is said of it.
    #[arg(long, value_parser = placement)]
    placement: Option<i32>,
    /// Accept no allocation with it; those that have it go on. Of feature level 8.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    closed: Option<bool>,
    #[command(flatten)]
    patch: Patch,
}

impl Flags for PriorityClass {
    fn title(&self) -> String {
        format!("priority class {}", self.class)
    }

    fn whole(&self) -> Result<Change, String> {
        if self.patch.replaces() && self.value.is_none() {
            return Err("with --replace, say the priority as well".to_owned());
        }
        Ok(Change::PriorityClass(v1::SetPriorityClass {
            priority_class: self.class.clone(),
            value: self.value.unwrap_or(0),
            preemptible: self.preemptible.unwrap_or(false),
            preempts: self.preempts.unwrap_or(false),
            grace_ms: self.grace.unwrap_or(0),
            placement: self.placement,
            closed: self.closed.unwrap_or(false),
            expected_version: self.patch.expected.expected_version,
        }))
    }

    fn given(&self) -> Vec<&'static str> {
        given([
            ("value", self.value.is_some()),
            ("preemptible", self.preemptible.is_some()),
            ("preempts", self.preempts.is_some()),
            ("grace", self.grace.is_some()),
            ("placement", self.placement.is_some()),
            ("closed", self.closed.is_some()),
        ])
    }

    fn patch(&self) -> &Patch {
        &self.patch
    }
}

/// Sets the policy: what is not given stays as it is.
#[derive(Args)]
pub struct Policy {
    /// default, best-fit, spread, gpu-packing or fgd.
    #[arg(long, value_parser = placement)]
    placement: Option<i32>,
    /// How fast past use is forgiven (2h, 7d); 0s: past use does not count.
    #[arg(long, value_parser = amount::duration_ms)]
    half_life: Option<i64>,
    /// Whether a queue below its fair share takes from queues above theirs.
    #[arg(long, action = ArgAction::Set, value_name = "true|false")]
    fair_share_preemption: Option<bool>,
    /// A queue that holds no more than this part of its fair share is safe (thousandths: 500m; 1 is all of it).
    #[arg(long, value_parser = amount::thousandths)]
    protected: Option<i64>,
    /// 0: none at all.
    #[arg(long)]
    preemptions_per_minute: Option<i64>,
    /// Waiting this long weighs as much as one more of priority; 0s: waiting does not count.
    #[arg(long, value_parser = amount::duration_ms)]
    aging: Option<i64>,
    /// Let others go before the first that does not fit, where they do not delay it.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    backfill: Option<bool>,
    /// Pause before the first retry; it doubles with each.
    #[arg(long, value_parser = amount::duration_ms)]
    backoff: Option<i64>,
    /// The longest pause.
    #[arg(long, value_parser = amount::duration_ms)]
    backoff_max: Option<i64>,
    #[command(flatten)]
    patch: Patch,
}

impl Flags for Policy {
    fn title(&self) -> String {
        "policy".to_owned()
    }

    fn whole(&self) -> Result<Change, String> {
        Ok(Change::Scheduling(v1::SetScheduling {
            placement: self.placement.unwrap_or(0),
            half_life_ms: self.half_life.unwrap_or(0),
            fair_share_preemption: self.fair_share_preemption,
            protected_milli: self.protected.unwrap_or(0),
            preemptions_per_minute: self.preemptions_per_minute,
            aging_ms: self.aging.unwrap_or(0),
            backfill: self.backfill.unwrap_or(false),
            backoff_ms: self.backoff,
            backoff_ms_max: self.backoff_max,
            expected_version: self.patch.expected.expected_version,
        }))
    }

    fn given(&self) -> Vec<&'static str> {
        given([
            ("placement", self.placement.is_some()),
            ("half_life", self.half_life.is_some()),
            (
                "fair_share_preemption",
                self.fair_share_preemption.is_some(),
            ),
            ("protected", self.protected.is_some()),
            (
                "preemptions_per_minute",
                self.preemptions_per_minute.is_some(),
            ),
            ("aging", self.aging.is_some()),
            ("backfill", self.backfill.is_some()),
            ("backoff", self.backoff.is_some()),
            ("backoff_max", self.backoff_max.is_some()),
        ])
    }

    fn patch(&self) -> &Patch {
        &self.patch
    }
}
