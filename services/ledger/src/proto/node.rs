//! What a node brings in.

use super::{
    WireError, extended_from_proto, extended_to_proto, narrow, optional_token, text, token,
};
use schemas::v1;
use vocab::{NodeCapacity, Taint, Token, Topology, Zone};

pub fn capacity_to_proto(capacity: &NodeCapacity) -> v1::NodeCapacity {
    let label = |(name, value): &(Token, Token)| v1::Label {
        name: name.to_string(),
        value: value.to_string(),
    };
    let taint = |taint: &Taint| v1::Taint {
        key: taint.key.to_string(),
        value: text(&taint.value),
    };
    v1::NodeCapacity {
        cpu_milli: capacity.cpu_milli,
        memory_bytes: capacity.memory_bytes,
        gpus: capacity.gpus.into(),
        gpu_model: text(&capacity.gpu_model),
        labels: capacity.labels.iter().map(label).collect(),
        taints: capacity.taints.iter().map(taint).collect(),
        extended: extended_to_proto(&capacity.extended),
        topology: capacity.topology.as_deref().map(topology_to_proto),
    }
}

/// The lists come as they are: whoever takes them from an agent checks counts, order and sums.
pub fn capacity_from_proto(capacity: Option<v1::NodeCapacity>) -> Result<NodeCapacity, WireError> {
    let capacity = capacity.ok_or(WireError("capacity"))?;
    let label = |given: &v1::Label| {
        let name = token(&given.name, "capacity.labels.name")?;
        Ok((name, token(&given.value, "capacity.labels.value")?))
    };
    let taint = |given: &v1::Taint| {
        Ok(Taint {
            key: token(&given.key, "capacity.taints.key")?,
            value: optional_token(&given.value, "capacity.taints.value")?,
        })
    };
    let topology = capacity.topology.as_ref().map(topology_from_proto);
    Ok(NodeCapacity {
        cpu_milli: capacity.cpu_milli,
        memory_bytes: capacity.memory_bytes,
        gpus: narrow(capacity.gpus, "capacity.gpus")?,
        gpu_model: optional_token(&capacity.gpu_model, "capacity.gpu_model")?,
        labels: capacity
            .labels
            .iter()
            .map(label)
            .collect::<Result<_, _>>()?,
        taints: capacity
            .taints
            .iter()
            .map(taint)
            .collect::<Result<_, _>>()?,
        extended: extended_from_proto(&capacity.extended, "capacity.extended")?,
        topology: topology.transpose()?.map(Box::new),
    })
}

fn topology_to_proto(topology: &Topology) -> v1::Topology {
    let zone = |zone: &Zone| v1::Zone {
        cpu_milli: zone.cpu_milli,
        memory_bytes: zone.memory_bytes,
        gpus: zone.gpus.into(),
    };
    let link = |&(low, high): &(u8, u8)| v1::DeviceLink {
        low: low.into(),
        high: high.into(),
    };
    v1::Topology {
        zones: topology.zones.iter().map(zone).collect(),
        distances: topology.distances.iter().copied().map(u32::from).collect(),
        links: topology.links.iter().map(link).collect(),
    }
}

fn topology_from_proto(topology: &v1::Topology) -> Result<Topology, WireError> {
    let zone = |given: &v1::Zone| {
        Ok(Zone {
            cpu_milli: given.cpu_milli,
            memory_bytes: given.memory_bytes,
            gpus: narrow(given.gpus, "topology.zones.gpus")?,
        })
    };
    let distance = |given: &u32| narrow(*given, "topology.distances");
    let link = |given: &v1::DeviceLink| {
        let low = narrow(given.low, "topology.links.low")?;
        Ok((low, narrow(given.high, "topology.links.high")?))
    };
    Ok(Topology {
        zones: topology.zones.iter().map(zone).collect::<Result<_, _>>()?,
        distances: topology
            .distances
            .iter()
            .map(distance)
            .collect::<Result<_, _>>()?,
        links: topology.links.iter().map(link).collect::<Result<_, _>>()?,
    })
}
