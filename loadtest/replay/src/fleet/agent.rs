//! What one simulated agent knows and does. No IO and no clock, so that its protocol is tested as a table.

use schemas::v1::{Assignment, AssignmentList, GpuShare, RunPhase};
use std::collections::{BTreeMap, VecDeque};

/// Thousandths of one device.
const DEVICE_MILLI: u64 = 1000;
/// Changes of the node for which a run that is over is remembered.
const REMEMBERED: u64 = 1000;

/// One of the runs that an allocation may have here, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId {
    pub allocation: String,
    /// Counts the agent's runs, in all of its lives.
    pub no: u64,
    /// Of the assignment that it is reported to.
    pub revision: u64,
}

/// What the agent wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Tell the inbox; `Agent::reported` is called once it has been acknowledged.
    Report {
        run: RunId,
        phase: RunPhase,
        at_ms: i64,
    },
    /// Call `Agent::due` when the recorded clock gets there.
    Wake { run: RunId, at_ms: i64 },
    /// Ask the inbox for the whole list.
    Sync,
}

/// Two runs on one device, as the agent saw them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub device: u32,
    pub held_by: String,
    pub assigned_to: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Started is under way to the inbox. A Finished must not overtake it.
    Starting,
    Running,
    /// Finished is under way to the inbox.
    Finishing,
    Done,
}

#[derive(Debug, Clone)]
struct Run {
    no: u64,
    phase: Phase,
    /// Of the last change of it that was seen.
    revision: u64,
    placed_ms: i64,
    /// When it ends by itself; none: when it is stopped.
    ends_ms: Option<i64>,
    stop: bool,
    gpus: Vec<GpuShare>,
}

/// One node's agent.
#[derive(Debug, Default)]
pub struct Agent {
    /// Up to here every change has been seen.
    revision: u64,
    syncing: bool,
    /// The last run of each allocation. Ended ones stay for a while, so that a stop that crossed their end finds them.
    runs: BTreeMap<String, Run>,
    /// Those that are over, with their revision.
    ended: VecDeque<(u64, RunId)>,
    /// Runs so far.
    begun: u64,
    conflicts: Vec<Conflict>,
}

impl Agent {
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How many are not over.
    pub fn runs(&self) -> usize {
        let all = self.runs.values();
        all.filter(|run| run.phase != Phase::Done).count()
    }

    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// One pushed change. `lifetime_ms` is how long the run takes if nobody stops it.
    pub fn assigned(
        &mut self,
        change: &Assignment,
        lifetime_ms: Option<i64>,
        now_ms: i64,
    ) -> Vec<Act> {
        let mut acts = self.apply(change, lifetime_ms, now_ms);
        if change.revision == self.revision + 1 {
            self.revision = change.revision;
        } else if change.revision > self.revision && !self.syncing {
            self.syncing = true;
            acts.push(Act::Sync);
        }
        acts
    }

    /// All that the inbox wants running at its revision.
    pub fn listed(
        &mut self,
        list: &AssignmentList,
        lifetime_ms: impl Fn(&Assignment) -> Option<i64>,
        now_ms: i64,
    ) -> Vec<Act> {
        self.syncing = false;
        let mut acts = Vec::new();
        for change in &list.assignments {
            acts.extend(self.apply(change, lifetime_ms(change), now_ms));
        }
        let wanted = |allocation: &str| {
            let mut all = list.assignments.iter();
            all.any(|change| change.allocation_id == allocation)
        };
        for (allocation, run) in &mut self.runs {
            // Ended for the cell, for instance because it had given the node up. Newer ones are not in the list yet.
            if run.revision <= list.revision && run.phase != Phase::Done && !wanted(allocation) {
                run.phase = Phase::Done;
            }
        }
        self.revision = self.revision.max(list.revision);
        acts
    }

    /// The cell gave the node up, and with it all that ran on it. Revisions begin anew with the next boot.
    pub fn given_up(&mut self) {
        self.revision = 0;
        self.syncing = false;
        self.runs.clear();
        self.ended.clear();
    }

    /// The inbox did not answer; the next gap asks again.
    pub fn unanswered(&mut self) {
        self.syncing = false;
    }

