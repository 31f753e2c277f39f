//! What one simulated agent knows and does. No IO and no clock, so that its protocol is tested as a table.

use schemas::v1::{Assignment, AssignmentList, GpuShare, RunPhase};
use std::collections::BTreeMap;

/// Thousandths of one device.
const DEVICE_MILLI: u64 = 1000;

/// What the agent wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Tell the door; `Agent::reported` is called once it has been acknowledged.
    Report {
        allocation: String,
        phase: RunPhase,
        at_ms: i64,
    },
    /// Call `Agent::due` when the recorded clock gets there.
    Wake { allocation: String, at_ms: i64 },
    /// Ask the door for the whole list.
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
    /// Started is under way to the door. A Finished must not overtake it.
    Starting,
    Running,
    /// Finished is under way to the door.
    Finishing,
    Done,
}

#[derive(Debug, Clone)]
struct Run {
    phase: Phase,
    /// Of the assignment that began it.
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
    /// Ended ones stay, so that an assignment that comes again does not begin anew.
    runs: BTreeMap<String, Run>,
    conflicts: Vec<Conflict>,
}

impl Agent {
    pub fn revision(&self) -> u64 {
        self.revision
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

    /// All that the door wants running at its revision.
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

    /// The cell gave the node up, and with it all that ran on it. Revisions begin anew with the next incarnation.
    pub fn given_up(&mut self) {
        self.revision = 0;
        self.syncing = false;
        for run in self.runs.values_mut() {
            run.phase = Phase::Done;
        }
    }

    /// The door did not answer; the next gap asks again.
    pub fn unanswered(&mut self) {
        self.syncing = false;
    }

    fn apply(&mut self, change: &Assignment, lifetime_ms: Option<i64>, now_ms: i64) -> Vec<Act> {
        if let Some(run) = self.runs.get_mut(&change.allocation_id) {
            if !change.stop || run.stop {
                return Vec::new();
            }
            run.stop = true;
            return match run.phase {
                Phase::Running => vec![run.finish(&change.allocation_id, now_ms)],
                Phase::Starting | Phase::Finishing | Phase::Done => Vec::new(),
            };
        }
        self.note_conflicts(change);
        let mut run = Run {
            phase: Phase::Starting,
            revision: change.revision,
            placed_ms: change.placed_ms,
            ends_ms: lifetime_ms.map(|ms| change.placed_ms.saturating_add(ms)),
            stop: change.stop,
            gpus: change.gpus.clone(),
        };
        let act = if change.stop {
            // To be stopped before it was ever seen: it never started here.
            run.finish(&change.allocation_id, now_ms)
        } else {
            Act::Report {
                allocation: change.allocation_id.clone(),
                phase: RunPhase::Started,
                at_ms: change.placed_ms,
            }
        };
        self.runs.insert(change.allocation_id.clone(), run);
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

    /// A report was acknowledged.
    pub fn reported(&mut self, allocation: &str, phase: RunPhase, now_ms: i64) -> Vec<Act> {
        let Some(run) = self.runs.get_mut(allocation) else {
            return Vec::new();
        };
        match (run.phase, phase) {
            (Phase::Starting, RunPhase::Started) => {
                run.phase = Phase::Running;
                match run.ends_ms {
                    Some(at_ms) if at_ms > now_ms && !run.stop => vec![Act::Wake {
                        allocation: allocation.to_owned(),
                        at_ms,
                    }],
                    None if !run.stop => Vec::new(),
                    _ => vec![run.finish(allocation, now_ms)],
                }
            }
            (Phase::Finishing, RunPhase::FinishedOk) => {
                run.phase = Phase::Done;
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// The recorded clock got to where the run ends.
    pub fn due(&mut self, allocation: &str, now_ms: i64) -> Vec<Act> {
        match self.runs.get_mut(allocation) {
            Some(run) if run.phase == Phase::Running => vec![run.finish(allocation, now_ms)],
            _ => Vec::new(),
        }
    }
}

impl Run {
    /// A run never lasts longer than it would have by itself, however late this is.
    fn finish(&mut self, allocation: &str, now_ms: i64) -> Act {
        self.phase = Phase::Finishing;
        let end = self.ends_ms.unwrap_or(i64::MAX).min(now_ms);
        Act::Report {
            allocation: allocation.to_owned(),
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

    fn report(allocation: &str, phase: RunPhase, at_ms: i64) -> Act {
        Act::Report {
            allocation: allocation.to_owned(),
            phase,
            at_ms,
        }
    }

    #[test]
    fn a_run_starts_when_placed_and_lasts_its_lifetime() {
        let mut agent = Agent::default();
        let started = report("a", RunPhase::Started, 100);
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
            agent.due("a", 125).is_empty(),
            "Finished must not overtake Started"
        );
        let wake = Act::Wake {
            allocation: "a".to_owned(),
            at_ms: 150,
        };
        assert_eq!(agent.reported("a", RunPhase::Started, 130), [wake]);
        assert_eq!(
            agent.due("a", 163),
            [report("a", RunPhase::FinishedOk, 150)]
        );
        assert!(agent.reported("a", RunPhase::FinishedOk, 170).is_empty());
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
        let finished = report("a", RunPhase::FinishedOk, 105);
        assert_eq!(agent.reported("a", RunPhase::Started, 210), [finished]);
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
        let finished = report("a", RunPhase::FinishedOk, 160);
        assert_eq!(agent.reported("a", RunPhase::Started, 160), [finished]);

        let mut agent = Agent::default();
        agent.assigned(&change(1, "a", 100, false), None, 100);
        assert!(agent.reported("a", RunPhase::Started, 110).is_empty());
        let finished = report("a", RunPhase::FinishedOk, 170);
        assert_eq!(
            agent.assigned(&change(2, "a", 100, true), None, 170),
            [finished]
        );

        let mut agent = Agent::default();
        let finished = report("a", RunPhase::FinishedOk, 100);
        assert_eq!(
            agent.assigned(&change(1, "a", 100, true), None, 90),
            [finished]
        );
    }

    #[test]
    fn nothing_is_said_of_runs_that_went_with_their_node() {
        let mut agent = Agent::default();
        agent.assigned(&change(1, "a", 0, false), Some(5), 0);
        agent.given_up();
        assert!(agent.reported("a", RunPhase::Started, 10).is_empty());
        assert!(agent.due("a", 10).is_empty());
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
        let started = report("b", RunPhase::Started, 0);
        assert_eq!(agent.listed(&list, |_| None, 0), [started]);
        assert_eq!(agent.revision(), 3);
        // "a" is over for the cell, "d" is newer than the list.
        assert!(agent.reported("a", RunPhase::Started, 1).is_empty());
        assert_eq!(
            agent.assigned(&change(5, "a", 0, true), None, 2),
            [Act::Sync]
        );
        assert_eq!(agent.assigned(&change(5, "d", 0, true), None, 2), []);
        assert_eq!(
            agent.reported("d", RunPhase::Started, 3),
            [report("d", RunPhase::FinishedOk, 3)]
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
        agent.reported("a", RunPhase::Started, 10);
        agent.reported("b", RunPhase::Started, 10);
        agent.assigned(&change(3, "c", 10, false), Some(5), 10);
        assert_eq!(agent.conflicts().len(), 1);
    }
}
