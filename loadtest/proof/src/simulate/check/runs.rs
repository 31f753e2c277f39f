//! The runs of an allocation, one after the other: how each begins, is stopped, and is over.

use super::{
    Checker, Invariant, Place, Violation,
    allocations::{Allocation, Hold, Stop},
    bill::Used,
    nodes::{RUN_STOPPED, Reported},
};
use schemas::v1;

const FINISHED: i32 = 1;
const FAILED: i32 = 2;
const CANCELLED: i32 = 3;
const NODE_LOST: i32 = 4;
const REJECTED: i32 = 5;
const PREEMPTED: i32 = 6;
const DEPENDENCY_FAILED: i32 = 7;
const EXPIRED: i32 = 8;
const TIME_LIMIT: i32 = 9;
const EVICTED: i32 = 10;

const BY_PRIORITY: i32 = 1;
const BY_FAIR_SHARE: i32 = 2;
const WITH_GANG: i32 = 3;
const FOR_QUOTA: i32 = 5;
const BY_DRAIN: i32 = 6;
const BY_TAINT: i32 = 7;

/// What the scheduler knows of a run that is to be over.
struct Known {
    report: Option<Reported>,
    lost: bool,
    /// The cell may still be of the first feature level, where nothing is evicted.
    first_level: bool,
}

impl Known {
    fn reported(&self, phases: &[i32], at_ms: i64) -> bool {
        self.report
            .is_some_and(|it| phases.contains(&it.state) && it.at_ms == at_ms)
    }

    /// Whether it had ended well by itself, as its agent and the node's inbox say.
    fn had_finished(&self) -> bool {
        self.report.is_some_and(|report| report.state == 2)
    }

    /// Whether `cause` is why the run is over.
    fn is_cause(&self, a: &Allocation, cause: i32, at_ms: i64) -> bool {
        let stop = a.hold.as_ref().and_then(|hold| hold.stop);
        match cause {
            FINISHED => self.reported(&[2], at_ms),
            FAILED => self.reported(&[3], at_ms),
            REJECTED => self.reported(&[4], at_ms),
            CANCELLED => stop == Some(Stop::Cancelled) && self.reported(&[RUN_STOPPED], at_ms),
            PREEMPTED | EVICTED => {
                let fits = match stop {
                    Some(Stop::Cleared { evicted }) => {
                        evicted == (cause == EVICTED) || evicted && self.first_level
                    }
                    _ => false,
                };
                fits && self.reported(&[RUN_STOPPED], at_ms)
            }
            TIME_LIMIT => stop == Some(Stop::TimeLimit) && self.reported(&[RUN_STOPPED], at_ms),
            NODE_LOST => self.lost,
            _ => false,
        }
    }

    /// How the command of the run ended that is over by `cause`.
    fn exit(&self, a: &Allocation, cause: i32) -> Option<v1::RunExit> {
        match a.hold.is_some() && cause != NODE_LOST {
            true => self.report.and_then(|report| report.exit),
            false => None,
        }
    }
}

/// Whether what is over by this is to be queued again.
fn again(a: &Allocation, cause: i32) -> bool {
    let for_good = a.hold.as_ref().is_some_and(Hold::stops_for_good);
    let began = a.hold.as_ref().is_some_and(|hold| hold.started.is_some());
    match cause {
        NODE_LOST | PREEMPTED | EVICTED => !for_good && !a.demand.never_requeue,
        FAILED => !for_good && a.retried < a.demand.retries,
        REJECTED => !(for_good || a.demand.never_requeue && began),
        _ => false,
    }
}

impl Checker {
    fn known(&self, at: &Place, no: u64) -> Known {
        let report = self.nodes.over(no).filter(|report| at.saw(report.lsn));
        let hold = self.allocations.get(no).and_then(|a| a.hold.as_ref());
        let report = report.map(|report| Reported {
            at_ms: hold.map_or(report.at_ms, |hold| hold.moment(report.at_ms, at.now)),
            ..report
        });
        let lost = hold.is_some_and(|hold| {
            self.nodes
                .was_lost(&hold.node, hold.incarnation, at.through)
        });
        let first_level = self.began_at_first_level;
        Known {
            report,
            lost,
            first_level,
        }
    }

