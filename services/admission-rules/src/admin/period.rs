//! Months whose bill is final.

use crate::Admission;
use vocab::fact::PeriodClosed;
use vocab::{AdminChange, HOUR_MS, Millis, Month, Refusal, Rule};

/// So long after its end a month can be closed at the earliest: agents have reported by then what ended in its last moments,
/// and what they report later is a correction.
const SETTLE_MS: i64 = HOUR_MS;

impl Admission {
    pub(super) fn check_period(&self, month: Month, now: Millis) -> Result<AdminChange, Refusal> {
        let subject = "month";
        let over = |rule, limit: Month| {
            Refusal::over(rule, subject, u64::from(limit.0), u64::from(month.0))
        };
        if month.checked().is_none() {
            return Err(Refusal::new(Rule::SettingInvalid, subject));
        }
        if let Some(closed) = self.closed_through {
            if month <= closed {
                return Err(over(Rule::PeriodClosed, closed));
            }
            if month != closed.next() {
                return Err(over(Rule::PeriodOutOfTurn, closed.next()));
            }
        }
        let from = month.end().plus(SETTLE_MS);
        if now < from {
            let (from, now) = (from.0.unsigned_abs(), now.0.max(0).unsigned_abs());
            return Err(Refusal::over(Rule::PeriodNotOver, subject, from, now));
        }
        Ok(AdminChange::Period(PeriodClosed { month }))
    }
}
