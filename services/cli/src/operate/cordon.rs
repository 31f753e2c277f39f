//! Cordon and drain: nodes that take nothing new, and nodes that are cleared.

use super::{Expected, line};
use crate::{
    Failure, amount,
    context::Context,
    nodes,
    print::{Page, say},
    sending::Sending,
    submit::requirement,
};
use clap::Args;
use client::{Client, NodesQuery};
use schemas::v1;
use std::{collections::VecDeque, time::Duration};

/// Nodes by their names or by their labels, such as those of a cluster.
#[derive(Args)]
pub struct Chosen {
    /// The nodes' names.
    #[arg(required_unless_present = "selector")]
    nodes: Vec<String>,
    /// All nodes that are known now whose labels are like this: KEY=V1,V2 KEY!=V1,V2 KEY !KEY; may be repeated, and all must hold.
    #[arg(long = "node-label", value_name = "SELECTOR", value_parser = requirement, conflicts_with = "nodes")]
    selector: Vec<v1::Requirement>,
    /// Also a node that the cell does not know: it holds when it comes.
    #[arg(long, conflicts_with = "selector")]
    unknown: bool,
}

/// What runs on the nodes stays; nothing new comes.
#[derive(Args)]
pub struct Cordon {
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    expected: Expected,
}

/// New allocations come again, and nothing is told to go any more.
#[derive(Args)]
pub struct Uncordon {
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    expected: Expected,
}

/// Of one node, as a question.
#[derive(Args)]
pub struct OneNode {
    /// The node's name.
    node: String,
    #[command(flatten)]
    expected: Expected,
}

/// Nothing new comes to the nodes, and what runs there is told to stop, with the grace of its priority class, and placed elsewhere.
/// They stay cordoned until `uncordon`.
#[derive(Args)]
pub struct Drain {
    #[command(flatten)]
    chosen: Chosen,
    /// So many allocations of a node are on their way out at once, at the most; 0: all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    at_once: u32,
    /// So many nodes are drained at once, at the most; the next one has its turn when one is empty. Waits for all of them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_unavailable: Option<u32>,
    /// Wait until the nodes are empty, and say how many allocations are still there.
    #[arg(long)]
    watch: bool,
    /// Give up waiting after so long: 90s, 10m. What was begun goes on.
    #[arg(long, value_name = "TIME", value_parser = amount::duration_ms)]
    timeout: Option<i64>,
    #[command(flatten)]
    sending: Sending,
}

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// What was placed before the scheduler read of the drain may come a moment after it: a node is empty that was so often.
const EMPTY_LOOKS: u32 = 2;

impl Chosen {
    async fn names(self, client: &Client) -> Result<Vec<String>, Failure> {
        if self.unknown {
            return Ok(self.nodes);
        }
        if self.selector.is_empty() {
            for node in &self.nodes {
                nodes::check_known(client, node).await?;
            }
            return Ok(self.nodes);
        }
        let query = NodesQuery {
            selector: self.selector,
            ..NodesQuery::default()
        };
        let (found, _) = nodes::registered(client, query).await?;
        let names: Vec<_> = found.into_iter().map(|node| node.node).collect();
        match names.is_empty() {
            true => Err(Failure::refused("no node has such labels")),
            false => Ok(names),
        }
    }
}

impl OneNode {
    pub fn request(self, cordoned: bool) -> v1::SetCordon {
        v1::SetCordon {
            node: self.node,
            cordoned,
            expected_version: self.expected.expected_version,
            ..v1::SetCordon::default()
        }
    }
}

impl Cordon {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        set_all("cordon", true, self.chosen, self.expected, context).await
    }
}

impl Uncordon {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        set_all("uncordon", false, self.chosen, self.expected, context).await
    }
}

