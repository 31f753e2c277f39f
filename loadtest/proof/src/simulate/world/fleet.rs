//! The world between agents and leaders: reports and heartbeats in, assignments out, some of them late or lost.

use super::{World, token};
use crate::simulate::{
    agents::{Act, Overcommitted},
    check::{Heartbeat, Invariant, Violation},
};
use ledger::{Inbox, InboxMessage};
use node_heartbeat::domain::{Assignment, Command, Effect};
use prost::Message;
use schemas::v1;
use std::{slice, sync::atomic::Ordering};
use vocab::CellNo;

impl World {
    pub(super) fn agent_acts(&mut self, index: usize, troubled: bool) {
        let now_ms = self.clock.now_ms();
        let acts = self.agents[index].act(&mut self.random, now_ms, troubled);
        self.perform(index, acts);
    }

    fn perform(&mut self, index: usize, acts: Vec<Act>) {
        for act in acts {
            let name = self.agents[index].name.clone();
            match act {
                Act::Report(payload) => {
                    self.note(|_| {
                        let report = v1::NodeReport::decode(&payload[..]);
                        format!("{name} reports {report:?}")
                    });
                    self.checker.reported(&name, &payload);
                    let message = InboxMessage {
                        seq: 0,
                        sender: token(&name),
                        reply_to: None,
                        trace: None,
                        reserved_header: false,
                        payload: payload.into(),
                    };
                    self.shared.bus.publish(Inbox::Report, message);
                }
                Act::Heartbeat { boot, revision } => self.heartbeat(&name, boot, revision),
                Act::Sync => {
                    let request = self.asked.len() as u64;
                    self.asked.insert(request, index);
                    let node = token(&name);
                    self.tell_leaders(|_| Command::Sync {
                        node: node.clone(),
                        request,
                    });
                }
            }
        }
    }

    fn heartbeat(&mut self, name: &str, boot: u64, revision: u64) {
        let step = self.shared.step.load(Ordering::Relaxed);
        let node = token(name);
        let reached = self.tell_leaders(|_| Command::Heartbeat {
            node: node.clone(),
            boot,
            revision,
        });
        for (process, clock_ms) in reached {
            self.checker.heard(Heartbeat {
                process,
                node: name.to_owned(),
                boot,
                step,
                clock_ms,
            });
        }
    }

    /// Whom it reaches: every process that serves the nodes hears everything, unless it gets lost.
    fn tell_leaders(&mut self, command: impl Fn(u64) -> Command) -> Vec<(u64, i64)> {
        let mut reached = Vec::new();
        for process in &self.processes {
            let Some(commands) = &process.commands else {
                continue;
            };
            if self.random.chance(self.profile.heartbeat_lost) {
                continue;
            }
            if commands.try_send(command(process.id)).is_ok() {
                reached.push((process.id, process.time.now_ms()));
            }
        }
        reached
    }

    /// The oldest message of some sender arrives, or not.
    pub(super) fn deliver(&mut self, lost: u64) -> Result<(), Violation> {
        let senders: Vec<u64> = self.mail.keys().copied().collect();
        if senders.is_empty() {
            return Ok(());
        }
        let sender = senders[self.random.below(senders.len() as u64) as usize];
        let Some(queue) = self.mail.get_mut(&sender) else {
            return Ok(());
        };
        let effect = queue.pop_front();
        if queue.is_empty() {
            self.mail.remove(&sender);
        }
        if let Some(effect) = effect
            && !self.random.chance(lost)
        {
            self.arrives(effect)?;
        }
        Ok(())
    }

    fn arrives(&mut self, effect: Effect) -> Result<(), Violation> {
        self.note(|_| format!("arrives {effect:?}"));
        let read = self.read as u64;
        let overcommitted = |error: Overcommitted| Violation {
            invariant: Invariant::Exclusive,
            lsn: read,
            text: error.to_string(),
        };
        let cell = self.shared.cell;
        match effect {
            Effect::Assign {
                node,
                boot,
                assignment,
            } => {
                let change = pushed(&assignment, boot, cell);
                let random = &mut self.random;
                let agent = self.agents.iter_mut().find(|a| a.name == node.as_str());
                agent
                    .map_or(Ok(()), |agent| agent.assigned(&change, random))
                    .map_err(overcommitted)
            }
            Effect::RegisterAgain { node, boot } => {
                let change = v1::Assignment {
                    register_again: true,
                    boot,
                    ..Default::default()
                };
                let random = &mut self.random;
                let agent = self.agents.iter_mut().find(|a| a.name == node.as_str());
                agent
                    .map_or(Ok(()), |agent| agent.assigned(&change, random))
                    .map_err(overcommitted)
            }
            // What was refused stays refused until an operator approves of more, and is not tried again before that. Nobody
            // joins an open cell.
            Effect::RegistrationRefused { .. } | Effect::Joined(_) | Effect::JoinRefused { .. } => {
                Ok(())
            }
            Effect::Synced {
                request,
                boot,
                revision,
                assignments,
            } => {
                let Some(index) = self.asked.get(&request).copied() else {
                    return Ok(());
                };
                let list: Vec<v1::Assignment> = assignments
                    .iter()
                    .map(|assignment| pushed(assignment, boot, cell))
                    .collect();
                self.agents[index]
                    .listed(boot, revision, &list)
                    .map_err(overcommitted)
            }
        }
    }
}

/// A change by itself, as an agent reads it: together with others it may come late or not at all, but in no other order.
fn pushed(assignment: &Assignment, boot: u64, cell: CellNo) -> v1::Assignment {
    let bytes = node_heartbeat::push(slice::from_ref(assignment), boot, cell);
    v1::Assignment::decode(&bytes.unwrap_or_default()[..]).unwrap_or_default()
}
