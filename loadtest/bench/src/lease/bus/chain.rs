//! What each client does: acquire, confirm, release, one after the other.

use super::{Load, Phase, tally::Tally};
use chassis::Stopwatch;
use client::{Client, Operation};
use futures::future::join_all;
use proof::history::{Answer, wire};
use schemas::v1::{self, outcome::Result as Reply, request::Verb};
use std::{
    cell::{Cell, RefCell},
    time::Duration,
};
use vocab::CellNo;

/// Resources that all clients want.
const HOT: u64 = 16;
/// Slots to confirm in; nobody needs them.
const TTL_SLOTS: u64 = 600;
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// Each client asks again as soon as it is answered.
    AsFastAsItGoes,
    /// Of all clients together, each chain at a moment that was fixed before.
    ChainsPerSecond(f64),
}

/// The clients, and what each operation was answered.
pub struct Clients {
    connections: Vec<Client>,
    cell: CellNo,
    count: usize,
    contended_one_in: u64,
    run: String,
    /// By the number in the operation's id.
    answers: RefCell<Vec<Option<Answer>>>,
    chains: Cell<u64>,
}

/// One run of a pace.
struct Now {
    since: Stopwatch,
    window: Duration,
    tally: RefCell<Tally>,
}

impl Clients {
    pub const OPS_PER_CHAIN: f64 = 3.0;

    pub fn new(connections: Vec<Client>, cell: CellNo, load: &Load) -> Self {
        let fresh = Operation::fresh_id();
        Self {
            connections,
            cell,
            count: load.clients,
            contended_one_in: load.contended_one_in.max(1),
            run: format!("r{}", &fresh[..8]),
            answers: RefCell::default(),
            chains: Cell::new(0),
        }
    }

    /// What the ids of its operations begin with.
    pub fn run_id(&self) -> &str {
        &self.run
    }

    pub fn into_answers(self) -> Vec<Option<Answer>> {
        self.answers.into_inner()
    }

    /// One resource for each client, and the ones that all want.
    pub async fn create(&self) {
        let tally = RefCell::default();
        let own = (0..self.count).map(|client| self.own(client));
        let hot = (0..HOT).map(|no| self.hot(no));
        let creates = own.chain(hot).enumerate().map(|(at, resource)| {
            let create = v1::CreateResource {
                resource,
                slot: None,
            };
            self.ask(at, Verb::CreateResource(create), &tally)
        });
        join_all(creates).await;
    }

    /// All clients for as long as the window is; what is under way then comes to its end.
    pub async fn run(&self, pace: Pace, window: Duration) -> Phase {
        let now = Now {
            since: Stopwatch::start(),
            window,
            tally: RefCell::default(),
        };
        join_all((0..self.count).map(|client| self.client(client, pace, &now))).await;
        Phase {
            tally: now.tally.into_inner(),
            took: window,
        }
    }

    async fn client(&self, client: usize, pace: Pace, now: &Now) {
        let per_chain = match pace {
            Pace::AsFastAsItGoes => Duration::ZERO,
            Pace::ChainsPerSecond(rate) => Duration::from_secs_f64(self.count as f64 / rate),
        };
        // Spread over one period, so that they do not come all at once.
        let mut due = per_chain.mul_f64(client as f64 / self.count as f64);
        while due < now.window && now.since.elapsed() < now.window {
            match pace {
                Pace::AsFastAsItGoes => due = now.since.elapsed(),
                Pace::ChainsPerSecond(_) => {
                    tokio::time::sleep(due.saturating_sub(now.since.elapsed())).await;
                }
            }
            self.chain(client, due, now).await;
            due += per_chain;
        }
    }

    /// Its first operation counts from `due`; the others from when they could be asked at all.
    async fn chain(&self, client: usize, due: Duration, now: &Now) {
        let chain = self.chains.replace(self.chains.get() + 1);
        let contended = chain.is_multiple_of(self.contended_one_in);
        let holder = format!("h{client}");
        let acquire = v1::Acquire {
            resource: if contended {
                self.hot(chain / self.contended_one_in % HOT)
            } else {
                self.own(client)
            },
            holder: holder.clone(),
            ttl_slots: TTL_SLOTS,
            slot: None,
        };
        let granted = self.timed(client, Verb::Acquire(acquire), due, now).await;
        let Some(Reply::LeaseGranted(v1::LeaseGranted {
            lease_id,
            fencing_token,
            ..
        })) = granted
        else {
            return;
        };
        let confirm = v1::Confirm {
            lease_id: lease_id.clone(),
            holder: holder.clone(),
            fencing_token,
            slot: None,
        };
        let from = now.since.elapsed();
        self.timed(client, Verb::Confirm(confirm), from, now).await;
        let release = v1::Release {
            lease_id,
            holder,
            fencing_token,
            slot: None,
        };
        let from = now.since.elapsed();
        self.timed(client, Verb::Release(release), from, now).await;
        now.tally.borrow_mut().chain(now.since.elapsed() - due);
    }

    async fn timed(&self, client: usize, verb: Verb, from: Duration, now: &Now) -> Option<Reply> {
        let reply = self.ask(client, verb, &now.tally).await;
        let at = now.since.elapsed();
        now.tally.borrow_mut().operation(at - from, at < now.window);
        reply
    }

    /// Until the outcome is definite.
    async fn ask(&self, client: usize, verb: Verb, tally: &RefCell<Tally>) -> Option<Reply> {
        let number = self.answers.borrow().len();
        self.answers.borrow_mut().push(None);
        let operation = Operation::new(format!("{}-{number}", self.run), verb);
        let connection = &self.connections[client % self.connections.len()];
        loop {
            match connection.call(&operation).await {
                Ok(outcome) => {
                    let answer = wire::answer(&outcome, self.cell);
                    // Refused without a position: nothing stands on the ledger.
                    let recorded = answer.filter(|_| outcome.lsn > 0);
                    self.answers.borrow_mut()[number] = recorded;
                    tally.borrow_mut().outcome(answer, outcome.lsn);
                    return outcome.result;
                }
                Err(error) if error.retryable() => tally.borrow_mut().again(),
                Err(_) => {
                    tally.borrow_mut().lost();
                    return None;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn own(&self, client: usize) -> String {
        format!("{}-own-{client}", self.run)
    }

    fn hot(&self, no: u64) -> String {
        format!("{}-hot-{no}", self.run)
    }
}
