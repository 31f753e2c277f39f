//! What an agent does about what it is told: the node's protocol without the bus, the clock and the processes. The agent of a
//! machine and simulated ones keep to it. The cell says
//! what is to run by changes that are counted; what became of each run is reported to the last change that was seen of it.

use crate::{Ended, Exit, Moment, Reason, RunKey, Usage};
use schemas::v1::{Assignment, AssignmentList, RunPhase};
use std::collections::BTreeMap;
use uuid::Uuid;

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// Begin it. `Plan::begun` or `Plan::not_begun` follows.
    Start {
        key: RunKey,
        assignment: Box<Assignment>,
    },
    /// End it, by force from this moment on, Unix ms; none: when the agent's own grace is over.
    Stop { key: RunKey, by_ms: Option<i64> },
    /// Tell the cell. Reports are received in the order in which they are here.
    Report(Report),
    /// Ask for the whole list.
    Sync,
    /// The cell has given the node up, or does not know it: end all that runs, and register as a new life of the agent.
    RegisterAnew,
}

/// What became of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    pub key: RunKey,
    pub phase: RunPhase,
    /// Of the last change that was seen of the run.
    pub revision: u64,
    /// None: now.
    pub at: Option<Moment>,
    pub exit: Option<Exit>,
    pub usage: Option<Usage>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Over {
    phase: RunPhase,
    at: Option<Moment>,
    exit: Option<Exit>,
    usage: Option<Usage>,
}

impl Over {
    /// It has ended without a command of its own.
    fn held(phase: RunPhase) -> Self {
        Self {
            phase,
            at: None,
            exit: None,
            usage: None,
        }
    }
}

#[derive(Debug, Clone)]
struct Run {
    key: RunKey,
    /// Of the last change that was seen of it; 0: found when the agent started anew, and not confirmed by the cell yet.
    revision: u64,
    /// Told to stop.
    stop: bool,
    over: Option<Over>,
}

impl Run {
    fn report(&self, over: Over) -> Act {
        let Over {
            phase,
            at,
            exit,
            usage,
        } = over;
        Act::Report(Report {
            key: self.key,
            phase,
            revision: self.revision,
            at,
            exit,
            usage,
        })
    }
}

/// One life of the agent.
#[derive(Debug)]
pub struct Plan {
    boot: u64,
    /// Up to here every change has been seen.
    revision: u64,
    syncing: bool,
    /// It goes on with what was found, and does not know yet what else had ended before: what is told to it may be late.
    unlisted: bool,
    /// The last run of each allocation. One that is over stays until the cell does not list it any more.
    runs: BTreeMap<Uuid, Run>,
}

/// Which attempt an assignment is: it has a moment of its own, which no other placement of the allocation has.
pub fn key(assignment: &Assignment) -> Option<RunKey> {
    let attempt = u64::try_from(assignment.placed_ms).ok()?;
    RunKey::new(&assignment.allocation_id, attempt).ok()
}

impl Plan {
    /// A life in which nothing runs yet.
    pub fn new(boot: u64) -> Self {
        Self {
            boot,
            revision: 0,
            syncing: false,
            unlisted: false,
            runs: BTreeMap::new(),
        }
    }

    /// A life that goes on with what was found. What the cell wants of it is to be asked for.
    pub fn resumed(
        boot: u64,
        running: impl IntoIterator<Item = RunKey>,
        ended: impl IntoIterator<Item = Ended>,
    ) -> Self {
        let mut plan = Self::new(boot);
        plan.syncing = true;
        plan.unlisted = true;
        let running = running.into_iter().map(|key| (key, None));
        let ended = ended.into_iter();
        let ended = ended.map(|ended| (ended.key, Some(over(&ended))));
        for (key, over) in running.chain(ended) {
            let (revision, stop) = (0, false);
            let run = Run {
                key,
                revision,
                stop,
                over,
            };
            let newest = plan.runs.get(&key.allocation);
            if newest.is_none_or(|newest| newest.key.revision < key.revision) {
                plan.runs.insert(key.allocation, run);
            }
        }
        plan
    }

    /// Whether the cell is known to know this life, or is still to be told of it: one that goes on with what was found is known
    /// once the cell's list for it has come.
    pub fn is_known(&self) -> bool {
        !self.unlisted
    }

