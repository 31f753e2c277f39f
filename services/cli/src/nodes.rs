//! The nodes, as operators may ask by the bus.

use crate::{
    Failure,
    context::Context,
    look::look_again,
    operate::taint_text,
    pages::pages,
    print::{
        Output, Page, Sheet, Tone, column, moment, moment_or_never, named, number, plain, quantity,
        wide,
    },
    refused_nodes,
    submit::{requirement, words},
};
use async_nats::jetstream;
use clap::{Args, ValueEnum};
use client::{
    Client, NodeAmounts, NodeConditionView, NodeQuery, NodeStanding, NodeView, NodesQuery,
    Requirement, Taint,
};
use prost::Message as _;
use schemas::v1::Heartbeat;
use std::collections::BTreeMap;
use tokio::task::JoinSet;
use vocab::{Millis, ResourceKind, Rule};

#[derive(Args)]
pub struct Nodes {
    /// Only those with a name that begins so.
    #[arg(long)]
    name_prefix: Option<String>,
    /// Only those with GPUs of this model.
    #[arg(long)]
    gpu_model: Option<String>,
    /// Only those in this state, of several in any of them; without, all that are registered.
    #[arg(long = "state", value_enum)]
    states: Vec<State>,
    /// Only those whose labels are like this: KEY=V1,V2 KEY!=V1,V2 KEY !KEY; may be repeated, and all must hold.
    #[arg(long = "node-label", value_name = "SELECTOR", value_parser = requirement)]
    selector: Vec<Requirement>,
    /// When each was last heard of, too; of each its last heartbeat is read.
    #[arg(long)]
    heartbeat: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    Ready,
    /// It was not heard for half a lease.
    Suspect,
    Lost,
    /// Not registered, but an operator has said something of it.
    Absent,
}

impl State {
    const REGISTERED: [Self; 3] = [Self::Ready, Self::Suspect, Self::Lost];

    fn standing(self) -> NodeStanding {
        match self {
            Self::Ready => NodeStanding::Ready,
            Self::Suspect => NodeStanding::Suspect,
            Self::Lost => NodeStanding::Lost,
            Self::Absent => NodeStanding::Absent,
        }
    }
}

/// Nodes of a page, at the most.
const PAGE_MAX: u32 = 1000;

/// Returns the registered nodes of the query, and the ledger position that they are of.
pub async fn registered(
    client: &Client,
    query: NodesQuery,
) -> Result<(Vec<NodeView>, u64), Failure> {
    let states = State::REGISTERED.map(|state| state.standing().into());
    all(
        client,
        NodesQuery {
            states: states.to_vec(),
            ..query
        },
    )
    .await
}

