//! One node: what it has, what is said of it, and what is on it.

use super::taint::written;
use crate::{
    Failure, amount,
    context::Context,
    explain::object,
    print::{
        Fields, Output, Page, Sheet, column, moment, named, note, number, plain, quantity, valued,
    },
};
use async_nats::jetstream;
use clap::Args;
use node_heartbeat::project::{ConditionRow, NodeRow};
use prost::Message;
use scheduler::store::{NodeUse, OnNode};
use schemas::v1::{Heartbeat, NodeSample};
use serde_json::Value;
use sqlx::PgPool;
use std::{collections::BTreeMap, time::Duration};
use vocab::{Millis, ResourceKind, Taint, Token};

/// What is on the bus is shown if it is there, and not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Args)]
pub struct DescribeNode {
    /// The node's name.
    node: String,
    #[command(flatten)]
    output: Output,
}

impl DescribeNode {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let pool = context.warm_state("node_heartbeat").await?;
        let nodes = node_heartbeat::store::nodes(&pool).await?;
        let node = nodes.into_iter().find(|row| row.node.as_str() == self.node);
        let node = node.ok_or_else(|| Failure::refused(format!("no node {}", self.node)))?;
        let conditions = conditions(&pool).await?.remove(&node.node);
        let pool = context.warm_state("scheduler").await?;
        let used = scheduler::store::nodes(&pool).await?.remove(&self.node);
        let on_node = scheduler::store::on_node(&pool, &self.node).await?;
        let used = used.unwrap_or_default();
        let measured = tokio::time::timeout(PATIENCE, Measured::last(context, &self.node)).await;
        let measured = measured.unwrap_or_else(|_| Err("no answer in time".into()));
        let measured = measured.unwrap_or_else(|error| {
            note!("how busy it is is not known: {error}");
            None
        });
        let described = Described {
            node,
            used,
            conditions: conditions.unwrap_or_default(),
            measured,
            on_node,
        };
        described.page().print(self.output)
    }
}

/// All that is known of a node.
struct Described {
    node: NodeRow,
    used: NodeUse,
    conditions: Vec<ConditionRow>,
    measured: Option<Measured>,
    on_node: Vec<OnNode>,
}

/// What the node's agent said last.
struct Measured {
    at: Millis,
    sample: NodeSample,
}

impl Measured {
    /// None: nothing was said lately, or nothing is measured.
    async fn last(context: &Context, node: &str) -> Result<Option<Self>, Failure> {
        let bucket = context.subjects()?.heartbeat_bucket();
        let client = context.bus().await?;
        let bucket = jetstream::new(client).get_key_value(bucket).await?;
        let Some(entry) = bucket.entry(node).await? else {
            return Ok(None);
        };
        let at_ms = entry.created.unix_timestamp_nanos() / 1_000_000;
        let at = Millis(i64::try_from(at_ms).unwrap_or(0));
        let sample = Heartbeat::decode(entry.value).ok().and_then(|it| it.sample);
        Ok(sample.map(|sample| Self { at, sample }))
    }

    /// In the order of the kinds of resources.
    fn in_use(&self) -> [u64; 3] {
        let gpus = self.sample.gpus.iter().map(|gpu| u64::from(gpu.busy_milli));
        [self.sample.cpu_milli, self.sample.memory_bytes, gpus.sum()]
    }

    fn fields(&self) -> Fields {
        let sample = &self.sample;
        let bytes = |bytes| amount::human(ResourceKind::Memory, bytes);
        let load = format!(
            "{}.{:03}",
            sample.load_milli / 1000,
            sample.load_milli % 1000
        );
        let disk = format!(
            "{} used, {} free",
            bytes(sample.disk_used_bytes),
            bytes(sample.disk_free_bytes)
        );
        let network = format!(
            "{} received, {} sent since it was started",
            bytes(sample.network_received_bytes),
            bytes(sample.network_sent_bytes)
        );
        let killed = format!(
            "{} for want of memory since it was started",
            sample.oom_kills
        );
        Fields::default()
            .add("measured_ms", "measured", moment(self.at.0))
            .add("load_milli", "load", valued(load, sample.load_milli))
            .add("disk", "disk", plain(disk))
            .add("network", "network", plain(network))
            .add("oom_kills", "killed", valued(killed, sample.oom_kills))
            .add("runs", "runs", number(sample.runs))
    }

