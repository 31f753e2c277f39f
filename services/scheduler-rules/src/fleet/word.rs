//! What is said of a node beside what it says when it registers. An operator: that it takes nothing new, that it is to be cleared,
//! and taints. Its agent: conditions, by some of which it has taints.

use super::{Fleet, KindNo, NodeNo};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use vocab::fact::{CordonSet, NodeConditionChanged, TaintsSet};
use vocab::{NodeCapacity, Taint, TaintEffect, Token};

/// It may come before its node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Word {
    pub cordoned: bool,
    /// Whatever runs there goes.
    pub drain: bool,
    /// So many of its allocations are on their way out at once, at the most; 0: all.
    pub at_once: u32,
    taints: Vec<Taint>,
    /// By what holds of it.
    pressures: Vec<Taint>,
    /// Those of the taints that the node does not have itself.
    added: Vec<Taint>,
}

/// A word was `true`, of a cordoned node, before it could be more.
#[derive(Serialize, Deserialize)]
enum Stored {
    Nothing,
    Cordoned,
    More {
        cordoned: bool,
        drain: bool,
        at_once: u32,
        taints: Vec<Taint>,
        pressures: Vec<Taint>,
        added: Vec<Taint>,
    },
}

impl From<Stored> for Word {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Nothing => Self::default(),
            Stored::Cordoned => Self {
                cordoned: true,
                ..Self::default()
            },
            Stored::More {
                cordoned,
                drain,
                at_once,
                taints,
                pressures,
                added,
            } => Self {
                cordoned,
                drain,
                at_once,
                taints,
                pressures,
                added,
            },
        }
    }
}

impl From<Word> for Stored {
    fn from(word: Word) -> Self {
        let Word {
            cordoned,
            drain,
            at_once,
            taints,
            pressures,
            added,
        } = word;
        let plain = !drain && at_once == 0 && taints.is_empty() && pressures.is_empty();
        match (cordoned, !plain) {
            (false, false) => Self::Nothing,
            (true, false) => Self::Cordoned,
            _ => Self::More {
                cordoned,
                drain,
                at_once,
                taints,
                pressures,
                added,
            },
        }
    }
}

impl Word {
    /// Whether something that runs there may have to go.
    fn clears(&self) -> bool {
        let runs_out = |taint: &Taint| taint.effect == TaintEffect::NoExecute;
        self.drain || self.taints.iter().any(runs_out)
    }

    fn beside(&self, own: &[Taint]) -> Vec<Taint> {
        let taints = self.taints.iter().chain(&self.pressures);
        taints
            .filter(|taint| !own.contains(taint))
            .cloned()
            .collect()
    }
}

impl Fleet {
    pub fn is_cordoned(&self, name: &Token) -> bool {
        self.words.get(name).is_some_and(|word| word.cordoned)
    }

    pub fn set_cordon(&mut self, set: &CordonSet) {
        let mut word = self.words.remove(&set.node).unwrap_or_default();
        word.cordoned = set.cordoned;
        word.drain = set.drain;
        word.at_once = set.at_once;
        self.keep(&set.node, word);
        if let Some(node) = self.find(&set.node) {
            self.composition.0 += 1;
            self.nodes[node.0 as usize].cordoned = set.cordoned;
            self.gained(node);
        }
    }

    pub fn set_taints(&mut self, set: &TaintsSet) {
        self.taint(&set.node, |word| word.taints.clone_from(&set.taints));
    }

    /// Whether anything depends on it.
    pub fn set_condition(&mut self, fact: &NodeConditionChanged) -> bool {
        let Some(taint) = fact.taint() else {
            return false;
        };
        let word = self.words.get(&fact.node);
        let before = word.is_some_and(|word| word.pressures.contains(&taint));
        // Another reason is no other taint.
        if before == fact.holds {
            return false;
        }
        self.taint(&fact.node, |word| {
            word.pressures.retain(|it| *it != taint);
            word.pressures.extend(fact.holds.then_some(taint));
            word.pressures.sort_by(|a, b| a.key.cmp(&b.key));
        });
        true
    }

    fn taint(&mut self, name: &Token, change: impl FnOnce(&mut Word)) {
        let mut word = self.words.remove(name).unwrap_or_default();
        let before = std::mem::take(&mut word.added);
        change(&mut word);
        if let Some(node) = self.find(name) {
            let old = self.node(node).kind;
            let mut capacity = self.kind(old).clone();
            capacity.taints.retain(|taint| !before.contains(taint));
            word.added = word.beside(&capacity.taints);
            capacity.taints.extend(word.added.iter().cloned());
            self.nodes[node.0 as usize].kind = KindNo(self.kinds.acquire(&capacity));
            if self.kinds.release(old.0).is_some() {
                self.changes.distrust();
            }
            self.composition.0 += 1;
            self.gained(node);
        }
        self.keep(name, word);
    }

    fn keep(&mut self, name: &Token, word: Word) {
        if word != Word::default() {
            self.words.insert(name.clone(), word);
        }
    }

    /// The capacity as it counts: with the taints of others' words.
    pub(super) fn as_said<'a>(
        &mut self,
        name: &Token,
        capacity: &'a NodeCapacity,
    ) -> Cow<'a, NodeCapacity> {
        let Some(word) = self.words.get_mut(name) else {
            return Cow::Borrowed(capacity);
        };
        word.added = word.beside(&capacity.taints);
        let mut capacity = Cow::Borrowed(capacity);
        if !word.added.is_empty() {
            let taints = &mut capacity.to_mut().taints;
            taints.extend(word.added.iter().cloned());
        }
        capacity
    }

    /// The nodes that something may have to go from, and what is said of them.
    pub fn clearing(&mut self) -> Vec<(NodeNo, Word)> {
        let words = self.words.iter().filter(|(_, word)| word.clears());
        let words: Vec<_> = words
            .map(|(name, word)| (name.clone(), word.clone()))
            .collect();
        let known = words
            .into_iter()
            .filter_map(|(name, word)| Some((self.find(&name)?, word)));
        known.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_that_was_only_a_cordon() {
        let cordoned = Word {
            cordoned: true,
            ..Word::default()
        };
        let taint = Taint {
            key: Token::new("k").unwrap(),
            value: None,
            effect: TaintEffect::NoExecute,
        };
        let more = Word {
            drain: true,
            at_once: 2,
            taints: vec![taint.clone()],
            pressures: vec![taint.clone()],
            added: vec![taint],
            ..cordoned.clone()
        };
        let check = |word: &Word, bytes: Option<&[u8]>| {
            let stored = postcard::to_allocvec(word).unwrap();
            assert_eq!(&postcard::from_bytes::<Word>(&stored).unwrap(), word);
            assert!(bytes.is_none_or(|bytes| bytes == stored), "{stored:?}");
        };
        check(&cordoned, Some(&[1]));
        check(&Word::default(), Some(&[0]));
        check(&more, None);
    }
}
