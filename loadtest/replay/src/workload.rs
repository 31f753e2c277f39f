//! A recorded workload: nodes, and pods with their creation and deletion times.

mod files;
mod tenants;

pub use files::FindError;

use serde::{Deserialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};
use vocab::{DAY_MS, HOUR_MS, NodeCapacity, Token};

/// Recorded second 0: 2024-01-01T00:00:00Z, a full hour, and far from any daylight saving question.
pub const EPOCH_MS: i64 = 1_704_067_200_000;
const MIB: u64 = 1 << 20;

/// The order in which a pod's class goes before others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    Guaranteed,
    LatencySensitive,
    Burstable,
    BestEffort,
    Other,
}

impl Qos {
    fn parse(text: &str) -> Self {
        match text {
            "Guaranteed" => Self::Guaranteed,
            "LS" => Self::LatencySensitive,
            "Burstable" => Self::Burstable,
            "BE" => Self::BestEffort,
            _ => Self::Other,
        }
    }

    pub const ALL: [Self; 5] = [
        Self::Guaranteed,
        Self::LatencySensitive,
        Self::Burstable,
        Self::BestEffort,
        Self::Other,
    ];

    /// The priority class of its pods.
    pub fn class(self) -> &'static str {
        match self {
            Self::Guaranteed => "guaranteed",
            Self::LatencySensitive => "latency-sensitive",
            Self::Burstable => "burstable",
            Self::BestEffort => "best-effort",
            Self::Other => "other",
        }
    }

    pub fn priority(self) -> i32 {
        match self {
            Self::Guaranteed => 300,
            Self::LatencySensitive => 200,
            Self::Burstable => 100,
            Self::BestEffort | Self::Other => 0,
        }
    }

    /// Whether its pods may be sent back to the queue for those of others.
    pub fn is_preemptible(self) -> bool {
        matches!(self, Self::BestEffort | Self::Other)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: Token,
    pub capacity: NodeCapacity,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub name: Token,
    pub tenant: Token,
    pub qos: Qos,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpus: u64,
    /// Thousandths of each device.
    pub gpu_milli: u64,
    /// Allowed models; empty means any.
    pub gpu_models: Vec<String>,
    /// Unix ms of the recorded clock.
    pub created_ms: i64,
    pub lifetime_ms: i64,
}

impl Pod {
    pub fn deleted_ms(&self) -> i64 {
        self.created_ms + self.lifetime_ms
    }

    pub fn gpu_milli_total(&self) -> u64 {
        self.gpus * self.gpu_milli
    }

    /// Groups a tenant's pods by what they ask for.
    pub fn job_set(&self) -> &'static str {
        match (self.gpus, self.gpu_milli) {
            (0, _) => "cpu",
            (1, 1000) => "gpu",
            (1, _) => "gpu-share",
            _ => "gpu-multi",
        }
    }
}

/// Which part of a workload to use, and how much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub struct Selection {
    /// Only pods that were created from this recorded day on, which becomes the first.
    #[arg(long, value_name = "DAY", default_value_t = 0)]
    pub first_day: u32,
    /// Only pods that were created in so many days; what runs longer ends with them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub days: Option<u32>,
    /// Each pod so many times, over the hour behind its creation.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// So few nodes, evenly from the list, that the pods ask for this part of their GPUs and time.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..))]
    pub load: Option<u32>,
    /// Only the first N pods by creation time.
    #[arg(long, value_name = "N")]
    pub limit_pods: Option<usize>,
    /// Only the first N nodes of the list.
    #[arg(long, value_name = "N")]
    pub limit_nodes: Option<usize>,
}

/// Nodes in the list's order, pods by creation time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    pub nodes: Vec<Node>,
    pub pods: Vec<Pod>,
    /// Each pod is as it was recorded, and there once.
    pub is_as_recorded: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("{path}: {source}", path = .path.display())]
    Csv { path: PathBuf, source: csv::Error },
    #[error("{path}, row {row}: {why}", path = .path.display())]
    Row {
        path: PathBuf,
        /// Counting from 1 below the header.
        row: usize,
        why: &'static str,
    },
    #[error("{path}: {name} is there twice", path = .path.display())]
    Twice { path: PathBuf, name: Token },
    #[error("{path} has no rows", path = .path.display())]
    Empty { path: PathBuf },
}

