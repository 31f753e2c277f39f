//! The life of each allocation, and what it holds on its node.

use super::{Checker, Invariant, Place, Violation, foreign};
use schemas::v1::{self, event::Kind};
use std::collections::{BTreeMap, BTreeSet};

/// What an allocation asks for, in the checker's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    pub job_set: String,
    pub name: String,
    pub priority: i32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpus: u64,
    pub gpu_milli: u64,
    pub models: BTreeSet<String>,
}

impl Demand {
    /// Of a sound request.
    pub fn asked(submit: &v1::Submit) -> Self {
        let positive = |value: i64| u64::try_from(value).unwrap_or(0);
        let job_set = match submit.job_set.as_str() {
            "" => "default",
            name => name,
        };
        let gpus = positive(submit.gpu_count);
        Self {
            job_set: job_set.to_owned(),
            name: submit.name.clone(),
            priority: submit.priority,
            cpu_milli: positive(submit.cpu_milli),
            memory_bytes: positive(submit.memory_bytes),
            gpus,
            gpu_milli: match positive(submit.gpu_milli) {
                0 if gpus > 0 => 1000,
                milli => milli,
            },
            models: submit.gpu_models.iter().cloned().collect(),
        }
    }

    pub fn specified(spec: &v1::AllocationSpec) -> Self {
        let gpu = spec.gpu.clone().unwrap_or_default();
        Self {
            job_set: spec.job_set.clone(),
            name: spec.name.clone(),
            priority: spec.priority,
            cpu_milli: spec.cpu_milli,
            memory_bytes: spec.memory_bytes,
            gpus: gpu.count.into(),
            gpu_milli: gpu.milli.into(),
            models: gpu.models.into_iter().collect(),
        }
    }

