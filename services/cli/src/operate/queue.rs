//! Queues.

use super::{
    names,
    patch::{self, Flags, Patch},
    placement,
};
use crate::amount;
use clap::Args;
use schemas::v1::{self, setting_view::Change};
use vocab::QueueOrder;

/// Sets a queue: one that there is keeps what is not given.
#[derive(Args)]
pub struct QueueSet {
    /// May be a tenant's name: it is then that tenant's own queue.
    queue: String,
    /// The queue above it.
    #[arg(long)]
    parent: Option<String>,
    /// Its part beside its siblings' (3, or thousandths as 500m); 1 where nothing is said of it.
    #[arg(long, value_parser = amount::thousandths)]
    weight: Option<i64>,
    /// No more than this at a time: cpu=64 (cores), memory=1TiB, gpu=8 or gpu=500m. May be repeated; those of other resources stay.
    #[arg(long = "limit", value_name = "RESOURCE=AMOUNT", value_parser = limit)]
    limits: Vec<v1::LimitRequest>,
    /// A tenant that may submit to it, and no other; may be repeated, and takes the place of all that were said before.
    #[arg(long = "tenant")]
    tenants: Vec<String>,
    /// fcfs, sjf (shortest estimate first) or smallest-area (least estimate times size).
    #[arg(long, value_parser = order)]
    order: Option<i32>,
    /// default, best-fit, spread, gpu-packing or fgd; the cell's where nothing is said of it.
    #[arg(long, value_parser = placement)]
    placement: Option<i32>,
    /// Accept no allocation into it; those in it go on. Of feature level 8.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    closed: Option<bool>,
    #[command(flatten)]
    patch: Patch,
}

fn limit(text: &str) -> Result<v1::LimitRequest, String> {
    let (resource, most) = text
        .split_once('=')
        .ok_or_else(|| format!("{text}: write RESOURCE=AMOUNT"))?;
    let amount = match resource {
        "memory" => amount::bytes(most)?,
        "cpu" => amount::cpu_milli(most)?,
        "gpu" => amount::thousandths(most)?,
        _ => return Err(format!("{text}: resources are cpu, memory and gpu")),
    };
    Ok(v1::LimitRequest {
        resource: resource.to_owned(),
        amount,
    })
}

fn order(text: &str) -> Result<i32, String> {
    let name = text.replace('-', "_");
    let found = QueueOrder::ALL
        .into_iter()
        .find(|order| order.name() == name);
    let number = found.map(|order| order as i32);
    number.ok_or_else(|| {
        format!(
            "{text}: write {}",
            names(QueueOrder::ALL.map(QueueOrder::name))
        )
    })
}

impl Flags for QueueSet {
    fn title(&self) -> String {
        format!("queue {}", self.queue)
    }

    fn whole(&self) -> Result<Change, String> {
        Ok(Change::Queue(v1::SetQueue {
            queue: self.queue.clone(),
            parent: self.parent.clone().unwrap_or_default(),
            weight_milli: self.weight,
            limits: self.limits.clone(),
            tenants: self.tenants.clone(),
            order: self.order.unwrap_or(0),
            placement: self.placement,
            closed: self.closed.unwrap_or(false),
            expected_version: self.patch.expected.expected_version,
        }))
    }

    fn given(&self) -> Vec<&'static str> {
        patch::given([
            ("parent", self.parent.is_some()),
            ("weight", self.weight.is_some()),
            ("limits", !self.limits.is_empty()),
            ("tenants", !self.tenants.is_empty()),
            ("order", self.order.is_some()),
            ("placement", self.placement.is_some()),
            ("closed", self.closed.is_some()),
        ])
    }

    fn patch(&self) -> &Patch {
        &self.patch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_in_units_for_people() {
        for (text, amount) in [
            ("cpu=64", 64_000),
            ("cpu=1500m", 1500),
            ("memory=1TiB", 1 << 40),
            ("gpu=8", 8000),
            ("gpu=500m", 500),
        ] {
            assert_eq!(limit(text).unwrap().amount, amount, "{text}");
        }
        for bad in ["cpu", "disk=1", "gpu=x", "=1"] {
            assert!(limit(bad).is_err(), "{bad}");
        }
        assert_eq!(order("smallest-area"), Ok(2));
        assert_eq!(placement("gpu-packing"), Ok(3));
        assert!(
            order("lifo")
                .unwrap_err()
                .ends_with("fcfs, sjf, smallest-area")
        );
        assert!(placement("worst").is_err());
    }
}