#[derive(Deserialize)]
struct NodeRow {
    sn: String,
    cpu_milli: u64,
    memory_mib: u64,
    gpu: u16,
    model: Option<String>,
}

#[derive(Deserialize)]
struct PodRow {
    name: String,
    cpu_milli: u64,
    memory_mib: u64,
    num_gpu: u64,
    gpu_milli: u64,
    gpu_spec: Option<String>,
    qos: Option<String>,
    creation_time: i64,
    deletion_time: i64,
}

impl NodeRow {
    fn read(self) -> Result<Node, &'static str> {
        let model = self.model.filter(|model| !model.is_empty());
        let model = model
            .map(|model| Token::new(&model).map_err(|_| "the model is no name"))
            .transpose()?;
        if self.gpu > 0 && model.is_none() {
            return Err("devices without a model");
        }
        Ok(Node {
            name: Token::new(&self.sn).map_err(|_| "the node's name is no name")?,
            capacity: NodeCapacity {
                cpu_milli: self.cpu_milli,
                memory_bytes: self.memory_mib.checked_mul(MIB).ok_or("too much memory")?,
                gpus: self.gpu,
                gpu_model: model.filter(|_| self.gpu > 0),
                ..NodeCapacity::default()
            },
        })
    }
}

impl PodRow {
    fn read(self) -> Result<Pod, &'static str> {
        let ms = |seconds: i64| seconds.checked_mul(1000).ok_or("a time is too large");
        let lifetime_ms = ms(self.deletion_time)? - ms(self.creation_time)?;
        if self.creation_time < 0 || lifetime_ms < 0 {
            return Err("it is created before the trace begins, or deleted before it is created");
        }
        let qos = Qos::parse(self.qos.as_deref().unwrap_or_default());
        let spec = self.gpu_spec.unwrap_or_default();
        let models = spec.split('|').filter(|model| !model.is_empty());
        Ok(Pod {
            tenant: tenants::tenant_of(qos, &self.name),
            name: Token::new(&self.name).map_err(|_| "the pod's name is no name")?,
            qos,
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_mib.checked_mul(MIB).ok_or("too much memory")?,
            gpus: self.num_gpu,
            gpu_milli: if self.num_gpu == 0 { 0 } else { self.gpu_milli },
            gpu_models: models.map(str::to_owned).collect(),
            created_ms: EPOCH_MS + ms(self.creation_time)?,
            lifetime_ms,
        })
    }
}

impl Workload {
    pub fn read(directory: &Path, selection: Selection) -> Result<Self, WorkloadError> {
        let (node_list, pod_list) = files::find(directory)?;
        let mut nodes = rows(&node_list, NodeRow::read)?;
        let mut pods = rows(&pod_list, PodRow::read)?;
        unique(&node_list, nodes.iter().map(|node| &node.name))?;
        unique(&pod_list, pods.iter().map(|pod| &pod.name))?;
        // Stable: pods of the same second stay in the list's order.
        pods.sort_by_key(|pod| pod.created_ms);
        pods = selection.of_days(pods);
        pods.truncate(selection.limit_pods.unwrap_or(usize::MAX));
        pods = selection.repeated(pods);
        nodes.truncate(selection.limit_nodes.unwrap_or(usize::MAX));
        if let Some(percent) = selection.load {
            nodes = loaded(&nodes, &pods, percent);
        }
        for (path, empty) in [(node_list, nodes.is_empty()), (pod_list, pods.is_empty())] {
            if empty {
                return Err(WorkloadError::Empty { path });
            }
        }
        Ok(Self {
            nodes,
            pods,
            is_as_recorded: selection.first_day == 0
                && selection.days.is_none()
                && selection.repeat == 1,
        })
    }

    /// How much of the nodes' GPUs and time the pods ask for, in percent, rounded down.
    pub fn load_percent(&self) -> u64 {
        percent(
            gpu_time(&self.pods),
            self.nodes.iter(),
            length_ms(&self.pods),
        )
    }

    /// Those that own a pod of the selection, in order.
    pub fn tenants(&self) -> Vec<Token> {
        let all: BTreeSet<&Token> = self.pods.iter().map(|pod| &pod.tenant).collect();
        all.into_iter().cloned().collect()
    }

    /// The GPU models of the nodes, in order.
    pub fn gpu_models(&self) -> Vec<Token> {
        let models = self
            .nodes
            .iter()
            .filter_map(|node| node.capacity.gpu_model.as_ref());
        let all: BTreeSet<&Token> = models.collect();
        all.into_iter().cloned().collect()
    }

