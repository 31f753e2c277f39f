//! What the operator does: before the replay it sets tenants, quotas, rates and priority classes, which follow from the workload; afterwards it
//! closes the months that are over.

use super::demand;
use crate::workload::{Qos, Workload};
use client::{Client, NoOutcome, Operation};
use schemas::v1::{
    ClosePeriod, Outcome, SetPriorityClass, SetQuota, SetRate, SetTenant,
    outcome::Result as Decided, request::Verb,
};
use std::{collections::BTreeMap, time::Duration};
use vocab::{Month, ResourceKind, Token};

/// Real time for which a pod may hold its quota beyond its recorded lifetime: how long decisions and reports may take
/// before an ample quota is felt.
const SLACK_REAL_MS: i64 = 1_000;
/// Quotas are whole multiples of these, as people would set them.
const QUOTA_STEPS: [(ResourceKind, u64); 3] = [
    (ResourceKind::Cpu, 64_000),
    (ResourceKind::Memory, 64 << 30),
    (ResourceKind::Gpu, 8_000),
];
/// The tight quota, in tenths of the tenant's recorded peak.
const TIGHT_TENTHS: u64 = 9;
/// The contract's largest limit.
const QUOTA_MAX: u64 = 1 << 53;

/// Millionths of the currency per core-, GiB- or GPU-hour. Crooked on purpose, so that rounding shows; models without a
/// price of their own are charged as `gpu`.
const RATES: [(&str, u64); 9] = [
    ("cpu", 31_611),
    ("memory", 4_237),
    ("gpu", 1_006_000),
    ("gpu:P100", 1_460_017),
    ("gpu:T4", 350_003),
    ("gpu:V100M16", 2_480_041),
    ("gpu:V100M32", 2_930_111),
    ("gpu:G2", 899_993),
    ("gpu:G3", 1_799_999),
];

const ATTEMPTS: u32 = 6;
const RETRY_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("the operator's {operation} has no outcome: {source}")]
    NoOutcome {
        operation: String,
        source: NoOutcome,
    },
    #[error("the operator's {operation} was refused: {explanation}")]
    Refused {
        operation: String,
        explanation: String,
    },
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    pub tenant: Token,
    pub resource: ResourceKind,
    pub limit: u64,
}

/// One price, from the beginning of time on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    pub resource: String,
    pub micro_per_unit_hour: u64,
}

/// What will be set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub tenants: Vec<Token>,
    pub quotas: Vec<Quota>,
    pub rates: Vec<Rate>,
    /// The tenant whose GPU quota is below what it once used, so that refusals can be seen.
    pub tight: Option<Token>,
}

impl Settings {
    /// The tenant that may have the most GPUs; none without tenants.
    pub fn most_gpus(&self) -> Option<&Token> {
        let gpus = self.quotas.iter();
        let gpus = gpus.filter(|quota| quota.resource == ResourceKind::Gpu);
        gpus.max_by_key(|quota| quota.limit)
            .map(|quota| &quota.tenant)
    }

    pub fn of(workload: &Workload, rate: u32) -> Self {
        let recorded = demand::peaks(workload, 0);
        let ample = demand::peaks(workload, SLACK_REAL_MS.saturating_mul(rate.into()));
        let gpu = |peaks: &demand::Peaks| peaks.get(&ResourceKind::Gpu).copied().unwrap_or(0);
        let largest = recorded.iter().max_by_key(|(_, peaks)| gpu(peaks));
        let tight = largest
            .filter(|(_, peaks)| gpu(peaks) > 0)
            .map(|(tenant, _)| tenant.clone());
        let mut quotas = Vec::new();
        for (tenant, peaks) in &ample {
            for (resource, step) in QUOTA_STEPS {
                let peak = peaks.get(&resource).copied().unwrap_or(0);
                let limit = if resource == ResourceKind::Gpu && tight.as_ref() == Some(tenant) {
                    gpu(&recorded[tenant]) * TIGHT_TENTHS / 10
                } else {
                    peak.div_ceil(step) * step
                };
                quotas.push(Quota {
                    tenant: tenant.clone(),
                    resource,
                    limit: limit.min(QUOTA_MAX),
                });
            }
        }
        let models = workload.gpu_models();
        let wanted = |resource: &str| match resource.strip_prefix("gpu:") {
            Some(model) => models.iter().any(|known| known.as_str() == model),
            None => true,
        };
        let rates = RATES.into_iter().filter(|(resource, _)| wanted(resource));
        Self {
            tenants: workload.tenants(),
            quotas,
            rates: rates
                .map(|(resource, micro_per_unit_hour)| Rate {
                    resource: resource.to_owned(),
                    micro_per_unit_hour,
                })
                .collect(),
            tight,
        }
    }

