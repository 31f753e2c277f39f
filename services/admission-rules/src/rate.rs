//! How many requests a tenant may send: a token bucket, filled by the clock of the frames.

use serde::{Deserialize, Serialize};
use vocab::{Millis, Refusal, Rule, TenantSettings};

/// Thousandths of a millionth of a request: a request per 1000 s fills it by a whole number every millisecond.
const REQUEST: u64 = 1_000_000;

/// What a tenant may still send now. Refused requests take nothing from it, so it is a function of what was recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bucket {
    filled: u64,
    at: Millis,
}

/// The most that a bucket holds, in `REQUEST`s.
fn capacity(settings: &TenantSettings) -> u64 {
    let burst = match settings.rate_burst {
        0 => settings.rate_milli.div_ceil(1000),
        burst => burst,
    };
    burst.max(1) * REQUEST
}

impl Bucket {
    pub fn full(settings: &TenantSettings, now: Millis) -> Self {
        Self {
            filled: capacity(settings),
            at: now,
        }
    }

    /// What it holds at `now`, by the rate in thousandths of requests per second: the same number per ms and `REQUEST`.
    fn holds(&self, settings: &TenantSettings, now: Millis) -> u64 {
        let ms = now.0.saturating_sub(self.at.0).max(0) as u64;
        let gained = ms.saturating_mul(settings.rate_milli);
        self.filled.saturating_add(gained).min(capacity(settings))
    }

    pub fn check(&self, settings: &TenantSettings, now: Millis) -> Result<(), Refusal> {
        if settings.rate_milli == 0 || self.holds(settings, now) >= REQUEST {
            return Ok(());
        }
        let (rate, subject) = (settings.rate_milli, "rate_milli");
        Err(Refusal::over(Rule::RateLimited, subject, rate, 0))
    }

    /// A repeat is always answered, so there may be nothing left to take.
    pub fn take(&mut self, settings: &TenantSettings, now: Millis) {
        self.filled = self.holds(settings, now).saturating_sub(REQUEST);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests at these moments; which of them are let in.
    fn check(rate_milli: u64, rate_burst: u64, moments: &[i64], expected: &str) {
        let settings = TenantSettings {
            rate_milli,
            rate_burst,
            ..TenantSettings::default()
        };
        let mut bucket = Bucket::full(&settings, Millis(0));
        let mut let_in = |moment: &i64| {
            let fits = bucket.check(&settings, Millis(*moment)).is_ok();
            if fits {
                bucket.take(&settings, Millis(*moment));
            }
            if fits { 'x' } else { '.' }
        };
        let found: String = moments.iter().map(&mut let_in).collect();
        assert_eq!(found, expected, "{rate_milli} {rate_burst} {moments:?}");
    }

    #[test]
    fn as_many_as_the_rate_says_and_a_burst_after_a_pause() {
        check(0, 0, &[0, 0, 0], "xxx");
        check(2000, 0, &[0, 0, 0, 499, 500, 501, 1000], "xx..x.x");
        check(
            2000,
            3,
            &[0, 0, 0, 0, 10_000, 10_000, 10_000, 10_000],
            "xxx.xxx.",
        );
        check(1, 0, &[0, 999_999, 1_000_000], "x.x");
        // A clock that stands still, or a bucket from the future, gains nothing.
        check(1000, 1, &[5, 5, 4, 1005], "x..x");
        check(u64::MAX, u64::MAX / REQUEST, &[0, i64::MAX], "xx");
    }
}