    /// Positions in `pods` by name.
    pub fn pods_by_name(&self) -> BTreeMap<&str, usize> {
        let names = self.pods.iter().enumerate();
        names
            .map(|(index, pod)| (pod.name.as_str(), index))
            .collect()
    }

    pub fn first_ms(&self) -> i64 {
        // Never empty: read() refuses that.
        self.pods
            .iter()
            .map(|pod| pod.created_ms)
            .min()
            .unwrap_or(EPOCH_MS)
    }

    /// When the last pod is deleted.
    pub fn last_ms(&self) -> i64 {
        // Never empty: read() refuses that.
        self.pods
            .iter()
            .map(Pod::deleted_ms)
            .max()
            .unwrap_or(EPOCH_MS)
    }

    /// Thousandths of devices in all nodes.
    pub fn gpu_capacity_milli(&self) -> u64 {
        self.nodes
            .iter()
            .map(|node| u64::from(node.capacity.gpus) * 1000)
            .sum()
    }
}

/// Thousandths of devices times milliseconds.
fn gpu_time(pods: &[Pod]) -> u128 {
    let of =
        |pod: &Pod| u128::from(pod.gpu_milli_total()) * u128::from(pod.lifetime_ms.unsigned_abs());
    pods.iter().map(of).sum()
}

/// The part of the nodes' GPUs in so many milliseconds that somebody asks for, in percent, rounded down.
fn percent<'n>(asked: u128, nodes: impl Iterator<Item = &'n Node>, ms: u64) -> u64 {
    let devices: u128 = nodes.map(|node| u128::from(node.capacity.gpus)).sum();
    let there = devices * 1000 * u128::from(ms);
    u64::try_from(asked * 100 / there.max(1)).unwrap_or(u64::MAX)
}

/// As many nodes, evenly from the list, as the pods ask at least that part of; one at the least.
fn loaded(nodes: &[Node], pods: &[Pod], wanted: u32) -> Vec<Node> {
    let evenly = |count: usize| (0..count).map(move |no| &nodes[no * nodes.len() / count]);
    let (asked, ms) = (gpu_time(pods), length_ms(pods));
    let fits = |count: &usize| percent(asked, evenly(*count), ms) >= u64::from(wanted);
    let count = (1..=nodes.len()).rev().find(fits).unwrap_or(1);
    evenly(count.min(nodes.len())).cloned().collect()
}

/// From the first pod's creation to the last one's deletion.
fn length_ms(pods: &[Pod]) -> u64 {
    let begin = pods.iter().map(|pod| pod.created_ms).min();
    let end = pods.iter().map(Pod::deleted_ms).max();
    begin.zip(end).map_or(0, |(begin, end)| begin.abs_diff(end))
}

impl Selection {
    /// All of it, as it is.
    pub fn plain() -> Self {
        Self {
            first_day: 0,
            days: None,
            repeat: 1,
            load: None,
            limit_pods: None,
            limit_nodes: None,
        }
    }

    fn of_days(&self, pods: Vec<Pod>) -> Vec<Pod> {
        let shift = i64::from(self.first_day) * DAY_MS;
        let end = self.days.map(|days| EPOCH_MS + i64::from(days) * DAY_MS);
        let moved = pods.into_iter().map(|pod| Pod {
            created_ms: pod.created_ms - shift,
            ..pod
        });
        let chosen = moved
            .filter(|pod| pod.created_ms >= EPOCH_MS && end.is_none_or(|end| pod.created_ms < end));
        let cut = chosen.map(|pod| Pod {
            lifetime_ms: end.map_or(pod.lifetime_ms, |end| {
                pod.lifetime_ms.min(end - pod.created_ms)
            }),
            ..pod
        });
        cut.collect()
    }

    /// The first of each is as it was recorded.
    fn repeated(&self, pods: Vec<Pod>) -> Vec<Pod> {
        let times = i64::from(self.repeat);
        let mut all: Vec<Pod> = Vec::with_capacity(pods.len() * self.repeat as usize);
        for no in 0..times {
            let again = pods.iter().cloned().map(|pod| Pod {
                name: match no {
                    0 => pod.name,
                    no => Token::new(&format!("{}-{no}", pod.name))
                        .expect("a recorded name is far below the longest, and a number is one"),
                },
                created_ms: pod.created_ms + no * HOUR_MS / times,
                ..pod
            });
            all.extend(again);
        }
        all.sort_by_key(|pod| pod.created_ms);
        all
    }
}

