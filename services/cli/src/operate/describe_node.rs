//! One node: what it has, what is said of it, and what is on it.

use crate::{
    Failure, amount,
    context::Context,
    explain::object,
    nodes::{self, amounts, condition, operators_word, taints},
    print::{
        Fields, Output, Page, Sheet, column, moment, moment_or_never, named, note, number, plain,
        quantity, valued, wide,
    },
    submit::words,
};
use clap::Args;
use client::{NodeCapacity, NodeChangeView, NodeQuery, NodeRunView, NodeView, Taint};
use schemas::v1::NodeSample;
use serde_json::Value;
use std::time::Duration;
use vocab::{Millis, ResourceKind};

/// Allocations that are shown, at the most.
const RUNS_MAX: u32 = 1000;
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
        let client = context.operator_until(None).await?;
        let query = NodeQuery {
            node: self.node.clone(),
            limit: RUNS_MAX,
            at_lsn: 0,
        };
        let reply = client.node(&query).await?;
        let measured = tokio::time::timeout(PATIENCE, Measured::last(context, &self.node)).await;
        let measured = measured.unwrap_or_else(|_| Err("no answer in time".into()));
        let measured = measured.unwrap_or_else(|error| {
            note!("how busy it is is not known: {error}");
            None
        });
        let described = Described {
            node: reply.view.unwrap_or_default(),
            measured,
            runs: reply.runs,
            history: reply.history,
        };
        described.page().print(self.output)
    }
}

/// All that is known of a node.
struct Described {
    node: NodeView,
    measured: Option<Measured>,
    runs: Vec<NodeRunView>,
    history: Vec<NodeChangeView>,
}

/// What the node's agent said last.
struct Measured {
    at: Millis,
    sample: NodeSample,
}

