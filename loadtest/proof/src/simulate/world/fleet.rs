//! The world between agents and leaders: reports and heartbeats in, assignments out, some of them late or lost.

use super::{World, token};
use crate::simulate::{
    agents::{Act, Agent, Recorder, Wrong},
    check::{Heartbeat, Invariant, Named, Violation},
};
use ledger::{Inbox, InboxMessage, memory::Seeded};
use node_heartbeat_rules::{Assignment, Command, Conditions, Effect};
use prost::Message;
use schemas::v1;
use std::{slice, sync::atomic::Ordering};
use vocab::{CellNo, Token};

impl World {
    pub(super) fn agent_acts(&mut self, index: usize, troubled: bool) {
        let now_ms = self.clock.now_ms();
        let (random, recorder) = (&mut self.random, &mut self.recorder);
        let acts = self.agents[index].act(random, recorder, now_ms, troubled);
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
                        by: None,
                        reserved_header: false,
                        payload: payload.into(),
                    };
                    self.shared.bus.publish(Inbox::Report, message);
                }
                Act::Heartbeat {
                    boot,
                    revision,
                    asks,
                    ref conditions,
                } => {
                    let conditions = conditions.clone();
                    let request = asks.then(|| self.asks(index, &act));
                    self.heartbeat(&name, boot, revision, request, &conditions);
                }
                Act::Sync => {
                    let request = self.asks(index, &act);
                    let node = token(&name);
                    self.tell_leaders(|_| Command::Sync {
                        node: node.clone(),
                        request,
                    });
                }
            }
        }
    }

    /// A request of an agent, which an answer may come to.
    fn asks(&mut self, index: usize, act: &Act) -> u64 {
        let request = self.asked.len() as u64;
        self.asked.insert(request, index);
        self.agents[index].asked(act, request, self.clock.now_ms());
        request
    }

    /// Time has gone on: what ran on a lease that is over does not any more.
    pub(super) fn leases_lapse(&mut self) {
        let now_ms = self.clock.now_ms();
        for agent in &mut self.agents {
            agent.lapse(now_ms, &mut self.random, &mut self.recorder);
        }
    }

    fn heartbeat(
        &mut self,
        name: &str,
        boot: u64,
        revision: u64,
        request: Option<u64>,
        named: &Named,
    ) {
        let step = self.shared.step.load(Ordering::Relaxed);
        let node = token(name);
        let reason = |reason: &String| (!reason.is_empty()).then(|| token(reason));
        let conditions: Conditions = named
            .iter()
            .map(|(name, why)| (token(name), reason(why)))
            .collect();
        let reached = self.tell_leaders(|_| Command::Heartbeat {
            node: node.clone(),
            boot,
            revision,
            request,
            conditions: conditions.clone(),
        });
        for (process, clock_ms) in reached {
            self.checker.heard(Heartbeat {
                process,
                node: name.to_owned(),
                boot,
                step,
                clock_ms,
                conditions: named.clone(),
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
        let cell = self.shared.cell;
        match effect {
            Effect::Assign {
                node,
                boot,
                assignment,
            } => self.told(&node, pushed(&assignment, boot, cell)),
            Effect::RegisterAgain { node, boot } => {
                let change = v1::Assignment {
                    register_again: true,
                    boot,
                    ..Default::default()
                };
                self.told(&node, change)
            }
            // What was refused stays refused until an operator approves of more, and is not tried again before that. Nobody
            // joins an open cell.
            Effect::RegistrationRefused { .. }
            | Effect::Joined(_)
            | Effect::JoinRefused { .. }
            | Effect::MassLoss(_) => Ok(()),
            Effect::Renewed {
                request,
                boot,
                lease_ms,
                now,
            } => {
                let index = self.asked.get(&request).copied();
                self.of_agent(index, |agent, now_ms, random, recorder| {
                    agent.renewed(request, (boot, lease_ms, now.0), now_ms, random, recorder)
                })
            }
            Effect::Synced {
                request,
                boot,
                revision,
                assignments,
            } => {
                let list = v1::AssignmentList {
                    boot,
                    revision,
                    assignments: assignments
                        .iter()
                        .map(|assignment| pushed(assignment, boot, cell))
                        .collect(),
                };
                let index = self.asked.get(&request).copied();
                self.of_agent(index, |agent, now_ms, random, recorder| {
                    agent.listed(request, list, now_ms, random, recorder)
                })
            }
        }
    }

    fn told(&mut self, node: &Token, change: v1::Assignment) -> Result<(), Violation> {
        let index = self.agents.iter().position(|a| a.name == node.as_str());
        self.of_agent(index, |agent, now_ms, random, recorder| {
            agent.assigned(change, now_ms, random, recorder)
        })
    }

    fn of_agent(
        &mut self,
        index: Option<usize>,
        hears: impl FnOnce(&mut Agent, i64, &mut Seeded, &mut Recorder) -> Result<(), Wrong>,
    ) -> Result<(), Violation> {
        let Some(agent) = index.map(|index| &mut self.agents[index]) else {
            return Ok(());
        };
        let now_ms = self.clock.now_ms();
        hears(agent, now_ms, &mut self.random, &mut self.recorder).map_err(|wrong| Violation {
            invariant: Invariant::Exclusive,
            lsn: self.read as u64,
            text: wrong.to_string(),
        })
    }
}

/// A change by itself, as an agent reads it: together with others it may come late or not at all, but in no other order.
fn pushed(assignment: &Assignment, boot: u64, cell: CellNo) -> v1::Assignment {
    let bytes = node_heartbeat::push(slice::from_ref(assignment), boot, cell);
    v1::Assignment::decode(&bytes.unwrap_or_default()[..]).unwrap_or_default()
}
