//! What a node has, and what an operator lets it say of that.

use crate::spec::ExtendedAmount;
use crate::{
    AllocationSpec, Millis, Refusal, ResourceKind, Rule, Taint, TaintEffect, Token, Topology, Work,
};
use serde::{Deserialize, Serialize};

wire::pair!(pub Label { name, value });

/// What a node brings in.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
#[serde(from = "Stored", into = "Stored")]
pub struct NodeCapacity {
    #[wire(1)]
    pub cpu_milli: u64,
    #[wire(2)]
    pub memory_bytes: u64,
    #[wire(3)]
    pub gpus: u16,
    #[wire(4)]
    pub gpu_model: Option<Token>,
    /// Sorted by name, one value each.
    #[wire(5, with = wire::Pairs<Label>)]
    pub labels: Vec<(Token, Token)>,
    #[wire(6)]
    pub taints: Vec<Taint>,
    /// Sorted by name.
    #[wire(7, with = wire::Pairs<ExtendedAmount>)]
    pub extended: Vec<(Token, u64)>,
    #[wire(8)]
    pub topology: Option<Box<Topology>>,
    /// Allocations that it holds at once, at the most, whatever they ask for; 0: as many as there is room for.
    #[wire(9)]
    pub max_runs: u32,
}

impl NodeCapacity {
    /// Whether one more may come where there are so many, room left aside.
    pub fn takes_one_more(&self, runs: usize) -> bool {
        self.max_runs == 0 || runs < self.max_runs as usize
    }

    pub const LABELS_MAX: usize = 64;
    pub const TAINTS_MAX: usize = 16;
    /// The label that says which machine it is: two nodes that are there cannot have the same.
    pub const HOSTNAME: &str = "hostname";

    /// Whether all that it says was known before there were feature levels.
    pub fn is_of_first_level(&self) -> bool {
        let plain = |taint: &Taint| taint.effect == TaintEffect::NoSchedule;
        self.max_runs == 0 && self.taints.iter().all(plain)
    }

    /// What is left of it in a cell of the first level: a taint that is no more than a preference goes.
    pub fn of_first_level(mut self) -> Self {
        self.max_runs = 0;
        self.taints.retain(|taint| taint.effect.forbids());
        for taint in &mut self.taints {
            taint.effect = TaintEffect::NoSchedule;
        }
        self
    }

    pub fn label(&self, name: &str) -> Option<&Token> {
        let found = self
            .labels
            .binary_search_by(|(label, _)| label.as_str().cmp(name));
        found.ok().map(|at| &self.labels[at].1)
    }

    pub fn amount(&self, kind: ResourceKind) -> u64 {
        match kind {
            ResourceKind::Cpu => self.cpu_milli,
            ResourceKind::Memory => self.memory_bytes,
            ResourceKind::Gpu => u64::from(self.gpus) * 1000,
        }
    }

    /// Whether a node may have the other instead while things run there: amounts may be others, and extended resources may come.
    /// What runs has its devices and zones by number, was placed by the labels and taints, and is billed by the place.
    pub fn may_become(&self, other: &Self) -> Result<(), Refusal> {
        let zones = |of: &Self| -> Option<Vec<u16>> {
            let topology = of.topology.as_deref()?;
            Some(topology.zones.iter().map(|zone| zone.gpus).collect())
        };
        let links = |of: &Self| {
            let topology = of.topology.as_deref();
            topology.map(|it| (it.distances.clone(), it.links.clone()))
        };
        let gone =
            |(name, _): &&(Token, u64)| other.extended.iter().all(|(known, _)| known != name);
        let stays = [
            ("gpus", self.gpus == other.gpus),
            ("gpu_model", self.gpu_model == other.gpu_model),
            ("labels", self.labels == other.labels),
            ("taints", self.taints == other.taints),
            (
                "topology",
                zones(self) == zones(other) && links(self) == links(other),
            ),
            ("extended", !self.extended.iter().any(|it| gone(&it))),
        ];
        match stays.iter().find(|(_, same)| !same) {
            Some((part, _)) => Err(Refusal::new(Rule::CapacityStays, *part)),
            None => Ok(()),
        }
    }

