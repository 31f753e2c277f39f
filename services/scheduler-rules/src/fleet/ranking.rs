//! Which node is best for a class, kept up to date from the nodes that changed.
//!
//! A ranking holds one value per node, in blocks of 64 with the maximum of each block, and of each 64 blocks. What a
//! decision costs is one new value for each node that changed since the class was last asked for, and a walk down the
//! blocks: next to nothing of it grows with the cluster.

use super::NodeNo;
use std::ops::{ControlFlow, Range};

const FANOUT: usize = 64;

/// How good a node is: 0 when the class does not fit, else whether it goes there gladly, the score and, among equals, the
/// node's precedence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value(u64);

impl Value {
    pub const NONE: Self = Self(0);

    const GLADLY: u64 = 1 << 63;
    /// Scores are at most a little above 2^30; higher ones count as this.
    const SCORE_MAX: u64 = (1 << 31) - 2;

    pub fn new(score: u32, precedence: u32) -> Self {
        let score = u64::from(score).min(Self::SCORE_MAX) + 1;
        Self(Self::GLADLY | score << 32 | u64::from(precedence))
    }

    /// The same of a node that every other one goes before.
    pub fn reluctantly(self) -> Self {
        Self(self.0 & !Self::GLADLY)
    }

    pub fn fits(self) -> bool {
        self != Self::NONE
    }

    pub fn score(self) -> u32 {
        let score = ((self.0 & !Self::GLADLY) >> 32) as u32;
        score.saturating_sub(1)
    }
}

/// The best few nodes so far, the best first.
#[derive(Debug, Clone, Copy)]
pub struct Best {
    nodes: [(NodeNo, Value); Self::MOST],
    found: usize,
    most: usize,
}

impl Best {
    pub const MOST: usize = 8;

    /// None yet; `most` at the most, of which there are 1 to `MOST`.
    pub fn new(most: usize) -> Self {
        Self {
            nodes: [(NodeNo(0), Value::NONE); Self::MOST],
            found: 0,
            most: most.clamp(1, Self::MOST),
        }
    }

    pub fn nodes(&self) -> &[(NodeNo, Value)] {
        &self.nodes[..self.found]
    }

    /// What is no better than this is none of them.
    pub fn least(&self) -> Value {
        match self.found == self.most {
            true => self.nodes[self.most - 1].1,
            false => Value::NONE,
        }
    }

    pub fn offer(&mut self, node: NodeNo, value: Value) {
        if value <= self.least() {
            return;
        }
        let mut at = self.found.min(self.most - 1);
        while at > 0 && self.nodes[at - 1].1 < value {
            self.nodes[at] = self.nodes[at - 1];
            at -= 1;
        }
        self.nodes[at] = (node, value);
        self.found = (self.found + 1).min(self.most);
    }
}

#[derive(Debug, Default)]
pub struct Ranking {
    /// By node, then by block of nodes, and so on up to a single value.
    levels: Vec<Vec<Value>>,
}

impl Ranking {
    pub fn new(values: Vec<Value>) -> Self {
        let mut levels = vec![values];
        while let Some(last) = levels.last()
            && last.len() > 1
        {
            let above = last.chunks(FANOUT).map(max).collect();
            levels.push(above);
        }
        Self { levels }
    }

    pub fn len(&self) -> usize {
        self.levels.first().map_or(0, Vec::len)
    }

    pub fn set(&mut self, node: NodeNo, value: Value) {
        let mut at = node.0 as usize;
        let mut before = std::mem::replace(&mut self.levels[0][at], value);
        let mut now = value;
        for level in 1..self.levels.len() {
            let block = at / FANOUT;
            let best = self.levels[level][block];
            // Only where the best has become less is another one looked for.
            let after = if now >= best {
                now
            } else if before < best {
                return;
            } else {
                let below = &self.levels[level - 1][block * FANOUT..];
                max(&below[..below.len().min(FANOUT)])
            };
            if after == best {
                return;
            }
            self.levels[level][block] = after;
            (before, now, at) = (best, after, block);
        }
    }

    /// Adds those of the best nodes that `allowed` lets pass. Nodes that cannot be among the best are not looked at.
    pub fn best(&self, best: &mut Best, mut allowed: impl FnMut(NodeNo) -> bool) {
        if let Some(top) = self.levels.len().checked_sub(1) {
            for block in 0..self.levels[top].len() {
                self.descend(top, block, best, &mut allowed);
            }
        }
    }