async fn set_all(
    verb: &str,
    cordoned: bool,
    chosen: Chosen,
    expected: Expected,
    context: &Context,
) -> Result<(), Failure> {
    let sending = &expected.sending;
    let operator = sending.operator(context).await?;
    let nodes = chosen.names(&operator).await?;
    if nodes.len() > 1 && expected.expected_version.is_some() {
        return Err(Failure::usage("a version is expected of one node"));
    }
    each_its_own(&nodes, sending)?;
    let mut all = Vec::new();
    let mut failed = None;
    for node in nodes {
        let change = v1::SetCordon {
            node,
            cordoned,
            expected_version: expected.expected_version,
            ..v1::SetCordon::default()
        };
        match set(verb, change, sending, &operator).await {
            Ok(done) => all.push(done),
            Err(failure) => {
                failed = Some(behind(!all.is_empty(), failure));
                break;
            }
        }
    }
    if !all.is_empty() {
        let lines = all.iter().map(|(title, version)| line(title, *version));
        let lines: Vec<_> = lines.collect();
        let sheet = super::set(all);
        let page = Page::list(sheet.records(), operator.decided_lsn())
            .lines(lines)
            .rows(sheet);
        page.print(expected.output)?;
    }
    failed.map_or(Ok(()), Err)
}

fn behind(acted: bool, failure: Failure) -> Failure {
    match acted {
        true => failure.afterwards(),
        false => failure,
    }
}

/// One operation is of one node.
fn each_its_own(nodes: &[String], sending: &Sending) -> Result<(), Failure> {
    match nodes.len() > 1 && sending.is_repeated() {
        true => Err(Failure::usage("an operation id is of one node")),
        false => Ok(()),
    }
}

async fn set(
    verb: &str,
    change: v1::SetCordon,
    sending: &Sending,
    operator: &Client,
) -> Result<(String, u64), Failure> {
    let title = format!("{verb} {}", change.node);
    let applied = operator.set_cordon(change, sending.id()).await?;
    Ok((title, applied.version))
}

/// A node that is being cleared.
struct Draining {
    node: String,
    version: u64,
    /// What was last said of it.
    said: Option<(u64, u64)>,
    empty_looks: u32,
}

impl Drain {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let mut acted = false;
        let done = self.all(context, &mut acted).await;
        done.map_err(|failure| behind(acted, failure))
    }

    /// `acted`: a node is drained by now.
    async fn all(self, context: &Context, acted: &mut bool) -> Result<(), Failure> {
        let give_up = self
            .timeout
            .map(|ms| context.clock().now_ms().saturating_add(ms));
        let waits = self.watch || self.max_unavailable.is_some();
        let most = self
            .max_unavailable
            .map_or(usize::MAX, |most| most as usize);
        let operator = self.sending.operator(context).await?;
        let nodes = self.chosen.names(&operator).await?;
        each_its_own(&nodes, &self.sending)?;
        let mut next: VecDeque<_> = nodes.into();
        let mut draining: Vec<Draining> = Vec::new();
        loop {
            while draining.len() < most
                && let Some(node) = next.pop_front()
            {
                let change = v1::SetCordon {
                    node: node.clone(),
                    cordoned: true,
                    drain: true,
                    at_once: self.at_once,
                    expected_version: None,
                };
                let (title, version) = set("drain", change, &self.sending, &operator).await?;
                say!("{}", line(&title, version));
                *acted = true;
                draining.push(Draining {
                    node,
                    version,
                    said: None,
                    empty_looks: 0,
                });
            }
            if !waits {
                return Ok(());
            }
            let mut left = Vec::new();
            for mut it in draining {
                if !it.is_empty(&operator).await? {
                    left.push(it);
                }
            }
            draining = left;
            if draining.is_empty() && next.is_empty() {
                return Ok(());
            }
            if give_up.is_some_and(|moment| context.clock().now_ms() >= moment) {
                let left: Vec<_> = draining.into_iter().map(|it| it.node).chain(next).collect();
                return Err(format!("not empty in time: {}", left.join(", ")).into());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Draining {
    async fn is_empty(&mut self, operator: &Client) -> Result<bool, Failure> {
        let Some((found, _)) = nodes::said_of(operator, &self.node).await? else {
            return Ok(false);
        };
        if found.cordon_version < self.version {
            return Ok(false);
        }
        let there = (found.allocations, found.stopping);
        if there.0 > 0 {
            self.empty_looks = 0;
            if self.said != Some(there) {
                say!("{}: {} there, {} stopping", self.node, there.0, there.1);
                self.said = Some(there);
            }
            return Ok(false);
        }
        self.empty_looks += 1;
        let empty = self.empty_looks >= EMPTY_LOOKS;
        if empty {
            say!("{}: empty", self.node);
        }
        Ok(empty)
    }
}
