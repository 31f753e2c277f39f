//! Which node is best for a class, kept up to date from the nodes that changed.
//!
//! A ranking holds one value per node, in blocks of 64 with the maximum of each block, and of each 64 blocks. What a
//! decision costs is one new value for each node that changed since the class was last asked for, and a walk down the
//! blocks: next to nothing of it grows with the cluster.

use super::NodeNo;

const FANOUT: usize = 64;

/// How good a node is: 0 when the class does not fit, else the score and, among equals, the node's precedence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value(u64);

impl Value {
    pub const NONE: Self = Self(0);

    pub fn new(score: u32, precedence: u32) -> Self {
        // A score of u32::MAX counts as the one below it.
        Self((u64::from(score) + 1).min(u64::from(u32::MAX)) << 32 | u64::from(precedence))
    }

    pub fn fits(self) -> bool {
        self != Self::NONE
    }

    pub fn score(self) -> u32 {
        ((self.0 >> 32) as u32).saturating_sub(1)
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
        if self.levels[0][at] == value {
            return;
        }
        self.levels[0][at] = value;
        for level in 1..self.levels.len() {
            let block = at / FANOUT;
            let (below, above) = self.levels.split_at_mut(level);
            let members = &below[level - 1][block * FANOUT..];
            let best = max(&members[..members.len().min(FANOUT)]);
            if above[0][block] == best {
                return;
            }
            above[0][block] = best;
            at = block;
        }
    }

    /// The best node that `allowed` lets pass. Nodes that cannot be better than the best so far are not looked at.
    pub fn best(&self, mut allowed: impl FnMut(NodeNo) -> bool) -> Option<(NodeNo, Value)> {
        let mut best = None;
        if let Some(top) = self.levels.len().checked_sub(1) {
            for block in 0..self.levels[top].len() {
                self.descend(top, block, &mut best, &mut allowed);
            }
        }
        best
    }

    fn descend(
        &self,
        level: usize,
        at: usize,
        best: &mut Option<(NodeNo, Value)>,
        allowed: &mut impl FnMut(NodeNo) -> bool,
    ) {
        let value = self.levels[level][at];
        if value <= best.map_or(Value::NONE, |(_, value)| value) {
            return;
        }
        if level == 0 {
            // Nodes are counted by a u32.
            let node = NodeNo(at as u32);
            if allowed(node) {
                *best = Some((node, value));
            }
            return;
        }
        let members = at * FANOUT..((at + 1) * FANOUT).min(self.levels[level - 1].len());
        // The block's best first: unless it is not allowed, the others are then passed over at once.
        let first = members
            .clone()
            .find(|member| self.levels[level - 1][*member] == value);
        if let Some(first) = first {
            self.descend(level - 1, first, best, allowed);
        }
        if best.is_some_and(|(_, best)| best >= value) {
            return;
        }
        for member in members {
            if Some(member) != first {
                self.descend(level - 1, member, best, allowed);
            }
        }
    }
}

fn max(values: &[Value]) -> Value {
    values.iter().copied().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(values: &[Value], allowed: impl Fn(usize) -> bool) -> Option<(NodeNo, Value)> {
        let fitting = values.iter().enumerate().filter(|(_, value)| value.fits());
        let (at, value) = fitting
            .filter(|(at, _)| allowed(*at))
            .max_by_key(|(_, v)| **v)?;
        Some((NodeNo(at as u32), *value))
    }

    proptest! {
        #[test]
        fn the_best_is_the_best_after_any_changes(
            scores in prop::collection::vec(prop::option::of(0u32..5), 1..9000),
            changes in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(0u32..6)), 0..50),
            modulus in 1usize..7,
        ) {
            let value = |at: usize, score: Option<u32>| {
                score.map_or(Value::NONE, |score| Value::new(score, (at * 7919 % 104729) as u32))
            };
            let mut values: Vec<_> = scores.iter().enumerate().map(|(at, s)| value(at, *s)).collect();
            let mut ranking = Ranking::new(values.clone());
            for (index, score) in changes {
                let at = index.index(values.len());
                values[at] = value(at, score);
                ranking.set(NodeNo(at as u32), values[at]);
            }
            let allowed = |at: usize| at % modulus != 1;
            prop_assert_eq!(ranking.best(|node| allowed(node.0 as usize)), naive(&values, allowed));
        }
    }
}