    pub(super) fn started(
        &mut self,
        at: &Place,
        e: &v1::AllocationStarted,
    ) -> Result<(), Violation> {
        let no = e.allocation;
        let report = self.nodes.started(no).filter(|report| at.saw(report.lsn));
        let a = self.allocations.get_mut(at, no)?;
        let text = format!("{no} started at {}, reported {report:?}: {a:?}", e.at_ms);
        let reported =
            |hold: &Hold| report.is_some_and(|report| hold.moment(report.at_ms, at.now) == e.at_ms);
        match &mut a.hold {
            Some(hold) if hold.started.is_none() && reported(hold) => {
                hold.started = Some(e.at_ms);
                self.quotas.started(at, no, e.at_ms);
                let node = self.nodes.capacity(&hold.node, hold.incarnation, at.lsn);
                let used = Used::of(&a.tenant, &a.demand, node);
                self.bill.begins(no, used, e.at_ms);
                Ok(())
            }
            Some(_) | None => Err(at.wrong(Invariant::Terminal, text)),
        }
    }

    /// Only what may be sent back is, by whom it may be.
    pub(super) fn preempted(
        &mut self,
        at: &Place,
        e: &v1::AllocationPreempted,
    ) -> Result<(), Violation> {
        let a = self.allocations.get_mut(at, e.allocation)?.clone();
        let by = self.allocations.get(e.by);
        let class = self.settings.class(&a.demand.class, at);
        let preemptible = class.is_some_and(|class| class.preemptible);
        // The first of a gang stands for all of it, which may be of different classes.
        let gang = by.filter(|by| by.demand.gang.is_some());
        let fellows = self.allocations.iter().map(|(_, other)| other);
        let fellows = fellows.filter(|other| {
            gang.is_some_and(|by| {
                (&other.tenant, &other.demand.gang) == (&by.tenant, &by.demand.gang)
            })
        });
        let above = by.into_iter().chain(fellows).any(|by| {
            let preempts = self.settings.class(&by.demand.class, at);
            preempts.is_some_and(|class| class.preempts) && by.demand.priority > a.demand.priority
        });
        let fits = match e.cause {
            // A whole gang goes with its member, and comes for one of its own.
            BY_PRIORITY | BY_FAIR_SHARE if a.demand.gang.is_some() => true,
            BY_PRIORITY => preemptible && above,
            BY_FAIR_SHARE => preemptible && by.is_some(),
            FOR_QUOTA => a.is_reclaimed(at),
            BY_DRAIN => a.hold.as_ref().is_some_and(|hold| {
                let key = (hold.node.clone(), hold.incarnation);
                let held = self.allocations.held_on(&key);
                let going = held.filter(|(_, _, hold)| hold.stop.is_some()).count();
                let at_once = self.settings.drained(&hold.node, at);
                at_once.is_some_and(|most| most == 0 || going < most as usize)
            }),
            BY_TAINT => a
                .hold
                .as_ref()
                .is_some_and(|hold| self.is_run_out(at, &a, hold)),
            _ => true,
        };
        at.rule(fits && e.grace_until_ms >= at.now, Invariant::Fit, || {
            format!("{e:?} of {a:?} for {by:?}")
        })?;
        let evicted = match e.cause {
            BY_DRAIN | BY_TAINT => true,
            WITH_GANG => self.fellow_is_evicted(&a),
            _ => false,
        };
        let a = self.allocations.get_mut(at, e.allocation)?;
        let text = format!("{e:?}, but {a:?}");
        match &mut a.hold {
            Some(hold) if hold.stop.is_none() => {
                at.rule(hold.lsn != at.lsn, Invariant::Waste, || {
                    format!("{e:?} of what was placed just before")
                })?;
                hold.stop = Some(Stop::Preempted { evicted });
                Ok(())
            }
            Some(_) | None => Err(at.wrong(Invariant::Terminal, text)),
        }
    }

