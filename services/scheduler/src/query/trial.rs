//! Where a request would be placed, or why it would wait.

use super::nodes::amounts;
use chassis::query::{Asked, Trouble, Verb, ask_state, tried};
use ledger_nats::Questions;
use scheduler_rules::{Scheduler, Standing, Trial, WouldBe};
use schemas::v1::{
    self, NodesKeptOff, PlaceTrial, PlaceTrialNever, PlaceTrialPlaced, PlaceTrialWaiting,
    TryPlaceQuery, TryPlaceReply, place_trial::Decided,
};
use vocab::{AllocationSpec, Lsn, Refusal, Rule, Token, WaitingReason};

/// The verb `try_place`.
pub struct TrialQueries {
    pub questions: Questions<Scheduler>,
}

impl Verb for TrialQueries {
    const NAME: &'static str = "try_place";
    type Query = TryPlaceQuery;
    type Reply = TryPlaceReply;

    fn position(query: &TryPlaceQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<TryPlaceQuery>) -> Result<TryPlaceReply, Trouble> {
        let (tenant, spec) = tried(&asked, asked.query.spec.as_ref())?;
        let except = except(&asked.query.except_models)?;
        let at_lsn = Lsn(asked.query.at_lsn);
        let (trial, lsn) = ask_state(&self.questions, at_lsn, move |state, view| {
            state.try_request(&tenant, &spec, &except, view.now)
        })
        .await?;
        Ok(TryPlaceReply {
            trial: Some(view(trial.map_err(Trouble::Refused)?)),
            refusal: None,
            lsn: lsn.0,
        })
    }
}

/// In the order in which grants have them.
fn except(models: &[String]) -> Result<Vec<Token>, Trouble> {
    let (field, most) = ("except_models", AllocationSpec::GPU_MODELS_MAX);
    if models.len() > most {
        let (limit, actual) = (most as u64, models.len() as u64);
        let refusal = Refusal::over(Rule::TooManyElements, field, limit, actual);
        return Err(Trouble::Refused(refusal));
    }
    let names = models.iter().map(|model| Token::new(model));
    let names: Result<Vec<_>, _> = names.collect();
    let mut names = names.map_err(|_| Trouble::refused(Rule::NameInvalid, field))?;
    names.sort_unstable();
    Ok(names)
}

fn view(trial: Trial) -> PlaceTrial {
    let decided = match trial.decided {
        WouldBe::Placed { node, .. } => Decided::Placed(PlaceTrialPlaced {
            node: node.into(),
            members: 0,
        }),
        WouldBe::GangPlaced { members } => Decided::Placed(PlaceTrialPlaced {
            node: String::new(),
            members,
        }),
        WouldBe::Waiting {
            standing,
            room,
            ahead,
            in_queue,
            may_preempt,
        } => Decided::Waiting(PlaceTrialWaiting {
            reason: reason(standing.reason),
            kept_off: kept_off(&standing),
            shortfall: standing.shortfall.map(amounts),
            ahead: ahead as u64,
            in_queue: in_queue as u64,
            may_preempt,
            room: room.unwrap_or(0),
        }),
        WouldBe::Never(standing) => Decided::Never(PlaceTrialNever {
            reason: reason(standing.reason),
            kept_off: kept_off(&standing),
        }),
    };
    PlaceTrial {
        decided: Some(decided),
        awaits_others: trial.awaits_others,
        queue: trial.queue.into(),
    }
}

/// The contract's numbers are the vocabulary's.
fn reason(reason: WaitingReason) -> i32 {
    let known = v1::WaitingReason::try_from(reason as i32);
    known.unwrap_or_default().into()
}

fn kept_off(standing: &Standing) -> Vec<NodesKeptOff> {
    let counts = standing.counts.iter().map(|(filter, nodes)| NodesKeptOff {
        reason: filter.name().to_owned(),
        nodes: *nodes,
    });
    counts.collect()
}
