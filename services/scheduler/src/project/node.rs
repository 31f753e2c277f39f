//! The nodes: what each has, what its agent and operators say of it, and what has become of it.

use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};
use vocab::fact::{
    Applied, CordonSet, NodeCapacityChanged, NodeConditionChanged, NodeForgotten, NodeLost,
    NodeReady, NodeRegistered, NodeSuspected, TaintsSet,
};
use vocab::{At, Lsn, Millis, NodeCapacity, ResourceKind, Taint, Token};

/// A node as it stands after the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    pub node: Token,
    /// None: it was never registered, or is forgotten.
    pub registered: Option<Registered>,
    pub cordon: Cordon,
    /// Those that an operator has given to it.
    pub taints: Vec<Taint>,
    /// Of the taints; 0: nobody has set any.
    pub taints_version: u64,
    /// By name.
    pub conditions: Vec<Condition>,
    /// The last [`Self::CHANGES_MAX`] of them, the oldest first.
    pub history: VecDeque<NodeChange>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    pub incarnation: u64,
    pub standing: NodeStanding,
    /// In this state since then.
    pub since: Millis,
    /// The last sign of life that stands on the ledger.
    pub last_seen: Millis,
    /// When this capacity was registered.
    pub at: Millis,
    pub capacity: NodeCapacity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeStanding {
    Ready,
    /// Its agent was not heard for half a lease.
    Suspect,
    Lost,
}

impl NodeStanding {
    pub const ALL: [Self; 3] = [Self::Ready, Self::Suspect, Self::Lost];

    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Suspect => "suspect",
            Self::Lost => "lost",
        }
    }
}

/// What an operator has said of new allocations and of what runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    pub cordoned: bool,
    pub drain: bool,
    /// So many are on their way out at once, at the most; 0: all.
    pub at_once: u32,
    /// 0: nobody has set one.
    pub version: u64,
}

/// What holds of a node by the word of its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    pub condition: Token,
    pub reason: Option<Token>,
    /// It holds for this reason since then.
    pub since: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeChange {
    pub lsn: Lsn,
    pub at: Millis,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    Registered,
    Resized,
    Ready,
    Suspected,
    Lost,
    Forgotten,
    ConditionHolds {
        condition: Token,
        reason: Option<Token>,
    },
    ConditionOver {
        condition: Token,
    },
    Cordoned,
    Uncordoned,
    Drained,
    TaintsSet,
}

impl What {
    /// As the contract has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Resized => "resized",
            Self::Ready => "ready",
            Self::Suspected => "suspected",
            Self::Lost => "lost",
            Self::Forgotten => "forgotten",
            Self::ConditionHolds { .. } => "condition_holds",
            Self::ConditionOver { .. } => "condition_over",
            Self::Cordoned => "cordoned",
            Self::Uncordoned => "uncordoned",
            Self::Drained => "drained",
            Self::TaintsSet => "taints_set",
        }
    }
}

impl NodeRow {
    /// Changes that are kept of each node.
    pub const CHANGES_MAX: usize = 20;

    fn absent(node: &Token) -> Self {
        Self {
            node: node.clone(),
            registered: None,
            cordon: Cordon::default(),
            taints: Vec::new(),
            taints_version: 0,
            conditions: Vec::new(),
            history: VecDeque::new(),
        }
    }

    /// It is not there, and no operator has ever said anything of it: versions go on where they were.
    fn is_nothing(&self) -> bool {
        let Self {
            node: _,
            registered,
            cordon,
            taints: _,
            taints_version,
            conditions,
            history: _,
        } = self;
        let unsaid = cordon.version == 0 && *taints_version == 0;
        registered.is_none() && unsaid && conditions.is_empty()
    }

    pub fn standing(&self) -> Option<NodeStanding> {
        self.registered.as_ref().map(|it| it.standing)
    }

