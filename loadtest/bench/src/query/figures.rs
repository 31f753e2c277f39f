//! The figures of all rounds, and what they should be.

use super::{Parameters, Phase, askers::Asked, question::Question};
use crate::{
    kit::{
        aims::{Aim, Figure, judged},
        figures::round,
        usage::Used,
    },
    throughput::counts::Counts,
};
use hdrhistogram::Histogram;
use replay::{
    command::Size,
    latency::{histogram, quantile_ms},
};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

const AIM_P99_MS: f64 = 50.0;
const AIM_P99_RATIO: f64 = 1.1;

/// Of the tasks of one phase.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Decisions {
    sent: u64,
    /// With an outcome, per second from the phase's beginning to its last outcome.
    answered_per_s: f64,
    answered: u64,
    waiting: u64,
    refused: u64,
    lost: u64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Decisions {
    /// So many since the load began.
    pub fn counted(counts: &Counts) -> Self {
        Self {
            sent: counts.sent.get(),
            answered: counts.answered.get(),
            waiting: counts.waiting.get(),
            refused: counts.refused.get(),
            lost: counts.lost.get(),
            ..Self::default()
        }
    }

    /// What has come since then.
    pub fn since(&self, counts: &Counts, micros: &Histogram<u64>, took: Duration) -> Self {
        let now = Self::counted(counts);
        let answered = now.answered - self.answered;
        let ms = |quantile| round(quantile_ms(micros, quantile), 1);
        Self {
            sent: now.sent - self.sent,
            answered_per_s: round(answered as f64 / took.as_secs_f64(), 1),
            answered,
            waiting: now.waiting - self.waiting,
            refused: now.refused - self.refused,
            lost: now.lost - self.lost,
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            max_ms: ms(1.0),
        }
    }
}

impl fmt::Display for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sent, {}/s, {} refused, {} lost, p50 {} ms, p99 {} ms, max {} ms",
            self.sent,
            self.answered_per_s,
            self.refused,
            self.lost,
            self.p50_ms,
            self.p99_ms,
            self.max_ms
        )
    }
}

/// Of all rounds, by phase.
#[derive(Default)]
pub struct Sums {
    decided: BTreeMap<Phase, Vec<Decisions>>,
    asked: BTreeMap<Phase, Vec<Asked>>,
    cores: BTreeMap<Phase, BTreeMap<String, Vec<f64>>>,
}

impl Sums {
    pub fn decided(&mut self, phase: Phase, decided: Decisions) {
        self.decided.entry(phase).or_default().push(decided);
    }

    pub fn asked(&mut self, phase: Phase, asked: Asked) {
        self.asked.entry(phase).or_default().push(asked);
    }

    pub fn used(&mut self, phase: Phase, used: &Used) {
        let cores = self.cores.entry(phase).or_default();
        for (name, cpu_s) in &used.cpu_s {
            let cores = cores.entry(name.clone()).or_default();
            cores.push(cpu_s / used.wall_s);
        }
    }

    fn decided_in(&self, phase: Phase) -> &[Decisions] {
        self.decided.get(&phase).map_or(&[], Vec::as_slice)
    }

    fn asked_in(&self, phase: Phase) -> &[Asked] {
        self.asked.get(&phase).map_or(&[], Vec::as_slice)
    }
}

/// One question beside tasks, unless it says otherwise.
#[derive(Debug, Serialize)]
struct Answers {
    question: Question,
    by_operator: bool,
    asked: u64,
    errors: u64,
    /// The last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    p50_ms: f64,
    /// By round.
    p99_ms: Figure,
    /// Of all rounds together.
    p99_of_all_ms: f64,
    max_ms: f64,
    p50_without_tasks_ms: f64,
    p99_without_tasks_ms: f64,
}

impl Answers {
    fn of(question: Question, sums: &Sums, size: Size) -> Self {
        let (with, alone) = (
            sums.asked_in(Phase::TasksAndQueries),
            sums.asked_in(Phase::Queries),
        );
        let seen = || with.iter().filter_map(|one| one.questions.get(&question));
        let all = together(with, question);
        let quiet = together(alone, question);
        let ms = |micros: &Histogram<u64>, quantile| round(quantile_ms(micros, quantile), 1);
        let p99s = seen().map(|seen| quantile_ms(&seen.micros, 0.99));
        Self {
            question,
            by_operator: question.of_operators(),
            asked: all.len(),
            errors: seen().map(|seen| seen.errors).sum(),
            error: seen().filter_map(|seen| seen.trouble.clone()).next_back(),
            p50_ms: ms(&all, 0.5),
            p99_ms: Figure::new("p99", "ms", p99s)
                .aims(Aim::AtMost(AIM_P99_MS))
                .judged(size),
            p99_of_all_ms: ms(&all, 0.99),
            max_ms: ms(&all, 1.0),
            p50_without_tasks_ms: ms(&quiet, 0.5),
            p99_without_tasks_ms: ms(&quiet, 0.99),
        }
    }
}