    /// Refuses a capacity that no node has. The limits are those of requests, so that sums over a node stay far from overflow,
    /// and lists are in order, so that the same node is always written in the same way.
    pub fn check(&self) -> Result<(), Refusal> {
        let NodeCapacity {
            cpu_milli,
            memory_bytes,
            gpus,
            gpu_model,
            labels,
            taints,
            extended,
            topology,
            max_runs: _,
        } = self;
        let most = |rule, subject: &str, limit, actual| match actual > limit {
            true => Err(Refusal::over(rule, subject, limit, actual)),
            false => Ok(()),
        };
        let amount =
            |subject: &str, limit, actual| most(Rule::QuantityTooLarge, subject, limit, actual);
        let count = |subject: &str, limit: usize, actual: usize| {
            most(Rule::TooManyElements, subject, limit as u64, actual as u64)
        };
        let valid = |subject: &str, valid: bool| match valid {
            true => Ok(()),
            false => Err(Refusal::new(Rule::SettingInvalid, subject)),
        };
        amount("cpu_milli", AllocationSpec::CPU_MILLI_MAX, *cpu_milli)?;
        amount(
            "memory_bytes",
            AllocationSpec::MEMORY_BYTES_MAX,
            *memory_bytes,
        )?;
        amount("gpus", AllocationSpec::GPUS_MAX, (*gpus).into())?;
        valid("gpu_model", *gpus > 0 || gpu_model.is_none())?;
        count("labels", NodeCapacity::LABELS_MAX, labels.len())?;
        valid("labels", ordered(labels))?;
        count("taints", NodeCapacity::TAINTS_MAX, taints.len())?;
        count("extended", AllocationSpec::EXTENDED_MAX, extended.len())?;
        valid("extended", ordered(extended))?;
        for (name, of_it) in extended {
            amount(name.as_str(), AllocationSpec::EXTENDED_AMOUNT_MAX, *of_it)?;
            valid(name.as_str(), *of_it > 0)?;
        }
        valid(
            "topology",
            topology.as_ref().is_none_or(|it| it.makes_up(self)),
        )
    }

    /// Returns the command by which an operator approves such a node. A joined node keeps its token.
    pub fn approval_command(&self, node: &str, joined: bool) -> String {
        let cpu = match self.cpu_milli % 1000 {
            0 => (self.cpu_milli / 1000).to_string(),
            _ => format!("{}m", self.cpu_milli),
        };
        let bytes = self.memory_bytes;
        let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let whole = units
            .iter()
            .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
        let memory = whole.map_or_else(
            || bytes.to_string(),
            |(name, unit)| format!("{}{name}", bytes / unit),
        );
        let mut text = format!("apportion node approve {node} --cpu {cpu} --memory {memory}");
        if self.gpus > 0 {
            text += &format!(" --gpus {}", self.gpus);
        }
        if let Some(model) = &self.gpu_model {
            text += &format!(" --gpu-model {model}");
        }
        let needs_approval = |(name, _): &&(Token, Token)| name.as_str() != Work::NODE_LABEL;
        for (name, value) in self.labels.iter().filter(needs_approval) {
            text += &format!(" --label {name}={value}");
        }
        for (name, amount) in &self.extended {
            text += &format!(" --extended {name}={amount}");
        }
        if joined {
            text += " --keep-token FILE";
        }
        text
    }
}

/// As it stands in snapshots, whose bytes have no names. Those of before `max_runs` ended with `Option<Box<Topology>>`, which
/// has the same bytes as the first two of [`Rest`].
#[derive(Serialize, Deserialize)]
struct Stored {
    cpu_milli: u64,
    memory_bytes: u64,
    gpus: u16,
    gpu_model: Option<Token>,
    labels: Vec<(Token, Token)>,
    taints: Vec<Taint>,
    extended: Vec<(Token, u64)>,
    rest: Rest,
}

