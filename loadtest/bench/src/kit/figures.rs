//! Numbers from what was counted and timed.

use std::{cmp::Ordering, time::Duration};

pub fn per_s(count: u64, took: Duration) -> u64 {
    (count as f64 / took.as_secs_f64().max(1e-9)) as u64
}

pub fn round(number: f64, digits: i32) -> f64 {
    let ten = 10_f64.powi(digits);
    (number * ten).round() / ten
}

/// Of nothing: 0.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Of two in the middle the lower one; of nothing, 0.
pub fn median<T: Copy + Default + PartialOrd>(values: &[T]) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    let middle = sorted.len().saturating_sub(1) / 2;
    sorted.get(middle).copied().unwrap_or_default()
}

/// The least and the most; of nothing, 0.
pub fn spread(values: &[u64]) -> [u64; 2] {
    let (least, most) = (values.iter().min(), values.iter().max());
    [least, most].map(|of| of.copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[u64], expected: (u64, [u64; 2], f64)) {
        let floats: Vec<f64> = values.iter().map(|value| *value as f64).collect();
        let found = (median(values), spread(values), mean(&floats));
        assert_eq!(found, expected, "{values:?}");
        assert_eq!(median(&floats), expected.0 as f64);
    }

    #[test]
    fn runs_are_summed_up_in_whatever_order_they_came() {
        check(&[], (0, [0, 0], 0.0));
        check(&[7], (7, [7, 7], 7.0));
        check(&[9, 1, 5], (5, [1, 9], 5.0));
        check(&[8, 2, 4, 6], (4, [2, 8], 5.0));
    }

    #[test]
    fn a_rate_needs_no_time_to_be_one() {
        assert_eq!(per_s(300, Duration::from_millis(1500)), 200);
        assert_eq!(per_s(0, Duration::ZERO), 0);
    }
}
