//! Figures of several rounds, with their aims.

use super::figures::{median, round};
use replay::command::Size;
use serde::Serialize;
use std::fmt;

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

/// One figure: the median of its rounds, and all of them.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub name: &'static str,
    unit: &'static str,
    pub median: f64,
    rounds: Vec<f64>,
    /// The least and the most.
    spread: [f64; 2],
    aim: Option<Aim>,
    /// Judged by the median.
    met: Option<bool>,
}

impl Figure {
    pub fn new(
        name: &'static str,
        unit: &'static str,
        rounds: impl IntoIterator<Item = f64>,
    ) -> Self {
        let rounds: Vec<f64> = rounds.into_iter().map(|one| round(one, 3)).collect();
        let least = rounds.iter().copied().reduce(f64::min);
        let most = rounds.iter().copied().reduce(f64::max);
        Self {
            name,
            unit,
            median: median(&rounds),
            spread: [least, most].map(Option::unwrap_or_default),
            rounds,
            aim: None,
            met: None,
        }
    }

    pub fn aims(self, aim: Aim) -> Self {
        let met = match aim {
            Aim::AtLeast(least) => self.median >= least,
            Aim::AtMost(most) => self.median <= most,
            Aim::Below(bound) => self.median < bound,
        };
        Self {
            aim: Some(aim),
            // Of nothing, nothing is known.
            met: (!self.rounds.is_empty()).then_some(met),
            ..self
        }
    }

    /// Drops the aim at the smallest size.
    pub fn judged(self, size: Size) -> Self {
        Self {
            aim: self.aim.filter(|_| !size.smoke),
            met: self.met.filter(|_| !size.smoke),
            ..self
        }
    }
}

/// The figures; at the smallest size without their aims.
pub fn judged(figures: Vec<Figure>, size: Size) -> Vec<Figure> {
    let figures = figures.into_iter();
    figures.map(|figure| figure.judged(size)).collect()
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [least, most] = self.spread;
        let (name, unit) = (self.name, self.unit);
        write!(f, "{name}: {} {unit} ({least} to {most})", self.median)?;
        match self.aim {
            None => return Ok(()),
            Some(Aim::AtLeast(least)) => write!(f, ", aim at least {least}")?,
            Some(Aim::AtMost(most)) => write!(f, ", aim at most {most}")?,
            Some(Aim::Below(bound)) => write!(f, ", aim below {bound}")?,
        }
        f.write_str(match self.met {
            Some(true) => ": met",
            Some(false) => ": MISSED",
            None => ": not measured",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_says_whether_it_is_what_it_should_be() {
        let check = |rounds: &[f64], aim: Aim, expected: &str| {
            let figure = Figure::new("rate", "/s", rounds.iter().copied()).aims(aim);
            assert_eq!(figure.to_string(), expected);
        };
        let rounds = [210.0, 190.0, 200.0];
        check(
            &rounds,
            Aim::AtLeast(200.0),
            "rate: 200 /s (190 to 210), aim at least 200: met",
        );
        check(
            &rounds,
            Aim::Below(200.0),
            "rate: 200 /s (190 to 210), aim below 200: MISSED",
        );
        check(
            &rounds,
            Aim::AtMost(200.0),
            "rate: 200 /s (190 to 210), aim at most 200: met",
        );
        check(
            &[],
            Aim::AtMost(1.0),
            "rate: 0 /s (0 to 0), aim at most 1: not measured",
        );
    }

    #[test]
    fn the_smallest_size_judges_no_aim() {
        let figure = Figure::new("rate", "/s", [1.0]).aims(Aim::AtLeast(2.0));
        let figure = figure.judged(Size { smoke: true });
        assert_eq!(figure.to_string(), "rate: 1 /s (1 to 1)");
    }
}