/// Returns a node and its ledger position; `None` if it is unknown.
pub async fn said_of(client: &Client, node: &str) -> Result<Option<(NodeView, u64)>, Failure> {
    let query = NodeQuery {
        node: node.to_owned(),
        limit: 1,
        at_lsn: 0,
    };
    match client.node(&query).await {
        Ok(reply) => Ok(reply.view.map(|view| (view, reply.lsn))),
        Err(error) if error.rule() == Some(Rule::NodeNotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a node that nothing is known of: most likely its name is misspelt.
pub async fn check_known(client: &Client, node: &str) -> Result<(), Failure> {
    let found = look_again::<_, Failure>(async || said_of(client, node).await).await?;
    let unknown = || {
        Failure::refused(format!(
            "{node}: the cell knows no such node (apportion nodes); --unknown sets it for a node that is to come"
        ))
    };
    found.map(drop).ok_or_else(unknown)
}

async fn all(client: &Client, query: NodesQuery) -> Result<(Vec<NodeView>, u64), Failure> {
    pages(async |after, at_lsn| {
        let query = NodesQuery {
            limit: PAGE_MAX,
            after,
            at_lsn,
            ..query.clone()
        };
        let page = client.nodes(&query).await?;
        Ok((page.nodes, page.next, page.lsn))
    })
    .await
}

/// Questions for a heartbeat that are under way at a time.
const ASKED_AT_ONCE: usize = 256;

/// The last heartbeat of each of these, and when it came. Those that said nothing lately are not among them.
pub async fn heard(
    context: &Context,
    nodes: &[String],
) -> Result<BTreeMap<String, (Millis, Heartbeat)>, Failure> {
    let bucket = context.subjects()?.heartbeat_bucket();
    let client = context.bus().await?;
    let bucket = jetstream::new(client).get_key_value(bucket).await?;
    let mut heard = BTreeMap::new();
    for nodes in nodes.chunks(ASKED_AT_ONCE) {
        let mut asked = JoinSet::new();
        for node in nodes.iter().cloned() {
            let bucket = bucket.clone();
            asked.spawn(async move { bucket.entry(&*node).await.map(|entry| (node, entry)) });
        }
        while let Some(answer) = asked.join_next().await {
            let (node, entry) = answer??;
            if let Some(entry) = entry
                && let Ok(heartbeat) = Heartbeat::decode(entry.value)
            {
                let at_ms = entry.created.unix_timestamp_nanos() / 1_000_000;
                let at = Millis(i64::try_from(at_ms).unwrap_or(0));
                heard.insert(node, (at, heartbeat));
            }
        }
    }
    Ok(heard)
}

impl Nodes {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.operator_until(None).await?;
        let states = self.states.iter().map(|state| state.standing().into());
        let query_prefix = self.name_prefix.clone().unwrap_or_default();
        let query = NodesQuery {
            name_prefix: self.name_prefix.unwrap_or_default(),
            gpu_model: self.gpu_model.unwrap_or_default(),
            states: states.collect(),
            selector: self.selector,
            ..NodesQuery::default()
        };
        let (nodes, lsn) = match query.states.is_empty() {
            true => registered(&client, query).await?,
            false => all(&client, query).await?,
        };
        let refused = refused_nodes::ask(&client, query_prefix).await?;
        let ready = nodes
            .iter()
            .filter(|node| node.state() == NodeStanding::Ready);
        let count = format!("{} nodes, {} ready", nodes.len(), ready.count());
        let heard = match self.heartbeat {
            true => {
                let names = nodes.iter().map(|node| node.node.clone());
                Some(heard(context, &names.collect::<Vec<_>>()).await?)
            }
            false => None,
        };
        let mut sheet = sheet(&nodes);
        if let Some(heard) = heard {
            sheet.columns.push(column("heartbeat_ms", "last heartbeat"));
            for (node, row) in nodes.iter().zip(&mut sheet.rows) {
                let at = heard.get(&node.node).map_or(0, |(at, _)| at.0);
                row.push(moment_or_never(at));
            }
        }
        let page = Page::of(sheet, lsn, "no nodes").text(count);
        let refused = refused.unwrap_or_default();
        let names: Vec<&str> = refused.iter().map(|one| one.node.as_str()).collect();
        page.lines(refused_nodes::count(&refused))
            .with("refused", names)
            .print(self.output)
    }
}

pub fn sheet(nodes: &[NodeView]) -> Sheet {
    let row = |node: &NodeView| {
        let has = node.capacity.clone().unwrap_or_default();
        let (used, free) = (amounts(&node.used), amounts(&node.free));
        let labels = has.labels.iter();
        let labels = labels.map(|label| format!("{}={}", label.name, label.value));
        vec![
            plain(&node.node),
            plain(words(node.state())).tone(match node.state() {
                NodeStanding::Ready => Tone::Good,
                NodeStanding::Suspect => Tone::Waits,
                _ => Tone::Bad,
            }),
            named(&standing(node)),
            named(&has.gpu_model),
            moment_or_never(node.since_ms),
            named(&labels.collect::<Vec<_>>().join(" ")),
            named(&taints(&node.taints)),
            quantity(ResourceKind::Cpu, has.cpu_milli),
            quantity(ResourceKind::Cpu, used[0]),
            quantity(ResourceKind::Cpu, free[0]),
            quantity(ResourceKind::Memory, has.memory_bytes),
            quantity(ResourceKind::Memory, used[1]),
            quantity(ResourceKind::Memory, free[1]),
            number(has.gpus),
            quantity(ResourceKind::Gpu, used[2]),
            quantity(ResourceKind::Gpu, free[2]),
            number(node.allocations),
        ]
    };
    let columns = vec![
        column("node", "node"),
        column("state", "state"),
        column("standing", "standing"),
        column("gpu_model", "gpu model").rank(5),
        wide("since_ms", "since"),
        wide("labels", "labels"),
        wide("taints", "taints"),
        column("cpu_milli", "cpu").rank(8),
        wide("used_cpu_milli", "used cpu"),
        column("free_cpu_milli", "free cpu"),
        column("memory_bytes", "memory").rank(9),
        wide("used_memory_bytes", "used memory"),
        column("free_memory_bytes", "free memory"),
        column("gpus", "gpus").rank(7),
        wide("used_gpu_milli", "used gpu"),
        column("free_gpu_milli", "free gpu"),
        column("allocations", "allocations").rank(6),
    ];
    Sheet::new(columns, 7, nodes.iter().map(row).collect())
}

/// By kind; what is not said is nothing.
pub fn amounts(of: &Option<NodeAmounts>) -> [u64; 3] {
    of.as_ref()
        .map_or([0; 3], |of| [of.cpu_milli, of.memory_bytes, of.gpu_milli])
}

/// As `taint` takes them. An effect that this version does not know is said by its number.
pub fn taints(taints: &[Taint]) -> String {
    let texts = taints
        .iter()
        .map(|it| taint_text(it).unwrap_or_else(|error| error));
    texts.collect::<Vec<_>>().join(" ")
}

/// Whether it takes anything new by the word of operators, in a word; empty: it does.
pub fn operators_word(node: &NodeView) -> &'static str {
    match (node.drain, node.cordoned) {
        (true, _) if node.allocations > 0 => "draining",
        (true, _) => "drained",
        (false, true) => "cordoned",
        (false, false) => "",
    }
}

/// What an operator says of it, and what holds of it, in a few words.
fn standing(node: &NodeView) -> String {
    let conditions = node.conditions.iter().map(|it| it.condition.as_str());
    let words = [operators_word(node)].into_iter().chain(conditions);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// `DiskPressure (full) since 2026-01-31T08:00:00Z`
pub fn condition(one: &NodeConditionView) -> String {
    let reason = match one.reason.as_str() {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    format!(
        "{}{reason} since {}",
        one.condition,
        moment(one.since_ms).text
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::NodeCapacity;

    fn node() -> NodeView {
        NodeView {
            node: "n1".to_owned(),
            state: NodeStanding::Ready.into(),
            capacity: Some(NodeCapacity {
                cpu_milli: 4000,
                memory_bytes: 8 << 30,
                ..NodeCapacity::default()
            }),
            used: Some(NodeAmounts {
                cpu_milli: 1500,
                ..NodeAmounts::default()
            }),
            free: Some(NodeAmounts {
                cpu_milli: 2500,
                memory_bytes: 8 << 30,
                gpu_milli: 0,
            }),
            ..NodeView::default()
        }
    }

    #[test]
    fn what_keeps_others_away_is_said_in_a_few_words() {
        let check = |change: fn(&mut NodeView), expected: &str| {
            let mut node = node();
            change(&mut node);
            assert_eq!(standing(&node), expected);
        };
        check(|_| {}, "");
        check(|node| node.cordoned = true, "cordoned");
        check(
            |node| {
                (node.cordoned, node.drain, node.allocations) = (true, true, 1);
                node.conditions = ["DiskPressure", "Odd"]
                    .map(|condition| NodeConditionView {
                        condition: condition.to_owned(),
                        ..NodeConditionView::default()
                    })
                    .into();
            },
            "draining DiskPressure Odd",
        );
        check(|node| node.drain = true, "drained");
    }

    #[test]
    fn each_node_has_a_row() {
        let mut absent = node();
        (absent.capacity, absent.used, absent.free) = (None, None, None);
        absent.state = NodeStanding::Absent.into();
        let sheet = sheet(&[node(), absent]);
        let texts = |at: usize| -> Vec<&str> {
            sheet.rows[at]
                .iter()
                .map(|cell| cell.text.as_str())
                .collect()
        };
        assert_eq!(texts(0).len(), sheet.columns.len());
        assert_eq!(texts(0)[..4], ["n1", "ready", "-", "-"]);
        assert_eq!(
            texts(0)[7..11],
            ["4.000 cores", "1.500 cores", "2.500 cores", "8.000 GiB"]
        );
        assert_eq!(texts(1)[..2], ["n1", "absent"]);
        assert_eq!(sheet.records()[0]["free_cpu_milli"], 2500);
    }
}