    fn apply(&mut self, change: &Assignment, lifetime_ms: Option<i64>, now_ms: i64) -> Vec<Act> {
        let allocation = &change.allocation_id;
        if change.revision <= self.revision {
            return Vec::new();
        }
        if let Some(run) = self.runs.get_mut(allocation) {
            if change.revision <= run.revision {
                return Vec::new();
            }
            if change.stop && change.placed_ms == run.placed_ms {
                run.revision = change.revision;
                run.stop = true;
                return match run.phase {
                    Phase::Running => vec![run.finish(allocation, now_ms)],
                    Phase::Starting | Phase::Finishing | Phase::Done => Vec::new(),
                };
            }
            // Placed here again: the cell knows that the former run is over, or it would not have.
        }
        self.note_conflicts(change);
        self.begun += 1;
        let mut run = Run {
            no: self.begun,
            phase: Phase::Starting,
            revision: change.revision,
            placed_ms: change.placed_ms,
            ends_ms: lifetime_ms.map(|ms| change.placed_ms.saturating_add(ms)),
            stop: change.stop,
            gpus: change.gpus.clone(),
        };
        let act = if change.stop {
            // To be stopped before it was ever seen: it never started here.
            run.finish(allocation, now_ms)
        } else {
            Act::Report {
                run: run.id(allocation),
                phase: RunPhase::Started,
                at_ms: change.placed_ms,
            }
        };
        self.runs.insert(allocation.clone(), run);
        vec![act]
    }

    /// The cell frees a device only after it was told that the run has finished, so nothing that still runs here may
    /// share more than a whole device with what is assigned.
    fn note_conflicts(&mut self, change: &Assignment) {
        for share in &change.gpus {
            let held: Vec<(&String, u64)> = self
                .runs
                .iter()
                .filter(|(_, run)| matches!(run.phase, Phase::Starting | Phase::Running))
                .flat_map(|(allocation, run)| run.gpus.iter().map(move |gpu| (allocation, gpu)))
                .filter(|(_, gpu)| gpu.device == share.device)
                .map(|(allocation, gpu)| (allocation, u64::from(gpu.milli)))
                .collect();
            let milli: u64 = held.iter().map(|(_, milli)| milli).sum();
            if milli + u64::from(share.milli) > DEVICE_MILLI {
                let conflicts = held.into_iter().map(|(allocation, _)| Conflict {
                    device: share.device,
                    held_by: allocation.clone(),
                    assigned_to: change.allocation_id.clone(),
                });
                self.conflicts.extend(conflicts.collect::<Vec<_>>());
            }
        }
    }

    fn run_mut(&mut self, id: &RunId) -> Option<&mut Run> {
        let run = self.runs.get_mut(&id.allocation);
        run.filter(|run| run.no == id.no)
    }

