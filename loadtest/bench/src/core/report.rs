//! The cases as people read them.

use super::{crowd::Frames, measure::Figures};

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

pub fn crowds(all: &[Frames]) -> String {
    let mut text = format!(
        "\n{:>7} {:>7} {:>7} {:>8} {:>7} {:>9} {:>9} {:>10} {:>9} {:>8} {:>9} {:>5} {:>10}\n",
        "crowd",
        "nodes",
        "queues",
        "waiting",
        "frames",
        "p50 ms",
        "p99.9 ms",
        "longest ms",
        "dec/s",
        "placed",
        "preempted",
        "rest",
        "late cores"
    );
    for f in all {
        let late = match (f.late_cores, f.late_due) {
            (Some(cores), Some(due)) => format!("{cores} of {due}"),
            _ => String::new(),
        };
        text += &format!(
            "{:>7} {:>7} {:>7} {:>8} {:>7} {:>9.2} {:>9.1} {:>10.1} {:>9} {:>8} {:>9} {:>5} {:>10}\n",
            f.case,
            f.nodes,
            f.queues,
            f.waiting,
            f.frames,
            f.p50_ms,
            f.p999_ms,
            f.longest_ms,
            f.decisions_per_s,
            f.placed,
            f.preempted,
            f.rest,
            late
        );
    }
    text
}
