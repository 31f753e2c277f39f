//! Best fit: of the nodes that can take an allocation, the one that it leaves least free.
//!
//! The score is the BestFit policy of Weng et al., "Beware of Fragmentation", USENIX ATC 2023:
//! `1 - (C - c) / 256000 - (U - g) / 16000` with C and U the node's free millicores and milli-GPU before, c and g the
//! request; here as an exact integer to be minimised, `16 (C - c) + 256 (U - g)`. Equal scores go to the first node by
//! name. A share goes to the fitting device with the least free, whole devices to the first free ones.

use super::Node;
use std::collections::BTreeMap;
use vocab::{AllocationSpec, GpuRequest, GpuShare, Token, WaitingReason};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    pub node: Token,
    pub incarnation: u64,
    pub gpus: Vec<GpuShare>,
}

/// The best node, or why there is none.
pub fn best_fit(
    nodes: &BTreeMap<Token, Node>,
    spec: &AllocationSpec,
) -> Result<Placement, WaitingReason> {
    let fitting = nodes.iter().filter(|(_, node)| fits(node, spec));
    match fitting.min_by_key(|(_, node)| left_over(node, spec)) {
        Some((name, node)) => Ok(Placement {
            node: name.clone(),
            incarnation: node.incarnation,
            gpus: spec
                .gpu
                .as_ref()
                .map_or_else(Vec::new, |g| devices(node, g)),
        }),
        None => Err(reason(nodes, spec)),
    }
}

fn fits(node: &Node, spec: &AllocationSpec) -> bool {
    node.ready
        && node.cpu_milli_free >= spec.cpu_milli
        && node.memory_bytes_free >= spec.memory_bytes
        && spec.gpu.as_ref().is_none_or(|gpu| {
            gpu.allows(node.capacity.gpu_model.as_ref()) && {
                let fitting = node.gpu_milli_free.iter().filter(|m| **m >= gpu.milli);
                fitting.count() >= usize::from(gpu.count)
            }
        })
}

/// Only for a node that fits.
fn left_over(node: &Node, spec: &AllocationSpec) -> u64 {
    let gpu_milli = spec.gpu.as_ref().map_or(0, GpuRequest::total_milli);
    16 * (node.cpu_milli_free - spec.cpu_milli) + 256 * (node.gpu_milli_free_total() - gpu_milli)
}

/// Only for a node that fits.
fn devices(node: &Node, gpu: &GpuRequest) -> Vec<GpuShare> {
    let mut fitting: Vec<(u16, u16)> = node
        .gpu_milli_free
        .iter()
        .zip(0..)
        .filter(|(free, _)| **free >= gpu.milli)
        .map(|(free, device)| (*free, device))
        .collect();
    fitting.sort_unstable();
    fitting.truncate(gpu.count.into());
    fitting
        .into_iter()
        .map(|(_, device)| GpuShare {
            device,
            milli: gpu.milli,
        })
        .collect()
}

/// The first filter that leaves no node.
fn reason(nodes: &BTreeMap<Token, Node>, spec: &AllocationSpec) -> WaitingReason {
    let mut ready = nodes.values().filter(|node| node.ready).peekable();
    if ready.peek().is_none() {
        return WaitingReason::NoNodeReady;
    }
    let of_model = |node: &&Node| {
        spec.gpu
            .as_ref()
            .is_none_or(|gpu| gpu.allows(node.capacity.gpu_model.as_ref()))
    };
    let mut of_model = ready.filter(of_model).peekable();
    if of_model.peek().is_none() {
        return WaitingReason::NoNodeOfModel;
    }
    let empty = |node: &Node| Node::new(node.incarnation, node.capacity.clone());
    if of_model.any(|node| fits(&empty(node), spec)) {
        WaitingReason::NoRoomNow
    } else {
        WaitingReason::LargerThanAnyNode
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::NodeCapacity;

    fn node(cpu_cores: u64, gpus: &[u16], model: &str) -> Node {
        let capacity = NodeCapacity {
            cpu_milli: cpu_cores * 1000,
            memory_bytes: 1 << 40,
            gpus: gpus.len() as u16,
            gpu_model: Token::new(model).ok(),
        };
        Node {
            gpu_milli_free: gpus.to_vec(),
            ..Node::new(1, capacity)
        }
    }

    fn spec(cpu_cores: u64, count: u16, milli: u16, models: &[&str]) -> AllocationSpec {
        AllocationSpec {
            job_set: Token::new("default").unwrap(),
            name: None,
            priority: 0,
            cpu_milli: cpu_cores * 1000,
            memory_bytes: 1 << 30,
            gpu: (count > 0).then(|| GpuRequest {
                count,
                milli,
                models: models.iter().map(|m| Token::new(m).unwrap()).collect(),
            }),
        }
    }

    /// `Ok(node devices…)` or the reason.
    fn check(nodes: &[(&str, Node)], spec: AllocationSpec, expected: &str) {
        let nodes = nodes
            .iter()
            .map(|(name, node)| (Token::new(name).unwrap(), node.clone()))
            .collect();
        let found = match best_fit(&nodes, &spec) {
            Ok(p) => p.gpus.iter().fold(p.node.to_string(), |text, share| {
                format!("{text} {}:{}", share.device, share.milli)
            }),
            Err(reason) => reason.name().to_owned(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn the_tightest_node_and_device_win() {
        let big = || ("big", node(64, &[1000; 8], "G2"));
        let small = || ("small", node(8, &[1000, 300, 500], "T4"));
        check(&[big(), small()], spec(4, 0, 0, &[]), "small");
        check(&[big(), small()], spec(4, 1, 400, &[]), "small 2:400");
        check(&[big(), small()], spec(4, 1, 1000, &[]), "small 0:1000");
        check(
            &[big(), small()],
            spec(4, 2, 1000, &[]),
            "big 0:1000 1:1000",
        );
        check(&[big(), small()], spec(4, 1, 1000, &["G2"]), "big 0:1000");
        check(&[big(), small()], spec(32, 0, 0, &[]), "big");
    }

    #[test]
    fn equal_scores_go_to_the_first_name() {
        let twins = [("b", node(8, &[], "")), ("a", node(8, &[], ""))];
        check(&twins, spec(1, 0, 0, &[]), "a");
    }

    #[test]
    fn a_reason_names_the_first_filter_that_leaves_no_node() {
        let lost = Node {
            ready: false,
            ..node(8, &[1000], "T4")
        };
        check(&[("n", lost)], spec(1, 0, 0, &[]), "no_node_ready");
        let n = || ("n", node(8, &[300], "T4"));
        check(&[n()], spec(1, 1, 1000, &["G2"]), "no_node_of_model");
        check(&[n()], spec(1, 1, 1000, &["T4"]), "no_room_now");
        check(&[n()], spec(1, 2, 1000, &["T4"]), "larger_than_any_node");
        check(&[n()], spec(9, 0, 0, &[]), "larger_than_any_node");
    }
}