    fn as_json(&self) -> Value {
        let sample = &self.sample;
        let gpu = |gpu: &schemas::v1::GpuSample| {
            object([
                ("device", gpu.device.into()),
                ("busy_milli", gpu.busy_milli.into()),
                ("memory_bytes", gpu.memory_bytes.into()),
            ])
        };
        object([
            ("at_ms", self.at.0.into()),
            ("cpu_milli", sample.cpu_milli.into()),
            ("memory_bytes", sample.memory_bytes.into()),
            ("gpus", sample.gpus.iter().map(gpu).collect()),
            ("disk_used_bytes", sample.disk_used_bytes.into()),
            ("disk_free_bytes", sample.disk_free_bytes.into()),
            (
                "network_received_bytes",
                sample.network_received_bytes.into(),
            ),
            ("network_sent_bytes", sample.network_sent_bytes.into()),
            ("load_milli", sample.load_milli.into()),
            ("oom_kills", sample.oom_kills.into()),
            ("runs", sample.runs.into()),
        ])
    }
}

/// Whether it takes anything new, and what holds of it, in a few words.
pub fn standing(used: &NodeUse, conditions: &[ConditionRow]) -> String {
    let operator = match (used.drained, used.cordoned) {
        (true, _) if used.allocations > 0 => "draining",
        (true, _) => "drained",
        (false, true) => "cordoned",
        (false, false) => "",
    };
    let conditions = conditions.iter().map(|row| row.condition.as_str());
    let words = [operator].into_iter().chain(conditions);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// What holds of the nodes, by node.
pub async fn conditions(pool: &PgPool) -> Result<BTreeMap<Token, Vec<ConditionRow>>, Failure> {
    let mut by_node: BTreeMap<Token, Vec<ConditionRow>> = BTreeMap::new();
    for row in node_heartbeat::store::conditions(pool).await? {
        by_node.entry(row.node.clone()).or_default().push(row);
    }
    Ok(by_node)
}

fn amounts(node: &NodeRow, used: &NodeUse) -> [(ResourceKind, u64, u64); 3] {
    let has = &node.capacity;
    let used = [used.cpu_milli, used.memory_bytes, used.gpu_milli];
    let kinds = ResourceKind::ALL.into_iter().zip(used);
    let mut rows = kinds.map(|(kind, used)| (kind, has.amount(kind), used));
    std::array::from_fn(|_| rows.next().expect("there are three kinds"))
}

impl Described {
    fn page(&self) -> Page {
        let page = Page::new(self.as_json())
            .fields(self.fields())
            .sheet(self.resources());
        let page = match &self.measured {
            Some(measured) => page.fields(measured.fields()),
            None => page,
        };
        page.sheet(self.allocations())
    }

    fn fields(&self) -> Fields {
        let Self {
            node,
            used,
            conditions,
            ..
        } = self;
        let has = &node.capacity;
        let joined = |texts: Vec<String>| named(&texts.join(" "));
        let state = [node.state.name(), &standing(used, &[])].join(" ");
        let labels = has.labels.iter();
        let labels = labels.map(|(name, value)| format!("{name}={value}"));
        let conditions = conditions.iter().map(|row| {
            let reason = row.reason.as_ref().map(|reason| format!(" ({reason})"));
            let since = amount::moment(row.since);
            format!(
                "{}{} since {since}",
                row.condition,
                reason.unwrap_or_default()
            )
        });
        let most = match has.max_runs {
            0 => "no bound".to_owned(),
            most => format!("at most {most}"),
        };
        let allocations = format!("{} ({most}), {} stopping", used.allocations, used.stopping);
        Fields::default()
            .add("node", "node", plain(&node.node))
            .add("state", "state", plain(state.trim_end()))
            .add("since_ms", "since", moment(node.since.0))
            .add("registered_ms", "registered", moment(node.registered_at.0))
            .add(
                "gpu_model",
                "gpu model",
                named(has.gpu_model.as_ref().map_or("", Token::as_str)),
            )
            .add("labels", "labels", joined(labels.collect()))
            .add(
                "own_taints",
                "own taints",
                joined(has.taints.iter().map(written).collect()),
            )
            .add(
                "taints",
                "taints",
                joined(used.taints.iter().map(written).collect()),
            )
            .add("conditions", "conditions", joined(conditions.collect()))
            .add(
                "allocations",
                "allocations",
                valued(allocations, used.allocations),
            )
    }

    fn resources(&self) -> Sheet {
        let in_use = self.measured.as_ref().map(Measured::in_use);
        let of_kinds = amounts(&self.node, &self.used).into_iter().enumerate();
        let of_kinds = of_kinds.map(|(place, (kind, has, used))| {
            let human = |amount| quantity(kind, amount);
            vec![
                plain(kind.name()),
                human(has),
                human(used),
                human(has.saturating_sub(used)),
                in_use.map_or_else(|| named(""), |amounts| human(amounts[place])),
            ]
        });
        let extended = self.node.capacity.extended.iter().map(|(name, amount)| {
            let has = valued(amount.to_string(), *amount);
            vec![plain(name), has, named(""), named(""), named("")]
        });
        let columns = vec![
            column("resource", "resource"),
            column("has", "has"),
            column("requested", "requested"),
            column("free", "free"),
            column("in_use", "in use"),
        ];
        Sheet::new(columns, 1, of_kinds.chain(extended).collect())
    }

    fn allocations(&self) -> Sheet {
        let row = |one: &OnNode| {
            vec![
                plain(one.id),
                plain(&one.tenant),
                plain(&one.job_set),
                plain(&one.state),
                number(one.priority),
                quantity(ResourceKind::Cpu, one.cpu_milli),
                quantity(ResourceKind::Memory, one.memory_bytes),
                quantity(ResourceKind::Gpu, one.gpu_milli),
                moment(one.placed.0),
            ]
        };
        let columns = vec![
            column("allocation_id", "allocation"),
            column("tenant", "tenant"),
            column("job_set", "job set"),
            column("state", "state"),
            column("priority", "priority"),
            column("cpu_milli", "cpu"),
            column("memory_bytes", "memory"),
            column("gpu_milli", "gpu"),
            column("placed_ms", "placed"),
        ];
        Sheet::new(columns, 4, self.on_node.iter().map(row).collect())
    }

    fn as_json(&self) -> Value {
        let Self {
            node,
            used,
            conditions,
            measured,
            on_node,
        } = self;
        let has = &node.capacity;
        let taints = |taints: &[Taint]| -> Value { taints.iter().map(written).collect() };
        let labels = has.labels.iter();
        let labels = labels.map(|(name, value)| (name.to_string(), value.as_str().into()));
        let labels: serde_json::Map<String, Value> = labels.collect();
        let extended = has.extended.iter();
        let extended = extended.map(|(name, amount)| (name.to_string(), (*amount).into()));
        let extended: serde_json::Map<String, Value> = extended.collect();
        let of_capacity = amounts(node, used).map(|(kind, has, used)| {
            let amounts = object([("has", has.into()), ("requested", used.into())]);
            (kind.name().to_owned(), amounts)
        });
        let resources: serde_json::Map<String, Value> = of_capacity.into_iter().collect();
        let allocations: Value = on_node
            .iter()
            .map(|one| {
                object([
                    ("allocation_id", one.id.to_string().into()),
                    ("tenant", one.tenant.clone().into()),
                    ("job_set", one.job_set.clone().into()),
                    ("state", one.state.clone().into()),
                    ("priority", one.priority.into()),
                    ("cpu_milli", one.cpu_milli.into()),
                    ("memory_bytes", one.memory_bytes.into()),
                    ("gpu_milli", one.gpu_milli.into()),
                    ("placed_ms", one.placed.0.into()),
                ])
            })
            .collect();
        let conditions: Value = conditions
            .iter()
            .map(|row| {
                object([
                    ("condition", row.condition.as_str().into()),
                    ("reason", row.reason.as_ref().map(Token::as_str).into()),
                    ("since_ms", row.since.0.into()),
                ])
            })
            .collect();
        object([
            ("node", node.node.as_str().into()),
            ("state", node.state.name().into()),
            ("since_ms", node.since.0.into()),
            ("registered_ms", node.registered_at.0.into()),
            ("cordoned", used.cordoned.into()),
            ("drained", used.drained.into()),
            ("at_once", used.at_once.into()),
            (
                "gpu_model",
                has.gpu_model.as_ref().map(|model| model.as_str()).into(),
            ),
            ("max_runs", has.max_runs.into()),
            ("labels", labels.into()),
            ("own_taints", taints(&has.taints)),
            ("taints", taints(&used.taints)),
            ("conditions", conditions),
            ("resources", resources.into()),
            ("extended", extended.into()),
            ("stopping", used.stopping.into()),
            ("sample", measured.as_ref().map(Measured::as_json).into()),
            ("allocations", allocations),
        ])
    }
}
