//! The life of each allocation, and what it holds on its node.

use super::{Checker, Demand, Invariant, Place, Violation, foreign, others::At};
use schemas::v1::{self, event::Kind};
use std::collections::{BTreeMap, BTreeSet};

/// The reason of one that waits for quota.
const FOR_QUOTA: i32 = 15;
/// The reason of one that waits for members of its gang.
const FOR_GANG: i32 = 10;
const NOMINATED: i32 = 14;

#[derive(Debug, Clone)]
pub struct Allocation {
    pub tenant: String,
    pub demand: Demand,
    pub requested_lsn: u64,
    pub requested_ms: i64,
    pub was_placed: bool,
    /// Position of quota's latest grant.
    granted: Option<u64>,
    denied: Option<u64>,
    /// The first event that ended it, or denied it.
    over_by: Option<OverBy>,
    /// Admission said that it does not know it any more.
    pub forgotten: bool,
    /// Positions at which quota took back what it had granted, for as long as the scheduler has not given it up.
    pub reclaimed: Option<u64>,
    /// Its quota counts by model: after a run it waits for quota again.
    by_model: bool,
    pub asks_again: bool,
    /// Up to where the scheduler had read when it gave up what was taken back.
    gave_up_through: u64,
    /// Positions of the cancels not decided yet, by number, and the first of all.
    cancels: BTreeMap<u64, u64>,
    cancel_lsn: Option<u64>,
    /// The first cancel of its job set.
    set_cancel_lsn: Option<u64>,
    /// It was told that it waits, the last time by this.
    pub waiting: bool,
    pub hold: Option<Hold>,
    /// Node and incarnation that are being cleared for it.
    pub nominated: Option<(String, u64)>,
    /// How often it was queued again because its run failed, or its node did not want it.
    pub retried: u64,
    /// Not before this is it placed again.
    pub not_before: i64,
    pub ended_lsn: Option<u64>,
    /// It ended because its run did, as it should.
    pub finished: bool,
}

/// An event after which an allocation lives no more.
#[derive(Debug, Clone, Copy)]
struct OverBy {
    /// By quota, which counts its own events.
    denied: bool,
    no: u64,
    lsn: u64,
    /// Its frame's clock.
    now: i64,
}

impl OverBy {
    fn of(at: &Place, denied: bool) -> Self {
        let Place { no, lsn, now, .. } = *at;
        Self {
            denied,
            no,
            lsn,
            now,
        }
    }
}

impl Allocation {
    /// Whether a cancel has got to the scheduler.
    pub fn cancel_seen(&self, at: &Place) -> bool {
        let cancels = [self.cancel_lsn, self.set_cancel_lsn];
        cancels.into_iter().flatten().any(|lsn| at.saw(lsn))
    }

    pub fn denied(&self, at: &Place) -> bool {
        self.denied.is_some_and(|lsn| at.saw(lsn))
    }

    /// Whether it has quota, as far as the scheduler has read: more than it has given up.
    pub fn has_quota(&self, at: &Place) -> bool {
        let granted = self.granted.filter(|lsn| at.saw(*lsn));
        granted.is_some_and(|lsn| lsn > self.gave_up_through)
    }

    /// Whether quota takes back what it holds, as far as the scheduler has read.
    pub fn is_reclaimed(&self, at: &Place) -> bool {
        let reclaimed = self.reclaimed.filter(|lsn| at.saw(*lsn));
        // A later grant makes up for it.
        reclaimed.is_some_and(|lsn| {
            !self
                .granted
                .is_some_and(|granted| granted > lsn && at.saw(granted))
        })
    }

    pub fn is_by_model(&self) -> bool {
        self.by_model
    }

    /// Whether it may wait or be placed, as far as the scheduler has read.
    pub fn queued(&self, at: &Place) -> bool {
        let holds_quota = self.has_quota(at) && !self.asks_again;
        holds_quota && self.hold.is_none() && self.ended_lsn.is_none()
    }

    /// Whether it has ended for the scheduler.
    pub fn over_for(&self, at: &Place) -> bool {
        self.ended_lsn.is_some() || self.denied(at)
    }
}

/// A place on a node.
#[derive(Debug, Clone)]
pub struct Hold {
    /// When it was placed, nobody was there whom it has to be near to.
    pub far: bool,
    pub node: String,
    pub incarnation: u64,
    pub gpus: Vec<v1::GpuShare>,
    /// As bits.
    pub zones: u32,
    pub lsn: u64,
    pub now_ms: i64,
    pub started: Option<i64>,
    pub stop: Option<Stop>,
}