    pub fn boot(&self) -> u64 {
        self.boot
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Runs that are not over.
    pub fn running(&self) -> impl Iterator<Item = RunKey> {
        let running = self.runs.values().filter(|run| run.over.is_none());
        running.map(|run| run.key)
    }

    /// A message from the cell, with one change or several.
    pub fn assigned(&mut self, mut told: Assignment) -> Vec<Act> {
        if told.boot != self.boot || told.registration_refused.is_some() {
            return Vec::new();
        }
        if told.register_again {
            return vec![Act::RegisterAnew];
        }
        if self.unlisted {
            return match std::mem::replace(&mut self.syncing, true) {
                true => Vec::new(),
                false => vec![Act::Sync],
            };
        }
        let more = std::mem::take(&mut told.more);
        let mut acts = Vec::new();
        for change in std::iter::once(told).chain(more) {
            let revision = change.revision;
            self.apply(change, false, &mut acts);
            if revision == self.revision + 1 {
                self.revision = revision;
            } else if revision > self.revision && !self.syncing {
                self.syncing = true;
                acts.push(Act::Sync);
            }
        }
        acts
    }

    /// The question for the list had no answer.
    pub fn not_listed(&mut self) {
        self.syncing = false;
    }

    /// All that the cell wants here as of a revision.
    pub fn listed(&mut self, list: AssignmentList) -> Vec<Act> {
        self.syncing = false;
        if list.boot != self.boot {
            return vec![Act::RegisterAnew];
        }
        let resumes = std::mem::take(&mut self.unlisted);
        let wanted: Vec<Option<RunKey>> = list.assignments.iter().map(key).collect();
        let mut acts = Vec::new();
        for change in list.assignments {
            self.apply(change, resumes, &mut acts);
        }
        // What the cell does not want any more is over for it; newer ones are not in the list yet.
        self.runs.retain(|_, run| {
            let unwanted = run.revision <= list.revision && !wanted.contains(&Some(run.key));
            if unwanted && run.over.is_none() {
                // At once.
                let by_ms = Some(0);
                acts.push(Act::Stop {
                    key: run.key,
                    by_ms,
                });
            }
            !unwanted
        });
        self.revision = self.revision.max(list.revision);
        acts
    }

    /// `resumes`: it goes on with what was found. What was not found it may have returned before, which the cell may not have
    /// received yet: that is returned, and does not begin.
    fn apply(&mut self, change: Assignment, resumes: bool, acts: &mut Vec<Act>) {
        let Some(key) = key(&change) else {
            return;
        };
        match self.runs.get_mut(&key.allocation) {
            Some(run) if run.key == key => {
                if change.revision <= run.revision {
                    return;
                }
                let found = run.revision == 0;
                run.revision = change.revision;
                match run.over {
                    // The cell did not know of its end when it said this.
                    Some(over) => acts.push(run.report(over)),
                    None if change.stop && !run.stop => {
                        run.stop = true;
                        let by_ms = (change.stop_by_ms > 0).then_some(change.stop_by_ms);
                        acts.push(Act::Stop { key, by_ms });
                    }
                    None if found => acts.push(run.report(Over::held(RunPhase::Started))),
                    None => {}
                }
            }
            // Of an attempt that was over before this one began.
            Some(run) if run.key.revision > key.revision => {}
            // It was seen before, and is over.
            _ if change.revision <= self.revision => {}
            _ => {
                let run = Run {
                    key,
                    revision: change.revision,
                    stop: change.stop,
                    over: match (change.stop, resumes) {
                        (true, _) => Some(Over::held(RunPhase::FinishedOk)),
                        (false, true) => Some(Over::held(RunPhase::Rejected)),
                        (false, false) => None,
                    },
                };
                acts.push(match run.over {
                    // It was told to stop before it was heard of, or may have been returned.
                    Some(over) => run.report(over),
                    None => Act::Start {
                        key,
                        assignment: Box::new(change),
                    },
                });
                self.runs.insert(key.allocation, run);
            }
        }
    }

    /// The run has begun.
    pub fn begun(&mut self, key: RunKey) -> Vec<Act> {
        let run = self.runs.get(&key.allocation);
        let run = run.filter(|run| run.key == key && run.over.is_none());
        let report = run.map(|run| run.report(Over::held(RunPhase::Started)));
        report.into_iter().collect()
    }

    /// The run cannot begin: it fails in the same way everywhere, or the node does not take it.
    pub fn not_begun(&mut self, key: RunKey, phase: RunPhase, exit: Option<Exit>) -> Vec<Act> {
        let over = Over {
            exit,
            ..Over::held(phase)
        };
        self.is_over(key, over)
    }

    /// The agent is stopping, and gives the run back: it has not begun, or has ended like this because it was told to.
    pub fn returned(&mut self, key: RunKey, exit: Exit) -> Vec<Act> {
        let exit = Exit {
            reason: Reason::Draining,
            ..exit
        };
        self.not_begun(key, RunPhase::Rejected, Some(exit))
    }

    /// A run without a command ends when it is told to.
    pub fn let_go(&mut self, key: RunKey) -> Vec<Act> {
        self.is_over(key, Over::held(RunPhase::FinishedOk))
    }

    pub fn ended(&mut self, ended: &Ended) -> Vec<Act> {
        self.is_over(ended.key, over(ended))
    }

    /// The cell has received that the run is over. It is remembered for as long as an earlier change of it may come again.
    pub fn told(&mut self, key: RunKey) {
        let run = self.runs.get(&key.allocation);
        let known = run.is_some_and(|run| {
            run.key == key && run.over.is_some() && run.revision <= self.revision
        });
        if known {
            self.runs.remove(&key.allocation);
        }
    }

    fn is_over(&mut self, key: RunKey, over: Over) -> Vec<Act> {
        let run = self.runs.get_mut(&key.allocation);
        let run = run.filter(|run| run.key == key && run.over.is_none());
        let Some(run) = run else {
            return Vec::new();
        };
        run.over = Some(over);
        // The cell is not asked for what it has not confirmed.
        let report = (run.revision > 0).then(|| run.report(over));
        report.into_iter().collect()
    }
}

fn over(ended: &Ended) -> Over {
    let phase = match ended.end.exit.succeeded() {
        true => RunPhase::FinishedOk,
        false => RunPhase::FailedRun,
    };
    Over {
        phase,
        at: ended.end.ended_at,
        exit: Some(ended.end.exit),
        usage: Some(ended.end.usage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::End;

    const BOOT: u64 = 5;

    fn id(number: u64) -> String {
        format!("00000000-0000-0001-0000-{number:012x}")
    }

    /// The attempt that was placed at this moment.
    fn attempt(number: u64, placed: u64) -> RunKey {
        RunKey::new(&id(number), placed).expect("a UUID")
    }

    fn change(revision: u64, number: u64, placed: i64) -> Assignment {
        Assignment {
            revision,
            allocation_id: id(number),
            placed_ms: placed,
            boot: BOOT,
            ..Assignment::default()
        }
    }

    fn stop(revision: u64, number: u64, placed: i64) -> Assignment {
        Assignment {
            stop: true,
            stop_by_ms: 77,
            ..change(revision, number, placed)
        }
    }

    fn list(revision: u64, assignments: Vec<Assignment>) -> AssignmentList {
        AssignmentList {
            revision,
            assignments,
            boot: BOOT,
        }
    }

    fn ended(number: u64, placed: u64, code: u8) -> Ended {
        let exit = Exit {
            code,
            signal: 0,
            reason: Reason::None,
        };
        Ended {
            key: attempt(number, placed),
            end: End {
                exit,
                usage: Usage::default(),
                started_ms: 1,
                ended_ms: 9,
                ended_at: None,
            },
        }
    }

    /// The acts in a few words.
    fn words(acts: Vec<Act>) -> String {
        let short = |key: RunKey| format!("{}@{}", key.allocation.as_u128() & 0xfff, key.revision);
        let words = acts.into_iter().map(|act| match act {
            Act::Start { key, .. } => format!("start {}", short(key)),
            Act::Stop { key, by_ms } => format!("stop {} {by_ms:?}", short(key)),
            Act::Report(report) => format!(
                "{} {:?} to {}{}",
                short(report.key),
                report.phase,
                report.revision,
                report
                    .exit
                    .map(|exit| format!(" code {}", exit.code))
                    .unwrap_or_default()
            ),
            Act::Sync => "sync".to_owned(),
            Act::RegisterAnew => "register anew".to_owned(),
        });
        words.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_run_is_started_and_its_end_reported() {
        let mut plan = Plan::new(BOOT);
        assert_eq!(words(plan.assigned(change(1, 7, 100))), "start 7@100");
        assert_eq!(words(plan.begun(attempt(7, 100))), "7@100 Started to 1");
        assert_eq!(
            words(plan.ended(&ended(7, 100, 3))),
            "7@100 FailedRun to 1 code 3"
        );
        assert_eq!(words(plan.ended(&ended(7, 100, 3))), "", "once");
        assert_eq!(words(plan.assigned(change(1, 7, 100))), "", "it came twice");
        plan.told(attempt(7, 100));
        assert_eq!(words(plan.assigned(change(1, 7, 100))), "", "it came late");
        assert_eq!(
            words(plan.assigned(change(2, 7, 300))),
            "start 7@300",
            "again"
        );
        assert_eq!(
            words(plan.ended(&ended(7, 100, 0))),
            "",
            "of the one before"
        );
    }

    #[test]
    fn a_gap_asks_for_the_list_and_the_list_says_all() {
        let mut plan = Plan::new(BOOT);
        plan.assigned(change(1, 7, 100));
        assert_eq!(words(plan.assigned(change(4, 9, 100))), "start 9@100, sync");
        assert_eq!(
            words(plan.assigned(change(5, 10, 100))),
            "start 10@100",
            "asked already"
        );
        assert_eq!(plan.revision(), 1);
        let all = list(4, vec![change(2, 8, 100), change(4, 9, 100)]);
        assert_eq!(words(plan.listed(all)), "start 8@100, stop 7@100 Some(0)");
        assert_eq!(plan.revision(), 4);
        // Newer than the list, so it stays.
        assert_eq!(plan.running().count(), 3);
        assert_eq!(words(plan.assigned(stop(5, 8, 100))), "stop 8@100 Some(77)");
    }

    #[test]
    fn a_stop_is_told_once_and_its_end_is_of_the_stop() {
        let mut plan = Plan::new(BOOT);
        plan.assigned(change(1, 7, 100));
        assert_eq!(words(plan.assigned(stop(2, 7, 100))), "stop 7@100 Some(77)");
        assert_eq!(words(plan.assigned(stop(2, 7, 100))), "");
        assert_eq!(
            words(plan.ended(&ended(7, 100, 0))),
            "7@100 FinishedOk to 2 code 0"
        );
        // It had ended before the stop was heard.
        plan.assigned(change(3, 8, 100));
        plan.ended(&ended(8, 100, 0));
        assert_eq!(
            words(plan.assigned(stop(4, 8, 100))),
            "8@100 FinishedOk to 4 code 0"
        );
        // Nothing was heard of it but its stop.
        assert_eq!(
            words(plan.assigned(stop(5, 9, 100))),
            "9@100 FinishedOk to 5"
        );
    }

    #[test]
    fn several_changes_come_in_one_message() {
        let mut plan = Plan::new(BOOT);
        let told = Assignment {
            more: vec![change(2, 8, 100), stop(3, 7, 100)],
            ..change(1, 7, 100)
        };
        assert_eq!(
            words(plan.assigned(told)),
            "start 7@100, start 8@100, stop 7@100 Some(77)"
        );
        assert_eq!(plan.revision(), 3);
    }

    #[test]
    fn another_life_is_not_meant() {
        let mut plan = Plan::new(BOOT);
        plan.assigned(change(1, 7, 100));
        let of_before = Assignment {
            boot: BOOT - 1,
            register_again: true,
            ..Assignment::default()
        };
        assert_eq!(words(plan.assigned(of_before)), "");
        let again = Assignment {
            boot: BOOT,
            register_again: true,
            ..Assignment::default()
        };
        assert_eq!(words(plan.assigned(again)), "register anew");
        let unknown = AssignmentList {
            boot: 0,
            ..list(0, Vec::new())
        };
        assert_eq!(words(plan.listed(unknown)), "register anew");
        let odd = Assignment {
            allocation_id: "../x".into(),
            ..change(2, 1, 1)
        };
        assert_eq!(words(plan.assigned(odd)), "");
    }

    #[test]
    fn what_was_found_is_confirmed_by_the_list() {
        let running = [attempt(7, 100), attempt(8, 100), attempt(9, 50)];
        let over = [ended(10, 100, 3), ended(11, 100, 0), ended(9, 20, 0)];
        let mut plan = Plan::resumed(BOOT, running, over);
        // Not before the cell has said what it wants.
        assert_eq!(words(plan.ended(&ended(8, 100, 0))), "");
        // It has ended and been told before, and only the cell knows that by now.
        assert_eq!(words(plan.assigned(change(1, 13, 100))), "");
        plan.not_listed();
        assert_eq!(words(plan.assigned(change(1, 13, 100))), "sync");
        // 14 may have been returned before, or has never begun.
        let wanted = vec![
            change(3, 7, 100),
            change(4, 8, 100),
            change(5, 14, 100),
            stop(6, 10, 100),
        ];
        assert_eq!(
            words(plan.listed(list(6, wanted))),
            "7@100 Started to 3, 8@100 FinishedOk to 4 code 0, 14@100 Rejected to 5, 10@100 FailedRun to 6 code 3, stop 9@50 Some(0)"
        );
        assert_eq!(plan.running().collect::<Vec<_>>(), [attempt(7, 100)]);
        assert_eq!(words(plan.assigned(change(7, 12, 100))), "start 12@100");
    }

    #[test]
    fn what_cannot_begin_is_reported() {
        let mut plan = Plan::new(BOOT);
        plan.assigned(change(1, 7, 100));
        let rejected = plan.not_begun(attempt(7, 100), RunPhase::Rejected, None);
        assert_eq!(words(rejected), "7@100 Rejected to 1");
        assert_eq!(words(plan.begun(attempt(7, 100))), "");
        plan.assigned(change(2, 8, 100));
        assert_eq!(words(plan.let_go(attempt(8, 100))), "8@100 FinishedOk to 2");
    }
}