    /// Whether a member of its gang is on a node that is being cleared.
    fn fellow_is_evicted(&self, of: &Allocation) -> bool {
        let evicted = |hold: &Hold| {
            matches!(
                hold.stop,
                Some(Stop::Preempted { evicted: true } | Stop::Cleared { evicted: true })
            )
        };
        self.allocations.iter().any(|(_, other)| {
            (&other.tenant, &other.demand.gang) == (&of.tenant, &of.demand.gang)
                && other.hold.as_ref().is_some_and(evicted)
        })
    }

    /// Told once, because of a cancel, because it has to go, or because its run has gone on for as long as it may.
    pub(super) fn stopping(
        &mut self,
        at: &Place,
        e: &v1::AllocationStopping,
    ) -> Result<(), Violation> {
        let no = e.allocation;
        let a = self.allocations.get_mut(at, no)?;
        let text = format!("{e:?}, but {a:?}");
        let asked = a.cancel_seen(at);
        let limit = a.hold.as_ref().and_then(|hold| a.limit(hold));
        let Some(hold) = &mut a.hold else {
            return Err(at.wrong(Invariant::Terminal, text));
        };
        hold.stop = match (hold.stop, e.time_limit) {
            (Some(Stop::Preempted { evicted }), false) => Some(Stop::Cleared { evicted }),
            (None, false) if asked => Some(Stop::Cancelled),
            (None, true) => {
                at.rule(
                    limit.is_some_and(|limit| limit <= at.now),
                    Invariant::Deadline,
                    || text,
                )?;
                Some(Stop::TimeLimit)
            }
            _ => return Err(at.wrong(Invariant::Terminal, text)),
        };
        Ok(())
    }

    /// The run is over, the allocation is not: it holds nothing, and may be placed again.
    pub(super) fn requeued(
        &mut self,
        at: &Place,
        e: &v1::AllocationRequeued,
    ) -> Result<(), Violation> {
        let no = e.allocation;
        let known = self.known(at, no);
        let a = self.allocations.get_mut(at, no)?;
        at.rule(!known.had_finished(), Invariant::Waste, || {
            format!(
                "{e:?} of a run that had finished, {:?}: {a:?}",
                known.report
            )
        })?;
        let legal = a.hold.is_some()
            && known.is_cause(a, e.cause, e.at_ms)
            && again(a, e.cause)
            && e.exit == known.exit(a, e.cause)
            && e.not_before_ms >= at.now;
        at.rule(legal, Invariant::Terminal, || {
            format!("{e:?} with report {:?}: {a:?}", known.report)
        })?;
        a.retried += u64::from(e.cause == FAILED);
        a.not_before = e.not_before_ms;
        // This tells it that it waits.
        a.waiting = true;
        a.asks_again = a.is_by_model();
        self.quotas.stopped(at, no, Some(e.at_ms));
        self.bill.ends(no, e.at_ms);
        self.nodes.over_again(no);
        self.leaves(at, no, e.at_ms)
    }

