//! The highest sustained rate: a guess, then steps downwards and in between.

/// A guess may be too low by so much.
const ABOVE: f64 = 1.15;
/// The first try, and the step down while nothing is sustained.
const DOWN: f64 = 0.8;
/// Closer than this is noise.
const CLOSE: f64 = 1.06;

#[derive(Debug)]
pub struct Search {
    /// Not sustained, or not believed to be.
    high: f64,
    /// Sustained; none yet: nothing.
    low: Option<f64>,
    steps: u32,
}

impl Search {
    /// From what a closed loop reached.
    pub fn below(guess: f64, steps: u32) -> Self {
        Self {
            high: guess * ABOVE,
            low: None,
            steps,
        }
    }

    /// The rate to try; none when it is known well enough, or there were enough tries.
    pub fn next(&self) -> Option<f64> {
        let rate = match self.low {
            _ if self.steps == 0 => return None,
            Some(low) if self.high / low < CLOSE => return None,
            Some(low) => (low * self.high).sqrt(),
            None => self.high * DOWN,
        };
        Some(rate)
    }

    pub fn tried(&mut self, rate: f64, sustained: bool) {
        self.steps = self.steps.saturating_sub(1);
        if sustained {
            self.low = Some(self.low.map_or(rate, |low| low.max(rate)));
        } else {
            self.high = self.high.min(rate);
        }
    }

    pub fn highest(&self) -> Option<f64> {
        self.low
    }
}

#[cfg(test)]
mod tests {
    use super::Search;

    /// Everything up to `limit` is sustained; what is found, and in how many steps.
    fn find(guess: f64, limit: f64, steps: u32) -> (Option<f64>, u32) {
        let mut search = Search::below(guess, steps);
        let mut tries = 0;
        while let Some(rate) = search.next() {
            search.tried(rate, rate <= limit);
            tries += 1;
        }
        (search.highest(), tries)
    }

    #[test]
    fn it_comes_close_from_below() {
        for limit in [70.0, 80.0, 92.0, 100.0, 114.0] {
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
