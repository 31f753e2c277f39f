//! What would be different: a change is tried on a clone of the cell's state, and nothing is written anywhere.

mod flags;
mod fold;
mod json;
mod text;

use crate::{Failure, operate, submit};
use chassis::stack::Stack;
use clap::{Args, Subcommand};
use flags::Flags;
use fold::{Folded, OPERATOR};
use ledger::jetstream::JetStreamBus;
use scheduler::domain::what_if::{self, Change};
use schemas::{subjects::Subjects, v1::request::Verb};
use vocab::{CellNo, Lsn, Token};

#[derive(Args)]
pub struct WhatIf {
    /// As of this position of the ledger, and not as of now.
    #[arg(long, global = true, value_name = "LSN")]
    at: Option<u64>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    asked: Asked,
}

#[derive(Subcommand)]
enum Asked {
    /// Set a queue, with the flags of `queue-set`: what is not given goes back to its default.
    #[command(alias = "queue")]
    QueueSet(Flags<operate::QueueSet>),
    /// Set a priority class, with the flags of `priority-class`.
    PriorityClass(Flags<operate::PriorityClass>),
    /// Set the policy, with the flags of `policy`: what is not given goes back to its default.
    Policy(Flags<operate::Policy>),
    /// Keep new allocations off a node.
    Cordon(Flags<operate::Cordon>),
    /// Let new allocations on a node again.
    Uncordon(Flags<operate::Uncordon>),
    /// Keep nodes for one queue in an interval, with the flags of `reserve`.
    Reserve(Flags<operate::Reserve>),
    /// Take a reservation back.
    Unreserve(Flags<operate::Unreserve>),
    /// Ask for more, with the flags of `submit`; quota is taken as granted.
    Submit(Box<Submit>),
    /// Have more nodes, ready and empty.
    AddNodes(AddNodes),
    /// Lose nodes, with what runs on them.
    RemoveNode(RemoveNode),
}

#[derive(Args)]
struct Submit {
    #[command(flatten)]
    request: Flags<submit::Submit>,
    /// Ask for this many of the same, as for all members of a gang.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,
}

#[derive(Args)]
struct AddNodes {
    #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,
    /// The node whose capacity, labels and taints they have.
    #[arg(long, value_name = "NODE")]
    like: String,
}

#[derive(Args)]
struct RemoveNode {
    #[arg(required = true)]
    nodes: Vec<String>,
}

impl WhatIf {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let login = stack.user("operator")?;
        let client = async_nats::ConnectOptions::with_user_and_password(
            login.user.clone(),
            login.password.clone(),
        )
        .connect(&stack.nats.url)
        .await?;
        let bus = JetStreamBus::open(client, Subjects::new(&stack.cell.name)).await?;
        let cell = CellNo(stack.cell.number);
        let folded = fold::fold(&bus, cell, self.at.map(Lsn)).await?;
        let changes = self.asked.changes(&folded)?;
        let found = what_if::run(folded.state(), folded.now, &changes)?;
        if self.json {
            println!("{:#}", json::differences(&found, cell, &folded));
        } else {
            for line in text::lines(&found, cell, folded.through(), folded.now) {
                println!("{line}");
            }
        }
        Ok(())
    }
}

impl Asked {
    fn changes(self, folded: &Folded) -> Result<Vec<Change>, Failure> {
        let operator = |verb| folded.decided(OPERATOR, verb, 1);
        match self {
            Self::QueueSet(flags) => operator(Verb::SetQueue(flags.request()?)),
            Self::PriorityClass(flags) => operator(Verb::SetPriorityClass(flags.request()?)),
            Self::Policy(flags) => operator(Verb::SetScheduling(flags.request()?)),
            Self::Cordon(flags) => operator(Verb::SetCordon(flags.request()?)),
            Self::Uncordon(flags) => operator(Verb::SetCordon(flags.request()?)),
            Self::Reserve(flags) => operator(Verb::SetReservation(flags.request()?)),
            Self::Unreserve(flags) => operator(Verb::SetReservation(flags.request()?)),
            Self::Submit(submit) => {
                let verb = Verb::Submit(submit.request.request()?);
                folded.decided(&submit.request.tenant()?, verb, submit.count)
            }
            Self::AddNodes(add) => add.changes(folded),
            Self::RemoveNode(remove) => {
                let lost = |name: &String| Ok(Change::RemoveNode(Token::new(name)?));
                remove.nodes.iter().map(lost).collect()
            }
        }
    }
}

impl AddNodes {
    fn changes(&self, folded: &Folded) -> Result<Vec<Change>, Failure> {
        let state = folded.state();
        let like = Token::new(&self.like)?;
        let capacity = what_if::capacity(state, &like)
            .ok_or_else(|| what_if::WhatIfError::NoSuchNode(like))?;
        let taken: std::collections::BTreeSet<_> =
            state.nodes().iter().map(|node| node.name.as_str()).collect();
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
