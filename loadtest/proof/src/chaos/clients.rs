//! Tenants whose every operation is recorded, at a small and fixed rate.

use super::{
    book::{Ask, Asked},
    scene::Scene,
};
use async_nats::jetstream;
use client::{Client, NoOutcome, Operation, Outcome};
use ledger::memory::Seeded;
use prost::Message;
use replay::command::Size;
use schemas::v1::{
    Cancel, Request, SetPriority, Submit, outcome::Result as Decided, request::Verb, set_priority,
};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::{sync::mpsc, task::JoinSet};
use vocab::Token;

const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Longer than everything together takes to come back. What has no outcome by then is lost.
pub const GIVE_UP: Duration = Duration::from_secs(180);
const ACK_TIMEOUT: Duration = Duration::from_secs(3);
/// Allocations that a client may still cancel or change: the newest, most of which have not ended.
const KNOWN_MAX: usize = 8;
const JOB_SET: &str = "chaos";

/// How operations reach the inbox.
pub enum Way {
    /// As a real client does: the same operation again until there is an outcome.
    AskOn(Client),
    /// Until it is acknowledged, and never again: what the inbox has must be decided without being asked for.
    Once {
        inbox: Box<jetstream::Context>,
        subject: String,
    },
}

/// One connection of a tenant.
pub struct Recorded {
    pub tenant: Token,
    /// Among those of all tenants: no two use an operation id twice.
    pub number: u32,
    pub way: Way,
    /// When it asks first.
    pub from: Duration,
    pub period: Duration,
    pub size: Size,
    pub dice: Seeded,
}

/// What this client asks next.
struct Next {
    id: String,
    asked: Asked,
    verb: Verb,
}

impl Recorded {
    /// Asks until it is told to stop, then waits for what is under way. At moments that were fixed before.
    pub async fn run(mut self, scene: Arc<Scene>) {
        let way = Arc::new(self.way);
        let (accepted, mut allocations) = mpsc::unbounded_channel();
        let mut known = VecDeque::new();
        let mut under_way = JoinSet::new();
        let mut due = self.from;
        for no in 0.. {
            tokio::select! {
                () = scene.stopped() => break,
                () = tokio::time::sleep(due.saturating_sub(scene.now())) => {}
            }
            due += self.period;
            while let Ok(allocation) = allocations.try_recv() {
                known.push_back(allocation);
                if known.len() > KNOWN_MAX {
                    known.pop_front();
                }
            }
            let id = format!("{}-{}-{no:06}", self.tenant, self.number);
            let next = next(id, self.size, &mut self.dice, &mut known);
            let asks_on = matches!(*way, Way::AskOn(_));
            let sent = scene.now();
            let tenant = &self.tenant;
            scene
                .book()
                .sent(&next.id, tenant, next.asked, sent, asks_on);
            let (scene, way, accepted) = (scene.clone(), way.clone(), accepted.clone());
            under_way.spawn(async move {
                match way.as_ref() {
                    Way::AskOn(client) => ask_on(&scene, client, next, &accepted).await,
                    Way::Once { inbox, subject } => once(&scene, inbox, subject, next).await,
                }
            });
            while under_way.try_join_next().is_some() {}
        }
        while under_way.join_next().await.is_some() {}
    }
}

fn next(id: String, size: Size, dice: &mut Seeded, known: &mut VecDeque<String>) -> Next {
    let drawn = dice.below(100);
    let (asked, verb) = match drawn {
        65..85 => match known.pop_back() {
            Some(allocation_id) => (Asked::Cancel, Verb::Cancel(Cancel { allocation_id })),
            None => submit(&id, size, dice),
        },
        85.. => match known.front() {
            Some(allocation) => {
                let target = set_priority::Target::AllocationId(allocation.clone());
                let change = SetPriority {
                    target: Some(target),
                    priority: dice.below(200) as i32,
                };
                (Asked::SetPriority, Verb::SetPriority(change))
            }
            None => submit(&id, size, dice),
        },
        _ => submit(&id, size, dice),
    };
    Next { id, asked, verb }
}

