//! Nodes: which may join, and which are kept free of anything new or for one queue.

use super::{Expected, fields, line, told};
use crate::{
    Failure, amount,
    context::Context,
    look::look_again,
    nodes::said_of,
    pages::pages,
    print::{
        Cell, Output, Page, Sheet, Tone, absent, column, moment, named, number, plain, quantity,
        wide,
    },
    refused_nodes,
    sending::Sending,
    submit::{label, requirement},
};
use clap::{Args, Subcommand};
use client::{ApprovalView, ApprovalsQuery, Client, NodeCapacity, QueryError, RefusedNode};
use schemas::v1;
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fs, path::PathBuf};
use uuid::Uuid;
use vocab::ResourceKind;

/// Who may be a node of the cell.
#[derive(Subcommand)]
pub enum NodeCommand {
    /// Let a node join; prints the token by which it does, once.
    Approve(Box<Approve>),
    /// Forget a node: it is lost if it is there, and may not come back.
    Forget(Forget),
    /// List the nodes that may join, have joined, or are refused.
    List(List),
    /// Show a node: what it has, what is said of it, and what is on it.
    Describe(super::DescribeNode),
}

/// What is not given the node may not have.
#[derive(Args)]
pub struct Approve {
    /// The node's name.
    node: String,
    /// The most cores (64, or 1500m) that it may register.
    #[arg(long, value_parser = amount::cpu_milli)]
    cpu: i64,
    /// The most memory (256GiB).
    #[arg(long, value_parser = amount::bytes)]
    memory: i64,
    /// The most devices.
    #[arg(long, default_value_t = 0)]
    gpus: u32,
    /// Their model.
    #[arg(long, default_value = "", requires = "gpus")]
    gpu_model: String,
    /// A label that it may have, NAME=VALUE; may be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<v1::Label>,
    /// Anything else that it may have, and the most of it, NAME=AMOUNT; may be repeated.
    #[arg(long = "extended", value_name = "NAME=AMOUNT", value_parser = extended)]
    extended: Vec<v1::ExtendedAmount>,
    /// File with the node's present token. It stays valid, and a joined node stays joined; without it, a new token is printed.
    #[arg(long, value_name = "FILE")]
    keep_token: Option<PathBuf>,
    /// How long the token lasts before its first use: 1h, 7d.
    #[arg(long, default_value = "1h", value_parser = amount::duration_ms)]
    token_ttl: i64,
    #[command(flatten)]
    expected: Expected,
}

#[derive(Args)]
pub struct Forget {
    /// The node's name.
    node: String,
    #[command(flatten)]
    expected: Expected,
}

fn extended(text: &str) -> Result<v1::ExtendedAmount, String> {
    let (name, amount) = text.split_once('=').ok_or("write NAME=AMOUNT")?;
    Ok(v1::ExtendedAmount {
        name: name.to_owned(),
        amount: amount.parse().map_err(|_| "write a whole number")?,
    })
}

impl NodeCommand {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Approve(approve) => approve.run(context).await,
            Self::Forget(forget) => {
                let title = format!("forget {}", forget.node);
                let client = forget.expected.sending.operator(context).await?;
                check_known(&client, &forget.node).await?;
                let change = v1::SetNode {
                    node: forget.node,
                    approved: None,
                    expected_version: forget.expected.expected_version,
                };
                let applied = set_node(change, &forget.expected.sending, context).await?;
                told(&title, &applied, forget.expected.output)
            }
            Self::List(list) => list.run(context).await,
            Self::Describe(describe) => describe.run(context).await,
        }
    }
}

impl Approve {
    async fn run(mut self, context: &Context) -> Result<(), Failure> {
        let token = self.token()?;
        self.labels.sort_by(|a, b| a.name.cmp(&b.name));
        self.extended.sort_by(|a, b| a.name.cmp(&b.name));
        let unsigned = |amount: i64| u64::try_from(amount).map_err(|_| "an amount is below zero");
        let title = format!("approve {}", self.node);
        let change = v1::SetNode {
            approved: Some(v1::NodeApprovalRequest {
                capacity: Some(v1::NodeCapacity {
                    cpu_milli: unsigned(self.cpu)?,
                    memory_bytes: unsigned(self.memory)?,
                    gpus: self.gpus,
                    gpu_model: self.gpu_model,
                    labels: self.labels,
                    extended: self.extended,
                    ..v1::NodeCapacity::default()
                }),
                token_digest: Sha256::digest(&token).to_vec(),
                token_until_ms: context.clock().now_ms().saturating_add(self.token_ttl),
            }),
            node: self.node,
            expected_version: self.expected.expected_version,
        };
        let applied = set_node(change, &self.expected.sending, context).await?;
        let fields = fields(&title, &applied).add("token", "token", plain(&token));
        let page = Page::said(line(&title, applied.version), fields);
        let page = match self.keep_token {
            Some(_) => page,
            None => page.text(format!("token: {token}")),
        };
        page.print(self.expected.output)
    }

