//! From the feed alone the state of every allocation can be rebuilt: random histories, folded once from the ledger's
//! events and once from the messages that a tenant gets.

use super::*;
use crate::wire::tenant_event;
use client::{AllocationState, Allocations, Stands};
use ledger::memory::Seeded;
use schemas::{ToProst as _, v1};
use std::collections::BTreeMap;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationPreempted, AllocationReprioritised,
    AllocationRequested, AllocationRequeued, AllocationStarted, AllocationStopping,
    AllocationWaiting, QuotaDenied, QuotaReserved, QuotaWaiting,
};
use vocab::{CellNo, Event, Gang, GpuRequest, GpuShare, GpuShares, RunLimits};

const CELL: CellNo = CellNo(3);
const ALLOCATIONS: u64 = 8;
const STEPS: u64 = 200;

/// An allocation as the ledger says it stands.
#[derive(Debug, Clone)]
struct Model {
    spec: AllocationSpec,
    priority: i32,
    stands: Stands,
    placed: Option<v1::Placed>,
    started: Option<Millis>,
    preempted: Option<v1::Preempted>,
    /// Where the next step may lead; the random history's own knowledge.
    life: Life,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Quota has not said yes.
    Asked,
    Waits,
    Placed,
    Runs,
    Over,
}

impl Model {
    fn of(spec: AllocationSpec) -> Self {
        Self {
            priority: spec.priority,
            spec,
            stands: Stands::Requested,
            placed: None,
            started: None,
            preempted: None,
            life: Life::Asked,
        }
    }

    fn state(&self) -> AllocationState {
        AllocationState {
            job_set: self.spec.job_set.to_string(),
            name: self
                .spec
                .name
                .as_ref()
                .map_or_else(String::new, Token::to_string),
            spec: Some(self.spec.to_prost()),
            qos: v1::QosClass::try_from(self.spec.qos() as i32).unwrap(),
            priority: self.priority,
            stands: self.stands.clone(),
            placed: self.placed.clone(),
            started_ms: self.started.map(|at| at.0),
            preempted: self.preempted,
        }
    }

    fn waits(&mut self, waiting: &Waiting) {
        let quota = waiting.quota.as_ref();
        self.stands = Stands::Waiting(v1::Waiting {
            reason: waiting.reason as i32,
            quota: quota.map(|refusal| refusal.to_prost()),
            explanation: quota.map(Refusal::explanation).unwrap_or_default(),
        });
    }

    fn over(&mut self, stands: Stands) {
        self.started = None;
        self.preempted = None;
        self.stands = stands;
    }
}

/// What may be asked for, with every part of it in some.
fn spec(random: &mut Seeded) -> AllocationSpec {
    let mut spec = AllocationSpec::plain(token(["j", "k"][random.below(2) as usize]), 4, 8);
    spec.priority = random.below(9) as i32 - 4;
    spec.name = random.chance(500).then(|| token("name"));
    spec.team = random.chance(500).then(|| token("team"));
    spec.gpu = random.chance(500).then(|| GpuRequest {
        count: 2,
        milli: 1000,
        models: vec![token("m")],
    });
    spec.gang = random.chance(300).then(|| Gang {
        name: token("g"),
        size: 4,
        min: 2,
        uniform_label: None,
    });
    if random.chance(300) {
        spec.limits = RunLimits {
            cpu_milli: 5,
            memory_bytes: 9,
        };
    } else if random.chance(300) {
        (spec.cpu_milli, spec.memory_bytes) = (0, 0);
    }
    spec
}

/// A next event of the allocation that the ledger could have, taken into the model; none when nothing fits.
fn next(
    allocation: AllocationNo,
    model: &mut Model,
    now: Millis,
    random: &mut Seeded,
) -> Option<Event> {
    if model.life != Life::Over && random.chance(100) {
        let priority = random.below(100) as i32;
        model.priority = priority;
        return Some(Event::AllocationReprioritised(AllocationReprioritised {
            allocation,
            priority,
        }));
    }
    match model.life {
        Life::Asked => Some(asked(allocation, model, random)),
        Life::Waits => Some(waits(allocation, model, now, random)),
        Life::Placed | Life::Runs => Some(on_node(allocation, model, now, random)),
        Life::Over => None,
    }
}

fn asked(allocation: AllocationNo, model: &mut Model, random: &mut Seeded) -> Event {
    let rule = [Rule::QuotaExceeded, Rule::IncompleteGang][random.below(2) as usize];
    let refusal = Refusal::over(rule, "gpu", 1, random.below(9));
    match random.below(4) {
        0 => {
            model.over(Stands::Denied(refusal.to_prost()));
            model.life = Life::Over;
            Event::QuotaDenied(QuotaDenied {
                allocation,
                refusal,
            })
        }
        1 => {
            model.waits(&Waiting::for_quota(&refusal));
            Event::QuotaWaiting(QuotaWaiting {
                allocation,
                refusal,
            })
        }
        _ => {
            model.life = Life::Waits;
            Event::QuotaReserved(QuotaReserved {
                allocation,
                flags: QuotaFlags::SOFT,
                models: None,
            })
        }
    }
}

