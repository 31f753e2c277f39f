//! Node and pod lists in the openb format.

use csv::{Reader, StringRecord};
use scheduler_rules::scoring::{Free, ModelNo, Request};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    fs::File,
    path::{Path, PathBuf},
};

const NODES: &str = "openb_node_list_gpu_node.csv";
const PODS: &str = "openb_pod_list_";
/// What one node can have, and one pod can ask for, at most; the same as for allocations.
const CPU_MILLI_MAX: u64 = 1_000_000_000;
const MEMORY_MIB_MAX: u64 = 1 << 30;
const MODELS_MAX: usize = 63;

#[derive(Debug)]
pub struct Lists {
    /// The pod list's name without the usual beginning and end.
    pub name: String,
    /// The node list that belongs to the published figures.
    pub usual_nodes: bool,
    pub nodes: Vec<Node>,
    pub pods: Vec<Pod>,
    pod_list: PathBuf,
}

#[derive(Debug)]
pub struct Node {
    pub name: String,
    pub empty: Free,
}

#[derive(Debug, Clone, Copy)]
pub struct Pod {
    pub ask: Request,
    /// Seconds since the trace began: created and deleted.
    pub times: Option<(i64, i64)>,
    line: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("no pod list {name}: none of {} is a file", tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "))]
    Missing { name: String, tried: Vec<PathBuf> },
    #[error("{}: {source}", path.display())]
    Csv { path: PathBuf, source: csv::Error },
    #[error("{}, line {line}: {why}", path.display())]
    Row {
        path: PathBuf,
        line: u64,
        why: &'static str,
    },
    #[error("{} has no rows", path.display())]
    Empty { path: PathBuf },
    #[error("{}: no node has a GPU", path.display())]
    NoGpu { path: PathBuf },
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
    cpu_milli: u64,
    memory_mib: u64,
    num_gpu: u16,
    gpu_milli: u16,
    gpu_spec: Option<String>,
    creation_time: Option<i64>,
    deletion_time: Option<i64>,
}

/// Numbers of the models in the order of their appearance.
#[derive(Default)]
struct Models(Vec<String>);

impl Models {
    fn number(&mut self, name: &str) -> Result<ModelNo, &'static str> {
        let number = match self.0.iter().position(|known| known == name) {
            Some(number) => number,
            None if self.0.len() == MODELS_MAX => return Err("more than 63 GPU models"),
            None => {
                self.0.push(name.to_owned());
                self.0.len() - 1
            }
        };
        Ok(ModelNo::new(number as u32))
    }
}

impl NodeRow {
    fn read(self, models: &mut Models) -> Result<Node, &'static str> {
        let memory_bytes = amounts(self.cpu_milli, self.memory_mib)?;
        if usize::from(self.gpu) > Free::GPUS_MAX {
            return Err("more than 16 devices");
        }
        let model = self.model.filter(|model| !model.is_empty() && self.gpu > 0);
        let model = model.map(|model| models.number(&model)).transpose()?;
        Ok(Node {
            name: self.sn,
            empty: Free::new(self.cpu_milli, memory_bytes, self.gpu, model),
        })
    }
}

impl PodRow {
    fn read(self, line: u64, models: &mut Models) -> Result<Pod, &'static str> {
        let memory_bytes = amounts(self.cpu_milli, self.memory_mib)?;
        let milli = match (self.num_gpu, self.gpu_milli) {
            (0, _) => 0,
            (1, milli @ 1..=1000) | (_, milli @ 1000) => milli,
            (1, _) => return Err("gpu_milli is not from 1 to 1000"),
            _ => return Err("gpu_milli is not 1000 with several devices"),
        };
        let spec = self.gpu_spec.unwrap_or_default();
        let mut allowed = Vec::new();
        for model in spec.split('|').filter(|model| !model.is_empty()) {
            allowed.push(models.number(model)?);
        }
        let times = self.creation_time.zip(self.deletion_time);
        if times.is_some_and(|(created, deleted)| deleted < created) {
            return Err("it is deleted before it is created");
        }
        Ok(Pod {
            ask: Request::new(
                self.cpu_milli,
                memory_bytes,
                self.num_gpu,
                milli,
                allowed.into_iter(),
            ),
            times,
            line,
        })
    }
}

/// The memory in bytes.
fn amounts(cpu_milli: u64, memory_mib: u64) -> Result<u64, &'static str> {
    match (cpu_milli, memory_mib) {
        (..=CPU_MILLI_MAX, ..=MEMORY_MIB_MAX) => Ok(memory_mib << 20),
        (..=CPU_MILLI_MAX, _) => Err("memory_mib is too large"),
        _ => Err("cpu_milli is too large"),
    }
}

impl Lists {
    pub fn read(directory: &Path, list: &str, nodes: Option<&Path>) -> Result<Self, ListError> {
        let names = [
            format!("{PODS}{list}.csv"),
            format!("{list}.csv"),
            list.to_owned(),
        ];
        let tried = names.map(|name| directory.join(name));
        let Some(pod_list) = tried.iter().find(|path| path.is_file()).cloned() else {
            return Err(ListError::Missing {
                name: list.to_owned(),
                tried: tried.into(),
            });
        };
        let node_list = nodes.map_or_else(|| directory.join(NODES), Path::to_owned);
        let mut models = Models::default();
        let nodes: Vec<Node> = rows(&node_list, |row: NodeRow, _| row.read(&mut models))?;
        let pods = rows(&pod_list, |row: PodRow, line| row.read(line, &mut models))?;
        if nodes.iter().all(|node| node.empty.gpu_milli().is_empty()) {
            return Err(ListError::NoGpu { path: node_list });
        }
        let stem = pod_list.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Self {
            name: stem.strip_prefix(PODS).unwrap_or(&stem).to_owned(),
            usual_nodes: node_list.file_name().is_some_and(|name| name == NODES),
            nodes,
            pods,
            pod_list,
        })
    }

    /// Keeps one in `one_in` of the nodes and of the pods.
    pub fn thin(&mut self, one_in: usize) {
        self.nodes = self.nodes.drain(..).step_by(one_in).collect();
        self.pods = self.pods.drain(..).step_by(one_in).collect();
    }

    /// All pods must say when they came and went.
    pub fn check_times(&self) -> Result<(), ListError> {
        match self.pods.iter().find(|pod| pod.times.is_none()) {
            None => Ok(()),
            Some(pod) => Err(ListError::Row {
                path: self.pod_list.clone(),
                line: pod.line,
                why: "without creation_time or deletion_time",
            }),
        }
    }

    pub fn gpu_capacity_milli(&self) -> u64 {
        self.nodes
            .iter()
            .map(|node| node.empty.gpu_milli_total())
            .sum()
    }
}

fn rows<R: DeserializeOwned, T>(
    path: &Path,
    mut read: impl FnMut(R, u64) -> Result<T, &'static str>,
) -> Result<Vec<T>, ListError> {
    let failed = |source| ListError::Csv {
        path: path.to_owned(),
        source,
    };
    let mut reader: Reader<File> = Reader::from_path(path).map_err(failed)?;
    let headers = reader.headers().map_err(failed)?.clone();
    let mut record = StringRecord::new();
    let mut all = Vec::new();
    while reader.read_record(&mut record).map_err(failed)? {
        let line = record.position().map_or(0, csv::Position::line);
        let row = record.deserialize(Some(&headers)).map_err(failed)?;
        all.push(read(row, line).map_err(|why| ListError::Row {
            path: path.to_owned(),
            line,
            why,
        })?);
    }
    if all.is_empty() {
        return Err(ListError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(all)
}
