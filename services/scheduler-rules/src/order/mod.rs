//! In which order those who wait are served.
//!
//! A policy is a key, and the smaller key goes first; equal scores go by arrival. Scores are integers: logarithms are in
//! fixed point, and where a formula is a product or a quotient its logarithm is compared instead, which is the same order.

mod aged_area;
mod densest;
mod f1;
mod fcfs;
mod log2;
mod remaining;
mod sjf;
mod unicep;
mod wfp3;

pub use densest::densest;

/// What a policy may know of one that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Unique, and growing with arrival: it settles what is left equal.
    pub number: u64,
    pub submitted_ms: i64,
    /// The run time that was asked for.
    pub estimate_ms: u64,
    /// What is left of it: all for one that has never run.
    pub remaining_ms: u64,
    /// Devices or processors, whichever the queue counts by.
    pub size: u64,
}

impl Waiting {
    /// Negative for one that is submitted later.
    fn waited_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(self.submitted_ms)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    Fcfs,
    Sjf,
    F1,
    Wfp3,
    Unicep,
    Srtf,
    Srsf,
    #[default]
    AgedArea,
}

impl Order {
    pub const ALL: [Self; 8] = [
        Self::Fcfs,
        Self::Sjf,
        Self::F1,
        Self::Wfp3,
        Self::Unicep,
        Self::Srtf,
        Self::Srsf,
        Self::AgedArea,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Sjf => "sjf",
            Self::F1 => "f1",
            Self::Wfp3 => "wfp3",
            Self::Unicep => "unicep",
            Self::Srtf => "srtf",
            Self::Srsf => "srsf",
            Self::AgedArea => "aged-area",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.name() == name)
    }
}

/// Smaller goes first. Keys are comparable when they are of the same policy and the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderKey {
    score: i128,
    submitted_ms: i64,
    number: u64,
}

impl OrderKey {
    /// The score alone; scores that do not differ by a log2 of 2^-24 or so may be equal here.
    pub fn score(&self) -> i64 {
        i64::try_from(self.score).unwrap_or(if self.score > 0 { i64::MAX } else { i64::MIN })
    }
}

/// Constant time.
pub fn key(order: Order, waiting: &Waiting, now_ms: i64) -> OrderKey {
    let score = match order {
        Order::Fcfs => fcfs::score(waiting),
        Order::Sjf => sjf::score(waiting),
        Order::F1 => f1::score(waiting),
        Order::Wfp3 => wfp3::score(waiting, now_ms),
        Order::Unicep => unicep::score(waiting, now_ms),
        Order::Srtf => remaining::srtf(waiting),
        Order::Srsf => remaining::srsf(waiting),
        Order::AgedArea => aged_area::score(waiting, now_ms),
    };
    OrderKey {
        score,
        submitted_ms: waiting.submitted_ms,
        number: waiting.number,
    }
}

/// Puts products of which one factor may be negative into order by the logarithm of their amount: below all others the
/// most negative.
fn signed(sign: i64, log2: i128) -> i128 {
    /// Above any sum of logarithms that a score has.
    const OFFSET: i128 = 1 << 64;
    match sign.signum() {
        0 => 0,
        sign => i128::from(sign) * (OFFSET + log2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs of (submitted s, run time s, size), numbered from 1; the numbers as they are served.
    pub fn served(order: Order, now_s: i64, jobs: &[(i64, u64, u64)]) -> String {
        let mut keys: Vec<OrderKey> = jobs
            .iter()
            .zip(1..)
            .map(|((submitted_s, run_s, size), number)| Waiting {
                number,
                submitted_ms: submitted_s * 1000,
                estimate_ms: run_s * 1000,
                remaining_ms: run_s * 1000,
                size: *size,
            })
            .map(|waiting| key(order, &waiting, now_s * 1000))
            .collect();
        keys.sort_unstable();
        let numbers: Vec<String> = keys.iter().map(|key| key.number.to_string()).collect();
        numbers.join(" ")
    }

    #[test]
    fn names_are_read_back() {
        for order in Order::ALL {
            assert_eq!(Order::parse(order.name()), Some(order));
        }
        assert_eq!(Order::parse("lifo"), None);
        assert_eq!(Order::default().name(), "aged-area");
    }

    #[test]
    fn extremes_have_a_key_and_ties_go_by_arrival() {
        let extremes = [0, 1, u64::MAX];
        for order in Order::ALL {
            for amount in extremes {
                for (submitted_ms, now_ms) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (0, 0)] {
                    let waiting = Waiting {
                        number: 1,
                        submitted_ms,
                        estimate_ms: amount,
                        remaining_ms: amount,
                        size: amount,
                    };
                    let later = Waiting {
                        number: 2,
                        ..waiting
                    };
                    assert!(key(order, &waiting, now_ms) < key(order, &later, now_ms));
                }
            }
        }
    }
}