impl Hold {
    /// What the scheduler makes of an agent's moment: it was not before the placement or the start, nor after now.
    pub fn moment(&self, at_ms: i64, now_ms: i64) -> i64 {
        let low = self.started.unwrap_or(self.now_ms);
        at_ms.min(now_ms).max(low)
    }

    /// A cancel was decided. What has reached its time limit is stopping for that.
    pub fn cancelled(&mut self) {
        if self.stop != Some(Stop::TimeLimit) {
            self.stop = Some(Stop::Cancelled);
        }
    }

    /// It is not queued again.
    pub fn stops_for_good(&self) -> bool {
        matches!(self.stop, Some(Stop::Cancelled | Stop::TimeLimit))
    }
}

/// Why it was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Has to go, and is still to be told.
    Preempted {
        evicted: bool,
    },
    /// And was.
    Cleared {
        evicted: bool,
    },
    Cancelled,
    TimeLimit,
}

#[derive(Debug, Default)]
pub struct Allocations {
    all: BTreeMap<u64, Allocation>,
    /// What holds something, by node and incarnation.
    held: BTreeMap<(String, u64), BTreeSet<u64>>,
    /// What the scheduler has not ended.
    open: BTreeSet<u64>,
}

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

    /// What the scheduler has not ended.
    pub fn open(&self) -> impl Iterator<Item = (u64, &Allocation)> {
        let open = self.open.iter();
        open.filter_map(|no| Some((*no, self.all.get(no)?)))
    }

    pub fn owner(&self, no: u64) -> Option<&str> {
        self.all.get(&no).map(|a| a.tenant.as_str())
    }

    pub fn requested(&mut self, at: &Place, tenant: &str, demand: Demand) {
        let allocation = Allocation {
            tenant: tenant.to_owned(),
            demand,
            requested_lsn: at.lsn,
            requested_ms: at.now,
            was_placed: false,
            granted: None,
            denied: None,
            over_by: None,
            forgotten: false,
            reclaimed: None,
            by_model: false,
            asks_again: false,
            gave_up_through: 0,
            cancels: BTreeMap::new(),
            cancel_lsn: None,
            set_cancel_lsn: None,
            waiting: false,
            hold: None,
            nominated: None,
            retried: 0,
            not_before: i64::MIN,
            ended_lsn: None,
            finished: false,
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

    /// All of the job set that was requested before.
    pub fn in_job_set(&self, tenant: &str, job_set: &str, before: u64) -> Vec<u64> {
        let of = |(no, a): &(&u64, &Allocation)| {
            (a.tenant.as_str(), a.demand.job_set.as_str()) == (tenant, job_set) && **no < before
        };
        self.all.iter().filter(of).map(|(no, _)| *no).collect()
    }

    pub fn set_cancel_requested(&mut self, lsn: u64, members: &[u64]) {
        for no in members {
            if let Some(allocation) = self.all.get_mut(no) {
                allocation.set_cancel_lsn.get_or_insert(lsn);
            }
        }
    }

    /// What holds something of a node's incarnation.
    pub fn held_on(&self, key: &(String, u64)) -> impl Iterator<Item = (u64, &Allocation, &Hold)> {
        let held = self.held.get(key).into_iter().flatten();
        held.filter_map(|no| {
            let a = self.all.get(no)?;
            Some((*no, a, a.hold.as_ref()?))
        })
    }

    /// All that holds something.
    pub fn held(&self) -> BTreeSet<u64> {
        self.held.values().flatten().copied().collect()
    }

    /// It holds nothing any more. What it held.
    pub fn let_go(&mut self, no: u64) -> Option<Hold> {
        let hold = self.all.get_mut(&no)?.hold.take()?;
        let key = (hold.node.clone(), hold.incarnation);
        self.held.entry(key).or_default().remove(&no);
        Some(hold)
    }

    pub fn end(&mut self, at: &Place, no: u64, finished: bool) {
        if let Some(a) = self.all.get_mut(&no) {
            a.ended_lsn = Some(at.lsn);
            a.over_by.get_or_insert(OverBy::of(at, false));
            a.finished = finished;
            a.nominated = None;
        }
        self.open.remove(&no);
    }

    pub fn cancel_done(&mut self, no: u64, request: u64) -> Option<u64> {
        self.all.get_mut(&no)?.cancels.remove(&request)
    }

    pub fn granted(&mut self, at: &Place, no: u64, models: Option<&v1::ModelGrant>) {
        if let Some(allocation) = self.all.get_mut(&no) {
            allocation.granted = Some(at.lsn);
            allocation.by_model = models.is_some();
            let except = models.into_iter().flat_map(|models| &models.except);
            allocation.demand.except = except.cloned().collect();
            // It is to be told anew where it stands.
            allocation.waiting = false;
        }
    }

    pub fn denied(&mut self, at: &Place, no: u64) {
        if let Some(allocation) = self.all.get_mut(&no) {
            allocation.denied = Some(at.lsn);
            allocation.over_by.get_or_insert(OverBy::of(at, true));
        }
    }

    pub fn reclaimed(&mut self, at: &Place, no: u64) {
        if let Some(allocation) = self.all.get_mut(&no) {
            // What was given up already is not given up again.
            let gave_up = allocation.granted < Some(allocation.gave_up_through + 1);
            allocation.reclaimed = (!gave_up).then_some(at.lsn);
        }
    }

    /// It waits for quota again.
    pub fn gives_up(&mut self, at: &Place, no: u64) {
        if let Some(allocation) = self.all.get_mut(&no) {
            allocation.nominated = None;
            allocation.gave_up_through = at.through;
            allocation.reclaimed = None;
            allocation.asks_again = false;
        }
    }

    /// Admission says what it does not know any more: what it saw end, and not before the window is over.
    pub fn forget(
        &mut self,
        at: &Place,
        e: &v1::OperationsForgotten,
        window_ms: i64,
    ) -> Result<(), Violation> {
        for (no, a) in &mut self.all {
            let Some(by) = a.over_by.filter(|_| !a.forgotten) else {
                continue;
            };
            let through = match by.denied {
                true => e.denied_through,
                false => e.ended_through,
            };
            if by.no > through {
                continue;
            }
            let over = at.saw(by.lsn) && at.now > by.now + window_ms;
            at.rule(over, Invariant::Operation, || {
                format!("{no} forgotten within the window, at {}: {a:?}", at.now)
            })?;
            a.forgotten = true;
        }
        Ok(())
    }

    /// Whether admission had seen its end.
    pub fn admission_saw_end(&self, no: u64, at: &Place) -> bool {
        self.all
            .get(&no)
            .is_some_and(|a| a.denied(at) || a.ended_lsn.is_some_and(|lsn| at.saw(lsn)))
    }

    pub fn live_for_admission(&self, at: &Place, tenant: &str) -> u64 {
        let of = |a: &Allocation| a.tenant == tenant;
        let live = |(no, a): &(&u64, &Allocation)| of(a) && !self.admission_saw_end(**no, at);
        self.all.iter().filter(live).count() as u64
    }

    pub fn get_mut(&mut self, at: &Place, no: u64) -> Result<&mut Allocation, Violation> {
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
            end.rule(a.hold.is_none(), Invariant::Outcome, || {
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
        let held_before = self.allocations.held();
        let counted_before = self.counted();
        for (at, kind) in kinds {
            match kind {
                Kind::AllocationPlaced(e) => self.placed(at, e)?,
                Kind::AllocationWaiting(e) => self.waiting(at, e)?,
                Kind::AllocationNominated(e) => self.nominated(at, e)?,
                Kind::AllocationStarted(e) => self.started(at, e)?,
                Kind::AllocationPreempted(e) => self.preempted(at, e)?,
                Kind::AllocationStopping(e) => self.stopping(at, e)?,
                Kind::AllocationRequeued(e) => self.requeued(at, e)?,
                Kind::AllocationEnded(e) => self.ended(at, e)?,
                Kind::CancelDecided(e) => self.cancel_decided(at, e)?,
                Kind::JobSetCancelDecided(e) => self.job_set_cancel_decided(at, e)?,
                Kind::AllocationReprioritised(e) => self.reprioritised(at, e)?,
                Kind::PriorityDecided(e) => self.priority_decided(at, e)?,
                Kind::ResourceDecided(e) => self.resources.decided(at, e)?,
                Kind::LeaseExpired(e) => self.resources.expired(at, e)?,
                // Says why, and changes nothing.
                Kind::PendingGroupExplained(_) | Kind::ReservationDecided(_) => {}
                other => return Err(foreign(at, other)),
            }
        }
        self.gangs_come_whole(frame, kinds, &held_before)?;
        self.queues_keep_limits(frame, &counted_before)?;
        self.comes_to_rest(frame, kinds)?;
        self.all_are_told(frame)?;
        // A leader that goes, or says how far it has read, decides nothing by the clock of that frame.
        if !kinds.is_empty() {
            self.deadlines_are_kept(frame)?;
        }
        self.asked.left_nothing(frame)?;
        self.resources.left_nothing(frame)?;
        self.scheduler_left_nothing(frame)
    }

    fn placed(&mut self, at: &Place, e: &v1::AllocationPlaced) -> Result<(), Violation> {
        let no = e.allocation;
        let a = self.allocations.get_mut(at, no)?.clone();
        let legal = a.queued(at) && at.now >= a.not_before;
        at.rule(legal, Invariant::Terminal, || {
            format!("{no} placed, but {a:?}")
        })?;
        self.may_start(at, no)?;
        self.may_be_on(at, e, &a.demand)?;
        let of = At {
            no,
            a: &a,
            node: &e.node,
            incarnation: e.incarnation,
        };
        let broken = self
            .not_apart(&of, &[])
            .or_else(|| self.not_spread(at, &of, &[]));
        at.rule(broken.is_none(), Invariant::Fit, || {
            broken.unwrap_or_default()
        })?;
        // Who comes with it may come after it in the frame: that is looked at when the frame is through.
        let far = self.not_near(&of, &[]).is_some();
        let a = self.allocations.get_mut(at, no)?;
        a.hold = Some(Hold {
            far,
            node: e.node.clone(),
            incarnation: e.incarnation,
            gpus: e.gpus.clone(),
            zones: e.zones,
            lsn: at.lsn,
            now_ms: at.now,
            started: None,
            stop: None,
        });
        a.was_placed = true;
        a.nominated = None;
        a.waiting = false;
        let key = (e.node.clone(), e.incarnation);
        self.allocations
            .held
            .entry(key.clone())
            .or_default()
            .insert(no);
        self.quotas.placed(at, no, &e.node);
        self.within_capacity(at, &key)
    }

    /// For a place; or for quota, which was taken back while it was on no node.
    fn waiting(&mut self, at: &Place, e: &v1::AllocationWaiting) -> Result<(), Violation> {
        let no = e.allocation;
        let a = self.allocations.get_mut(at, no)?;
        if e.reason == FOR_QUOTA {
            let due = a.is_reclaimed(at) || a.asks_again;
            let due = due && a.hold.is_none() && a.ended_lsn.is_none();
            at.rule(due, Invariant::Terminal, || {
                format!("{no} waits for quota, but {a:?}")
            })?;
            self.allocations.gives_up(at, no);
            self.quotas.stopped(at, no, None);
            return Ok(());
        }
        at.rule(a.queued(at), Invariant::Terminal, || {
            format!("{no} waits, but {a:?}")
        })?;
        self.quotas.lacks(at, no, e.reason == FOR_GANG);
        a.waiting = true;
        if e.reason != NOMINATED {
            a.nominated = None;
        }
        Ok(())
    }

    fn nominated(&mut self, at: &Place, e: &v1::AllocationNominated) -> Result<(), Violation> {
        let a = self.allocations.get_mut(at, e.allocation)?;
        at.rule(a.queued(at), Invariant::Terminal, || {
            format!("{e:?}, but {a:?}")
        })?;
        a.nominated = Some((e.node.clone(), e.incarnation));
        Ok(())
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
            let skipped = match &a.hold {
                Some(hold) => {
                    let lost = self
                        .nodes
                        .was_lost(&hold.node, hold.incarnation, frame.through);
                    let over = self.nodes.over(*no).map(|report| report.lsn);
                    let started = self.nodes.started(*no).map(|report| report.lsn);
                    let goes = hold.stop.is_some() || !a.is_reclaimed(frame);
                    lost || !goes || stale(over) || (hold.started.is_none() && stale(started))
                }
                None => {
                    let asks = a.is_reclaimed(frame) || a.asks_again;
                    (!a.waiting && a.has_quota(frame)) || asks
                }
            };
            frame.rule(!skipped, Invariant::Replay, || {
                format!("{no} has an input below watermark {}: {a:?}", frame.through)
            })?;
        }
        Ok(())
    }
}
