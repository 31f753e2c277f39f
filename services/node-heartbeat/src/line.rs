//! What agents have said and the leader has not taken yet. Each node has one place for each thing that it may say, so that
//! one which says much keeps no other from being heard.

use node_heartbeat_rules::Command;
use std::collections::{BTreeMap, VecDeque};
use vocab::Token;

/// Places, at the most. More nodes than this are not heard while the leader takes nothing.
const PLACES_MAX: usize = 32_768;
/// Of those, for machines that are no nodes yet: anybody may ask in any name.
const JOINS_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Beat,
    Sync,
    Join,
}

type Place = (Kind, Token);

#[derive(Debug, Default)]
pub struct Line {
    order: VecDeque<Place>,
    said: BTreeMap<Place, Command>,
    joins: usize,
}

fn place_of(command: &Command) -> Option<Place> {
    match command {
        Command::Heartbeat { node, .. } => Some((Kind::Beat, node.clone())),
        Command::Sync { node, .. } => Some((Kind::Sync, node.clone())),
        Command::Join(join) => Some((Kind::Join, join.node.clone())),
        // What is stored comes by the inbox.
        Command::Register { .. }
        | Command::RegisterUnreadable { .. }
        | Command::Report { .. }
        | Command::Unreadable { .. } => None,
    }
}

impl Line {
    /// Puts it in line, or in the place of what the node has said of this before. What is not in line any more is given
    /// back: what was there before, or the command itself when there is no room.
    pub fn add(&mut self, command: Command) -> Option<Command> {
        let Some(place) = place_of(&command) else {
            return Some(command);
        };
        let joins = place.0 == Kind::Join;
        if let Some(waiting) = self.said.get_mut(&place) {
            // Nobody knows yet which of two is whom the name belongs to, so the later one takes nothing from the other.
            return match joins {
                true => Some(command),
                false => Some(std::mem::replace(waiting, command)),
            };
        }
        if self.order.len() >= PLACES_MAX || (joins && self.joins >= JOINS_MAX) {
            return Some(command);
        }
        self.joins += usize::from(joins);
        self.order.push_back(place.clone());
        self.said.insert(place, command)
    }

    /// The first in line.
    pub fn take(&mut self) -> Option<Command> {
        let place = self.order.pop_front()?;
        self.joins -= usize::from(place.0 == Kind::Join);
        self.said.remove(&place)
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_heartbeat_rules::Join;

    fn token(text: &str) -> Token {
        Token::new(text).expect("a literal token")
    }

    fn beat(node: &str, revision: u64) -> Command {
        Command::Heartbeat {
            node: token(node),
            boot: 1,
            revision,
            request: None,
            conditions: BTreeMap::new(),
        }
    }

    fn sync(node: &str, request: u64) -> Command {
        let node = token(node);
        Command::Sync { node, request }
    }

    fn join(node: &str, request: u64) -> Command {
        Command::Join(Box::new(Join {
            node: token(node),
            token: [0; 32],
            key: token("key"),
            request,
        }))
    }

    fn all(line: &mut Line) -> Vec<Command> {
        std::iter::from_fn(|| line.take()).collect()
    }

    #[test]
    fn a_node_that_says_much_has_one_place_for_each_thing() {
        let mut line = Line::default();
        let mut told = Vec::new();
        for revision in 0..1000 {
            told.extend(line.add(beat("loud", revision)));
            told.extend(line.add(sync("loud", revision)));
        }
        assert_eq!(told.len(), 1998);
        assert_eq!(line.add(beat("quiet", 7)), None);
        let heard = all(&mut line);
        assert_eq!(
            heard,
            [beat("loud", 999), sync("loud", 999), beat("quiet", 7)]
        );
        assert!(line.is_empty());
    }

    #[test]
    fn a_join_takes_no_place_from_another_one_or_from_a_node() {
        let mut line = Line::default();
        assert_eq!(line.add(join("n", 0)), None);
        assert_eq!(line.add(join("n", 1)), Some(join("n", 1)));
        for no in 1..JOINS_MAX as u64 {
            assert_eq!(line.add(join(&format!("n{no}"), no)), None);
        }
        assert_eq!(line.add(join("more", 9)), Some(join("more", 9)));
        assert_eq!(line.add(beat("node", 1)), None);
        assert_eq!(line.take(), Some(join("n", 0)));
        assert_eq!(line.add(join("more", 9)), None);
        let heard = all(&mut line);
        assert!(heard.contains(&beat("node", 1)) && heard.contains(&join("more", 9)));
        assert_eq!(line.joins, 0);
    }

    #[test]
    fn what_there_is_no_room_for_is_given_back() {
        let mut line = Line::default();
        for no in 0..PLACES_MAX {
            assert_eq!(line.add(beat(&format!("n{no}"), 1)), None);
        }
        assert_eq!(line.add(beat("more", 1)), Some(beat("more", 1)));
        // Who has a place keeps it.
        assert_eq!(line.add(beat("n0", 2)), Some(beat("n0", 1)));
        let stored = Command::Unreadable { node: token("n0") };
        assert_eq!(line.add(stored.clone()), Some(stored));
        assert_eq!(line.take(), Some(beat("n0", 2)));
        assert_eq!(line.add(beat("more", 1)), None);
    }
}