    /// A report was acknowledged.
    pub fn reported(&mut self, id: &RunId, phase: RunPhase, now_ms: i64) -> Vec<Act> {
        let Some(run) = self.run_mut(id) else {
            return Vec::new();
        };
        match (run.phase, phase) {
            (Phase::Starting, RunPhase::Started) => {
                run.phase = Phase::Running;
                match run.ends_ms {
                    Some(at_ms) if at_ms > now_ms && !run.stop => vec![Act::Wake {
                        run: id.clone(),
                        at_ms,
                    }],
                    None if !run.stop => Vec::new(),
                    _ => vec![run.finish(&id.allocation, now_ms)],
                }
            }
            (Phase::Finishing, RunPhase::FinishedOk) => {
                run.phase = Phase::Done;
                let revision = run.revision;
                self.ended.push_back((revision, id.clone()));
                self.forget();
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn forget(&mut self) {
        while let Some((revision, _)) = self.ended.front()
            && revision + REMEMBERED <= self.revision
        {
            let Some((_, run)) = self.ended.pop_front() else {
                return;
            };
            if self
                .run_mut(&run)
                .is_some_and(|run| run.phase == Phase::Done)
            {
                self.runs.remove(&run.allocation);
            }
        }
    }

    /// The recorded clock got to where the run ends.
    pub fn due(&mut self, id: &RunId, now_ms: i64) -> Vec<Act> {
        match self.run_mut(id) {
            Some(run) if run.phase == Phase::Running => vec![run.finish(&id.allocation, now_ms)],
            _ => Vec::new(),
        }
    }
}

impl Run {
    fn id(&self, allocation: &str) -> RunId {
        RunId {
            allocation: allocation.to_owned(),
            no: self.no,
            revision: self.revision,
        }
    }

    /// A run never lasts longer than it would have by itself, however late this is.
    fn finish(&mut self, allocation: &str, now_ms: i64) -> Act {
        self.phase = Phase::Finishing;
        let end = self.ends_ms.unwrap_or(i64::MAX).min(now_ms);
        Act::Report {
            run: self.id(allocation),
            phase: RunPhase::FinishedOk,
            at_ms: end.max(self.placed_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: u64, allocation: &str, placed_ms: i64, stop: bool) -> Assignment {
        Assignment {
            revision,
            allocation_id: allocation.to_owned(),
            placed_ms,
            stop,
            gpus: vec![GpuShare {
                device: 0,
                milli: 600,
            }],
            ..Assignment::default()
        }
    }

    /// `a1@3` is the agent's first run, of the allocation a, as of revision 3.
    fn run(text: &str) -> RunId {
        let (name, revision) = text.split_once('@').unwrap();
        let (allocation, no) = name.split_at(1);
        RunId {
            allocation: allocation.to_owned(),
            no: no.parse().unwrap(),
            revision: revision.parse().unwrap(),
        }
    }

    fn report(of: &str, phase: RunPhase, at_ms: i64) -> Act {
        let run = run(of);
        Act::Report { run, phase, at_ms }
    }

    #[test]
    fn a_run_starts_when_placed_and_lasts_its_lifetime() {
        let mut agent = Agent::default();
        let started = report("a1@1", RunPhase::Started, 100);
        assert_eq!(
            agent.assigned(&change(1, "a", 100, false), Some(50), 120),
            [started]
        );
        // Again, because an acknowledgement of the push does not exist.
        assert!(
            agent
                .assigned(&change(1, "a", 100, false), Some(50), 121)
                .is_empty()
        );
        assert!(
            agent.due(&run("a1@1"), 125).is_empty(),
            "Finished must not overtake Started"
        );
        let wake = Act::Wake {
            run: run("a1@1"),
            at_ms: 150,
        };
        assert_eq!(agent.reported(&run("a1@1"), RunPhase::Started, 130), [wake]);
        assert_eq!(
            agent.due(&run("a1@1"), 163),
            [report("a1@1", RunPhase::FinishedOk, 150)]
        );
        assert!(
            agent
                .reported(&run("a1@1"), RunPhase::FinishedOk, 170)
                .is_empty()
        );
        assert!(
            agent
                .assigned(&change(2, "a", 100, true), Some(50), 180)
                .is_empty()
        );
        assert_eq!((agent.revision(), agent.conflicts().len()), (2, 0));
    }

    #[test]
    fn a_run_that_is_over_before_its_start_is_acknowledged_finishes_at_once() {
        let mut agent = Agent::default();
        agent.assigned(&change(1, "a", 100, false), Some(5), 200);
        let finished = report("a1@1", RunPhase::FinishedOk, 105);
        assert_eq!(
            agent.reported(&run("a1@1"), RunPhase::Started, 210),
            [finished]
        );
    }

    #[test]
    fn a_stop_ends_a_run_now_or_when_it_has_started() {
        let mut agent = Agent::default();
        agent.assigned(&change(1, "a", 100, false), Some(500), 100);
        assert!(
            agent
                .assigned(&change(2, "a", 100, true), Some(500), 150)
                .is_empty()
        );
        let finished = report("a1@2", RunPhase::FinishedOk, 160);
        assert_eq!(
            agent.reported(&run("a1@1"), RunPhase::Started, 160),
            [finished]
        );

        let mut agent = Agent::default();
        agent.assigned(&change(1, "a", 100, false), None, 100);
        assert!(
            agent
                .reported(&run("a1@1"), RunPhase::Started, 110)
                .is_empty()
        );
        let finished = report("a1@2", RunPhase::FinishedOk, 170);
        assert_eq!(
            agent.assigned(&change(2, "a", 100, true), None, 170),
            [finished]
        );

        let mut agent = Agent::default();
        let finished = report("a1@1", RunPhase::FinishedOk, 100);
        assert_eq!(
            agent.assigned(&change(1, "a", 100, true), None, 90),
            [finished]
        );
    }

    /// a has run and finished; its assignment had revision 1 and its stop 2.
    fn finished() -> Agent {
        let mut agent = Agent::default();
        agent.assigned(&change(1, "a", 100, false), Some(50), 100);
        agent.reported(&run("a1@1"), RunPhase::Started, 110);
        agent.due(&run("a1@1"), 150);
        agent.reported(&run("a1@1"), RunPhase::FinishedOk, 155);
        agent
    }

    #[test]
    fn an_allocation_that_is_placed_here_again_runs_again() {
        let again = [report("a2@2", RunPhase::Started, 200)];
        let mut agent = finished();
        assert_eq!(
            agent.assigned(&change(2, "a", 200, false), Some(50), 200),
            again
        );
        // What is late of the former run does not touch this one.
        assert!(
            agent
                .reported(&run("a1@1"), RunPhase::Started, 201)
                .is_empty()
        );
        assert!(
            agent
                .reported(&run("a1@1"), RunPhase::FinishedOk, 201)
                .is_empty()
        );
        let wake = Act::Wake {
            run: run("a2@2"),
            at_ms: 250,
        };
        assert_eq!(agent.reported(&run("a2@2"), RunPhase::Started, 210), [wake]);
        assert!(agent.due(&run("a1@1"), 210).is_empty());
        let late = change(1, "a", 100, true);
        assert!(agent.assigned(&late, Some(50), 211).is_empty());
        let ended = [report("a2@2", RunPhase::FinishedOk, 250)];
        assert_eq!(agent.due(&run("a2@2"), 250), ended);

        // In the list that closes a gap, too, and as one that is to be stopped at once.
        let mut agent = finished();
        let mut list = AssignmentList {
            revision: 2,
            assignments: vec![change(2, "a", 200, false)],
            ..AssignmentList::default()
        };
        assert_eq!(agent.listed(&list, |_| Some(50), 200), again);
        assert!(agent.listed(&list, |_| Some(50), 201).is_empty());
        let mut agent = finished();
        list.revision = 3;
        list.assignments = vec![change(3, "a", 200, true)];
        assert_eq!(
            agent.listed(&list, |_| Some(50), 210),
            [report("a2@3", RunPhase::FinishedOk, 210)]
        );
    }

    #[test]
    fn a_former_life_has_no_say_in_the_next_run() {
        let mut agent = Agent::default();
        agent.assigned(&change(7, "a", 0, false), Some(5), 0);
        agent.given_up();
        let again = [report("a2@1", RunPhase::Started, 20)];
        assert_eq!(
            agent.assigned(&change(1, "a", 20, false), Some(5), 20),
            again
        );
        assert!(
            agent
                .reported(&run("a1@7"), RunPhase::Started, 21)
                .is_empty()
        );
        assert!(agent.due(&run("a1@7"), 21).is_empty());
        assert!(agent.conflicts().is_empty());
    }

    #[test]
    fn nothing_is_said_of_runs_that_went_with_their_node() {
        let mut agent = Agent::default();
        agent.assigned(&change(1, "a", 0, false), Some(5), 0);
        agent.given_up();
        assert!(
            agent
                .reported(&run("a1@1"), RunPhase::Started, 10)
                .is_empty()
        );
        assert!(agent.due(&run("a1@1"), 10).is_empty());
        agent.assigned(&change(1, "b", 20, false), Some(5), 20);
        assert_eq!((agent.revision(), agent.conflicts().len()), (1, 0));
    }

    #[test]
    fn a_gap_is_asked_for_once_and_closed_by_the_list() {
        let mut agent = Agent::default();
        agent.assigned(&change(1, "a", 0, false), None, 0);
        assert!(
            agent
                .assigned(&change(3, "c", 0, false), None, 0)
                .contains(&Act::Sync)
        );
        assert!(
            !agent
                .assigned(&change(4, "d", 0, false), None, 0)
                .contains(&Act::Sync)
        );
        assert_eq!(agent.revision(), 1);
        let list = AssignmentList {
            revision: 3,
            assignments: vec![change(2, "b", 0, false), change(3, "c", 0, false)],
            ..AssignmentList::default()
        };
        let started = report("b4@2", RunPhase::Started, 0);
        assert_eq!(agent.listed(&list, |_| None, 0), [started]);
        assert_eq!(agent.revision(), 3);
        // "a" is over for the cell, "d" is newer than the list.
        assert!(
            agent
                .reported(&run("a1@1"), RunPhase::Started, 1)
                .is_empty()
        );
        assert_eq!(
            agent.assigned(&change(5, "a", 0, true), None, 2),
            [Act::Sync]
        );
        assert_eq!(agent.assigned(&change(5, "d", 0, true), None, 2), []);
        assert_eq!(
            agent.reported(&run("d3@4"), RunPhase::Started, 3),
            [report("d3@5", RunPhase::FinishedOk, 3)]
        );
    }

    #[test]
    fn a_device_is_not_given_out_twice_before_its_run_has_finished() {
        let mut agent = Agent::default();
        agent.assigned(&change(1, "a", 0, false), Some(5), 0);
        agent.assigned(&change(2, "b", 0, false), Some(5), 0);
        let conflict = Conflict {
            device: 0,
            held_by: "a".to_owned(),
            assigned_to: "b".to_owned(),
        };
        assert_eq!(agent.conflicts(), [conflict]);
        agent.reported(&run("a1@1"), RunPhase::Started, 10);
        agent.reported(&run("b2@2"), RunPhase::Started, 10);
        agent.assigned(&change(3, "c", 10, false), Some(5), 10);
        assert_eq!(agent.conflicts().len(), 1);
    }
}