#[derive(Serialize, Deserialize)]
enum Rest {
    Nothing,
    Topology(Box<Topology>),
    Bounded {
        topology: Option<Box<Topology>>,
        max_runs: u32,
    },
}

impl From<Stored> for NodeCapacity {
    fn from(stored: Stored) -> Self {
        let (topology, max_runs) = match stored.rest {
            Rest::Nothing => (None, 0),
            Rest::Topology(topology) => (Some(topology), 0),
            Rest::Bounded { topology, max_runs } => (topology, max_runs),
        };
        Self {
            cpu_milli: stored.cpu_milli,
            memory_bytes: stored.memory_bytes,
            gpus: stored.gpus,
            gpu_model: stored.gpu_model,
            labels: stored.labels,
            taints: stored.taints,
            extended: stored.extended,
            topology,
            max_runs,
        }
    }
}

impl From<NodeCapacity> for Stored {
    fn from(capacity: NodeCapacity) -> Self {
        Self {
            cpu_milli: capacity.cpu_milli,
            memory_bytes: capacity.memory_bytes,
            gpus: capacity.gpus,
            gpu_model: capacity.gpu_model,
            labels: capacity.labels,
            taints: capacity.taints,
            extended: capacity.extended,
            rest: match (capacity.topology, capacity.max_runs) {
                (None, 0) => Rest::Nothing,
                (Some(topology), 0) => Rest::Topology(topology),
                (topology, max_runs) => Rest::Bounded { topology, max_runs },
            },
        }
    }
}

/// By name, each once.
fn ordered<V>(named: &[(Token, V)]) -> bool {
    named.is_sorted_by(|(a, _), (b, _)| a < b)
}

impl Topology {
    /// Whether the zones make up the node.
    fn makes_up(&self, capacity: &NodeCapacity) -> bool {
        let Topology {
            zones,
            distances,
            links,
        } = self;
        let sum = |part: fn(&crate::Zone) -> u64| -> u128 {
            zones.iter().map(|zone| u128::from(part(zone))).sum()
        };
        // Sums of bits are the bits themselves only if none is in two zones.
        let devices: u32 = zones.iter().map(|zone| u32::from(zone.gpus)).sum();
        (1..=Topology::ZONES_MAX).contains(&zones.len())
            && distances.len() == zones.len() * zones.len()
            && sum(|zone| zone.cpu_milli) == u128::from(capacity.cpu_milli)
            && sum(|zone| zone.memory_bytes) == u128::from(capacity.memory_bytes)
            && devices == (1u32 << capacity.gpus) - 1
            && zones
                .iter()
                .fold(0, |all, zone| all | zone.gpus)
                .count_ones()
                == devices.count_ones()
            && links.len() <= Topology::LINKS_MAX
            && links
                .iter()
                .all(|(low, high)| low < high && u16::from(*high) < capacity.gpus)
    }
}

/// What an operator lets a node be, and who may speak for it.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct NodeApproval {
    /// The most that it may register with; without taints, topology and a bound of its own, which it says of itself.
    #[wire(1)]
    pub capacity: NodeCapacity,
    /// SHA-256 of the token by which it joins.
    #[wire(2)]
    pub token: [u8; 32],
    /// From then on nobody joins by the token who has not yet.
    #[wire(3, name = "until_ms")]
    pub until: Millis,
}

impl NodeApproval {
    /// Refuses a capacity that cannot be approved.
    pub fn check(&self) -> Result<(), Refusal> {
        let NodeCapacity {
            taints,
            topology,
            max_runs,
            ..
        } = &self.capacity;
        self.capacity.check()?;
        let said_by_nodes = [
            ("taints", !taints.is_empty()),
            ("topology", topology.is_some()),
            ("max_runs", *max_runs > 0),
        ];
        match said_by_nodes.iter().find(|(_, is_set)| *is_set) {
            Some((subject, _)) => Err(Refusal::new(Rule::SettingInvalid, *subject)),
            None => Ok(()),
        }
    }

