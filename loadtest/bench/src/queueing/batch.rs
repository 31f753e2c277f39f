//! A batch machine without preemption: jobs come, wait, run and end, and the scheduler's rules say who starts.
//!
//! Two ways to serve a queue. The published one (Zhang et al., "RLScheduler", SC 2020) keeps to the job that it has chosen
//! until that fits. The suite's chooses anew whenever something comes or ends, and backfills by the rule of EASY in the
//! order of the queue.

use super::swf::Job;
use crate::kit::figures::mean;
use scheduler_rules::{
    backfill::{Reservation, Rule, Running},
    order::{Order, Waiting, key},
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Published,
    Ours,
}

impl Service {
    pub fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Ours => "ours",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub order: Order,
    pub backfill: bool,
    pub service: Service,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    pub avg_bounded_slowdown: f64,
    /// Of all processors from the first submission to the last start, by the published definition.
    pub utilization: f64,
}

/// A run time below this counts as this: nobody minds waiting ten seconds for one.
const BOUND_S: i64 = 10;

/// Runs jobs, which are by submit time and fit the machine, from when the first is submitted and the machine is empty.
pub fn run(jobs: &[Job], processors: u64, policy: Policy) -> Outcome {
    let mut machine = Machine::new(jobs, processors, policy);
    match policy.service {
        Service::Published => machine.serve_as_published(),
        Service::Ours => machine.serve_as_ours(),
    }
    machine.outcome()
}

/// What the recorded waits come to.
pub fn recorded(jobs: &[Job]) -> Option<f64> {
    let slowdowns = jobs.iter().map(|job| Some(slowdown(job, job.waited_s?)));
    let slowdowns: Option<Vec<f64>> = slowdowns.collect();
    slowdowns.map(|slowdowns| mean(&slowdowns))
}

fn slowdown(job: &Job, waited_s: i64) -> f64 {
    let bounded_s = job.run_s.max(BOUND_S);
    ((waited_s + job.run_s) as f64 / bounded_s as f64).max(1.0)
}

struct Machine<'a> {
    jobs: &'a [Job],
    processors: u64,
    policy: Policy,
    now_s: i64,
    free: u64,
    /// Not yet submitted: from here on.
    next: usize,
    /// By submit time.
    waiting: VecDeque<usize>,
    /// By end.
    running: BinaryHeap<Reverse<(i64, usize)>>,
    starts_s: Vec<i64>,
}

impl<'a> Machine<'a> {
    fn new(jobs: &'a [Job], processors: u64, policy: Policy) -> Self {
        Self {
            jobs,
            processors,
            policy,
            now_s: jobs.first().map_or(0, |job| job.submitted_s),
            free: processors,
            next: 0,
            waiting: VecDeque::new(),
            running: BinaryHeap::new(),
            starts_s: vec![0; jobs.len()],
        }
    }

    fn serve_as_published(&mut self) {
        while let Some(head) = self.head_as_published() {
            let mut reservation = self.reservation(head);
            while !self.fits(head) {
                if let (true, Some(reservation)) = (self.policy.backfill, &mut reservation) {
                    let behind: Vec<usize> = self.waiting.iter().copied().collect();
                    let behind = behind.into_iter().filter(|index| *index != head);
                    self.backfill(Rule::EndsBefore, reservation, behind);
                }
                self.advance();
            }
            self.start(head);
        }
    }

    /// None when all have started.
    fn head_as_published(&mut self) -> Option<usize> {
        while self.waiting.is_empty() {
            self.next_s()?;
            self.advance();
        }
        // The published WFP3 and UNICEP take the wait from a start time that is still -1 s.
        let clock_ms = match self.policy.order {
            Order::Wfp3 | Order::Unicep => -1000,
            _ => self.now_s * 1000,
        };
        self.waiting
            .iter()
            .copied()
            .min_by_key(|index| key(self.policy.order, &self.known(*index), clock_ms))
    }

    fn serve_as_ours(&mut self) {
        while let Some(next_s) = self.next_s() {
            while self.next_s() == Some(next_s) {
                self.advance();
            }
            let now_ms = self.now_s * 1000;
            let mut queue: Vec<usize> = self.waiting.iter().copied().collect();
            queue.sort_by_cached_key(|index| key(self.policy.order, &self.known(*index), now_ms));
            let mut queue = queue.into_iter().peekable();
            while let Some(index) = queue.next_if(|index| self.fits(*index)) {
                self.start(index);
            }
            if let (true, Some(head)) = (self.policy.backfill, queue.next())
                && let Some(mut reservation) = self.reservation(head)
            {
                self.backfill(Rule::Spare, &mut reservation, queue);
            }
        }
    }

    fn backfill(
        &mut self,
        rule: Rule,
        reservation: &mut Reservation<1>,
        candidates: impl Iterator<Item = usize>,
    ) {
        for index in candidates {
            let known = self.known(index);
            if self.fits(index)
                && reservation.admit(rule, self.now_s * 1000, known.estimate_ms, [known.size])
            {
                self.start(index);
            }
        }
    }