fn rows<R: DeserializeOwned, T>(
    path: &Path,
    read: impl Fn(R) -> Result<T, &'static str>,
) -> Result<Vec<T>, WorkloadError> {
    let failed = |source| WorkloadError::Csv {
        path: path.to_owned(),
        source,
    };
    let mut reader = csv::Reader::from_path(path).map_err(failed)?;
    let mut all = Vec::new();
    for (index, row) in reader.deserialize().enumerate() {
        let item = read(row.map_err(failed)?).map_err(|why| WorkloadError::Row {
            path: path.to_owned(),
            row: index + 1,
            why,
        })?;
        all.push(item);
    }
    Ok(all)
}

fn unique<'t>(path: &Path, names: impl Iterator<Item = &'t Token>) -> Result<(), WorkloadError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(WorkloadError::Twice {
                path: path.to_owned(),
                name: name.clone(),
            });
        }
    }
    Ok(())
}

/// The recorded workload that comes with the project, for tests.
#[cfg(test)]
pub(crate) fn openb(selection: Selection) -> Workload {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/openb");
    Workload::read(&directory, selection).expect("the project's own workload is good")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openb_is_what_its_readme_says() {
        let all = openb(Selection::plain());
        assert_eq!((all.nodes.len(), all.pods.len()), (1213, 8152));
        assert_eq!(all.gpu_capacity_milli(), 6_212_000);
        let requested: u64 = all.pods.iter().map(Pod::gpu_milli_total).sum();
        assert_eq!(requested, 6_086_800, "thousandths of a GPU");
        let tenants: Vec<String> = all.tenants().iter().map(Token::to_string).collect();
        assert_eq!(
            tenants,
            [
                "be-0",
                "be-1",
                "burstable",
                "guaranteed",
                "ls-0",
                "ls-1",
                "ls-2",
                "ls-3"
            ]
        );
        assert_eq!(all.first_ms(), EPOCH_MS);
        assert_eq!(all.last_ms(), EPOCH_MS + 12_902_960_000);
        assert!(all.pods.is_sorted_by_key(|pod| pod.created_ms));
    }

    #[test]
    fn a_selection_is_the_beginning() {
        let all = openb(Selection::plain());
        let few = openb(Selection {
            limit_pods: Some(50),
            limit_nodes: Some(3),
            ..Selection::plain()
        });
        assert_eq!(few.pods, all.pods[..50]);
        assert_eq!(few.nodes, all.nodes[..3]);
    }

    #[test]
    fn a_week_is_repeated_until_the_nodes_are_asked_for_more_than_they_have() {
        let week = Selection {
            first_day: 119,
            days: Some(7),
            ..Selection::plain()
        };
        let once = openb(week);
        assert_eq!((once.nodes.len(), once.pods.len()), (1213, 1737));
        assert!(once.load_percent() < 1);
        assert!(once.first_ms() >= EPOCH_MS && once.last_ms() <= EPOCH_MS + 7 * DAY_MS);
        let crowded = openb(Selection {
            repeat: 10,
            load: Some(110),
            ..week
        });
        assert_eq!(crowded.pods.len(), 10 * once.pods.len());
        let load = crowded.load_percent();
        // One node more is a tenth to a quarter of them.
        assert!((110..140).contains(&load), "{load} %");
        assert!(crowded.pods.is_sorted_by_key(|pod| pod.created_ms));
        assert_eq!(crowded.pods_by_name().len(), crowded.pods.len());
    }

    #[test]
    fn what_is_no_pod_is_refused() {
        let row = |name: &str, from, to| PodRow {
            name: name.to_owned(),
            cpu_milli: 1,
            memory_mib: 1,
            num_gpu: 0,
            gpu_milli: 0,
            gpu_spec: None,
            qos: None,
            creation_time: from,
            deletion_time: to,
        };
        assert!(row("a", 0, 0).read().is_ok());
        assert!(row("a.b", 0, 1).read().is_err());
        assert!(row("a", 2, 1).read().is_err());
        assert!(row("a", -1, 1).read().is_err());
        assert!(row("a", 0, i64::MAX).read().is_err());
    }
}
