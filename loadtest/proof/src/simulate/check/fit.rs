//! Where an allocation may be, and that it has it to itself.

use super::{
    Checker, Demand, Invariant, Place, Violation,
    allocations::{Allocation, Hold},
    nodes::Known,
};
use schemas::v1;
use std::collections::{BTreeMap, BTreeSet};

/// What keeps new allocations away while it holds.
pub const PRESSURES: [&str; 3] = ["MemoryPressure", "DiskPressure", "NetworkUnavailable"];
/// Who does not tolerate it comes where there is no other room.
pub const PREFER_NO_SCHEDULE: i32 = 1;
/// Who does not tolerate it goes.
pub const NO_EXECUTE: i32 = 2;
/// A node that does not say its zones has none to give.
pub const SINGLE_ZONE: i32 = 2;

impl Checker {
    /// Readiness, suspicion and cordons count as of what the scheduler had read.
    pub(super) fn may_be_on(
        &self,
        at: &Place,
        e: &v1::AllocationPlaced,
        demand: &Demand,
    ) -> Result<(), Violation> {
        let no = e.allocation;
        let node = self.nodes.known(&e.node, at.through);
        let here = |known: Known| known.incarnation == e.incarnation && known.ready;
        at.rule(node.is_some_and(here), Invariant::Exclusive, || {
            format!(
                "allocation {no} placed on {}/{}, which is {node:?}",
                e.node, e.incarnation
            )
        })?;
        at.rule(
            !node.is_some_and(|known| known.suspect),
            Invariant::Fit,
            || format!("{no} placed on {}, which is suspected", e.node),
        )?;
        let cordoned = self.settings.cordoned(&e.node, at);
        at.rule(!cordoned, Invariant::Fit, || {
            format!("{no} placed on {}, which is cordoned", e.node)
        })?;
        let Some(capacity) = self.nodes.capacity(&e.node, e.incarnation, at.through) else {
            return Err(at.wrong(Invariant::Fit, format!("{} has no capacity", e.node)));
        };
        let model = demand.may_use(&capacity.gpu_model);
        at.rule(model, Invariant::Fit, || {
            format!("{no} on a GPU model that it may not use: {demand:?}")
        })?;
        let devices: BTreeSet<u32> = e.gpus.iter().map(|share| share.device).collect();
        let as_asked = e.gpus.len() as u64 == demand.gpus
            && devices.len() == e.gpus.len()
            && e.gpus
                .iter()
                .all(|share| u64::from(share.milli) == demand.gpu_milli);
        at.rule(as_asked, Invariant::Exclusive, || {
            format!("{no} got {:?} for {demand:?}", e.gpus)
        })?;
        let wanted = demand.rules.clone().unwrap_or_default();
        let broken = wanted.selector.iter().find(|it| !selects(it, capacity));
        at.rule(broken.is_none(), Invariant::Fit, || {
            format!("{no} is on {} against {broken:?}", e.node)
        })?;
        let taint = self
            .taints(&e.node, capacity, at)
            .filter(|taint| taint.effect != PREFER_NO_SCHEDULE)
            .find(|taint| !wanted.tolerations.iter().any(|it| tolerates(it, taint)));
        at.rule(taint.is_none(), Invariant::Fit, || {
            format!("{no} is on {} in spite of {taint:?}", e.node)
        })?;
        let zones: Vec<u32> = (0..32).filter(|zone| e.zones >> zone & 1 == 1).collect();
        let there = capacity.topology.as_ref().map_or(0, |it| it.zones.len());
        let fits = zones.iter().all(|zone| (*zone as usize) < there)
            && (there == 0 || !zones.is_empty())
            && (wanted.numa != SINGLE_ZONE || zones.len() == 1 || there == 0);
        at.rule(fits, Invariant::Fit, || {
            format!("{no} takes from the zones {zones:?} of {there}: {demand:?}")
        })
    }