    /// Returns the token to keep, or a new one.
    fn token(&self) -> Result<String, Failure> {
        let Some(file) = &self.keep_token else {
            // Two of them are 244 random bits.
            let [first, second] = [(); 2].map(|()| Uuid::new_v4());
            return Ok(format!("{}{}", first.simple(), second.simple()));
        };
        let name = file.display();
        let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
        match text.trim() {
            "" => Err(format!("{name} holds no token").into()),
            token => Ok(token.to_owned()),
        }
    }
}

async fn set_node(
    change: v1::SetNode,
    sending: &Sending,
    context: &Context,
) -> Result<v1::Applied, Failure> {
    let operator = sending.operator(context).await?;
    let id = sending.id();
    Ok(operator.set_node(change, id).await?)
}

#[derive(Args)]
pub struct List {
    /// Only those with a name that begins so.
    #[arg(long)]
    name_prefix: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Approvals of a page, at the most.
const PAGE_MAX: u32 = 1000;

impl List {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.operator_until(None).await?;
        let name_prefix = self.name_prefix.unwrap_or_default();
        let refused = refused_nodes::ask(&client, name_prefix.clone()).await?;
        let refused = refused.unwrap_or_default();
        let ask = async |after, at_lsn| {
            let query = ApprovalsQuery {
                after,
                limit: PAGE_MAX,
                at_lsn,
                name_prefix: name_prefix.clone(),
            };
            let page = client.approvals(&query).await?;
            Ok::<_, QueryError>((page.approvals, page.next, page.lsn))
        };
        let (approvals, lsn) = pages(ask).await?;
        Page::of(sheet(&approvals, &refused), lsn, "no node may join")
            .lines(refused.iter().flat_map(refused_nodes::lines))
            .print(self.output)
    }
}

/// A row for each approved and each refused node, by name.
fn sheet(approvals: &[ApprovalView], refused: &[RefusedNode]) -> Sheet {
    let mut all: BTreeMap<&str, (Option<&ApprovalView>, Option<&RefusedNode>)> = BTreeMap::new();
    for one in approvals {
        all.entry(&one.node).or_default().0 = Some(one);
    }
    for one in refused {
        all.entry(&one.node).or_default().1 = Some(one);
    }
    let row =
        |(node, (approval, refused)): (&str, (Option<&ApprovalView>, Option<&RefusedNode>))| {
            let (state, at_ms) = match (refused, approval) {
                (Some(refused), _) => ("refused", refused.at_ms),
                (None, Some(one)) if one.key.is_empty() => ("may join until", one.token_until_ms),
                (None, one) => ("joined", one.map_or(0, |one| one.joined_ms)),
            };
            let approved = approval.map(|one| one.capacity.clone().unwrap_or_default());
            let reported = refused.and_then(|it| it.reported.clone());
            let [cpu, memory, gpus] = amounts(approved.as_ref());
            let [reported_cpu, reported_memory, reported_gpus] = amounts(reported.as_ref());
            let model = |of: Option<&NodeCapacity>| named(of.map_or("", |of| &of.gpu_model));
            let text = |of: fn(&RefusedNode) -> &str| named(refused.map_or("", of));
            vec![
                plain(node),
                model(approved.as_ref()),
                match refused {
                    Some(_) => plain(state).tone(Tone::Bad),
                    None => plain(state),
                },
                moment(at_ms),
                named(approval.map_or("", |one| &one.key)),
                cpu,
                memory,
                gpus,
                approval.map_or_else(|| absent("-"), |one| number(one.version)),
                approval.map_or_else(|| absent("-"), |one| moment(one.approved_ms)),
                reported_cpu,
                reported_memory,
                reported_gpus,
                model(reported.as_ref()),
                text(|it| &it.explanation),
                text(|it| &it.remedy),
            ]
        };
    let columns = vec![
        column("node", "node"),
        column("gpu_model", "gpu model"),
        column("state", "state"),
        column("at_ms", "at"),
        column("key", "key"),
        column("cpu_milli", "cpu"),
        column("memory_bytes", "memory"),
        column("gpus", "gpus"),
        wide("version", "version"),
        wide("approved_ms", "approved"),
        wide("reported_cpu_milli", "reported cpu"),
        wide("reported_memory_bytes", "reported memory"),
        wide("reported_gpus", "reported gpus"),
        wide("reported_gpu_model", "reported gpu model"),
        wide("refused", "refused"),
        wide("remedy", "remedy"),
    ];
    Sheet::new(columns, 5, all.into_iter().map(row).collect())
}