impl Measured {
    /// None: nothing was said lately, or nothing is measured.
    async fn last(context: &Context, node: &str) -> Result<Option<Self>, Failure> {
        let heard = nodes::heard(context, &[node.to_owned()]).await?;
        let Some((at, heartbeat)) = heard.into_values().next() else {
            return Ok(None);
        };
        Ok(heartbeat.sample.map(|sample| Self { at, sample }))
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

impl Described {
    fn page(&self) -> Page {
        let page = Page::new(self.as_json())
            .fields(self.fields())
            .sheet(self.resources());
        let page = match &self.measured {
            Some(measured) => page.fields(measured.fields()),
            None => page,
        };
        page.sheet(self.allocations()).sheet(self.changes())
    }

    fn capacity(&self) -> NodeCapacity {
        self.node.capacity.clone().unwrap_or_default()
    }

    fn fields(&self) -> Fields {
        let node = &self.node;
        let has = self.capacity();
        let joined = |texts: Vec<String>| named(&texts.join(" "));
        let state = format!("{} {}", words(node.state()), operators_word(node));
        let labels = has.labels.iter();
        let labels = labels.map(|label| format!("{}={}", label.name, label.value));
        let conditions = node.conditions.iter().map(condition);
        let most = match has.max_runs {
            0 => "no bound".to_owned(),
            most => format!("at most {most}"),
        };
        let allocations = format!("{} ({most}), {} stopping", node.allocations, node.stopping);
        Fields::default()
            .add("node", "node", plain(&node.node))
            .add("state", "state", plain(state.trim_end()))
            .add("since_ms", "since", moment_or_never(node.since_ms))
            .add(
                "registered_ms",
                "registered",
                moment_or_never(node.registered_ms),
            )
            .add("gpu_model", "gpu model", named(&has.gpu_model))
            .add("labels", "labels", joined(labels.collect()))
            .add("own_taints", "own taints", named(&taints(&has.taints)))
            .add("taints", "taints", named(&taints(&node.taints)))
            .add("conditions", "conditions", joined(conditions.collect()))
            .add(
                "allocations",
                "allocations",
                valued(allocations, node.allocations),
            )
    }

    fn resources(&self) -> Sheet {
        let in_use = self.measured.as_ref().map(Measured::in_use);
        let has = self.capacity();
        let (used, free) = (amounts(&self.node.used), amounts(&self.node.free));
        let all = [has.cpu_milli, has.memory_bytes, u64::from(has.gpus) * 1000];
        let of_kinds = ResourceKind::ALL.into_iter().enumerate();
        let of_kinds = of_kinds.map(|(at, kind)| {
            let human = |amount| quantity(kind, amount);
            vec![
                plain(kind.name()),
                human(all[at]),
                human(used[at]),
                human(free[at]),
                in_use.map_or_else(|| named(""), |amounts| human(amounts[at])),
            ]
        });
        let extended = has.extended.iter().map(|it| {
            let has = valued(it.amount.to_string(), it.amount);
            vec![plain(&it.name), has, named(""), named(""), named("")]
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
        let row = |one: &NodeRunView| {
            vec![
                plain(&one.allocation_id),
                plain(&one.tenant),
                plain(&one.job_set),
                plain(words(one.state())),
                named(&devices(one)),
                number(one.priority),
                quantity(ResourceKind::Cpu, one.cpu_milli),
                quantity(ResourceKind::Memory, one.memory_bytes),
                quantity(ResourceKind::Gpu, gpu_milli(one)),
                moment(one.placed_ms),
                moment_or_never(one.started_ms),
            ]
        };
        let columns = vec![
            column("allocation_id", "allocation"),
            column("tenant", "tenant"),
            column("job_set", "job set"),
            column("state", "state"),
            wide("devices", "devices"),
            column("priority", "priority"),
            column("cpu_milli", "cpu"),
            column("memory_bytes", "memory"),
            column("gpu_milli", "gpu"),
            column("placed_ms", "placed"),
            wide("started_ms", "started"),
        ];
        Sheet::new(columns, 5, self.runs.iter().map(row).collect())
    }

    fn changes(&self) -> Sheet {
        let row = |one: &NodeChangeView| {
            vec![
                moment(one.at_ms),
                plain(one.change.replace('_', " ")),
                named(&one.condition),
                named(&one.reason),
                number(one.lsn),
            ]
        };
        let columns = vec![
            column("at_ms", "at"),
            column("change", "change"),
            column("condition", "condition"),
            column("reason", "reason"),
            wide("lsn", "lsn"),
        ];
        Sheet::new(columns, 4, self.history.iter().map(row).collect())
    }

    fn as_json(&self) -> Value {
        let node = &self.node;
        let has = self.capacity();
        let text = |text: &str| Some(text).filter(|text| !text.is_empty()).into();
        let ms = |ms: i64| Some(ms).filter(|ms| *ms != 0).into();
        let each = |taints: &[Taint]| -> Value {
            let texts = taints
                .iter()
                .map(|it| super::taint_text(it).unwrap_or_else(|error| error));
            texts.collect()
        };
        let labels: Value = (has.labels.iter())
            .map(|label| (label.name.as_str(), label.value.as_str()))
            .collect();
        let extended: Value = (has.extended.iter())
            .map(|it| (it.name.as_str(), it.amount))
            .collect();
        let (used, free) = (amounts(&node.used), amounts(&node.free));
        let all = [has.cpu_milli, has.memory_bytes, u64::from(has.gpus) * 1000];
        let resources = ResourceKind::ALL.into_iter().enumerate().map(|(at, kind)| {
            let amounts = object([
                ("has", all[at].into()),
                ("requested", used[at].into()),
                ("free", free[at].into()),
            ]);
            (kind.name(), amounts)
        });
        let allocations = self.runs.iter().map(|one| {
            object([
                ("allocation_id", one.allocation_id.as_str().into()),
                ("tenant", one.tenant.as_str().into()),
                ("job_set", one.job_set.as_str().into()),
                ("name", text(&one.name)),
                ("state", words(one.state()).into()),
                ("priority", one.priority.into()),
                ("cpu_milli", one.cpu_milli.into()),
                ("memory_bytes", one.memory_bytes.into()),
                ("gpu_milli", gpu_milli(one).into()),
                ("devices", one.gpus.iter().map(|it| it.device).collect()),
                ("gpu_zones", one.gpu_zones.clone().into()),
                ("placed_ms", one.placed_ms.into()),
                ("started_ms", ms(one.started_ms)),
            ])
        });
        let conditions = node.conditions.iter().map(|one| {
            object([
                ("condition", one.condition.as_str().into()),
                ("reason", text(&one.reason)),
                ("since_ms", one.since_ms.into()),
            ])
        });
        let history = self.history.iter().map(|one| {
            object([
                ("lsn", one.lsn.into()),
                ("at_ms", one.at_ms.into()),
                ("change", one.change.as_str().into()),
                ("condition", text(&one.condition)),
                ("reason", text(&one.reason)),
            ])
        });
        object([
            ("node", node.node.as_str().into()),
            ("state", words(node.state()).into()),
            ("since_ms", ms(node.since_ms)),
            ("last_seen_ms", ms(node.last_seen_ms)),
            ("registered_ms", ms(node.registered_ms)),
            ("takes_new", node.takes_new.into()),
            ("cordoned", node.cordoned.into()),
            ("drained", node.drain.into()),
            ("at_once", node.at_once.into()),
            ("gpu_model", text(&has.gpu_model)),
            ("max_runs", has.max_runs.into()),
            ("labels", labels),
            ("own_taints", each(&has.taints)),
            ("taints", each(&node.taints)),
            ("conditions", conditions.collect()),
            ("resources", resources.collect()),
            ("extended", extended),
            ("stopping", node.stopping.into()),
            (
                "sample",
                self.measured.as_ref().map(Measured::as_json).into(),
            ),
            ("allocations", allocations.collect()),
            ("history", history.collect()),
        ])
    }
}

fn gpu_milli(one: &NodeRunView) -> u64 {
    one.gpus.iter().map(|share| u64::from(share.milli)).sum()
}

/// `0 1 in zone 0`
fn devices(one: &NodeRunView) -> String {
    let devices: Vec<String> = one.gpus.iter().map(|it| it.device.to_string()).collect();
    let zones: Vec<String> = one.gpu_zones.iter().map(u32::to_string).collect();
    match zones.is_empty() {
        true => devices.join(" "),
        false => format!("{} in zone {}", devices.join(" "), zones.join(" ")),
    }
}
