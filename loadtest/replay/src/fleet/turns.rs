//! When a node may report: one report of it is under way at a time, and the next one goes out no sooner than a pause
//! after the one before it did, unless there is enough for a full one.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// Times are since any fixed moment.
pub struct Turns {
    pause: Duration,
    nodes: Vec<Turn>,
    /// Nodes that wait for the end of their pause, earliest first.
    due: BinaryHeap<Reverse<(Duration, usize)>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    under_way: bool,
    /// Stands in `due`.
    waits: bool,
    not_before: Duration,
}

impl Turns {
    pub fn new(nodes: usize, pause: Duration) -> Self {
        Self {
            pause,
            nodes: vec![Turn::default(); nodes],
            due: BinaryHeap::new(),
        }
    }

    /// Whether the node may report now, which is then under way. One that may not is to ask again when its report is
    /// acknowledged, when it is due, or when it is `full`: there is as much as a report can have.
    pub fn take(&mut self, node: usize, now: Duration, full: bool) -> bool {
        let turn = &mut self.nodes[node];
        if turn.under_way || turn.waits && !full {
            return false;
        }
        if now < turn.not_before && !full {
            turn.waits = true;
            self.due.push(Reverse((turn.not_before, node)));
            return false;
        }
        turn.under_way = true;
        turn.not_before = now + self.pause;
        true
    }

    pub fn acknowledged(&mut self, node: usize) {
        self.nodes[node].under_way = false;
    }

    /// When the next pause ends that a node waits for.
    pub fn next(&self) -> Option<Duration> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// A node that has waited long enough.
    pub fn due(&mut self, now: Duration) -> Option<usize> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, node)) = self.due.pop()?;
        self.nodes[node].waits = false;
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_next_report_waits_for_the_acknowledgement_and_for_the_pause() {
        let mut turns = Turns::new(2, at(25));
        assert!(turns.take(0, at(0), false));
        assert!(!turns.take(0, at(1), false), "under way");
        turns.acknowledged(0);
        assert!(!turns.take(0, at(5), false), "too soon");
        assert!(!turns.take(0, at(6), false), "waits already");
        assert!(
            turns.take(1, at(10), false),
            "another node has its own pause"
        );
        assert_eq!(turns.next(), Some(at(25)));
        assert_eq!(turns.due(at(24)), None);
        assert_eq!(turns.due(at(25)), Some(0));
        assert_eq!((turns.due(at(25)), turns.next()), (None, None));
        assert!(turns.take(0, at(26), false));
        turns.acknowledged(0);
        assert!(
            turns.take(0, at(51), false),
            "a late acknowledgement is pause enough"
        );
    }

    #[test]
    fn a_full_report_waits_for_the_acknowledgement_only() {
        let mut turns = Turns::new(1, at(25));
        assert!(turns.take(0, at(0), true));
        assert!(!turns.take(0, at(1), true), "under way");
        turns.acknowledged(0);
        assert!(turns.take(0, at(2), true));
        turns.acknowledged(0);
        assert!(!turns.take(0, at(3), false), "too soon");
        assert!(turns.take(0, at(4), true), "full while it waits");
        turns.acknowledged(0);
        assert_eq!(turns.due(at(27)), Some(0));
        assert!(!turns.take(0, at(27), false), "too soon after the full one");
        assert_eq!(turns.due(at(29)), Some(0));
        assert!(turns.take(0, at(29), false));
    }

    #[test]
    fn without_a_pause_a_node_waits_for_its_acknowledgement_only() {
        let mut turns = Turns::new(1, Duration::ZERO);
        assert!(turns.take(0, at(3), false));
        assert!(!turns.take(0, at(3), false));
        turns.acknowledged(0);
        assert!(turns.take(0, at(3), false));
        assert_eq!(turns.next(), None);
    }
}