    fn descend(
        &self,
        level: usize,
        at: usize,
        best: &mut Best,
        allowed: &mut impl FnMut(NodeNo) -> bool,
    ) {
        let value = self.levels[level][at];
        if value <= best.least() {
            return;
        }
        if level == 0 {
            // Nodes are counted by a u32.
            let node = NodeNo(at as u32);
            if allowed(node) {
                best.offer(node, value);
            }
            return;
        }
        let members = at * FANOUT..((at + 1) * FANOUT).min(self.levels[level - 1].len());
        // The block's best first: unless it is not allowed, most others are then passed over at once.
        let first = self.levels[level - 1][members.clone()]
            .iter()
            .position(|member| *member == value)
            .map(|first| members.start + first);
        if let Some(first) = first {
            self.descend(level - 1, first, best, allowed);
        }
        if best.least() >= value {
            return;
        }
        for member in members {
            if Some(member) != first && self.levels[level - 1][member] > best.least() {
                self.descend(level - 1, member, best, allowed);
            }
        }
    }

    /// All nodes on which the class fits, until `each` has seen enough.
    pub fn fitting(&self, mut each: impl FnMut(NodeNo) -> ControlFlow<()>) {
        if let Some(top) = self.levels.len().checked_sub(1) {
            // Whether it was stopped makes no difference here.
            let _ = self.fitting_in(top, 0..self.levels[top].len(), &mut each);
        }
    }

    fn fitting_in(
        &self,
        level: usize,
        members: Range<usize>,
        each: &mut impl FnMut(NodeNo) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for at in members {
            if !self.levels[level][at].fits() {
                continue;
            }
            match level.checked_sub(1) {
                // Nodes are counted by a u32.
                None => each(NodeNo(at as u32))?,
                Some(below) => {
                    let end = ((at + 1) * FANOUT).min(self.levels[below].len());
                    self.fitting_in(below, at * FANOUT..end, each)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn max(values: &[Value]) -> Value {
    Value(values.iter().fold(0, |max, value| max.max(value.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(
        values: &[Value],
        most: usize,
        allowed: impl Fn(usize) -> bool,
    ) -> Vec<(NodeNo, Value)> {
        let fitting = values.iter().enumerate().filter(|(_, value)| value.fits());
        let allowed = fitting.filter(|(at, _)| allowed(*at));
        let mut all: Vec<_> = allowed
            .map(|(at, value)| (NodeNo(at as u32), *value))
            .collect();
        all.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
        all.truncate(most);
        all
    }

    /// The number of a node in the seed's sequence (SplitMix64).
    fn draw(seed: u64, at: usize) -> u32 {
        let mut drawn = seed.wrapping_add((at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (drawn >> 33) as u32
    }

    #[test]
    fn gladly_goes_before_any_score() {
        let poor = Value::new(0, 0);
        let good = Value::new(u32::MAX, u32::MAX).reluctantly();
        assert!(poor > good && good.fits() && good > Value::NONE);
        assert!(Value::new(7, 1) > Value::new(6, 9) && Value::new(7, 2) > Value::new(7, 1));
        assert_eq!((Value::new(7, 1).score(), Value::NONE.score()), (7, 0));
        assert_eq!(Value::new(7, 1).reluctantly().score(), 7);
        assert_eq!(Value::NONE.reluctantly(), Value::NONE);
    }

    proptest! {
        #[test]
        fn the_best_are_the_best_after_any_changes(
            nodes in 1usize..9000,
            seed in any::<u64>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(0u32..6)), 0..50),
            modulus in 1usize..7,
            most in 1usize..=Best::MOST,
        ) {
            let value = |at: usize, score: Option<u32>| {
                score.map_or(Value::NONE, |score| Value::new(score, (at * 7919 % 104729) as u32))
            };
            // A strategy for each of the nodes would take longer than all else. One in six does not fit.
            let mut values: Vec<_> = (0..nodes)
                .map(|at| value(at, Some(draw(seed, at) % 6).filter(|score| *score < 5)))
                .collect();
            let mut ranking = Ranking::new(values.clone());
            for (index, score) in changes {
                let at = index.index(values.len());
                values[at] = value(at, score);
                ranking.set(NodeNo(at as u32), values[at]);
            }
            let allowed = |at: usize| at % modulus != 1;
            let mut best = Best::new(most);
            ranking.best(&mut best, |node| allowed(node.0 as usize));
            prop_assert_eq!(best.nodes(), naive(&values, most, allowed));

            let mut fitting = Vec::new();
            ranking.fitting(|node| {
                fitting.push(values[node.0 as usize]);
                ControlFlow::Continue(())
            });
            let all: Vec<_> = values.iter().copied().filter(|value| value.fits()).collect();
            prop_assert_eq!(fitting, all);
        }
    }
}
