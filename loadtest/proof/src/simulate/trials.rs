//! Trials: what would become of requests is asked of quota and the scheduler while they work. It changes nothing.

use ledger::memory::Seeded;
use ledger_nats::{Question, Questions};
use quota_rules::Quota;
use scheduler_rules::Scheduler;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::sync::mpsc;
use vocab::{AllocationSpec, GpuRequest, Token};

use super::world::token;

type Asked = Pin<Box<dyn Future<Output = ()>>>;

/// Of so many polls of a process one asks something, in thousandths.
const ASKS: u64 = 100;

/// The questions to one process, of which one is under way at a time.
pub struct Trials {
    random: Seeded,
    asks: Box<dyn FnMut(&mut Seeded) -> Asked>,
    under_way: Option<Asked>,
}

impl Trials {
    fn new(random: Seeded, asks: impl FnMut(&mut Seeded) -> Asked + 'static) -> Self {
        Self {
            random,
            asks: Box::new(asks),
            under_way: None,
        }
    }

    /// A trial enters the state and leaves it as it was.
    pub fn of_quota(random: Seeded) -> (Self, mpsc::Receiver<Question<Quota>>) {
        let (questions, hears) = Questions::new();
        let trials = Self::new(random, move |random| {
            let (questions, (tenant, spec)) = (questions.clone(), request(random));
            Box::pin(async move {
                let asked = questions.ask(move |state: &mut Quota, view| {
                    let before = state.clone();
                    let tried = state.try_request(&tenant, &spec, view.now);
                    assert!(tried.is_ok(), "a single request is judged");
                    assert!(*state == before, "a trial has changed quota's state");
                });
                // None: the process ends.
                asked.await.unwrap_or_default();
            })
        });
        (trials, hears)
    }

    pub fn of_scheduler(random: Seeded) -> (Self, mpsc::Receiver<Question<Scheduler>>) {
        let (questions, hears) = Questions::new();
        let trials = Self::new(random, move |random| {
            let (questions, (tenant, spec)) = (questions.clone(), request(random));
            Box::pin(async move {
                let asked = questions.ask(move |state: &mut Scheduler, view| {
                    // It is refused where nobody has entered the tenant's queue.
                    drop(state.try_request(&tenant, &spec, &[], view.now));
                });
                // None: the process ends.
                asked.await.unwrap_or_default();
            })
        });
        (trials, hears)
    }

    /// Asks now and then, and hears what was answered since.
    pub fn ask(&mut self, context: &mut Context<'_>) {
        if self.under_way.is_none() && self.random.chance(ASKS) {
            self.under_way = Some((self.asks)(&mut self.random));
        }
        if let Some(asked) = &mut self.under_way
            && let Poll::Ready(()) = asked.as_mut().poll(context)
        {
            self.under_way = None;
        }
    }
}

/// Whatever may be asked for, also by who is not known.
fn request(random: &mut Seeded) -> (Token, AllocationSpec) {
    let tenant = token(&format!("tenant-{}", random.below(3)));
    let gpu = random.chance(300).then(|| GpuRequest {
        count: 1 + random.below(2) as u16,
        milli: 1000,
        models: [vec![], vec![token("T4")], vec![token("T4"), token("none")]]
            [random.below(3) as usize]
            .clone(),
    });
    let extended = random.chance(200).then(|| (token("licence"), 1));
    let spec = AllocationSpec {
        gpu,
        extended: extended.into_iter().collect(),
        team: random.chance(300).then(|| token("team-x")),
        ..AllocationSpec::plain(token("tried"), random.below(9000), random.below(1 << 34))
    };
    (tenant, spec)
}
