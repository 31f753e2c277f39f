//! Tenants, and how they are treated.

use crate::domain::check::{amount, given_name, names, numbered, optional, small_quantity};
use vocab::fact::TenantSet;
use vocab::{
    AdminChange, AllocationSpec, Limits, OnExceed, QueueSettings, ReclaimFrom, Refusal, Rule,
    TenantSettings,
};

/// A tenant's settings as they were written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantRequest {
    pub tenant: String,
    pub cohort: String,
    pub weight_milli: Option<i64>,
    pub preemptible: Option<bool>,
    pub on_exceed: i32,
    pub reclaim: i32,
    pub rate_milli: Option<i64>,
    pub rate_burst: i64,
    pub allocations_max: i64,
    pub priority_classes: Vec<String>,
    pub priority_max: Option<i32>,
    pub default_cpu_milli: i64,
    pub default_memory_bytes: i64,
}

impl TenantRequest {
    pub(super) fn check(&self) -> Result<AdminChange, Refusal> {
        let defaults = TenantSettings::default();
        let invalid = |field: &str| Refusal::new(Rule::SettingInvalid, field);
        let max = AllocationSpec::PRIORITY_MAX;
        let priority_max = self.priority_max.unwrap_or(defaults.priority_max);
        if !(-max..=max).contains(&priority_max) {
            return Err(Refusal::new(Rule::PriorityOutOfRange, "priority_max"));
        }
        let on_exceed = numbered(&OnExceed::ALL, self.on_exceed, |o| o as i32);
        let reclaim = numbered(&ReclaimFrom::ALL, self.reclaim, |r| r as i32);
        let rate_burst = amount(
            self.rate_burst,
            TenantSettings::RATE_BURST_MAX,
            "rate_burst",
        )?;
        let rate_milli = self
            .rate_milli
            .map_or(Ok(TenantSettings::RATE_MILLI_USUAL), |rate| {
                amount(rate, TenantSettings::RATE_MILLI_MAX, "rate_milli")
            })?;
        let rate_burst = match (self.rate_milli, rate_burst) {
            (None, 0) => TenantSettings::RATE_BURST_USUAL,
            (_, burst) => burst,
        };
        let settings = TenantSettings {
            cohort: optional(&self.cohort, "cohort")?,
            weight_milli: match self.weight_milli {
                None => defaults.weight_milli,
                Some(weight) => {
                    small_quantity(weight, QueueSettings::WEIGHT_MILLI_MAX, "weight_milli")?
                }
            },
            preemptible: self.preemptible.unwrap_or(defaults.preemptible),
            on_exceed: on_exceed.ok_or_else(|| invalid("on_exceed"))?,
            reclaim: reclaim.ok_or_else(|| invalid("reclaim"))?,
            rate_milli,
            rate_burst,
            allocations_max: amount(self.allocations_max, Limits::MAX, "allocations_max")?,
            priority_classes: names(
                &self.priority_classes,
                TenantSettings::CLASSES_MAX,
                "priority_classes",
            )?,
            priority_max,
            default_cpu_milli: amount(
                self.default_cpu_milli,
                AllocationSpec::CPU_MILLI_MAX,
                "default_cpu_milli",
            )?,
            default_memory_bytes: amount(
                self.default_memory_bytes,
                AllocationSpec::MEMORY_BYTES_MAX,
                "default_memory_bytes",
            )?,
        };
        Ok(AdminChange::Tenant(TenantSet {
            tenant: given_name(&self.tenant, "tenant")?,
            settings,
        }))
    }
}
