//! The highest sustained rate: a guess, then steps up or down until it lies between two rates, then in between.

const UP: f64 = 1.25;
const DOWN: f64 = 0.75;
/// Closer than this is noise.
const CLOSE: f64 = 1.06;

#[derive(Debug)]
pub struct Search {
    guess: f64,
    /// The highest that was sustained, and the lowest above it that was not.
    low: Option<f64>,
    high: Option<f64>,
    steps: u32,
}

impl Search {
    /// From what a closed loop reached.
    pub fn around(guess: f64, steps: u32) -> Self {
        Self {
            guess,
            low: None,
            high: None,
            steps,
        }
    }

    /// The rate to try; none when it is known well enough, or there were enough tries.
    pub fn next(&self) -> Option<f64> {
        if self.steps == 0 {
            return None;
        }
        match (self.low, self.high) {
            (None, None) => Some(self.guess),
            (Some(low), None) => Some(low * UP),
            (None, Some(high)) => Some(high * DOWN),
            (Some(low), Some(high)) => (high / low > CLOSE).then(|| (low * high).sqrt()),
        }
    }

    pub fn tried(&mut self, rate: f64, sustained: bool) {
        self.steps = self.steps.saturating_sub(1);
        if sustained {
            self.low = Some(self.low.map_or(rate, |low| low.max(rate)));
        } else {
            self.high = Some(self.high.map_or(rate, |high| high.min(rate)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Search;

    /// Everything up to `limit` is sustained; what is found, and in how many steps.
    fn find(guess: f64, limit: f64, steps: u32) -> (Option<f64>, u32) {
        let mut search = Search::around(guess, steps);
        let mut tries = 0;
        while let Some(rate) = search.next() {
            search.tried(rate, rate <= limit);
            tries += 1;
        }
        (search.low, tries)
    }

    #[test]
    fn it_comes_close_from_below_whether_the_guess_is_high_or_low() {
        for limit in [60.0, 70.0, 80.0, 92.0, 100.0, 114.0, 150.0] {
            let (found, tries) = find(100.0, limit, 6);
            let found = found.expect("within the steps");
            assert!(found <= limit && found > limit * 0.9, "{limit}: {found}");
            assert!(tries <= 6);
        }
    }

    #[test]
    fn a_guess_far_too_high_ends_with_nothing_after_its_steps() {
        assert_eq!(find(100.0, 1.0, 5), (None, 5));
    }
}
