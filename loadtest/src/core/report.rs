//! The cases as people read them.

use super::measure::Figures;

pub fn table(all: &[Figures]) -> String {
    let mut text = format!(
        "\n{:>7} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9} {:>7} {:>10} {:>9}\n",
        "nodes",
        "waiting",
        "policy",
        "dec/s",
        "events/s",
        "+inputs/s",
        "fill/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "B/waiting",
        "B/node",
        "fold ev/s",
        "snap s"
    );
    for f in all {
        text += &format!(
            "{:>7} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8.1} {:>8.1} {:>9.1} {:>9} {:>7} {:>10} {:>9.2}\n",
            f.nodes,
            f.pending,
            f.policy,
            f.decisions_per_s,
            f.events_per_s,
            f.with_inputs_per_s,
            f.fill_per_s,
            f.p50_us,
            f.p99_us,
            f.p999_us,
            f.bytes_per_waiting,
            f.bytes_per_node,
            f.fold_events_per_s,
            f.snapshot_s
        );
    }
    text
}
