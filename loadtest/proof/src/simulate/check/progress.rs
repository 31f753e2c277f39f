//! Whatever could be placed on what is free is. Looked at when nothing has happened for so long that everybody has read
//! and decided everything.
//!
//! A place that is found here is one by all rules, so who has it and waits is owed it. Where a rule cannot be judged from
//! outside (how a node divides what it takes among its zones, whom backfill has promised a node) nothing is said.

use super::{
    Checker, Invariant, Place, Violation,
    allocations::Allocation,
    fit::{PREFER_NO_SCHEDULE, SINGLE_ZONE, selects, tolerates, value_of},
    nodes::Named,
    others::At,
};
use schemas::v1;
use std::{
    collections::{BTreeMap, BTreeSet},
    slice::from_ref,
};

/// What was due before that has been decided, where everybody has read and decided everything.
const DUE_MS: i64 = 2000;

/// What is free on a node without zones.
#[derive(Debug, Clone)]
struct Free<'a> {
    node: &'a str,
    incarnation: u64,
    capacity: &'a v1::NodeCapacity,
    runs: u32,
    cpu: u64,
    memory: u64,
    devices: Vec<u64>,
    extended: BTreeMap<&'a str, u64>,
}

impl Free<'_> {
    /// Takes what is asked for, if it is there.
    fn take(&mut self, demand: &super::Demand) -> bool {
        let of = |name: &str| self.extended.get(name).copied().unwrap_or(0);
        let mut devices: Vec<usize> = (0..self.devices.len()).collect();
        devices.retain(|device| self.devices[*device] >= demand.gpu_milli);
        // The fullest first.
        devices.sort_by_key(|device| self.devices[*device]);
        let fits = self.runs > 0
            && demand.cpu_milli <= self.cpu
            && demand.memory_bytes <= self.memory
            && devices.len() as u64 >= demand.gpus
            && demand
                .extended
                .iter()
                .all(|(name, asked)| *asked <= of(name));
        if !fits {
            return false;
        }
        self.runs -= 1;
        self.cpu -= demand.cpu_milli;
        self.memory -= demand.memory_bytes;
        for device in devices.into_iter().take(demand.gpus as usize) {
            self.devices[device] -= demand.gpu_milli;
        }
        for (name, free) in &mut self.extended {
            *free -= demand.extended.get(*name).copied().unwrap_or(0);
        }
        true
    }
}

impl Checker {
    /// Ready, heard and not cordoned, as far as the scheduler has read.
    pub(super) fn open_nodes(&self, at: &Place) -> Vec<(&str, u64, &v1::NodeCapacity)> {
        let all = self.nodes.all(at.through);
        let open = all.filter(|(node, _, _)| {
            let known = self.nodes.known(node, at.through);
            !known.is_some_and(|known| known.suspect) && !self.settings.cordoned(node, at)
        });
        open.collect()
    }

    /// Whether a node is of the kind that is asked for, and large enough when it is empty.
    pub(super) fn suits(
        &self,
        at: &Place,
        demand: &super::Demand,
        (node, capacity): (&str, &v1::NodeCapacity),
    ) -> bool {
        let rules = demand.rules.clone().unwrap_or_default();
        let has = |name: &str| {
            let known = capacity.extended.iter().find(|it| it.name == name);
            known.map_or(0, |it| it.amount)
        };
        let model = demand.may_use(&capacity.gpu_model);
        let tolerated = |taint: v1::Taint| rules.tolerations.iter().any(|it| tolerates(it, &taint));
        let mut taints = self
            .taints(node, capacity, at)
            .filter(|taint| taint.effect != PREFER_NO_SCHEDULE);
        rules.selector.iter().all(|it| selects(it, capacity))
            && taints.all(tolerated)
            && model
            && demand.cpu_milli <= capacity.cpu_milli
            && demand.memory_bytes <= capacity.memory_bytes
            && demand.gpus <= u64::from(capacity.gpus)
            && demand
                .extended
                .iter()
                .all(|(name, asked)| *asked <= has(name))
    }