    pub fn of_resource(&self, resource: &str) -> u64 {
        match resource {
            "cpu" => self.cpu_milli,
            "memory" => self.memory_bytes,
            _ => self.gpus * self.gpu_milli,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Allocation {
    pub tenant: String,
    pub demand: Demand,
    pub requested_lsn: u64,
    /// Position of quota's decision, and whether it was a grant.
    pub quota: Option<(u64, bool)>,
    pub released: bool,
    /// Positions of the cancels not decided yet, by number, and the first of all.
    cancels: BTreeMap<u64, u64>,
    cancel_lsn: Option<u64>,
    waiting: bool,
    pub hold: Option<Hold>,
    started: Option<i64>,
    stopping: bool,
    pub ended_lsn: Option<u64>,
}

/// A place on a node.
#[derive(Debug, Clone)]
pub struct Hold {
    pub node: String,
    pub incarnation: u64,
    gpus: Vec<v1::GpuShare>,
    pub lsn: u64,
    pub now_ms: i64,
}

#[derive(Debug, Default)]
pub struct Allocations {
    all: BTreeMap<u64, Allocation>,
    /// What holds something, by node and incarnation.
    held: BTreeMap<(String, u64), BTreeSet<u64>>,
    /// What the scheduler has not ended.
    open: BTreeSet<u64>,
}

const FINISHED: i32 = 1;
const FAILED: i32 = 2;
const CANCELLED: i32 = 3;
const NODE_LOST: i32 = 4;
const REJECTED: i32 = 5;

impl Allocations {
    pub fn all(&self) -> impl Iterator<Item = (u64, &str)> {
        self.all.iter().map(|(no, a)| (*no, a.tenant.as_str()))
    }

    pub fn get(&self, no: u64) -> Option<&Allocation> {
        self.all.get(&no)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Allocation)> {
        self.all.iter().map(|(no, a)| (*no, a))
    }

    pub fn owner(&self, no: u64) -> Option<&str> {
        self.all.get(&no).map(|a| a.tenant.as_str())
    }

    pub fn requested(&mut self, at: &Place, tenant: &str, demand: Demand) {
        let allocation = Allocation {
            tenant: tenant.to_owned(),
            demand,
            requested_lsn: at.lsn,
            quota: None,
            released: false,
            cancels: BTreeMap::new(),
            cancel_lsn: None,
            waiting: false,
            hold: None,
            started: None,
            stopping: false,
            ended_lsn: None,
        };
        self.all.insert(at.no, allocation);
        self.open.insert(at.no);
    }

    pub fn cancel_requested(&mut self, at: &Place, no: u64) {
        if let Some(allocation) = self.all.get_mut(&no) {
            allocation.cancels.insert(at.no, at.lsn);
            allocation.cancel_lsn.get_or_insert(at.lsn);
        }
    }

    pub fn quota_decided(&mut self, at: &Place, no: u64, granted: bool) {
        if let Some(allocation) = self.all.get_mut(&no) {
            allocation.quota = Some((at.lsn, granted));
        }
    }

    pub fn released(&mut self, no: u64) {
        if let Some(allocation) = self.all.get_mut(&no) {
            allocation.released = true;
        }
    }

    /// Whether admission had seen its end.
    pub fn admission_saw_end(&self, no: u64, at: &Place) -> bool {
        self.all.get(&no).is_some_and(|a| {
            let denied = matches!(a.quota, Some((lsn, false)) if at.saw(lsn));
            denied || a.ended_lsn.is_some_and(|lsn| at.saw(lsn))
        })
    }

    pub fn live_for_admission(&self, at: &Place) -> u64 {
        let live = |no: &&u64| !self.admission_saw_end(**no, at);
        self.all.keys().filter(live).count() as u64
    }

    fn get_mut(&mut self, at: &Place, no: u64) -> Result<&mut Allocation, Violation> {
        self.all.get_mut(&no).ok_or_else(|| {
            at.wrong(
                Invariant::Terminal,
                format!("allocation {no} was never requested"),
            )
        })
    }

    /// Everything that reached the scheduler in time is decided; quiet means that nothing runs.
    pub fn finish(&self, end: &Place) -> Result<(), Violation> {
        for (no, a) in &self.all {
            end.rule(a.cancels.is_empty(), Invariant::Outcome, || {
                format!("cancels of allocation {no} were never decided: {a:?}")
            })?;
            let runs = a.hold.is_some() && a.ended_lsn.is_none();
            end.rule(!runs, Invariant::Outcome, || {
                format!("allocation {no} never ends: {a:?}")
            })?;
        }
        Ok(())
    }
}

impl Checker {
    pub(super) fn scheduler(
        &mut self,
        frame: &Place,
        kinds: &[(Place, &Kind)],
    ) -> Result<(), Violation> {
        for (at, kind) in kinds {
            match kind {
                Kind::AllocationPlaced(e) => self.placed(at, e)?,
                Kind::AllocationWaiting(e) => self.waiting(at, e.allocation)?,
                Kind::AllocationStarted(e) => self.started(at, e)?,
                Kind::AllocationStopping(e) => self.stopping(at, e.allocation)?,
                Kind::AllocationEnded(e) => self.ended(at, e)?,
                Kind::CancelDecided(e) => self.cancel_decided(at, e)?,
                other => return Err(foreign(at, other)),
            }
        }
        self.scheduler_left_nothing(frame)
    }

    fn placed(&mut self, at: &Place, e: &v1::AllocationPlaced) -> Result<(), Violation> {
        let no = e.allocation;
        let node = self.nodes.known(&e.node, at.through);
        let ready = node.is_some_and(|known| known.ready && known.incarnation == e.incarnation);
        at.rule(ready, Invariant::Exclusive, || {
            format!(
                "allocation {no} placed on {}/{}, which is {node:?}",
                e.node, e.incarnation
            )
        })?;
        let a = self.allocations.get_mut(at, no)?;
        let granted = matches!(a.quota, Some((lsn, true)) if at.saw(lsn));
        let legal = granted && a.hold.is_none() && a.ended_lsn.is_none();
        at.rule(legal, Invariant::Terminal, || {
            format!("{no} placed, but {a:?}")
        })?;
        a.hold = Some(Hold {
            node: e.node.clone(),
            incarnation: e.incarnation,
            gpus: e.gpus.clone(),
            lsn: at.lsn,
            now_ms: at.now,
        });
        a.waiting = false;
        let demand = &a.demand;
        let devices: BTreeSet<u32> = e.gpus.iter().map(|share| share.device).collect();
        let as_asked = e.gpus.len() as u64 == demand.gpus
            && devices.len() == e.gpus.len()
            && e.gpus
                .iter()
                .all(|share| u64::from(share.milli) == demand.gpu_milli);
        at.rule(as_asked, Invariant::Exclusive, || {
            format!("{no} got {:?} for {demand:?}", e.gpus)
        })?;
        let key = (e.node.clone(), e.incarnation);
        self.allocations
            .held
            .entry(key.clone())
            .or_default()
            .insert(no);
        self.within_capacity(at, &key)
    }

    /// The sum of all that is held on a node's incarnation, against what it brought in.
    fn within_capacity(&self, at: &Place, key: &(String, u64)) -> Result<(), Violation> {
        let Some(capacity) = self.nodes.capacity(&key.0, key.1) else {
            return Err(at.wrong(Invariant::Exclusive, format!("{key:?} has no capacity")));
        };
        let (mut cpu, mut memory) = (0, 0);
        let mut devices = vec![0; capacity.gpus as usize];
        let held = self.allocations.held.get(key).into_iter().flatten();
        for no in held {
            let Some(a) = self.allocations.all.get(no) else {
                continue;
            };
            cpu += a.demand.cpu_milli;
            memory += a.demand.memory_bytes;
            let model = &a.demand.models;
            let fits =
                a.demand.gpus == 0 || model.is_empty() || model.contains(&capacity.gpu_model);
            at.rule(fits, Invariant::Exclusive, || {
                format!("{no} on a foreign GPU model")
            })?;
            for share in a.hold.iter().flat_map(|hold| &hold.gpus) {
                match devices.get_mut(share.device as usize) {
                    Some(milli) => *milli += share.milli,
                    None => {
                        let text = format!("{no} holds device {} of {key:?}", share.device);
                        return Err(at.wrong(Invariant::Exclusive, text));
                    }
                }
            }
        }
        let within = cpu <= capacity.cpu_milli
            && memory <= capacity.memory_bytes
            && devices.iter().all(|milli| *milli <= 1000);
        at.rule(within, Invariant::Exclusive, || {
            format!("{key:?} holds cpu {cpu}, memory {memory}, devices {devices:?} of {capacity:?}")
        })
    }

    fn waiting(&mut self, at: &Place, no: u64) -> Result<(), Violation> {
        let a = self.allocations.get_mut(at, no)?;
        let granted = matches!(a.quota, Some((lsn, true)) if at.saw(lsn));
        let legal = granted && a.hold.is_none() && a.ended_lsn.is_none();
        at.rule(legal, Invariant::Terminal, || {
            format!("{no} waits, but {a:?}")
        })?;
        a.waiting = true;
        Ok(())
    }

    fn started(&mut self, at: &Place, e: &v1::AllocationStarted) -> Result<(), Violation> {
        let no = e.allocation;
        let report = self.nodes.started(no).filter(|report| at.saw(report.lsn));
        let a = self.allocations.get_mut(at, no)?;
        let legal = a.hold.is_some() && a.started.is_none() && a.ended_lsn.is_none();
        at.rule(legal, Invariant::Terminal, || {
            format!("{no} started, but {a:?}")
        })?;
        let reported = report.is_some_and(|report| report.at_ms == e.at_ms);
        at.rule(reported, Invariant::Terminal, || {
            format!("{no} started at {}, reported {report:?}", e.at_ms)
        })?;
        a.started = Some(e.at_ms);
        Ok(())
    }

    fn stopping(&mut self, at: &Place, no: u64) -> Result<(), Violation> {
        let a = self.allocations.get_mut(at, no)?;
        let asked = a.cancel_lsn.is_some_and(|lsn| at.saw(lsn));
        let legal = asked && a.hold.is_some() && !a.stopping && a.ended_lsn.is_none();
        at.rule(legal, Invariant::Terminal, || {
            format!("{no} stopping, but {a:?}")
        })?;
        a.stopping = true;
        Ok(())
    }

    fn ended(&mut self, at: &Place, e: &v1::AllocationEnded) -> Result<(), Violation> {
        let no = e.allocation;
        let report = self.nodes.over(no).filter(|report| at.saw(report.lsn));
        let lost = self
            .allocations
            .get(no)
            .and_then(|a| a.hold.clone())
            .is_some_and(|hold| {
                self.nodes
                    .was_lost(&hold.node, hold.incarnation, at.through)
            });
        let a = self.allocations.get_mut(at, no)?;
        let denied = matches!(a.quota, Some((lsn, false)) if at.saw(lsn));
        let alive = a.ended_lsn.is_none() && !denied && at.saw(a.requested_lsn);
        at.rule(alive, Invariant::Terminal, || {
            format!("{no} ended, but {a:?}")
        })?;
        let reported = |phases: &[i32]| {
            report.is_some_and(|r| phases.contains(&r.state) && r.at_ms == e.at_ms)
        };
        let cancelled = a.cancel_lsn.is_some_and(|lsn| at.saw(lsn));
        let cause_holds = match (e.cause, a.hold.is_some()) {
            (FINISHED, true) => !a.stopping && reported(&[2]),
            (FAILED, true) => !a.stopping && reported(&[3]),
            (REJECTED, true) => reported(&[4]),
            (CANCELLED, true) => a.stopping && reported(&[2, 3]),
            (CANCELLED, false) => cancelled,
            (NODE_LOST, true) => lost,
            _ => false,
        };
        at.rule(cause_holds, Invariant::Terminal, || {
            format!(
                "{no} ended by cause {} with report {report:?}: {a:?}",
                e.cause
            )
        })?;
        let begin = a.started.or(a.hold.as_ref().map(|hold| hold.now_ms));
        at.rule(
            begin.is_none_or(|begin| begin <= e.at_ms),
            Invariant::Expiry,
            || format!("{no} ended at {} before it began: {a:?}", e.at_ms),
        )?;
        a.ended_lsn = Some(at.lsn);
        if let Some(hold) = &a.hold {
            let key = (hold.node.clone(), hold.incarnation);
            self.allocations.held.entry(key).or_default().remove(&no);
        }
        self.allocations.open.remove(&no);
        Ok(())
    }

    fn cancel_decided(&mut self, at: &Place, e: &v1::CancelDecided) -> Result<(), Violation> {
        let a = self.allocations.get_mut(at, e.allocation)?;
        let request = a.cancels.remove(&e.request);
        at.rule(
            request.is_some_and(|lsn| at.saw(lsn)),
            Invariant::Outcome,
            || format!("{e:?} decides no open cancel"),
        )?;
        let denied = matches!(a.quota, Some((lsn, false)) if at.saw(lsn));
        // What this very cancel ends was live.
        let ended_before = a.ended_lsn.is_some_and(|lsn| lsn < at.lsn);
        let acted = a.stopping || a.ended_lsn == Some(at.lsn);
        let fits = if e.was_live {
            !denied && !ended_before && acted
        } else {
            denied || a.ended_lsn.is_some()
        };
        at.rule(fits, Invariant::Outcome, || format!("{e:?}, but {a:?}"))
    }

    /// A watermark is a promise: what lies below it has been decided.
    fn scheduler_left_nothing(&self, frame: &Place) -> Result<(), Violation> {
        let stale = |lsn: Option<u64>| lsn.is_some_and(|lsn| frame.saw(lsn));
        for (no, a) in &self.allocations.all {
            let cancel = a.cancels.values().min().copied();
            frame.rule(!stale(cancel), Invariant::Replay, || {
                format!("a cancel of {no} lies below watermark {}", frame.through)
            })?;
        }
        for no in &self.allocations.open {
            let Some(a) = self.allocations.all.get(no) else {
                continue;
            };
            let skipped = match (&a.hold, a.quota) {
                (Some(hold), _) => {
                    let lost = self
                        .nodes
                        .was_lost(&hold.node, hold.incarnation, frame.through);
                    let over = self.nodes.over(*no).map(|report| report.lsn);
                    let started = self.nodes.started(*no).map(|report| report.lsn);
                    lost || stale(over) || (a.started.is_none() && stale(started))
                }
                (None, Some((lsn, true))) => !a.waiting && frame.saw(lsn),
                (None, _) => false,
            };
            frame.rule(!skipped, Invariant::Replay, || {
                format!("{no} has an input below watermark {}: {a:?}", frame.through)
            })?;
        }
        Ok(())
    }
}
