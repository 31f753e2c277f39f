//! Exports the amounts of this month's bill as metrics.

use crate::metrics::{BILL_AMOUNT, TENANT_BILL_AMOUNT};
use crate::store::{Store, StoreError, TenantAmount};
use chassis::{Metrics, Stopwatch, metrics::Fraction};
use prometheus_client::{encoding::EncodeLabelSet, metrics::family::Family};
use std::{convert::Infallible, time::Duration};

/// Real time between two readings, at least.
const READ_EVERY: Duration = Duration::from_secs(30);
/// Least duration of a pause in durations of the reading before it: readings take at most 1 % of the time with any number of rows.
const PAUSE_PER_READING: u32 = 100;
/// Tenants with a metric.
const TENANTS_MAX: usize = 200;

pub struct Spending {
    store: Store,
    currency: String,
    of_all: Family<OfAll, Fraction>,
    of_tenants: Family<OfTenant, Fraction>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAll {
    currency: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTenant {
    tenant: String,
    currency: String,
}

impl Spending {
    pub fn new(store: Store, currency: &str, metrics: &Metrics) -> Self {
        Self {
            store,
            currency: currency.to_owned(),
            of_all: metrics.register(&BILL_AMOUNT, Family::default()),
            of_tenants: metrics.register(&TENANT_BILL_AMOUNT, Family::default()),
        }
    }

    pub async fn export(self) -> Infallible {
        loop {
            let reading = Stopwatch::start();
            // The projection reports whether ClickHouse answers.
            if let Err(error) = self.read().await {
                tracing::debug!(%error, "this month's amounts are not known");
            }
            let pause = reading.elapsed().saturating_mul(PAUSE_PER_READING);
            tokio::time::sleep(pause.max(READ_EVERY)).await;
        }
    }

    async fn read(&self) -> Result<(), StoreError> {
        self.set(&self.store.month_amounts().await?);
        Ok(())
    }

    /// `amounts`: the largest first.
    fn set(&self, amounts: &[TenantAmount]) {
        let all = amounts.iter().map(|of| of.amount_micro).sum();
        let currency = self.currency.clone();
        let of_all = self.of_all.get_or_create(&OfAll { currency });
        of_all.set(units(all));
        // Tenants without a line in a new month are gone.
        self.of_tenants.clear();
        for TenantAmount {
            tenant,
            amount_micro,
        } in amounts.iter().take(TENANTS_MAX)
        {
            let of_tenant = OfTenant {
                tenant: tenant.clone(),
                currency: self.currency.clone(),
            };
            let metric = self.of_tenants.get_or_create(&of_tenant);
            metric.set(units(*amount_micro));
        }
    }
}

/// Units of the currency.
fn units(micro: i128) -> f64 {
    micro as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::gauge::Gauge;

    #[tokio::test]
    async fn tenants_without_a_line_are_gone() {
        let (of_all, of_tenants) = (Family::default(), Family::default());
        let spending = Spending {
            store: Store::new(clickhouse::Client::default(), "none", vocab::CellNo(1)),
            currency: "EUR".to_owned(),
            of_all,
            of_tenants,
        };
        let amount = |tenant: &str, amount_micro| TenantAmount {
            tenant: tenant.to_owned(),
            amount_micro,
        };
        let label = |tenant: &str| OfTenant {
            tenant: tenant.to_owned(),
            currency: "EUR".to_owned(),
        };
        let shown = |tenant: &str| {
            spending
                .of_tenants
                .get(&label(tenant))
                .map(|it| Gauge::get(&it))
        };
        let all = || {
            let currency = "EUR".to_owned();
            spending.of_all.get_or_create(&OfAll { currency }).get()
        };
        spending.set(&[amount("a", 2_500_000), amount("b", 1)]);
        assert_eq!(
            (all(), shown("a"), shown("b")),
            (2.500001, Some(2.5), Some(0.000001))
        );
        spending.set(&[amount("b", 1_000_000)]);
        assert_eq!((all(), shown("a"), shown("b")), (1.0, None, Some(1.0)));
        let many: Vec<_> = (0..=TENANTS_MAX)
            .map(|no| amount(&format!("t{no}"), 1_000_000))
            .collect();
        spending.set(&many);
        assert_eq!(
            (all(), shown("t199"), shown("t200")),
            (201.0, Some(1.0), None)
        );
    }
}