    /// What is free where nobody else has a claim.
    fn free(&self, end: &Place) -> Vec<Free<'_>> {
        let kept: BTreeSet<&str> = self
            .allocations
            .iter()
            .filter_map(|(_, a)| Some(a.nominated.as_ref()?.0.as_str()))
            .collect();
        let nodes = self.open_nodes(end).into_iter();
        let nodes =
            nodes.filter(|(node, _, capacity)| capacity.topology.is_none() && !kept.contains(node));
        let free = nodes.filter_map(|(node, incarnation, capacity)| {
            let extended = capacity.extended.iter();
            let mut free = Free {
                node,
                incarnation,
                capacity,
                runs: match capacity.max_runs {
                    0 => u32::MAX,
                    most => most,
                },
                cpu: capacity.cpu_milli,
                memory: capacity.memory_bytes,
                devices: vec![1000; capacity.gpus as usize],
                extended: extended.map(|it| (it.name.as_str(), it.amount)).collect(),
            };
            for (_, a, hold) in self.allocations.held_on(&(node.to_owned(), incarnation)) {
                free.runs = free.runs.saturating_sub(1);
                // A node that has less by now than what it holds takes nobody.
                free.cpu = free.cpu.checked_sub(a.demand.cpu_milli)?;
                free.memory = free.memory.checked_sub(a.demand.memory_bytes)?;
                for share in &hold.gpus {
                    if let Some(device) = free.devices.get_mut(share.device as usize) {
                        *device = device.saturating_sub(share.milli.into());
                    }
                }
                for (name, held) in &a.demand.extended {
                    if let Some(free) = free.extended.get_mut(name.as_str()) {
                        *free = free.checked_sub(*held)?;
                    }
                }
            }
            Some(free)
        });
        free.collect()
    }

    /// A place for each of them beside the others, the largest first; none when one finds none.
    fn places<'a>(
        &'a self,
        end: &Place,
        all: &[(u64, &'a Allocation)],
        (label, value): (&str, Option<&str>),
    ) -> Option<Vec<At<'a>>> {
        let mut free = self.free(end);
        free.retain(|it| value.is_none() || value_of(Some(it.capacity), label).as_deref() == value);
        let mut all = all.to_vec();
        all.sort_by_key(|(_, a)| {
            let d = &a.demand;
            std::cmp::Reverse((d.gpus * d.gpu_milli, d.cpu_milli, d.memory_bytes))
        });
        let mut places: Vec<At<'a>> = Vec::new();
        for (no, a) in all {
            let found = free.iter_mut().find_map(|free| {
                let at = At {
                    no,
                    a,
                    node: free.node,
                    incarnation: free.incarnation,
                };
                let kept_off = self
                    .not_near(&at, &places)
                    .or_else(|| self.not_apart(&at, &places))
                    // Whoever of a gang comes first: nobody is owed a place that depends on it.
                    .or_else(|| {
                        places
                            .iter()
                            .find_map(|it| self.not_apart(it, from_ref(&at)))
                    })
                    .or_else(|| self.not_spread(end, &at, &places));
                let fits =
                    self.suits(end, &a.demand, (free.node, free.capacity)) && kept_off.is_none();
                (fits && free.take(&a.demand)).then_some(at)
            })?;
            places.push(found);
        }
        Some(places)
    }

    /// Nothing keeps it from being placed but room, rules and limits of queues.
    fn waits_for_room(&self, end: &Place, a: &Allocation) -> bool {
        let mut needed = a.demand.depends_on.iter();
        let ready = needed.all(|(on, success)| {
            let on = self.allocations.get(*on);
            on.is_some_and(|on| on.over_for(end) && (!success || on.finished))
        });
        let rules = a.demand.rules.as_ref();
        a.queued(end)
            && !a.is_reclaimed(end)
            && a.nominated.is_none()
            && a.not_before < end.now
            && !a.cancel_seen(end)
            && ready
            && rules.is_none_or(|rules| rules.numa != SINGLE_ZONE)
    }

    /// At rest: of an agent that is there, what it names as its node's conditions holds, and nothing else does; and the node
    /// counts with what it has.
    pub fn said_at_rest(
        &self,
        node: &str,
        (boot, named, capacity): (u64, &Named, &v1::NodeCapacity),
    ) -> Result<(), Violation> {
        let end = self.end();
        let known = self.nodes.known(node, u64::MAX);
        let there = known.is_some_and(|known| known.ready && known.boot == boot);
        let to_go = self.settings.forgotten(&end).any(|(it, _)| it == node);
        if !there || to_go || self.first_level_through == u64::MAX {
            return Ok(());
        }
        let held = self.nodes.conditions(node, u64::MAX);
        end.rule(held.eq(named.keys()), Invariant::Progress, || {
            let held: Vec<&str> = self.nodes.conditions(node, u64::MAX).collect();
            format!("{node} has {held:?}, and its agent says {named:?}")
        })?;
        // What an operator approved of in between may have kept a change off, which is not tried again.
        if self.began_at_first_level || self.settings.was_approved(node) {
            return Ok(());
        }
        let incarnation = known.map_or(0, |known| known.incarnation);
        let counts = self.nodes.capacity(node, incarnation, u64::MAX);
        end.rule(counts == Some(capacity), Invariant::Progress, || {
            format!("{node} counts as {counts:?}, and its agent says {capacity:?}")
        })
    }

    /// At rest: nobody has a node that is not being cleared for him, and nobody waits for what is there.
    pub fn at_rest(&self, now: i64) -> Result<(), Violation> {
        let end = Place { now, ..self.end() };
        // Whoever was due just now may not have been decided.
        self.deadlines_are_kept(&Place {
            now: now - DUE_MS,
            ..end
        })?;
        for (no, a) in self.allocations.iter() {
            let Some((node, incarnation)) = &a.nominated else {
                continue;
            };
            let key = (node.clone(), *incarnation);
            let mut held = self.allocations.held_on(&key);
            let goes = held.any(|(_, _, hold)| hold.stop.is_some());
            end.rule(goes, Invariant::Progress, || {
                format!("{no} is nominated for ever, for {key:?} that nobody leaves: {a:?}")
            })?;
        }
        for (no, a) in self.allocations.iter() {
            let Some(hold) = a.hold.as_ref().filter(|hold| hold.stop.is_none()) else {
                continue;
            };
            let stays = self.settings.drained(&hold.node, &end).is_none()
                && !self.is_run_out(&end, a, hold);
            end.rule(stays, Invariant::Progress, || {
                format!("{no} stays on a node that is cleared: {a:?}")
            })?;
        }
        if self.settings.backfills(&end) {
            return Ok(());
        }
        let mut gangs: BTreeMap<(&str, &str), Vec<(u64, &Allocation)>> = BTreeMap::new();
        for (no, a) in self.allocations.iter() {
            if let Some(gang) = &a.demand.gang {
                let key = (a.tenant.as_str(), gang.name.as_str());
                gangs.entry(key).or_default().push((no, a));
            } else if self.waits_for_room(&end, a) {
                self.finds_none(&end, &[(no, a)], "")?;
            }
        }
        for members in gangs.values() {
            let gang = members.first().and_then(|(_, a)| a.demand.gang.as_ref());
            let Some(gang) = gang.filter(|gang| members.len() as u64 == gang.size) else {
                continue;
            };
            let alike = |a: &Allocation| a.demand.gang.as_ref() == Some(gang);
            let live = members.iter().copied();
            let live: Vec<_> = live.filter(|(_, a)| !a.over_for(&end)).collect();
            let all = live
                .iter()
                .all(|(_, a)| alike(a) && self.waits_for_room(&end, a));
            // Of one that has lost a member nobody knows here whether all were there before that.
            if all && live.len() as u64 == gang.size {
                self.finds_none(&end, &live, &gang.label)?;
            }
        }
        Ok(())
    }

    fn finds_none(
        &self,
        end: &Place,
        all: &[(u64, &Allocation)],
        label: &str,
    ) -> Result<(), Violation> {
        let numbers: Vec<u64> = all.iter().map(|(no, _)| *no).collect();
        if !self.limits_let(end, &numbers) {
            return Ok(());
        }
        let values: BTreeSet<String> = match label {
            "" => BTreeSet::new(),
            label => {
                let nodes = self.open_nodes(end).into_iter();
                let values = nodes.filter_map(|(_, _, it)| value_of(Some(it), label));
                values.collect()
            }
        };
        let found = match label {
            "" => self.places(end, all, (label, None)),
            label => values
                .iter()
                .find_map(|value| self.places(end, all, (label, Some(value)))),
        };
        end.rule(found.is_none(), Invariant::Progress, || {
            let places = found.into_iter().flatten();
            let places: Vec<String> = places
                .map(|it| format!("{} on {}", it.no, it.node))
                .collect();
            format!("{numbers:?} wait, and there is room: {places:?}; {all:?}")
        })
    }
}