fn waits(allocation: AllocationNo, model: &mut Model, now: Millis, random: &mut Seeded) -> Event {
    match random.below(5) {
        0 => ended(allocation, model, EndCause::Cancelled, now),
        1 | 2 => {
            let all = WaitingReason::ALL;
            let reason = all[random.below(all.len() as u64) as usize];
            model.waits(&Waiting::of(reason));
            Event::AllocationWaiting(AllocationWaiting {
                allocation,
                reason,
                pending_group: None,
            })
        }
        _ => {
            let gpus = GpuShares::from_iter([GpuShare {
                device: random.below(8) as u16,
                milli: 1000,
            }]);
            model.placed = Some(v1::Placed {
                node: "n".into(),
                gpus: gpus.iter().map(|share| share.to_prost()).collect(),
            });
            model.stands = Stands::Placed;
            model.life = Life::Placed;
            Event::AllocationPlaced(AllocationPlaced {
                allocation,
                node: token("n"),
                incarnation: 1,
                gpus,
                zones: 0,
                policy: PlacementPolicy::Default,
                candidates: Default::default(),
            })
        }
    }
}

fn on_node(allocation: AllocationNo, model: &mut Model, now: Millis, random: &mut Seeded) -> Event {
    match random.below(5) {
        0 if model.life == Life::Placed => {
            model.started = Some(now);
            model.stands = Stands::Started;
            model.life = Life::Runs;
            Event::AllocationStarted(AllocationStarted {
                allocation,
                at: now,
            })
        }
        0 | 1 => ended(allocation, model, EndCause::Failed, now),
        2 => {
            model.stands = Stands::Stopping;
            Event::AllocationStopping(AllocationStopping {
                allocation,
                time_limit: false,
            })
        }
        3 => {
            let cause = PreemptionCause::Quota;
            let grace_until = now.plus(50);
            model.preempted = Some(v1::Preempted {
                cause: cause as i32,
                grace_until_ms: grace_until.0,
            });
            Event::AllocationPreempted(AllocationPreempted {
                allocation,
                cause,
                by: None,
                grace_until,
            })
        }
        _ => {
            let (cause, not_before) = (EndCause::NodeLost, now.plus(10));
            model.over(Stands::Requeued(v1::Requeued {
                cause: cause as i32,
                ended_ms: now.0,
                not_before_ms: not_before.0,
                exit: None,
            }));
            model.life = Life::Waits;
            Event::AllocationRequeued(AllocationRequeued {
                allocation,
                cause,
                at: now,
                not_before,
                exit: None,
            })
        }
    }
}

fn ended(allocation: AllocationNo, model: &mut Model, cause: EndCause, now: Millis) -> Event {
    let started = model.started;
    model.over(Stands::Ended(v1::Ended {
        cause: cause as i32,
        started_ms: started.map_or(0, |at| at.0),
        ended_ms: now.0,
        exit: None,
    }));
    model.life = Life::Over;
    Event::AllocationEnded(AllocationEnded {
        allocation,
        cause,
        at: now,
        exit: None,
    })
}

fn requested(random: &mut Seeded) -> (Event, AllocationSpec) {
    let spec = spec(random);
    let operation = Operation {
        tenant: token("t"),
        operation_id: Some(token("op")),
        digest: [7; 16],
        reply_to: None,
        trace: None,
        by: None,
    };
    let event = Event::AllocationRequested(AllocationRequested {
        operation,
        spec: spec.clone(),
    });
    (event, spec)
}

#[test]
fn the_feed_alone_says_where_every_allocation_stands() {
    for seed in 0..300 {
        let mut random = Seeded::new(seed);
        let mut feed = Feed::default();
        let mut model: BTreeMap<u64, Model> = BTreeMap::new();
        let mut told = Allocations::default();
        for step in 1..=STEPS {
            let now = Millis(step as i64);
            let no = 1 + random.below(ALLOCATIONS);
            let event = match model.get_mut(&no) {
                Some(known) => next(AllocationNo(no), known, now, &mut random),
                None => {
                    let (event, spec) = requested(&mut random);
                    model.insert(no, Model::of(spec));
                    Some(event)
                }
            };
            let Some(event) = event else {
                continue;
            };
            let at = At {
                lsn: Lsn(step),
                index: 0,
                no: EventNo(no),
                now,
            };
            let mut items = Vec::new();
            feed.project_event(&at, &event, &mut items).unwrap();
            for item in items.iter().filter(|item| item.in_feed) {
                let mut bytes = Vec::new();
                wire::Row::behind(&mut bytes, |out| tenant_event(item, CELL, out));
                let event = prost::Message::decode(bytes.as_slice());
                told.take(&event.expect("an event"));
            }
            let known = &model[&no];
            let id = AllocationNo(no).id(CELL).to_string();
            assert_eq!(
                told.get(&id),
                Some(&known.state()),
                "seed {seed}, step {step}: {event:?}"
            );
        }
        assert_eq!(told.len(), model.len());
    }
}
