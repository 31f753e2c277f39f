//! A machine is one node at a time: no two nodes that are there have the same label `hostname`.

use super::Nodes;
use std::collections::BTreeMap;
use vocab::{NodeCapacity, Refusal, Rule, Token};

/// The nodes that are there by their hostnames; none: they were not counted yet. Follows from the nodes, and is not recorded.
#[derive(Debug, Clone, Default)]
pub(super) struct Hosts(Option<BTreeMap<Token, Token>>);

impl Nodes {
    /// Refuses a capacity whose hostname another node has that is there.
    pub(super) fn may_have_hostname(
        &mut self,
        node: &Token,
        capacity: &NodeCapacity,
    ) -> Result<(), Refusal> {
        let Some(hostname) = capacity.label(NodeCapacity::HOSTNAME) else {
            return Ok(());
        };
        let of = |(name, node): (&Token, &super::Node)| {
            let hostname = node.capacity.label(NodeCapacity::HOSTNAME)?;
            node.ready.then(|| (hostname.clone(), name.clone()))
        };
        let hosts = self
            .hosts
            .0
            .get_or_insert_with(|| self.nodes.iter().filter_map(of).collect());
        match hosts.get(hostname).filter(|holder| *holder != node) {
            Some(holder) => Err(Refusal::new(Rule::HostnameTaken, holder.as_str())),
            None => Ok(()),
        }
    }

    pub(super) fn has_hostname(&mut self, node: &Token, capacity: &NodeCapacity) {
        if let (Some(hosts), Some(hostname)) =
            (&mut self.hosts.0, capacity.label(NodeCapacity::HOSTNAME))
        {
            hosts.insert(hostname.clone(), node.clone());
        }
    }

    pub(super) fn leaves_hostname(&mut self, node: &Token) {
        let capacity = self.nodes.get(node).map(|known| &known.capacity);
        let hostname = capacity.and_then(|it| it.label(NodeCapacity::HOSTNAME));
        if let (Some(hosts), Some(hostname)) = (&mut self.hosts.0, hostname)
            && hosts.get(hostname) == Some(node)
        {
            hosts.remove(hostname);
        }
    }
}
