//! A recorded workload: nodes, and pods with their creation and deletion times.

mod files;
mod tenants;

pub use files::FindError;

use serde::{Deserialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};
use vocab::{NodeCapacity, Token};

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

    pub fn priority(self) -> i32 {
        match self {
            Self::Guaranteed => 300,
            Self::LatencySensitive => 200,
            Self::Burstable => 100,
            Self::BestEffort | Self::Other => 0,
        }
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

/// Which part of a workload to use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub struct Selection {
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
        nodes.truncate(selection.limit_nodes.unwrap_or(usize::MAX));
        pods.truncate(selection.limit_pods.unwrap_or(usize::MAX));
        for (path, empty) in [(node_list, nodes.is_empty()), (pod_list, pods.is_empty())] {
            if empty {
                return Err(WorkloadError::Empty { path });
            }
        }
        Ok(Self { nodes, pods })
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
        let all = openb(Selection::default());
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
        let all = openb(Selection::default());
        let few = openb(Selection {
            limit_pods: Some(50),
            limit_nodes: Some(3),
        });
        assert_eq!(few.pods, all.pods[..50]);
        assert_eq!(few.nodes, all.nodes[..3]);
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