    /// Tenants first, for a quota needs one. Ids follow from the content, so applying twice changes nothing.
    fn stages(&self) -> [Vec<Operation>; 2] {
        let tenants = self.tenants.iter().map(|tenant| {
            let verb = Verb::SetTenant(SetTenant {
                tenant: tenant.to_string(),
                // A measure sends as much as it can.
                rate_milli: Some(0),
                ..SetTenant::default()
            });
            Operation::new(format!("tenant-{tenant}"), verb)
        });
        let quotas = self.quotas.iter().map(|quota| {
            let verb = Verb::SetQuota(SetQuota {
                tenant: quota.tenant.to_string(),
                resource: quota.resource.name().to_owned(),
                // At most 2^53.
                limit: quota.limit as i64,
                ..SetQuota::default()
            });
            let (tenant, resource) = (&quota.tenant, quota.resource.name());
            Operation::new(format!("quota-{tenant}-{resource}-{}", quota.limit), verb)
        });
        let rates = self.rates.iter().map(|rate| {
            let verb = Verb::SetRate(SetRate {
                resource: rate.resource.clone(),
                // Far below the contract's 10^12.
                micro_per_unit_hour: rate.micro_per_unit_hour as i64,
                ..SetRate::default()
            });
            let resource = rate.resource.replace(':', "-");
            Operation::new(
                format!("rate-{resource}-{}", rate.micro_per_unit_hour),
                verb,
            )
        });
        let classes = Qos::ALL.into_iter().map(|qos| {
            let verb = Verb::SetPriorityClass(SetPriorityClass {
                priority_class: qos.class().to_owned(),
                value: qos.priority(),
                preemptible: qos.is_preemptible(),
                preempts: !qos.is_preemptible(),
                ..SetPriorityClass::default()
            });
            Operation::new(format!("class-{}", qos.class()), verb)
        });
        [
            tenants.collect(),
            quotas.chain(rates).chain(classes).collect(),
        ]
    }

    pub fn operations(&self) -> usize {
        self.stages().iter().map(Vec::len).sum()
    }

    /// What costs how much, for the report.
    pub fn prices(&self) -> BTreeMap<String, u64> {
        let price = |rate: &Rate| (rate.resource.clone(), rate.micro_per_unit_hour);
        self.rates.iter().map(price).collect()
    }

    pub async fn apply(&self, operator: &Client) -> Result<(), OperatorError> {
        for stage in self.stages() {
            let all = stage.iter().map(|operation| apply(operator, operation));
            futures::future::try_join_all(all).await?;
        }
        Ok(())
    }
}

/// Makes the bill of a month final.
pub async fn close(operator: &Client, month: Month) -> Result<(), OperatorError> {
    let verb = Verb::ClosePeriod(ClosePeriod {
        month: month.0,
        expected_version: None,
    });
    apply(operator, &Operation::new(format!("close-{month}"), verb)).await
}

async fn apply(operator: &Client, operation: &Operation) -> Result<(), OperatorError> {
    let settled = operator.settle(operation, ATTEMPTS, RETRY_PAUSE).await;
    let Outcome { result, .. } = settled.map_err(|source| OperatorError::NoOutcome {
        operation: operation.id().to_owned(),
        source,
    })?;
    let explanation = match result {
        Some(Decided::Applied(_)) => return Ok(()),
        Some(Decided::Refused(refused)) => refused.explanation,
        Some(_) | None => "it was answered as another verb".to_owned(),
    };
    Err(OperatorError::Refused {
        operation: operation.id().to_owned(),
        explanation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Selection, openb};
    use std::collections::BTreeSet;

    #[test]
    fn one_tenant_is_held_below_its_peak_and_the_others_are_not() {
        let workload = openb(Selection::plain());
        let settings = Settings::of(&workload, 172_040);
        assert_eq!(settings, Settings::of(&workload, 172_040));
        assert_eq!(
            settings.tight.as_ref().map(Token::as_str),
            Some("burstable")
        );
        let recorded = demand::peaks(&workload, 0);
        for quota in &settings.quotas {
            let tight = quota.tenant.as_str() == "burstable" && quota.resource == ResourceKind::Gpu;
            let peak = recorded[&quota.tenant][&quota.resource];
            assert_eq!(quota.limit < peak, tight, "{quota:?} peak {peak}");
        }
    }

    #[test]
    fn operation_ids_are_names_and_no_two_are_the_same() {
        let settings = Settings::of(&openb(Selection::plain()), 1);
        let stages = settings.stages();
        let ids: BTreeSet<&str> = stages.iter().flatten().map(Operation::id).collect();
        assert_eq!(ids.len(), settings.operations());
        assert!(ids.iter().all(|id| Token::new(id).is_ok()));
        assert_eq!(settings.operations(), 8 + 24 + 9 + 5);
    }
}