    /// What a scheduler knows of a job before it has run.
    fn known(&self, index: usize) -> Waiting {
        let job = &self.jobs[index];
        let estimate_ms = job.estimate_s.unsigned_abs() * 1000;
        Waiting {
            number: index as u64,
            submitted_ms: job.submitted_s * 1000,
            estimate_ms,
            remaining_ms: estimate_ms,
            size: job.processors,
        }
    }

    fn reservation(&self, head: usize) -> Option<Reservation<1>> {
        let running: Vec<Running<1>> = self
            .running
            .iter()
            .map(|Reverse((_, index))| Running {
                ends_ms: (self.starts_s[*index] + self.jobs[*index].estimate_s) * 1000,
                amount: [self.jobs[*index].processors],
            })
            .collect();
        let head = [self.jobs[head].processors];
        Reservation::of_head(self.now_s * 1000, [self.free], &running, head)
    }

    fn fits(&self, index: usize) -> bool {
        self.jobs[index].processors <= self.free
    }

    /// Only for one that waits and fits.
    fn start(&mut self, index: usize) {
        self.waiting.retain(|waiting| *waiting != index);
        self.free -= self.jobs[index].processors;
        self.starts_s[index] = self.now_s;
        let ends_s = self.now_s + self.jobs[index].run_s;
        self.running.push(Reverse((ends_s, index)));
    }

    /// When the next job comes or ends.
    fn next_s(&self) -> Option<i64> {
        let comes_s = self.jobs.get(self.next).map(|job| job.submitted_s);
        let ends_s = self.running.peek().map(|Reverse((ends_s, _))| *ends_s);
        comes_s.into_iter().chain(ends_s).min()
    }

    /// To the next event: of a submission and an end at the same time, the submission.
    fn advance(&mut self) {
        let Some(next_s) = self.next_s() else { return };
        self.now_s = next_s;
        if self.jobs.get(self.next).map(|job| job.submitted_s) == Some(next_s) {
            self.waiting.push_back(self.next);
            self.next += 1;
        } else if let Some(Reverse((_, index))) = self.running.pop() {
            self.free += self.jobs[index].processors;
        }
    }

    fn outcome(&self) -> Outcome {
        let jobs = || self.jobs.iter().zip(&self.starts_s);
        let slowdowns: Vec<f64> = jobs()
            .map(|(job, start_s)| slowdown(job, start_s - job.submitted_s))
            .collect();
        let work: f64 = jobs()
            .map(|(job, _)| job.run_s as f64 * job.processors as f64)
            .sum();
        let first_s = self.jobs.first().map_or(0, |job| job.submitted_s);
        let last_s = self.starts_s.iter().copied().max().unwrap_or(first_s);
        let span_s = (last_s - first_s).max(1);
        Outcome {
            avg_bounded_slowdown: mean(&slowdowns),
            utilization: work / (span_s as f64 * self.processors as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::swf::Log, *};
    use std::path::Path;

    /// The sample's starts in seconds.
    fn check(order: Order, backfill: bool, service: Service, expected: [i64; 5]) {
        let log = Log::parse(Path::new("sample.swf"), include_str!("sample.swf")).unwrap();
        let policy = Policy {
            order,
            backfill,
            service,
        };
        let mut machine = Machine::new(&log.jobs, log.processors, policy);
        match service {
            Service::Published => machine.serve_as_published(),
            Service::Ours => machine.serve_as_ours(),
        }
        assert_eq!(machine.starts_s, expected, "{policy:?}");
        let outcome = run(&log.jobs, log.processors, policy);
        assert_eq!(outcome, machine.outcome());
    }

    #[test]
    fn the_sample_is_served() {
        use Service::{Ours, Published};
        // Job 2 needs the whole machine; of one processor, 3 and 5 end before it starts and 4 does not.
        check(Order::Fcfs, false, Published, [0, 100, 150, 150, 150]);
        check(Order::Fcfs, true, Published, [0, 100, 20, 150, 80]);
        check(Order::Fcfs, true, Ours, [0, 100, 20, 150, 80]);
        // The published way has chosen 2 when nothing else waits, and keeps to it.
        check(Order::Sjf, false, Published, [0, 100, 150, 150, 150]);
        check(Order::Sjf, false, Ours, [0, 100, 150, 150, 40]);
        check(Order::Srsf, true, Ours, [0, 100, 20, 150, 80]);
    }

    #[test]
    fn slowdown_is_bounded() {
        let check = |run_s, waited_s, expected: f64| {
            let job = Job {
                submitted_s: 0,
                run_s,
                estimate_s: run_s,
                processors: 1,
                waited_s: Some(waited_s),
            };
            assert!((slowdown(&job, waited_s) - expected).abs() < 1e-12);
            assert_eq!(recorded(&[job]), Some(expected));
        };
        check(1, 0, 1.0);
        check(1, 9, 1.0);
        check(1, 99, 10.0);
        check(100, 100, 2.0);
    }
}