    /// The first that the node says to have and was not approved.
    pub fn permit(&self, said: &NodeCapacity) -> Result<(), Refusal> {
        let approved = &self.capacity;
        let over = |subject: &str, limit, actual| {
            (actual > limit)
                .then(|| Refusal::over(Rule::CapacityNotApproved, subject, limit, actual))
        };
        let amounts = [
            over("cpu_milli", approved.cpu_milli, said.cpu_milli),
            over("memory_bytes", approved.memory_bytes, said.memory_bytes),
            over("gpus", approved.gpus.into(), said.gpus.into()),
        ];
        if let Some(refusal) = amounts.into_iter().flatten().next() {
            return Err(refusal);
        }
        if said.gpus > 0 && said.gpu_model != approved.gpu_model {
            return Err(Refusal::new(Rule::CapacityNotApproved, "gpu_model"));
        }
        for (name, amount) in &said.extended {
            let found = approved.extended.iter().find(|(known, _)| known == name);
            let limit = found.map_or(0, |(_, amount)| *amount);
            if let Some(refusal) = over(name.as_str(), limit, *amount) {
                return Err(refusal);
            }
        }
        // That it runs commands gives a node nothing that it could not have.
        let foreign = |(name, value): &&(Token, Token)| {
            name.as_str() != Work::NODE_LABEL && approved.label(name.as_str()) != Some(value)
        };
        match said.labels.iter().find(foreign) {
            Some((name, _)) => Err(Refusal::new(Rule::CapacityNotApproved, name.as_str())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Zone;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn zone(cpu_milli: u64, memory_bytes: u64, gpus: u16) -> Zone {
        Zone {
            cpu_milli,
            memory_bytes,
            gpus,
        }
    }

    /// Two zones with two devices each, and one of everything else.
    fn node() -> NodeCapacity {
        NodeCapacity {
            cpu_milli: 8000,
            memory_bytes: 64,
            gpus: 4,
            gpu_model: Some(token("A100")),
            labels: vec![(token("rack"), token("r1")), (token("zone"), token("z1"))],
            taints: vec![Taint {
                key: token("maintenance"),
                value: None,
                effect: TaintEffect::NoSchedule,
            }],
            extended: vec![(token("fpga"), 2), (token("licence"), 1 << 40)],
            topology: Some(Box::new(Topology {
                zones: vec![zone(5000, 32, 0b0011), zone(3000, 32, 0b1100)],
                distances: vec![10, 21, 21, 10],
                links: vec![(0, 1), (2, 3)],
            })),
            max_runs: 3,
        }
    }

    #[test]
    fn a_capacity_is_read_from_snapshots_with_and_without_a_bound() {
        /// As it was before `max_runs`.
        #[derive(Serialize)]
        struct Before(
            u64,
            u64,
            u16,
            Option<Token>,
            Vec<(Token, Token)>,
            Vec<Taint>,
            Vec<(Token, u64)>,
            Option<Box<Topology>>,
        );
        let unbounded = NodeCapacity {
            max_runs: 0,
            ..node()
        };
        let flat = NodeCapacity {
            topology: None,
            ..unbounded.clone()
        };
        for capacity in [unbounded, flat] {
            let c = capacity.clone();
            let before = Before(
                c.cpu_milli,
                c.memory_bytes,
                c.gpus,
                c.gpu_model,
                c.labels,
                c.taints,
                c.extended,
                c.topology,
            );
            let bytes = postcard::to_allocvec(&before).unwrap();
            assert_eq!(postcard::to_allocvec(&capacity).unwrap(), bytes);
            let read: NodeCapacity = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(read, capacity);
        }
        for topology in [node().topology, None] {
            let bounded = NodeCapacity { topology, ..node() };
            let bytes = postcard::to_allocvec(&bounded).unwrap();
            let read: NodeCapacity = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(read, bounded);
        }
    }

    #[test]
    fn a_node_takes_as_many_as_it_may() {
        assert!(node().takes_one_more(2));
        assert!(!node().takes_one_more(3));
        assert!(NodeCapacity::default().takes_one_more(usize::MAX));
    }

    #[track_caller]
    fn check(expected: bool, what: &str, change: impl FnOnce(&mut NodeCapacity)) {
        let mut capacity = node();
        change(&mut capacity);
        assert_eq!(capacity.check().is_ok(), expected, "{what}");
    }

    #[track_caller]
    fn check_topology(expected: bool, what: &str, change: impl FnOnce(&mut Topology)) {
        check(expected, what, |c| {
            change(c.topology.as_mut().expect("it has one"));
        });
    }

    #[test]
    fn a_node_is_what_it_may_be() {
        check(true, "as it is", |_| {});
        check(true, "nothing", |c| *c = NodeCapacity::default());
        check(false, "cpu", |c| c.cpu_milli = u64::MAX);
        check(false, "memory", |c| c.memory_bytes = u64::MAX);
        check(false, "gpus", |c| c.gpus = 17);
        check(true, "no model", |c| c.gpu_model = None);
        let full = |count: usize| -> Vec<(Token, Token)> {
            (0..count)
                .map(|i| (token(&format!("l{i:02}")), token("v")))
                .collect()
        };
        check(true, "64 labels", |c| c.labels = full(64));
        check(false, "65 labels", |c| c.labels = full(65));
        check(false, "labels out of order", |c| c.labels.reverse());
        check(false, "a label twice", |c| {
            c.labels[1] = c.labels[0].clone()
        });
        check(true, "16 taints", |c| {
            c.taints = vec![c.taints[0].clone(); 16]
        });
        check(false, "17 taints", |c| {
            c.taints = vec![c.taints[0].clone(); 17]
        });
        let some = |count: usize| -> Vec<(Token, u64)> {
            (0..count).map(|i| (token(&format!("e{i}")), 1)).collect()
        };
        check(true, "8 extended", |c| c.extended = some(8));
        check(false, "9 extended", |c| c.extended = some(9));
        check(false, "extended out of order", |c| c.extended.reverse());
        check(false, "none of it", |c| c.extended[0].1 = 0);
        check(false, "too much of it", |c| c.extended[1].1 += 1);
    }

    #[test]
    fn a_capacity_that_no_node_has_names_its_part_and_the_limit() {
        let check = |expected: &str, change: fn(&mut NodeCapacity)| {
            let mut capacity = node();
            change(&mut capacity);
            let refused = capacity.check().unwrap_err();
            assert_eq!(refused.to_string(), expected);
        };
        let gpus = "quantity too large: gpus (limit 16, actual 17)";
        check(gpus, |c| c.gpus = 17);
        let labels = "too many elements: labels (limit 64, actual 65)";
        check(labels, |c| {
            c.labels = vec![c.labels[0].clone(); 65];
        });
        check("setting invalid: labels", |c| c.labels.reverse());
        check("setting invalid: topology", |c| c.cpu_milli += 1);
    }

    #[test]
    fn the_command_that_approves_a_node_names_all_that_it_has() {
        let check = |expected: &str, joined: bool, change: fn(&mut NodeCapacity)| {
            let mut capacity = node();
            change(&mut capacity);
            let command = capacity.approval_command("n1", joined);
            assert_eq!(command, format!("apportion node approve n1 {expected}"));
        };
        check(
            "--cpu 8 --memory 64 --gpus 4 --gpu-model A100 --label rack=r1 --label zone=z1 --extended fpga=2 \
             --extended licence=1099511627776",
            false,
            |_| {},
        );
        check("--cpu 1500m --memory 3GiB --keep-token FILE", true, |c| {
            *c = NodeCapacity {
                cpu_milli: 1500,
                memory_bytes: 3 << 30,
                labels: vec![(token(Work::NODE_LABEL), token("true"))],
                ..NodeCapacity::default()
            };
        });
    }

    #[test]
    fn zones_make_up_their_node() {
        check(false, "the node is larger", |c| c.cpu_milli += 1);
        check(false, "a device is nowhere", |c| c.gpus = 5);
        check(false, "a model without devices", |c| c.gpus = 0);
        check(true, "no topology", |c| c.topology = None);
        check_topology(false, "no zones", |t| t.zones.clear());
        check_topology(false, "cpu", |t| t.zones[0].cpu_milli -= 1);
        check_topology(false, "cpu overflows", |t| {
            t.zones[0].cpu_milli = u64::MAX - 2999;
            t.zones[1].cpu_milli = 11_000;
        });
        check_topology(false, "memory", |t| t.zones[1].memory_bytes += 1);
        check_topology(false, "a device twice", |t| t.zones[1].gpus = 0b1101);
        // 0b0011 + 0b0011 + 0b1001 is as much as 0b1111.
        check_topology(false, "devices by their sum", |t| {
            t.zones = vec![zone(5000, 32, 3), zone(3000, 32, 3), zone(0, 0, 9)];
            t.distances = vec![10; 9];
        });
        check_topology(false, "a device beyond", |t| t.zones[1].gpus = 0b1_1100);
        check_topology(false, "too few distances", |t| {
            t.distances.pop();
        });
        check_topology(false, "a link to itself", |t| t.links[0] = (1, 1));
        check_topology(false, "a link backwards", |t| t.links[0] = (1, 0));
        check_topology(false, "a link beyond", |t| t.links[0] = (0, 4));
        check_topology(true, "120 links", |t| t.links = vec![(0, 1); 120]);
        check_topology(false, "121 links", |t| t.links = vec![(0, 1); 121]);
        let split = |t: &mut Topology, count: usize| {
            t.zones.resize(count, zone(0, 0, 0));
            t.distances = vec![10; count * count];
        };
        check_topology(true, "8 zones", |t| split(t, 8));
        check_topology(false, "9 zones", |t| split(t, 9));
    }

    #[test]
    fn a_node_has_no_more_than_was_approved() {
        let approval = NodeApproval {
            capacity: NodeCapacity {
                taints: Vec::new(),
                topology: None,
                max_runs: 0,
                ..node()
            },
            token: [0; 32],
            until: Millis(0),
        };
        assert_eq!(approval.check(), Ok(()));
        let check = |expected: Option<&str>, change: fn(&mut NodeCapacity)| {
            let mut said = node();
            change(&mut said);
            let refused = approval.permit(&said).err();
            assert_eq!(
                refused.map(|refusal| refusal.to_string()).as_deref(),
                expected
            );
        };
        check(None, |_| {});
        check(None, |c| *c = NodeCapacity::default());
        check(None, |c| c.labels.clear());
        check(None, |c| {
            c.gpus = 0;
            c.gpu_model = None;
        });
        let cpu = "capacity not approved: cpu_milli (limit 8000, actual 8001)";
        check(Some(cpu), |c| c.cpu_milli += 1);
        let memory = "capacity not approved: memory_bytes (limit 64, actual 65)";
        check(Some(memory), |c| c.memory_bytes += 1);
        let gpus = "capacity not approved: gpus (limit 4, actual 5)";
        check(Some(gpus), |c| c.gpus += 1);
        let model = "capacity not approved: gpu_model";
        check(Some(model), |c| c.gpu_model = Some(token("H100")));
        check(Some(model), |c| c.gpu_model = None);
        let fpga = "capacity not approved: fpga (limit 2, actual 3)";
        check(Some(fpga), |c| c.extended[0].1 = 3);
        let unheard = "capacity not approved: gold (limit 0, actual 1)";
        check(Some(unheard), |c| c.extended[0] = (token("gold"), 1));
        let label = "capacity not approved: zone";
        check(Some(label), |c| c.labels[1].1 = token("z2"));
        check(None, |c| {
            c.labels.insert(0, (token("_commands"), token("process")));
        });
        let more = "capacity not approved: trusted";
        check(Some(more), |c| {
            c.labels.push((token("trusted"), token("yes")))
        });
    }
}
