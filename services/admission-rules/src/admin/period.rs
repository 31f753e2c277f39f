//! Months whose bill is final.

use crate::Admission;
use vocab::fact::PeriodClosed;
use vocab::{HOUR_MS, Millis, Month, Refusal, Rule};

/// So long after its end a month can be closed at the earliest: agents have reported by then what ended in its last moments,
/// and what they report later is a correction.
const SETTLE_MS: i64 = HOUR_MS;

const SUBJECT: &str = "month";

pub(super) fn read(month: Month) -> Result<PeriodClosed, Refusal> {
    match month.checked() {
        Some(_) => Ok(PeriodClosed { month }),
        None => Err(Refusal::new(Rule::SettingInvalid, SUBJECT)),
    }
}

impl Admission {
    pub(super) fn check_period(&self, month: Month, now: Millis) -> Result<(), Refusal> {
        let subject = SUBJECT;
        let over = |rule, limit: Month| {
            Refusal::over(rule, subject, u64::from(limit.0), u64::from(month.0))
        };
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
        Ok(())
    }
}