    /// Whether new allocations may come, of which so many are there.
    pub fn takes_new(&self, allocations: u64) -> bool {
        let Some(registered) = &self.registered else {
            return false;
        };
        let runs = usize::try_from(allocations).unwrap_or(usize::MAX);
        let keeps_away =
            |it: &Condition| NodeConditionChanged::KEEP_AWAY.contains(&it.condition.as_str());
        registered.standing == NodeStanding::Ready
            && !self.cordon.cordoned
            && !self.conditions.iter().any(keeps_away)
            && registered.capacity.takes_one_more(runs)
    }

    /// What allocations may hold of it, by kind.
    pub fn allocatable(&self) -> [u64; 3] {
        let there = self.registered.as_ref();
        let there = there.filter(|it| it.standing != NodeStanding::Lost);
        ResourceKind::ALL.map(|kind| there.map_or(0, |it| it.capacity.amount(kind)))
    }

    /// What new allocations could get beside what is `used` by so many, by kind.
    pub fn free(&self, used: [u64; 3], allocations: u64) -> [u64; 3] {
        let mut free = match self.takes_new(allocations) {
            true => self.allocatable(),
            false => [0; 3],
        };
        for (free, used) in free.iter_mut().zip(used) {
            *free = free.saturating_sub(used);
        }
        free
    }

    /// The NUMA zones that these devices are in, each once; empty: not known.
    pub fn zones_of(&self, devices: impl Iterator<Item = u16>) -> Vec<u32> {
        let registered = self.registered.as_ref();
        let topology = registered.and_then(|it| it.capacity.topology.as_deref());
        let devices: u16 = devices.fold(0, |all, device| {
            all | 1u16.checked_shl(device.into()).unwrap_or(0)
        });
        let zones = topology.map_or(&[][..], |topology| &topology.zones[..]);
        let zones = (0..)
            .zip(zones)
            .filter(|(_, zone)| zone.gpus & devices != 0);
        zones.map(|(no, _)| no).collect()
    }

    fn record(&mut self, at: &At, what: What) {
        if self.history.len() == Self::CHANGES_MAX {
            self.history.pop_front();
        }
        self.history.push_back(NodeChange {
            lsn: at.lsn,
            at: at.now,
            what,
        });
    }
}

