//! What would be different: a change is tried on a clone of the cell's state, and nothing is written anywhere.

mod fold;
mod json;
mod text;

use crate::{
    Failure,
    context::{Context, Whose},
    manifest::Standing,
    operate::{self, Flags},
    print::{Output, Page},
    submit,
};
use clap::{Args, Subcommand};
use fold::Folded;
use ledger::Bus;
use scheduler_rules::{
    Scheduler,
    what_if::{self, Change},
};
use schemas::v1::{request::Verb, setting_view};
use std::collections::BTreeSet;
use vocab::{CellNo, Lsn, Token};

/// Who sends operators' requests.
const OPERATOR: &str = "_operator";

#[derive(Args)]
pub struct WhatIf {
    /// As of this position of the ledger, and not as of now.
    #[arg(long, global = true, value_name = "LSN")]
    at: Option<u64>,
    #[command(flatten)]
    output: Output,
    #[command(subcommand)]
    asked: Asked,
}

#[derive(Subcommand)]
enum Asked {
    /// Set a queue, with the flags of `queue-set`.
    #[command(alias = "queue")]
    QueueSet(operate::QueueSet),
    /// Set a priority class, with the flags of `priority-class`.
    PriorityClass(operate::PriorityClass),
    /// Set the policy, with the flags of `policy`.
    Policy(operate::Policy),
    /// Keep new allocations off a node.
    Cordon(operate::OneNode),
    /// Let new allocations on a node again.
    Uncordon(operate::OneNode),
    /// Keep nodes for one queue in an interval, with the flags of `reserve`.
    Reserve(operate::Reserve),
    /// Take a reservation back.
    Unreserve(operate::Unreserve),
    /// Ask for more, with the flags of `submit`; quota is taken as granted.
    Submit(Box<Submits>),
    /// Have more nodes, ready and empty.
    AddNodes(AddNodes),
    /// Lose nodes, with what runs on them.
    RemoveNode(RemoveNode),
}

#[derive(Args)]
struct Submits {
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    task: submit::Task,
    /// Ask for this many of the same, as for all members of a gang.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,
}

#[derive(Args)]
struct AddNodes {
    /// How many.
    #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,
    /// The node whose capacity, labels and taints they have.
    #[arg(long, value_name = "NODE")]
    like: String,
}

#[derive(Args)]
struct RemoveNode {
    /// The nodes' names.
    #[arg(required = true)]
    nodes: Vec<String>,
}

impl WhatIf {
    pub async fn run(mut self, context: &Context) -> Result<(), Failure> {
        if let Asked::Submit(submit) = &mut self.asked {
            let whose = &mut submit.whose;
            let tenant = context.tenant_name(whose.tenant.as_deref())?;
            whose.tenant = Some(tenant.to_string());
            let account = &mut submit.task.what.account;
            *account = submit::own_account(account, tenant.as_str())?;
        }
        let bus = context.ledger().await?;
        let (output, cell) = (self.output, context.cell_no()?);
        self.tried(&bus, cell).await?.print(output)
    }

    /// What there is to print.
    async fn tried<B: Bus>(self, bus: &B, cell: CellNo) -> Result<Page, Failure> {
        let folded = fold::fold(bus, cell, self.at.map(Lsn)).await?;
        let changes = self.asked.changes(&folded)?;
        let found = what_if::run(folded.state(), folded.now, &changes)?;
        Ok(Page::new(json::differences(&found, cell, &folded))
            .lines(text::lines(&found, cell, folded.through(), folded.now))
            .rows(text::sheet(&found, cell)))
    }
}

/// A request as it would come in by the inbox.
#[derive(Debug)]
struct Request {
    sender: String,
    verb: Verb,
    /// How often it is sent.
    count: u16,
}

impl Asked {
    fn changes(self, folded: &Folded) -> Result<Vec<Change>, Failure> {
        match self {
            Self::AddNodes(add) => add.changes(folded.state()),
            Self::RemoveNode(remove) => {
                let lost = |name: &String| Ok(Change::RemoveNode(Token::new(name)?));
                remove.nodes.iter().map(lost).collect()
            }
            asked => match asked.request(&folded.standing()?, folded.now.0)? {
                Some(request) => folded.decided(&request),
                None => Ok(Vec::new()),
            },
        }
    }

    /// None for what nobody asks for: nodes come and go by themselves.
    fn request(self, standing: &Standing, now_ms: i64) -> Result<Option<Request>, Failure> {
        let verb = match self {
            Self::QueueSet(flags) => set(&flags.over(standing, now_ms)?.0),
            Self::PriorityClass(flags) => set(&flags.over(standing, now_ms)?.0),
            Self::Policy(flags) => set(&flags.over(standing, now_ms)?.0),
            Self::Cordon(flags) => Some(Verb::SetCordon(flags.request(true))),
            Self::Uncordon(flags) => Some(Verb::SetCordon(flags.request(false))),
            Self::Reserve(flags) => Some(Verb::SetReservation(flags.request())),
            Self::Unreserve(flags) => Some(Verb::SetReservation(flags.request())),
            Self::Submit(submit) => {
                return Ok(Some(Request {
                    sender: submit.whose.tenant.clone().unwrap_or_default(),
                    count: submit.count,
                    verb: Verb::Submit(
                        (submit.task.request())
                            .map_err(|wrong| Failure::usage(wrong.to_string()))?,
                    ),
                }));
            }
            Self::AddNodes(_) | Self::RemoveNode(_) => None,
        };
        Ok(verb.map(|verb| Request {
            sender: OPERATOR.to_owned(),
            verb,
            count: 1,
        }))
    }
}

/// None for settings that no allocation waits for.
fn set(change: &setting_view::Change) -> Option<Verb> {
    match change {
        setting_view::Change::Queue(set) => Some(Verb::SetQueue(set.clone())),
        setting_view::Change::PriorityClass(set) => Some(Verb::SetPriorityClass(set.clone())),
        setting_view::Change::Scheduling(set) => Some(Verb::SetScheduling(*set)),
        _ => None,
    }
}

impl AddNodes {
    fn changes(&self, state: &Scheduler) -> Result<Vec<Change>, Failure> {
        let like = Token::new(&self.like)?;
        let capacity =
            what_if::capacity(state, &like).ok_or(what_if::WhatIfError::NoSuchNode(like))?;
        let taken = state.nodes().iter().map(|node| node.name.as_str());
        let taken: BTreeSet<_> = taken.collect();
        let free = (1u32..).map(|number| format!("new-{number}"));
        let free = free.filter(|name| !taken.contains(name.as_str()));
        let names = free.take(self.count.into()).map(|name| Token::new(&name));
        Ok(vec![Change::AddNodes {
            like: Box::new(capacity.clone()),
            names: names.collect::<Result<_, _>>()?,
        }])
    }
}

#[cfg(test)]
mod tests;
