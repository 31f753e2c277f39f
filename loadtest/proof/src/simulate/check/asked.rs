//! What tenants ask about allocations that they have: cancels of job sets, and changes of priority.

use super::{Checker, Invariant, Place, Violation, allocations::Allocation};
use schemas::v1::{self, priority_requested::Target};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Request {
    CancelJobSet(String),
    Priority {
        target: Option<Target>,
        priority: i32,
    },
}

#[derive(Debug, Clone)]
struct Open {
    lsn: u64,
    tenant: String,
    request: Request,
}

/// Requests that the scheduler has not decided, by number.
#[derive(Debug, Default)]
pub struct Requests {
    open: BTreeMap<u64, Open>,
}

const ALLOCATION_NOT_FOUND: i32 = 15;
const ALLOCATION_ENDED: i32 = 16;
const SETTING_INVALID: i32 = 33;

impl Requests {
    pub fn cancel(&mut self, at: &Place, tenant: &str, job_set: &str) {
        self.open(at, tenant, Request::CancelJobSet(job_set.to_owned()));
    }

    pub fn priority(&mut self, at: &Place, tenant: &str, e: &v1::PriorityRequested) {
        let request = Request::Priority {
            target: e.target.clone(),
            priority: e.priority,
        };
        self.open(at, tenant, request);
    }

    fn open(&mut self, at: &Place, tenant: &str, request: Request) {
        let open = Open {
            lsn: at.lsn,
            tenant: tenant.to_owned(),
            request,
        };
        self.open.insert(at.no, open);
    }

    /// A watermark is a promise: what lies below it has been decided.
    pub fn left_nothing(&self, frame: &Place) -> Result<(), Violation> {
        let left = self.open.iter().find(|(_, open)| frame.saw(open.lsn));
        frame.rule(left.is_none(), Invariant::Replay, || {
            format!("{left:?} lies below watermark {}", frame.through)
        })
    }

    pub fn finish(&self, end: &Place) -> Result<(), Violation> {
        let left = self.open.first_key_value();
        end.rule(left.is_none(), Invariant::Outcome, || {
            format!("{left:?} was never decided")
        })
    }

    fn close(&mut self, at: &Place, request: u64) -> Result<Open, Violation> {
        let open = self.open.remove(&request).filter(|open| at.saw(open.lsn));
        open.ok_or_else(|| at.wrong(Invariant::Outcome, format!("{request} is no open request")))
    }
}

fn stops(a: &Allocation) -> bool {
    a.hold.as_ref().is_some_and(|hold| hold.stop.is_some())
}

impl Checker {
    /// All of it that was requested before has ended, or is told to stop.
    pub(super) fn job_set_cancel_decided(
        &mut self,
        at: &Place,
        e: &v1::JobSetCancelDecided,
    ) -> Result<(), Violation> {
        let open = self.asked.close(at, e.request)?;
        let Request::CancelJobSet(job_set) = &open.request else {
            return Err(at.wrong(Invariant::Outcome, format!("{e:?}, but {open:?}")));
        };
        let members = self
            .allocations
            .in_job_set(&open.tenant, job_set, e.request);
        let (mut stopping, mut ended) = (0, 0);
        for no in members {
            let a = self.allocations.get_mut(at, no)?;
            // A frame is one moment: what was ended in it was ended by this, or by what came just before.
            ended += u64::from(a.ended_lsn == Some(at.lsn));
            if a.over_for(at) {
                continue;
            }
            at.rule(stops(a), Invariant::Outcome, || {
                format!("{e:?}, but {no} goes on: {a:?}")
            })?;
            stopping += 1;
            if let Some(hold) = &mut a.hold {
                hold.cancelled();
            }
        }
        let counts = (stopping..=stopping + ended).contains(&e.allocations);
        at.rule(counts, Invariant::Outcome, || {
            format!("{e:?}, but {stopping} are stopping and {ended} have ended")
        })
    }

    /// Those whose priority a request is about.
    fn targets(&self, at: &Place, request: u64, open: &Open) -> Result<Vec<u64>, i32> {
        let Request::Priority { target, .. } = &open.request else {
            return Err(0);
        };
        let live = |no: &u64| self.allocations.get(*no).filter(|a| !a.over_for(at));
        match target {
            Some(Target::Allocation(no)) => match live(no) {
                None => Err(ALLOCATION_ENDED),
                Some(a) if !a.demand.class.is_empty() => Err(SETTING_INVALID),
                Some(_) => Ok(vec![*no]),
            },
            Some(Target::JobSet(name)) => {
                let mut members = self.allocations.in_job_set(&open.tenant, name, request);
                members.retain(|no| live(no).is_some_and(|a| a.demand.class.is_empty()));
                match members.is_empty() {
                    true => Err(ALLOCATION_NOT_FOUND),
                    false => Ok(members),
                }
            }
            None => Err(0),
        }
    }

    pub(super) fn reprioritised(
        &mut self,
        at: &Place,
        e: &v1::AllocationReprioritised,
    ) -> Result<(), Violation> {
        // They are decided in their order.
        let next =
            self.asked.open.iter().find(|(_, open)| {
                at.saw(open.lsn) && matches!(open.request, Request::Priority { .. })
            });
        let asked = next.is_some_and(|(no, open)| {
            let wanted = matches!(open.request, Request::Priority { priority, .. } if priority == e.priority);
            let targets = self.targets(at, *no, open).unwrap_or_default();
            wanted && targets.contains(&e.allocation)
        });
        at.rule(asked, Invariant::Outcome, || format!("{e:?}, but {next:?}"))?;
        let a = self.allocations.get_mut(at, e.allocation)?;
        a.demand.priority = e.priority;
        self.quotas.reprioritised(at, e.allocation, e.priority);
        Ok(())
    }

    pub(super) fn priority_decided(
        &mut self,
        at: &Place,
        e: &v1::PriorityDecided,
    ) -> Result<(), Violation> {
        let open = self.asked.close(at, e.request)?;
        let Request::Priority { priority, .. } = &open.request else {
            return Err(at.wrong(Invariant::Outcome, format!("{e:?}, but {open:?}")));
        };
        let targets = self.targets(at, e.request, &open);
        let refusal = e.refusal.as_ref().map(|refusal| refusal.rule);
        let fits = match &targets {
            Err(rule) => refusal == Some(*rule) && e.allocations == 0,
            Ok(targets) => {
                let has = |no: &u64| {
                    let a = self.allocations.get(*no);
                    a.is_some_and(|a| a.demand.priority == *priority)
                };
                let all = targets.iter().all(has);
                refusal.is_none() && all && e.allocations == targets.len() as u64
            }
        };
        at.rule(fits, Invariant::Outcome, || {
            format!("{e:?} of {open:?}, but its targets are {targets:?}")
        })
    }
}