/// A fact about a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum NodeFact<'a> {
    Registered(&'a NodeRegistered),
    Resized(&'a NodeCapacityChanged),
    Ready(&'a NodeReady),
    Suspected(&'a NodeSuspected),
    Lost(&'a NodeLost),
    Forgotten(&'a NodeForgotten),
    Condition(&'a NodeConditionChanged),
    Cordon(&'a Applied<CordonSet>),
    Taints(&'a Applied<TaintsSet>),
}

impl NodeFact<'_> {
    pub fn node(&self) -> &Token {
        match self {
            Self::Registered(fact) => &fact.node,
            Self::Resized(fact) => &fact.node,
            Self::Ready(fact) => &fact.node,
            Self::Suspected(fact) => &fact.node,
            Self::Lost(fact) => &fact.node,
            Self::Forgotten(fact) => &fact.node,
            Self::Condition(fact) => &fact.node,
            Self::Cordon(fact) => &fact.change.node,
            Self::Taints(fact) => &fact.change.node,
        }
    }
}

/// Nodes are few, so all of them are held.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Nodes(BTreeMap<Token, NodeRow>);

/// A node as a fact leaves it; none: it is not kept any more.
pub(super) type Left = Option<NodeRow>;

impl Nodes {
    pub fn turn(&mut self, at: &At, fact: NodeFact<'_>) -> Result<Left, IllegalEvent> {
        let node = fact.node();
        let mut row = match self.0.remove(node) {
            Some(row) => row,
            None => NodeRow::absent(node),
        };
        row.turn(at, fact)?;
        if row.is_nothing() {
            return Ok(None);
        }
        self.0.insert(node.clone(), row.clone());
        Ok(Some(row))
    }
}

impl NodeRow {
    fn turn(&mut self, at: &At, fact: NodeFact<'_>) -> Result<(), IllegalEvent> {
        let what = match fact {
            NodeFact::Registered(fact) => {
                self.registered = Some(Registered {
                    incarnation: fact.incarnation,
                    standing: NodeStanding::Ready,
                    since: at.now,
                    last_seen: at.now,
                    at: at.now,
                    capacity: fact.capacity.clone(),
                });
                What::Registered
            }
            NodeFact::Resized(fact) => {
                let registered = self.incarnation(fact.incarnation, fact)?;
                registered.capacity = fact.capacity.clone();
                What::Resized
            }
            NodeFact::Ready(fact) => {
                let registered = self.incarnation(fact.incarnation, fact)?;
                registered.stand(NodeStanding::Ready, at.now, at.now, fact)?;
                What::Ready
            }
            NodeFact::Suspected(fact) => {
                let registered = self.incarnation(fact.incarnation, fact)?;
                registered.stand(NodeStanding::Suspect, at.now, fact.last_seen, fact)?;
                What::Suspected
            }
            NodeFact::Lost(fact) => {
                let registered = self.incarnation(fact.incarnation, fact)?;
                registered.stand(NodeStanding::Lost, at.now, fact.last_seen, fact)?;
                What::Lost
            }
            NodeFact::Forgotten(_) => {
                self.registered = None;
                self.conditions.clear();
                What::Forgotten
            }
            NodeFact::Condition(fact) => self.condition(at, fact),
            NodeFact::Cordon(Applied {
                change, version, ..
            }) => {
                self.cordon = Cordon {
                    cordoned: change.cordoned,
                    drain: change.drain,
                    at_once: change.at_once,
                    version: *version,
                };
                match (change.drain, change.cordoned) {
                    (true, _) => What::Drained,
                    (false, true) => What::Cordoned,
                    (false, false) => What::Uncordoned,
                }
            }
            NodeFact::Taints(Applied {
                change, version, ..
            }) => {
                self.taints.clone_from(&change.taints);
                self.taints_version = *version;
                What::TaintsSet
            }
        };
        self.record(at, what);
        Ok(())
    }

    fn incarnation(
        &mut self,
        no: u64,
        fact: &impl fmt::Debug,
    ) -> Result<&mut Registered, IllegalEvent> {
        let registered = self.registered.as_mut();
        let registered = registered.filter(|it| it.incarnation == no);
        registered.ok_or_else(|| IllegalEvent::new("no such node", fact))
    }

    fn condition(&mut self, at: &At, fact: &NodeConditionChanged) -> What {
        let NodeConditionChanged {
            node: _,
            condition,
            holds,
            reason,
        } = fact;
        self.conditions.retain(|it| it.condition != *condition);
        let condition = condition.clone();
        if !holds {
            return What::ConditionOver { condition };
        }
        self.conditions.push(Condition {
            condition: condition.clone(),
            reason: reason.clone(),
            since: at.now,
        });
        self.conditions
            .sort_unstable_by(|a, b| a.condition.cmp(&b.condition));
        What::ConditionHolds {
            condition,
            reason: reason.clone(),
        }
    }
}

impl Registered {
    fn stand(
        &mut self,
        standing: NodeStanding,
        since: Millis,
        last_seen: Millis,
        fact: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let from = self.standing;
        let may = match standing {
            NodeStanding::Suspect => from == NodeStanding::Ready,
            NodeStanding::Ready | NodeStanding::Lost => from != standing,
        };
        if !may {
            return Err(IllegalEvent::new(from.name(), fact));
        }
        self.standing = standing;
        self.since = since;
        self.last_seen = last_seen;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::fact::CordonSet;
    use vocab::{AdminChange, Event, EventNo, Topology, Zone};

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn capacity(gpus: &[u16]) -> NodeCapacity {
        let zone = |gpus: &u16| Zone {
            cpu_milli: 1000,
            memory_bytes: 1,
            gpus: *gpus,
        };
        let zones: Vec<Zone> = gpus.iter().map(zone).collect();
        NodeCapacity {
            cpu_milli: 4000,
            memory_bytes: 8,
            gpus: 2,
            max_runs: 2,
            topology: (!zones.is_empty()).then(|| {
                Box::new(Topology {
                    zones,
                    distances: Vec::new(),
                    links: Vec::new(),
                })
            }),
            ..NodeCapacity::default()
        }
    }

    fn cordon(cordoned: bool, drain: bool) -> Applied<CordonSet> {
        let change = AdminChange::Cordon(CordonSet {
            node: token("n"),
            cordoned,
            drain,
            at_once: 0,
        });
        let operation = vocab::Operation {
            tenant: token("t"),
            operation_id: None,
            digest: [0; 16],
            reply_to: None,
            trace: None,
            by: None,
        };
        match change.applied(operation, 1).into() {
            Event::CordonSet(fact) => fact,
            other => panic!("{other:?}"),
        }
    }

    fn turn(nodes: &mut Nodes, now: i64, step: &str) -> Result<Left, IllegalEvent> {
        let at = At {
            lsn: Lsn(now as u64),
            index: 0,
            no: EventNo(1),
            now: Millis(now),
        };
        let node = token("n");
        let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
        let incarnation = rest.parse().unwrap_or(1);
        let last_seen = Millis(now - 1);
        match verb {
            "registered" => {
                let fact = NodeRegistered {
                    node,
                    incarnation,
                    boot: 7,
                    capacity: capacity(&[]),
                };
                nodes.turn(&at, NodeFact::Registered(&fact))
            }
            "resized" => {
                let capacity = NodeCapacity {
                    cpu_milli: 1000,
                    ..capacity(&[])
                };
                let fact = NodeCapacityChanged {
                    node,
                    incarnation,
                    change: 1,
                    capacity,
                };
                nodes.turn(&at, NodeFact::Resized(&fact))
            }
            "ready" => nodes.turn(&at, NodeFact::Ready(&NodeReady { node, incarnation })),
            "suspected" => {
                let fact = NodeSuspected {
                    node,
                    incarnation,
                    last_seen,
                };
                nodes.turn(&at, NodeFact::Suspected(&fact))
            }
            "lost" => {
                let fact = NodeLost {
                    node,
                    incarnation,
                    last_seen,
                };
                nodes.turn(&at, NodeFact::Lost(&fact))
            }
            "forgotten" => nodes.turn(&at, NodeFact::Forgotten(&NodeForgotten { node })),
            "holds" | "over" => {
                let fact = NodeConditionChanged {
                    node,
                    condition: token(rest),
                    holds: verb == "holds",
                    reason: None,
                };
                nodes.turn(&at, NodeFact::Condition(&fact))
            }
            "cordoned" => nodes.turn(&at, NodeFact::Cordon(&cordon(true, false))),
            "drained" => nodes.turn(&at, NodeFact::Cordon(&cordon(true, true))),
            "uncordoned" => nodes.turn(&at, NodeFact::Cordon(&cordon(false, false))),
            other => panic!("{other}"),
        }
    }

    /// Steps about one node, one millisecond apart; then `state since/last_seen`, its conditions, and what it offers to a new
    /// allocation in millicores beside one that takes 1000.
    fn check(steps: &str, expected: &str) {
        let mut nodes = Nodes::default();
        let mut left = Ok(None);
        for (now, step) in (1..).zip(steps.split(", ")) {
            left = turn(&mut nodes, now, step);
            if left.is_err() {
                break;
            }
        }
        let found = match left {
            Err(error) => format!("illegal when {}", error.state),
            Ok(None) => "nothing".to_owned(),
            Ok(Some(row)) => {
                let of = |it: &Registered| {
                    let name = it.standing.name();
                    format!("{name} {}/{}", it.since.0, it.last_seen.0)
                };
                let mut text = row.registered.as_ref().map_or("absent".to_owned(), of);
                for condition in &row.conditions {
                    text += &format!(" {}", condition.condition);
                }
                let last = row.history.back().map(|change| change.what.name());
                assert!(last.is_some(), "each change is kept");
                text + &format!(" free {}", row.free([1000, 0, 0], 1)[0])
            }
        };
        assert_eq!(found, expected, "{steps}");
    }

    #[test]
    fn a_node_stands_as_it_was_last_said() {
        check("registered 1", "ready 1/1 free 3000");
        check("registered 1, resized 1", "ready 1/1 free 0");
        check("registered 1, suspected 1", "suspect 2/1 free 0");
        check("registered 1, suspected 1, ready 1", "ready 3/3 free 3000");
        check("registered 1, lost 1", "lost 2/1 free 0");
        check("registered 1, lost 1, registered 2", "ready 3/3 free 3000");
        check("registered 1, forgotten", "nothing");
        check("registered 1, cordoned, forgotten", "absent free 0");
        check("cordoned", "absent free 0");
        check("cordoned, uncordoned", "absent free 0");
        check("cordoned, registered 1", "ready 2/2 free 0");
        check("registered 1, drained, uncordoned", "ready 1/1 free 3000");
        check("registered 1, holds Odd", "ready 1/1 Odd free 3000");
        check(
            "registered 1, holds Odd, holds DiskPressure",
            "ready 1/1 DiskPressure Odd free 0",
        );
        check(
            "registered 1, holds DiskPressure, over DiskPressure",
            "ready 1/1 free 3000",
        );
        // The conditions of a life stay until the next one says otherwise.
        check(
            "registered 1, holds Odd, lost 1, registered 2",
            "ready 4/4 Odd free 3000",
        );
    }

    #[test]
    fn only_the_current_incarnation_turns() {
        check("lost 1", "illegal when no such node");
        check("registered 1, lost 2", "illegal when no such node");
        check("registered 1, resized 2", "illegal when no such node");
        check("registered 1, ready 1", "illegal when ready");
        check("registered 1, lost 1, lost 1", "illegal when lost");
        check("registered 1, lost 1, suspected 1", "illegal when lost");
    }

    #[test]
    fn as_many_changes_are_kept_as_are_told() {
        let mut nodes = Nodes::default();
        let steps = ["cordoned", "drained"].into_iter().cycle();
        let steps = steps.take(3 * NodeRow::CHANGES_MAX);
        let mut rows = (1..).zip(steps);
        let last = rows.try_fold(None, |_, (now, step)| turn(&mut nodes, now, step));
        let row = last.unwrap().unwrap();
        assert_eq!(row.history.len(), NodeRow::CHANGES_MAX);
        let lsn = row.history.back().map(|change| change.lsn.0);
        assert_eq!(lsn, Some(3 * NodeRow::CHANGES_MAX as u64));
        assert_eq!(row.history[0].lsn.0, 2 * NodeRow::CHANGES_MAX as u64 + 1);
    }

    #[test]
    fn a_node_that_is_full_takes_none() {
        let mut nodes = Nodes::default();
        let row = turn(&mut nodes, 1, "registered 1").unwrap().unwrap();
        assert!(row.takes_new(1));
        assert!(!row.takes_new(2));
        assert_eq!(row.allocatable(), [4000, 8, 2000]);
        // There may be less than is held.
        assert_eq!(row.free([5000, 1, 2000], 1), [0, 7, 0]);
    }

    #[test]
    fn zones_are_those_of_the_devices() {
        let mut row = NodeRow::absent(&token("n"));
        assert!(row.zones_of([0].into_iter()).is_empty());
        row.registered = Some(Registered {
            incarnation: 1,
            standing: NodeStanding::Ready,
            since: Millis(1),
            last_seen: Millis(1),
            at: Millis(1),
            capacity: capacity(&[0b0011, 0, 0b1100]),
        });
        let check = |devices: &[u16], expected: &[u32]| {
            assert_eq!(row.zones_of(devices.iter().copied()), expected);
        };
        check(&[], &[]);
        check(&[1, 0], &[0]);
        check(&[1, 3], &[0, 2]);
        check(&[15, 16, 99], &[]);
    }
}