fn together(rounds: &[Asked], question: Question) -> Histogram<u64> {
    let mut all = histogram();
    let seen = rounds.iter().filter_map(|one| one.questions.get(&question));
    for seen in seen {
        // Of the same bounds.
        let _ = all.add(&seen.micros);
    }
    all
}

#[derive(Serialize)]
pub struct Figures {
    #[serde(flatten)]
    parameters: Parameters,
    figures: Vec<Figure>,
    questions: Vec<Answers>,
    /// By phase and round.
    decisions: BTreeMap<Phase, Vec<Decisions>>,
    /// Of a core, by phase and process.
    cpu_cores: BTreeMap<Phase, BTreeMap<String, Figure>>,
}

impl Figures {
    pub fn of(parameters: Parameters, sums: &Sums, size: Size) -> Self {
        let alone = sums.decided_in(Phase::Tasks);
        let beside = sums.decided_in(Phase::TasksAndQueries);
        let p99s = |of: &[Decisions]| -> Vec<f64> { of.iter().map(|one| one.p99_ms).collect() };
        let per_s = alone.iter().chain(beside).map(|one| one.answered_per_s);
        let ratios = alone.iter().zip(beside).map(|(a, b)| b.p99_ms / a.p99_ms);
        let asked = sums.asked_in(Phase::TasksAndQueries);
        let p99_asked = asked.iter().map(|one| quantile_ms(&one.micros(), 0.99));
        let p99_quiet = sums.asked_in(Phase::Queries).iter();
        let p99_quiet = p99_quiet.map(|one| quantile_ms(&one.micros(), 0.99));
        let errors = asked.iter().map(|one| one.errors() as f64);
        let figures = vec![
            Figure::new("p99 of all queries beside tasks", "ms", p99_asked)
                .aims(Aim::AtMost(AIM_P99_MS)),
            Figure::new("p99 of all queries without tasks", "ms", p99_quiet),
            Figure::new("queries without an answer", "", errors).aims(Aim::AtMost(0.0)),
            Figure::new("tasks decided", "/s", per_s),
            Figure::new("p99 of decisions, tasks alone", "ms", p99s(alone)),
            Figure::new("p99 of decisions beside queries", "ms", p99s(beside)),
            Figure::new("the second over the first", "times", ratios)
                .aims(Aim::AtMost(AIM_P99_RATIO)),
        ];
        let questions = asked
            .iter()
            .flat_map(|one| one.questions.keys().copied())
            .collect::<BTreeSet<_>>();
        let cores = |(phase, cores): (&Phase, &BTreeMap<String, Vec<f64>>)| {
            let figure = |(name, cores): (&String, &Vec<f64>)| {
                let cores = Figure::new("CPU", "cores", cores.iter().copied());
                (name.clone(), cores)
            };
            (*phase, cores.iter().map(figure).collect())
        };
        Self {
            parameters,
            figures: judged(figures, size),
            questions: questions
                .into_iter()
                .map(|question| Answers::of(question, sums, size))
                .collect(),
            decisions: sums.decided.clone(),
            cpu_cores: sums.cores.iter().map(cores).collect(),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for of in &self.questions {
            let by = if of.by_operator { " (operator)" } else { "" };
            writeln!(
                f,
                "{}{by}: {} asked, {} errors, p50 {} ms, {}, max {} ms; without tasks p50 {} ms, p99 {} ms",
                of.question.name(),
                of.asked,
                of.errors,
                of.p50_ms,
                of.p99_ms,
                of.max_ms,
                of.p50_without_tasks_ms,
                of.p99_without_tasks_ms
            )?;
            if let Some(error) = &of.error {
                writeln!(f, "  {error}")?;
            }
        }
        self.figures.iter().try_for_each(|one| writeln!(f, "{one}"))
    }
}