    pub(super) fn ended(&mut self, at: &Place, e: &v1::AllocationEnded) -> Result<(), Violation> {
        let no = e.allocation;
        let known = self.known(at, no);
        let doomed = self.is_doomed(at, no);
        let a = self.allocations.get_mut(at, no)?;
        let alive = !a.over_for(at) && at.saw(a.requested_lsn);
        at.rule(alive, Invariant::Terminal, || {
            format!("{no} ended, but {a:?}")
        })?;
        let cause_holds = match (&a.hold, e.cause) {
            (Some(_), cause) => known.is_cause(a, cause, e.at_ms) && !again(a, cause),
            (None, CANCELLED) => a.cancel_seen(at),
            (None, EXPIRED) => a.expiry().is_some_and(|expiry| expiry <= at.now),
            (None, DEPENDENCY_FAILED) => doomed,
            (None, _) => false,
        };
        let cause_holds = cause_holds && e.exit == known.exit(a, e.cause);
        at.rule(cause_holds, Invariant::Terminal, || {
            let (cause, report) = (e.cause, known.report);
            format!("{no} ended by cause {cause} with report {report:?}: {a:?}")
        })?;
        self.allocations.end(at, no, e.cause == FINISHED);
        self.quotas.ended(at, no, e.at_ms);
        self.bill.ends(no, e.at_ms);
        self.leaves(at, no, e.at_ms)
    }

    /// What it was to start after is over, and has finished where it had to.
    pub(super) fn may_start(&self, at: &Place, no: u64) -> Result<(), Violation> {
        let on = self.allocations.get(no).map(|a| &a.demand.depends_on);
        let early = on.into_iter().flatten().find(|(on, success)| {
            let other = self.allocations.get(**on);
            !other.is_some_and(|other| other.over_for(at) && (other.finished || !**success))
        });
        at.rule(early.is_none(), Invariant::Outcome, || {
            format!("{no} was placed before it may start after {early:?}")
        })
    }

    /// Something that had to finish has not.
    fn is_doomed(&self, at: &Place, no: u64) -> bool {
        let Some(a) = self.allocations.get(no) else {
            return false;
        };
        let mut needed = a.demand.depends_on.iter().filter(|(_, success)| **success);
        needed.any(|(on, _)| {
            let other = self.allocations.get(*on);
            other.is_some_and(|other| other.over_for(at) && !other.finished)
        })
    }

    fn leaves(&mut self, at: &Place, no: u64, at_ms: i64) -> Result<(), Violation> {
        let hold = self.allocations.let_go(no);
        let begin = hold.map(|hold| hold.started.unwrap_or(hold.now_ms));
        at.rule(
            begin.is_none_or(|begin| begin <= at_ms),
            Invariant::Expiry,
            || format!("{no} was over at {at_ms} before it began at {begin:?}"),
        )
    }

    pub(super) fn cancel_decided(
        &mut self,
        at: &Place,
        e: &v1::CancelDecided,
    ) -> Result<(), Violation> {
        let no = e.allocation;
        let request = self.allocations.cancel_done(no, e.request);
        let a = self.allocations.get_mut(at, no)?;
        at.rule(
            request.is_some_and(|lsn| at.saw(lsn)),
            Invariant::Outcome,
            || format!("{e:?} decides no open cancel"),
        )?;
        // What this very cancel ends was live.
        let ended_before = a.ended_lsn.is_some_and(|lsn| lsn < at.lsn);
        let stop = a.hold.as_ref().and_then(|hold| hold.stop);
        let acted = stop.is_some() || a.ended_lsn == Some(at.lsn);
        let fits = if e.was_live {
            !a.denied(at) && !ended_before && acted
        } else {
            a.over_for(at)
        };
        at.rule(fits, Invariant::Outcome, || format!("{e:?}, but {a:?}"))?;
        // What is being cleared anyway is not queued again either.
        if let Some(hold) = &mut a.hold {
            hold.cancelled();
        }
        Ok(())
    }

    /// What has to go is told so at once.
    pub(super) fn all_are_told(&self, frame: &Place) -> Result<(), Violation> {
        for no in self.allocations.held() {
            let hold = self.allocations.get(no).and_then(|a| a.hold.as_ref());
            let stop = hold.and_then(|hold| hold.stop);
            let untold = matches!(stop, Some(Stop::Preempted { .. }));
            frame.rule(!untold, Invariant::Terminal, || {
                format!("{no} was preempted and not told to stop: {hold:?}")
            })?;
        }
        Ok(())
    }
}
