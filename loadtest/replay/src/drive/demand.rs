//! How much of each resource a workload's tenants hold at once, by the record.

use crate::workload::{Pod, Workload};
use std::collections::BTreeMap;
use vocab::{ResourceKind, Token};

/// Recorded peaks of one tenant, in the resources' units.
pub type Peaks = BTreeMap<ResourceKind, u64>;

/// The most that each tenant holds at once if every pod holds its resources from its creation until `slack_ms` after its
/// deletion. On a scaled clock the slack stands for the time that decisions and reports take.
pub fn peaks(workload: &Workload, slack_ms: i64) -> BTreeMap<Token, Peaks> {
    let mut by_tenant: BTreeMap<&Token, Vec<&Pod>> = BTreeMap::new();
    for pod in &workload.pods {
        by_tenant.entry(&pod.tenant).or_default().push(pod);
    }
    let peaks_of = |pods: &[&Pod]| {
        let peak = |kind| (kind, peak(pods, slack_ms, |pod| amount(pod, kind)));
        ResourceKind::ALL.into_iter().map(peak).collect()
    };
    by_tenant
        .into_iter()
        .map(|(tenant, pods)| (tenant.clone(), peaks_of(&pods)))
        .collect()
}

fn amount(pod: &Pod, kind: ResourceKind) -> u64 {
    match kind {
        ResourceKind::Cpu => pod.cpu_milli,
        ResourceKind::Memory => pod.memory_bytes,
        ResourceKind::Gpu => pod.gpu_milli_total(),
    }
}

fn peak(pods: &[&Pod], slack_ms: i64, amount: impl Fn(&Pod) -> u64) -> u64 {
    let mut steps: Vec<(i64, bool, u64)> = pods
        .iter()
        .flat_map(|pod| {
            let until = pod.deleted_ms().saturating_add(slack_ms);
            [
                (pod.created_ms, true, amount(pod)),
                (until, false, amount(pod)),
            ]
        })
        .collect();
    // What ends at a moment makes room for what begins then; what lasts no time at all counts for nothing.
    steps.sort();
    let (mut held, mut most) = (0_i128, 0_i128);
    for (_, begins, amount) in steps {
        held += if begins {
            i128::from(amount)
        } else {
            -i128::from(amount)
        };
        most = most.max(held);
    }
    u64::try_from(most).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Selection, openb};

    #[test]
    fn the_recorded_peaks_of_openb() {
        let recorded = peaks(&openb(Selection::plain()), 0);
        let gpu = |tenant: &str| recorded[tenant][&ResourceKind::Gpu];
        assert_eq!(
            (gpu("burstable"), gpu("ls-3"), gpu("guaranteed")),
            (28_000, 20_360, 3_000)
        );
        let slack = peaks(&openb(Selection::plain()), 3_600_000);
        for (tenant, peaks) in &recorded {
            for (kind, peak) in peaks {
                assert!(slack[tenant][kind] >= *peak, "{tenant} {}", kind.name());
            }
        }
    }
}