    /// Its own, those of an operator, and those by what holds of it, as a writer knew them that had read up to its watermark.
    pub(super) fn taints<'a>(
        &'a self,
        node: &str,
        capacity: &'a v1::NodeCapacity,
        at: &Place,
    ) -> impl Iterator<Item = v1::Taint> + use<'a> {
        let conditions = self.nodes.conditions(node, at.through);
        let pressures = conditions.filter(|name| PRESSURES.contains(name));
        let pressures = pressures.map(|name| v1::Taint {
            key: name.to_owned(),
            ..v1::Taint::default()
        });
        let said = capacity.taints.iter().chain(self.settings.taints(node, at));
        said.cloned().chain(pressures)
    }

    /// Whether the node has got a taint by which it goes.
    pub(super) fn is_run_out(&self, at: &Place, a: &Allocation, hold: &Hold) -> bool {
        let Some(capacity) = self
            .nodes
            .capacity(&hold.node, hold.incarnation, at.through)
        else {
            return false;
        };
        let wanted = a.demand.rules.clone().unwrap_or_default();
        self.taints(&hold.node, capacity, at)
            .filter(|taint| taint.effect == NO_EXECUTE)
            .any(|taint| !wanted.tolerations.iter().any(|it| tolerates(it, &taint)))
    }

    /// The sum of all that is held on a node's incarnation, against what it brought in.
    pub(super) fn within_capacity(&self, at: &Place, key: &(String, u64)) -> Result<(), Violation> {
        let Some(capacity) = self.nodes.capacity(&key.0, key.1, at.through) else {
            return Err(at.wrong(Invariant::Exclusive, format!("{key:?} has no capacity")));
        };
        let (mut runs, mut cpu, mut memory) = (0, 0, 0);
        let mut devices = vec![0; capacity.gpus as usize];
        let mut extended: BTreeMap<&str, u64> = BTreeMap::new();
        // By what takes from one zone alone; how the others divide is not said.
        let mut zones: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (no, a, hold) in self.allocations.held_on(key) {
            runs += 1;
            cpu += a.demand.cpu_milli;
            memory += a.demand.memory_bytes;
            for (name, amount) in &a.demand.extended {
                *extended.entry(name).or_default() += amount;
            }
            if hold.zones.is_power_of_two() {
                let zone = zones.entry(hold.zones.trailing_zeros()).or_default();
                zone.0 += a.demand.cpu_milli;
                zone.1 += a.demand.memory_bytes;
            }
            for share in &hold.gpus {
                let there = in_zones(capacity, hold.zones, share.device);
                match devices.get_mut(share.device as usize) {
                    Some(milli) if there => *milli += share.milli,
                    Some(_) | None => {
                        let text = format!("{no} holds device {} of {key:?}", share.device);
                        return Err(at.wrong(Invariant::Exclusive, text));
                    }
                }
            }
        }
        let amount = |name: &str| {
            let known = capacity.extended.iter().find(|it| it.name == name);
            known.map_or(0, |it| it.amount)
        };
        let zone_fits = |(zone, (cpu, memory)): (&u32, &(u64, u64))| {
            let topology = capacity.topology.as_ref();
            let zone = topology.and_then(|it| it.zones.get(*zone as usize));
            zone.is_some_and(|zone| *cpu <= zone.cpu_milli && *memory <= zone.memory_bytes)
        };
        let within = (capacity.max_runs == 0 || runs <= capacity.max_runs)
            && cpu <= capacity.cpu_milli
            && memory <= capacity.memory_bytes
            && devices.iter().all(|milli| *milli <= 1000)
            && extended.iter().all(|(name, held)| *held <= amount(name))
            && zones.iter().all(zone_fits);
        at.rule(within, Invariant::Exclusive, || {
            format!(
                "{key:?} holds {runs}, cpu {cpu}, memory {memory}, devices {devices:?}, {extended:?}, by zone {zones:?} of {capacity:?}"
            )
        })
    }
}

fn label<'a>(capacity: &'a v1::NodeCapacity, name: &str) -> Option<&'a str> {
    let found = capacity.labels.iter().find(|label| label.name == name);
    found.map(|label| label.value.as_str())
}

/// The value of a label, for whoever asks for one value in common.
pub fn value_of(capacity: Option<&v1::NodeCapacity>, name: &str) -> Option<String> {
    capacity.and_then(|it| label(it, name)).map(str::to_owned)
}

pub fn selects(requirement: &v1::Requirement, capacity: &v1::NodeCapacity) -> bool {
    let value = label(capacity, &requirement.label);
    let among = value.is_some_and(|value| requirement.values.iter().any(|it| it == value));
    match requirement.operator() {
        v1::Operator::In => among,
        v1::Operator::NotIn => !among,
        v1::Operator::Exists => value.is_some(),
        v1::Operator::Missing => value.is_none(),
        v1::Operator::Unspecified => false,
    }
}

pub fn tolerates(toleration: &v1::Toleration, taint: &v1::Taint) -> bool {
    (toleration.key.is_empty() || toleration.key == taint.key)
        && (toleration.value.is_empty() || toleration.value == taint.value)
}

/// A node without a topology has no zones to be in.
fn in_zones(capacity: &v1::NodeCapacity, zones: u32, device: u32) -> bool {
    let Some(topology) = &capacity.topology else {
        return true;
    };
    let mut taken = topology
        .zones
        .iter()
        .zip(0..)
        .filter(|(_, no)| zones >> no & 1 == 1);
    taken.any(|(zone, _)| zone.gpus >> device & 1 == 1)
}
