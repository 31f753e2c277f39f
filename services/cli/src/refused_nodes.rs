//! Nodes with a refused registration, change of capacity or join: the reported capacity and the remedy.

use crate::{Failure, amount, print::note};
use client::{ApprovalsQuery, Client, NodeCapacity, RefusalView, RefusedNode};
use std::time::Duration;
use vocab::{ResourceKind, human};

/// Refused nodes are shown if they are known, and not waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns the refused nodes with such names; `None`, with a note, if the process that leads did not answer.
pub async fn ask(
    client: &Client,
    name_prefix: String,
) -> Result<Option<Vec<RefusedNode>>, Failure> {
    let query = ApprovalsQuery {
        name_prefix,
        limit: 1,
        ..ApprovalsQuery::default()
    };
    let asked = tokio::time::timeout(PATIENCE, client.refused_nodes(&query)).await;
    let refused = asked.unwrap_or(Ok(None))?;
    if refused.is_none() {
        note!(
            "which nodes are refused is not known: the process that leads node-heartbeat does not answer"
        );
    }
    Ok(refused)
}

/// Returns a line each for the refusal, the reported capacity and the remedy.
pub fn lines(refused: &RefusedNode) -> Vec<String> {
    let mut lines = vec![format!(
        "{} is refused: {}",
        refused.node, refused.explanation
    )];
    if let Some(reported) = &refused.reported {
        lines.push(format!("  it reported  {}", capacity(reported)));
    }
    lines.push(format!("  remedy       {}", refused.remedy));
    lines
}

/// Returns how many nodes are refused and where to look; `None` if none is.
pub fn count(refused: &[RefusedNode]) -> Option<String> {
    let are = match refused.len() {
        0 => return None,
        1 => "is",
        _ => "are",
    };
    let nodes = human::count(refused.len() as u128, "node");
    Some(format!(
        "{nodes} {are} refused: apportion node list says why"
    ))
}

/// Returns the refusal as one among those of requests.
pub fn as_refusal(refused: RefusedNode) -> RefusalView {
    RefusalView {
        verb: "register".to_owned(),
        explanation: format!(
            "node {}: {}; {}",
            refused.node, refused.explanation, refused.remedy
        ),
        broken: refused.broken,
        at_ms: refused.at_ms,
        ..RefusalView::default()
    }
}

fn capacity(of: &NodeCapacity) -> String {
    let mut parts = vec![
        amount::human(ResourceKind::Cpu, of.cpu_milli),
        amount::human(ResourceKind::Memory, of.memory_bytes),
    ];
    if of.gpus > 0 {
        parts.push(human::count(of.gpus.into(), "GPU"));
    }
    let model = (!of.gpu_model.is_empty()).then(|| format!("of model {}", of.gpu_model));
    parts.extend(model);
    let labels = of.labels.iter();
    parts.extend(labels.map(|label| format!("{}={}", label.name, label.value)));
    let extended = of.extended.iter();
    parts.extend(extended.map(|one| format!("{} {}", one.amount, one.name)));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::v1;

    fn refused() -> RefusedNode {
        RefusedNode {
            node: "n1".to_owned(),
            at_ms: 1000,
            reported: Some(NodeCapacity {
                cpu_milli: 8000,
                memory_bytes: 16 << 30,
                gpus: 2,
                gpu_model: "T4".to_owned(),
                labels: vec![v1::Label {
                    name: "zone".to_owned(),
                    value: "z1".to_owned(),
                }],
                ..NodeCapacity::default()
            }),
            explanation: "capacity not approved".to_owned(),
            remedy: "apportion node approve n1".to_owned(),
            ..RefusedNode::default()
        }
    }

    #[test]
    fn a_refused_node_is_shown_with_what_it_reported_and_the_remedy() {
        let expected = [
            "n1 is refused: capacity not approved",
            "  it reported  8.000 cores, 16.000 GiB, 2 GPUs, of model T4, zone=z1",
            "  remedy       apportion node approve n1",
        ];
        assert_eq!(lines(&refused()), expected);
        let unread = RefusedNode {
            reported: None,
            ..refused()
        };
        assert_eq!(lines(&unread), [expected[0], expected[2]]);
    }

    #[test]
    fn they_are_counted_and_stand_among_refusals() {
        let check = |nodes: usize, expected: Option<&str>| {
            assert_eq!(count(&vec![refused(); nodes]).as_deref(), expected);
        };
        check(0, None);
        check(1, Some("1 node is refused: apportion node list says why"));
        check(2, Some("2 nodes are refused: apportion node list says why"));
        let view = as_refusal(refused());
        let said = "node n1: capacity not approved; apportion node approve n1";
        assert_eq!((&*view.verb, &*view.explanation), ("register", said));
    }
}
