//! How many requests of a tenant are taken: as many as its rate gives, and not more than a burst at once.

use super::super::settings::Settings;
use std::collections::BTreeMap;

/// What a request costs, where a millisecond gives the rate in thousandths of a request per second.
const REQUEST: u128 = 1_000_000;

#[derive(Debug, Default)]
pub struct Rates {
    /// What was left when the last one was taken, and when that was.
    left: BTreeMap<String, (u128, i64)>,
}

impl Rates {
    pub fn allows(&self, tenant: &str, now: i64, settings: &Settings) -> bool {
        let rate = rate(tenant, settings);
        rate == 0 || self.now(tenant, now, settings) >= REQUEST
    }

    /// Whatever is recorded of a tenant counts, repeats included.
    pub fn take(&mut self, tenant: &str, now: i64, settings: &Settings) {
        if rate(tenant, settings) == 0 {
            self.left.remove(tenant);
            return;
        }
        let left = self.now(tenant, now, settings).saturating_sub(REQUEST);
        self.left.insert(tenant.to_owned(), (left, now));
    }

    fn now(&self, tenant: &str, now: i64, settings: &Settings) -> u128 {
        let most = most(tenant, settings);
        let Some((left, since)) = self.left.get(tenant) else {
            return most;
        };
        let ms = u128::try_from(now - since).unwrap_or(0);
        most.min(left + ms * rate(tenant, settings))
    }
}

fn rate(tenant: &str, settings: &Settings) -> u128 {
    settings.tenant(tenant).map_or(0, |it| it.rate_milli.into())
}

fn most(tenant: &str, settings: &Settings) -> u128 {
    let (rate, burst) = settings
        .tenant(tenant)
        .map_or((0, 0), |it| (it.rate_milli, it.rate_burst));
    let burst = if burst == 0 {
        rate.div_ceil(1000)
    } else {
        burst
    };
    u128::from(burst.max(1)) * REQUEST
}