/// How long it runs stands in its name, where the agents read it.
fn submit(id: &str, size: Size, dice: &mut Seeded) -> (Asked, Verb) {
    let ask = Ask {
        cpu_milli: 500 + 250 * dice.below(14),
        memory_bytes: (1 + dice.below(8)) << 30,
        gpu_milli: if dice.chance(250) { 500 } else { 0 },
    };
    // A few take so long that they are there when something breaks, and are cancelled.
    let run_ms = match dice.below(10) {
        0 => size.pick(20_000, 3_000),
        _ => 200 + dice.below(4_000),
    };
    (
        Asked::Submit(ask),
        Verb::Submit(ask.submit(JOB_SET, id, run_ms)),
    )
}

impl Ask {
    pub fn submit(&self, job_set: &str, id: &str, run_ms: u64) -> Submit {
        Submit {
            job_set: job_set.to_owned(),
            name: format!("{id}-{run_ms}"),
            // Far below what any of these could be refused for.
            cpu_milli: self.cpu_milli as i64,
            memory_bytes: self.memory_bytes as i64,
            gpu_count: i64::from(self.gpu_milli > 0),
            gpu_milli: self.gpu_milli as i64,
            ..Submit::default()
        }
    }
}

/// What `Ask::submit` has written into the name.
pub fn run_ms(name: &str) -> Option<i64> {
    name.rsplit('-').next()?.parse().ok()
}

async fn ask_on(
    scene: &Scene,
    client: &Client,
    next: Next,
    accepted: &mpsc::UnboundedSender<String>,
) {
    let operation = Operation::new(&next.id, next.verb);
    let since = scene.now();
    loop {
        match client.call(&operation).await {
            Ok(outcome) => {
                scene.answered(&outcome);
                if let Some(Decided::Submitted(submitted)) = outcome.result {
                    // Its tenant may have stopped asking.
                    let _ = accepted.send(submitted.allocation_id);
                }
                return;
            }
            Err(error) if error.retryable() && scene.now() - since < GIVE_UP => {
                scene.book().resent += 1;
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error @ (NoOutcome::NotReceived { .. } | NoOutcome::Indefinite { .. })) => {
                scene.book().given_up(&next.id, error.to_string());
                return;
            }
        }
    }
}

async fn once(scene: &Scene, inbox: &jetstream::Context, subject: &str, next: Next) {
    let request = Request {
        operation_id: next.id.clone(),
        verb: Some(next.verb),
    };
    let payload: bytes::Bytes = request.encode_to_vec().into();
    let since = scene.now();
    while scene.now() - since < GIVE_UP {
        if published(inbox, subject, payload.clone()).await {
            scene.book().acknowledged(&next.id);
            return;
        }
        scene.book().resent += 1;
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    let why = "the inbox never acknowledged it".to_owned();
    scene.book().given_up(&next.id, why);
}

/// Whether the inbox has it. If not, it may have it all the same.
pub async fn published(inbox: &jetstream::Context, subject: &str, payload: bytes::Bytes) -> bool {
    let publish = async {
        let ack = inbox.publish(subject.to_owned(), payload).await.ok()?;
        ack.await.ok()
    };
    let done = tokio::time::timeout(ACK_TIMEOUT, publish).await;
    matches!(done, Ok(Some(_)))
}

/// Late and repeated outcomes go into the book as well.
pub async fn observe(scene: Arc<Scene>, mut observed: mpsc::UnboundedReceiver<Outcome>) {
    while let Some(outcome) = observed.recv().await {
        scene.answered(&outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_asks_for_all_kinds_of_things_and_the_name_says_how_long_it_runs() {
        let mut dice = Seeded::new(5);
        let mut known = VecDeque::new();
        let (mut submits, mut cancels, mut priorities) = (0, 0, 0);
        for no in 0..1_000 {
            let next = next(format!("t-{no:06}"), Size::default(), &mut dice, &mut known);
            match (next.asked, next.verb) {
                (Asked::Submit(ask), Verb::Submit(submit)) => {
                    assert!(run_ms(&submit.name).is_some_and(|ms| ms >= 200));
                    assert_eq!(submit.cpu_milli as u64, ask.cpu_milli);
                    known.push_back(next.id);
                    submits += 1;
                }
                (Asked::Cancel, Verb::Cancel(_)) => cancels += 1,
                (Asked::SetPriority, Verb::SetPriority(_)) => priorities += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(
            submits > 500 && cancels > 100 && priorities > 50,
            "{submits} {cancels} {priorities}"
        );
    }
}
