//! Where a number stands on an axis.

/// From nothing on.
pub struct Linear {
    most: f64,
    from: f64,
    to: f64,
}

/// Whole decades.
pub struct Log {
    /// Exponents of ten.
    low: i32,
    high: i32,
    from: f64,
    to: f64,
}

impl Linear {
    pub fn to(most: f64, from: f64, to: f64) -> Self {
        Self { most, from, to }
    }

    pub fn at(&self, number: f64) -> f64 {
        self.from + (self.to - self.from) * number / self.most
    }

    /// Four to ten round numbers.
    pub fn ticks(&self) -> Vec<f64> {
        let decade = 10_f64.powf(self.most.log10().floor());
        let steps = [0.1, 0.2, 0.25, 0.5, 1.0].map(|part| part * decade);
        let fits = |step: &f64| self.most / step <= 10.0;
        let step = steps.into_iter().find(fits).unwrap_or(decade);
        let count = (self.most / step) as u32;
        (0..=count).map(|no| f64::from(no) * step).collect()
    }
}

impl Log {
    /// Decades that hold all numbers; what is not above nothing has no place.
    pub fn around(numbers: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let logs = numbers.filter(|number| *number > 0.0).map(f64::log10);
        let bounds = logs.fold(None, |bounds: Option<(f64, f64)>, log| {
            let (low, high) = bounds.unwrap_or((log, log));
            Some((low.min(log), high.max(log)))
        });
        let (low, high) = bounds.unwrap_or_default();
        let low = low.floor() as i32;
        Self {
            low,
            high: (high.ceil() as i32).max(low + 1),
            from,
            to,
        }
    }

    pub fn at(&self, number: f64) -> f64 {
        let log = number
            .max(f64::MIN_POSITIVE)
            .log10()
            .max(f64::from(self.low));
        let part = (log - f64::from(self.low)) / f64::from(self.high - self.low);
        self.from + (self.to - self.from) * part
    }

    pub fn ticks(&self) -> Vec<f64> {
        (self.low..=self.high)
            .map(|exponent| 10_f64.powi(exponent))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_at_nothing() {
        let x = Linear::to(80_000.0, 100.0, 500.0);
        assert_eq!(
            [0.0, 40_000.0, 80_000.0].map(|n| x.at(n)),
            [100.0, 300.0, 500.0]
        );
        assert_eq!(x.ticks().len(), 9);
        for most in [1.0, 7.0, 999.0, 1234.0, 25_000.0, 99_999.0] {
            let ticks = Linear::to(most, 0.0, 1.0).ticks();
            assert!((4..=11).contains(&ticks.len()), "{most}: {ticks:?}");
        }
    }

    #[test]
    fn decades_are_as_far_apart_as_each_other() {
        let y = Log::around([0.7, 250.0].into_iter(), 400.0, 0.0);
        assert_eq!(y.ticks(), [0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(
            [0.1, 1.0, 10.0, 1000.0].map(|n| y.at(n)),
            [400.0, 300.0, 200.0, 0.0]
        );
        assert_eq!(y.at(0.0), 400.0);
    }

    #[test]
    fn nothing_at_all_is_one_decade() {
        assert_eq!(
            Log::around(std::iter::empty(), 1.0, 0.0).ticks(),
            [1.0, 10.0]
        );
    }
}
