//! Refusals, and shares of devices.

use schemas::v1;
use vocab::{GpuShare, Refusal};

pub fn refusal_to_proto(refusal: &Refusal) -> v1::Refusal {
    v1::Refusal {
        rule: refusal.rule.number(),
        subject: refusal.subject.clone(),
        limit: refusal.limit,
        actual: refusal.actual,
    }
}

pub fn shares_to_proto(gpus: &[GpuShare]) -> Vec<v1::GpuShare> {
    gpus.iter()
        .map(|share| v1::GpuShare {
            device: share.device.into(),
            milli: share.milli.into(),
        })
        .collect()
}