/// Cores, memory and GPUs of a capacity that may be unknown.
fn amounts(of: Option<&NodeCapacity>) -> [Cell; 3] {
    let Some(of) = of else {
        return [(); 3].map(|()| absent("-"));
    };
    [
        quantity(ResourceKind::Cpu, of.cpu_milli),
        quantity(ResourceKind::Memory, of.memory_bytes),
        number(of.gpus),
    ]
}

/// Refuses to forget a node that has no approval and is not in the cell: most likely its name is misspelt.
async fn check_known(client: &Client, node: &str) -> Result<(), Failure> {
    let query = ApprovalsQuery {
        name_prefix: node.to_owned(),
        // The name itself comes before those that begin with it.
        limit: 1,
        ..ApprovalsQuery::default()
    };
    let known = look_again::<_, Failure>(async || {
        let approvals = client.approvals(&query).await?.approvals;
        match approvals.iter().any(|one| one.node == node) {
            true => Ok(Some(())),
            false => Ok(said_of(client, node).await?.map(drop)),
        }
    });
    let unknown = || {
        Failure::refused(format!(
            "{node}: the cell knows no such node; `apportion nodes` and `apportion node list` show all"
        ))
    };
    known.await?.ok_or_else(unknown)
}

#[derive(Args)]
pub struct Reserve {
    /// The reservation's name.
    #[arg(value_name = "NAME")]
    reservation: String,
    /// Whose the nodes are meanwhile.
    #[arg(long)]
    queue: String,
    /// From this moment, as 2026-01-31T08:00:00Z; without it at once.
    #[arg(long, value_parser = amount::moment_ms)]
    from: Option<i64>,
    /// Up to this moment.
    #[arg(long, value_parser = amount::moment_ms)]
    until: i64,
    /// How many whole nodes.
    #[arg(long)]
    nodes: i64,
    /// What the nodes' labels must be like: KEY=V1,V2 KEY!=V1,V2 KEY !KEY; may be repeated, and all must hold.
    #[arg(long = "node-label", value_name = "SELECTOR", value_parser = requirement)]
    selector: Vec<v1::Requirement>,
    #[command(flatten)]
    expected: Expected,
}

#[derive(Args)]
pub struct Unreserve {
    /// The reservation's name.
    reservation: String,
    #[command(flatten)]
    expected: Expected,
}

impl Reserve {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let (sending, output) = (self.expected.sending.clone(), self.expected.output);
        reserve(self.request(), &sending, output, context).await
    }

    pub fn request(self) -> v1::SetReservation {
        v1::SetReservation {
            reservation: self.reservation,
            wanted: Some(v1::ReservationRequest {
                queue: self.queue,
                from_ms: self.from.unwrap_or(0),
                until_ms: self.until,
                nodes: self.nodes,
                selector: self.selector,
            }),
            expected_version: self.expected.expected_version,
        }
    }
}

impl Unreserve {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let (sending, output) = (self.expected.sending.clone(), self.expected.output);
        reserve(self.request(), &sending, output, context).await
    }

    pub fn request(self) -> v1::SetReservation {
        v1::SetReservation {
            reservation: self.reservation,
            wanted: None,
            expected_version: self.expected.expected_version,
        }
    }
}

async fn reserve(
    change: v1::SetReservation,
    sending: &Sending,
    output: Output,
    context: &Context,
) -> Result<(), Failure> {
    let name = change.reservation.clone();
    let is_asked = change.wanted.is_some();
    let operator = sending.operator(context).await?;
    let id = sending.id();
    let applied = operator.set_reservation(change, id).await?;
    if is_asked {
        check_granted(&operator, &name, applied.version).await?;
    }
    told(&format!("reservation {name}"), &applied, output)
}

/// Fails if the scheduler refuses this version of the reservation. Its decision comes a moment after the setting.
async fn check_granted(client: &Client, name: &str, version: u64) -> Result<(), Failure> {
    let decided = look_again::<_, Failure>(async || {
        let all = client.reservations(0).await?.reservations;
        let mut of_version = all.into_iter().filter(|one| one.version >= version);
        Ok(of_version.find(|one| one.reservation == name && one.state != "asked"))
    });
    match decided.await? {
        Some(one) if one.state == "refused" && one.version == version => {
            Err(Failure::refused(format!(
                "reservation {name}: refused: too few nodes match it and have no other reservation in its time; ask for fewer \
                 nodes, other labels or another time"
            )))
        }
        _ => Ok(()),
    }
}
