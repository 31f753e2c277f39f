//! Priority classes, and the cell's scheduling policy.

use super::{Expected, placement, told};
use crate::{Failure, amount, context::Context};
use clap::{ArgAction, Args};
use schemas::v1;

/// Sets all of a priority class. Those that were asked for before keep the priority that they have.
#[derive(Args)]
pub struct PriorityClass {
    /// The class's name.
    class: String,
    /// The priority of its allocations; higher goes first.
    #[arg(allow_negative_numbers = true)]
    value: i32,
    /// It may be sent back to the queue for others.
    #[arg(long)]
    preemptible: bool,
    /// It may send preemptible ones of lower value back.
    #[arg(long)]
    preempts: bool,
    /// Time to stop in, once told to (30s, 5m).
    #[arg(long, default_value = "0s", value_parser = amount::duration_ms)]
    grace: i64,
    /// default, best-fit, spread, gpu-packing or fgd; without it the queue's.
    #[arg(long, value_parser = placement)]
    placement: Option<i32>,
    /// Accept no allocation with it; those that have it go on. Of feature level 8.
    #[arg(long)]
    closed: bool,
    #[command(flatten)]
    expected: Expected,
}

impl PriorityClass {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let sending = self.expected.sending.clone();
        let title = format!("priority class {}", self.class);
        let operator = sending.operator(context).await?;
        let id = sending.id();
        let set = operator.set_priority_class(self.request(), id).await?;
        told(&title, set)
    }

    pub fn request(self) -> v1::SetPriorityClass {
        v1::SetPriorityClass {
            priority_class: self.class,
            value: self.value,
            preemptible: self.preemptible,
            preempts: self.preempts,
            grace_ms: self.grace,
            placement: self.placement,
            closed: self.closed,
            expected_version: self.expected.expected_version,
        }
    }
}

/// Sets the whole policy: what is not given goes back to its default.
#[derive(Args)]
pub struct Policy {
    /// default, best-fit, spread, gpu-packing or fgd.
    #[arg(long, default_value = "default", value_parser = placement)]
    placement: i32,
    /// How fast past use is forgiven (2h, 7d); without it past use does not count.
    #[arg(long, default_value = "0s", value_parser = amount::duration_ms)]
    half_life: i64,
    /// Whether a queue below its fair share takes from queues above theirs.
    #[arg(long, action = ArgAction::Set, value_name = "true|false")]
    fair_share_preemption: Option<bool>,
    /// A queue that holds no more than this part of its fair share is safe (thousandths: 500m; 1 is all of it).
    #[arg(long, default_value = "0", value_parser = amount::thousandths)]
    protected: i64,
    /// 0: none at all.
    #[arg(long)]
    preemptions_per_minute: Option<i64>,
    /// Waiting this long weighs as much as one more of priority; without it waiting does not count.
    #[arg(long, default_value = "0s", value_parser = amount::duration_ms)]
    aging: i64,
    /// Let others go before the first that does not fit, where they do not delay it.
    #[arg(long)]
    backfill: bool,
    /// Pause before the first retry; it doubles with each.
    #[arg(long, value_parser = amount::duration_ms)]
    backoff: Option<i64>,
    /// The longest pause.
    #[arg(long, value_parser = amount::duration_ms)]
    backoff_max: Option<i64>,
    #[command(flatten)]
    expected: Expected,
}

impl Policy {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let sending = self.expected.sending.clone();
        let operator = sending.operator(context).await?;
        let id = sending.id();
        let set = operator.set_scheduling(self.request(), id).await?;
        told("policy", set)
    }

    pub fn request(self) -> v1::SetScheduling {
        v1::SetScheduling {
            placement: self.placement,
            half_life_ms: self.half_life,
            fair_share_preemption: self.fair_share_preemption,
            protected_milli: self.protected,
            preemptions_per_minute: self.preemptions_per_minute,
            aging_ms: self.aging,
            backfill: self.backfill,
            backoff_ms: self.backoff,
            backoff_ms_max: self.backoff_max,
            expected_version: self.expected.expected_version,
        }
    }
}
