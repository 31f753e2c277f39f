//! Asks at a fixed rate, on connections and in a thread of its own, as if it were elsewhere: what it does keeps no task
//! waiting in the driver.

use super::{
    QueriesError,
    fill::Known,
    question::{Mix, Question},
};
use crate::{kit::figures::round, throughput::load::Pace};
use chassis::{Stopwatch, stack::Stack};
use client::{Client, QueryError};
use futures::{StreamExt, stream::FuturesUnordered};
use hdrhistogram::Histogram;
use ledger::memory::Seeded;
use replay::{
    latency::{histogram, micros, quantile_ms},
    reach::{ReachError, connect, operator},
};
use std::{collections::BTreeMap, fmt, thread, time::Duration};
use tokio::sync::{mpsc, oneshot};
use vocab::Token;

pub struct Askers {
    orders: mpsc::UnboundedSender<Order>,
}

struct Order {
    pace: Pace,
    since: Stopwatch,
    seed: u64,
    done: oneshot::Sender<Asked>,
}

/// What came of one phase.
#[derive(Debug, Default)]
pub struct Asked {
    pub questions: BTreeMap<Question, Seen>,
}

/// From the moment that a question was due to its answer, or to when nobody waited for it any more.
#[derive(Debug)]
pub struct Seen {
    pub micros: Histogram<u64>,
    /// Refused, or not answered.
    pub errors: u64,
    /// The last one.
    pub trouble: Option<String>,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            micros: histogram(),
            errors: 0,
            trouble: None,
        }
    }
}

impl Seen {
    fn add(&mut self, took: Duration, answered: Result<(), QueryError>) {
        self.micros.saturating_record(micros(took));
        if let Err(error) = answered {
            self.errors += 1;
            self.trouble = Some(error.to_string());
        }
    }
}

impl Askers {
    /// One connection for each tenant, and the operator's. Every question has been answered once then.
    pub async fn start(stack: &Stack, known: Vec<Known>, mix: Mix) -> Result<Self, QueriesError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (orders, mut ordered) = mpsc::unbounded_channel::<Order>();
        let (ready, answered) = oneshot::channel();
        let stack = stack.clone();
        // It ends with the orders, when the last one has been answered.
        thread::Builder::new()
            .name("askers".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let parties = match Parties::connect(&stack, known, mix).await {
                        Ok(parties) => parties,
                        Err(error) => return drop(ready.send(Err(error.into()))),
                    };
                    // A closed channel: the measure has ended.
                    let _ = ready.send(parties.each_once().await);
                    while let Some(order) = ordered.recv().await {
                        let asked = parties.ask(order.pace, order.since, order.seed).await;
                        let _ = order.done.send(asked);
                    }
                });
            })?;
        answered.await.map_err(|_| QueriesError::AskersGone)??;
        Ok(Self { orders })
    }

    pub async fn ask(
        &self,
        pace: Pace,
        since: Stopwatch,
        seed: u64,
    ) -> Result<Asked, QueriesError> {
        let (done, asked) = oneshot::channel();
        let order = Order {
            pace,
            since,
            seed,
            done,
        };
        let gone = |_| QueriesError::AskersGone;
        self.orders
            .send(order)
            .map_err(|_| QueriesError::AskersGone)?;
        asked.await.map_err(gone)
    }
}

struct Parties {
    tenants: Vec<(Client, Known)>,
    operator: (Client, Known),
    mix: Mix,
}

impl Parties {
    async fn connect(stack: &Stack, known: Vec<Known>, mix: Mix) -> Result<Self, ReachError> {
        let mut tenants = Vec::with_capacity(known.len());
        for known in known {
            let tenant = Token::new(&known.tenant).map_err(|_| ReachError::NoTenant)?;
            let clients = connect(stack, &tenant, 1, None).await?;
            let client = clients.into_iter().next().ok_or(ReachError::NoTenant)?;
            tenants.push((client, known));
        }
        Ok(Self {
            tenants,
            operator: (operator(stack).await?, Known::default()),
            mix,
        })
    }

    async fn each_once(&self) -> Result<(), QueriesError> {
        for question in self.mix.all() {
            let (client, known) = self.party(question, 0);
            let answered = question.ask(client, known, 0).await;
            answered.map_err(|source| QueriesError::Unanswered {
                question: question.name(),
                source,
            })?;
        }
        Ok(())
    }

    async fn ask(&self, pace: Pace, since: Stopwatch, seed: u64) -> Asked {
        let (mut dice, mut asked) = (Seeded::new(seed), Asked::default());
        let mut under_way = FuturesUnordered::new();
        let mut sent = 0;
        loop {
            let due = Duration::from_secs_f64(f64::from(sent) / pace.per_s);
            if due >= pace.end() {
                break;
            }
            let pause = tokio::time::sleep(due.saturating_sub(since.elapsed()));
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    Some(answer) = under_way.next() => asked.add(answer),
                    () = &mut pause => break,
                }
            }
            let Some(question) = self.mix.draw(&mut dice) else {
                break;
            };
            let (who, draw) = (dice.draw(), dice.draw());
            let counted = due >= pace.warm_up;
            under_way.push(async move {
                let (client, known) = self.party(question, who);
                let answered = question.ask(client, known, draw).await;
                let took = since.elapsed().saturating_sub(due);
                counted.then_some((question, took, answered))
            });
            sent += 1;
        }
        while let Some(answer) = under_way.next().await {
            asked.add(answer);
        }
        drop(under_way);
        asked
    }

    fn party(&self, question: Question, who: u64) -> &(Client, Known) {
        // Below the number of tenants, so it fits.
        let who = (who % self.tenants.len().max(1) as u64) as usize;
        match self.tenants.get(who) {
            Some(tenant) if !question.of_operators() => tenant,
            _ => &self.operator,
        }
    }
}

impl Asked {
    fn add(&mut self, answer: Option<(Question, Duration, Result<(), QueryError>)>) {
        if let Some((question, took, answered)) = answer {
            let seen = self.questions.entry(question).or_default();
            seen.add(took, answered);
        }
    }

    /// Whatever was asked.
    pub fn micros(&self) -> Histogram<u64> {
        let mut all = histogram();
        for seen in self.questions.values() {
            // Of the same bounds.
            let _ = all.add(&seen.micros);
        }
        all
    }

    pub fn errors(&self) -> u64 {
        self.questions.values().map(|seen| seen.errors).sum()
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.micros();
        let ms = |quantile| round(quantile_ms(&micros, quantile), 1);
        let (asked, errors) = (micros.len(), self.errors());
        let (p50, p99, max) = (ms(0.5), ms(0.99), ms(1.0));
        write!(
            f,
            "{asked} asked, {errors} errors, p50 {p50} ms, p99 {p99} ms, max {max} ms"
        )
    }
}
