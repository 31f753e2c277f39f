//! Differences in plain words: the counts, then some of each kind.

use crate::{
    amount,
    explain::percent,
    print::{Sheet, column, plain},
};
use scheduler_rules::what_if::{
    Difference, Differences, Kind, NodesUsed, Preempted, QueueDifference, Requested, Standing,
};
use vocab::{AllocationNo, CellNo, Lsn, Millis};

/// Rows of one kind, at the most.
const ROWS_MAX: usize = 20;

pub const KINDS: [Kind; 5] = [
    Kind::Placed,
    Kind::Unplaced,
    Kind::Moved,
    Kind::Ended,
    Kind::Waits,
];

pub fn lines(found: &Differences, cell: CellNo, through: Lsn, now: Millis) -> Vec<String> {
    let at = amount::moment(now);
    let mut lines = vec![format!(
        "as of lsn {}, {at}; nothing was changed",
        through.0
    )];
    if found.is_empty() {
        lines.push("no differences".into());
        return lines;
    }
    let mut count = |number: usize, what: &str| {
        if number > 0 {
            lines.push(format!("{number:>8} {what}"));
        }
    };
    count(found.requested.len(), REQUESTED);
    for kind in KINDS {
        count(found.of_kind(kind).count(), title(kind));
    }
    count(found.preempted.len(), PREEMPTED);
    count(found.spared.len(), SPARED);
    if found.nodes_before != found.nodes_after {
        let used = |nodes: NodesUsed| format!("{} of {}", nodes.used, nodes.ready);
        let (from, to) = (used(found.nodes_before), used(found.nodes_after));
        lines.push(format!("nodes in use: {from} ready -> {to} ready"));
    }
    if found.preemption_limited {
        lines.push("more would have to go than may at once: this is only the beginning".into());
    }
    section(
        &mut lines,
        REQUESTED,
        found.requested.iter().enumerate(),
        requested,
    );
    for kind in KINDS {
        section(&mut lines, title(kind), found.of_kind(kind), |one| {
            difference(one, cell)
        });
    }
    section(&mut lines, PREEMPTED, found.preempted.iter(), |one| {
        preempted(one, cell)
    });
    section(&mut lines, SPARED, found.spared.iter(), |one| {
        preempted(one, cell)
    });
    section(
        &mut lines,
        "queues, share and fair share",
        found.queues.iter(),
        queue,
    );
    lines
}

/// The allocations that would stand elsewhere.
pub fn sheet(found: &Differences, cell: CellNo) -> Sheet {
    let row = |one: &Difference| {
        vec![
            plain(one.allocation.id(cell)),
            plain(&one.queue),
            plain(name(one.kind())),
            plain(standing(&one.before)),
            plain(standing(&one.after)),
        ]
    };
    let columns = vec![
        column("allocation_id", "allocation"),
        column("queue", "queue"),
        column("kind", "kind"),
        column("before", "before"),
        column("after", "after"),
    ];
    let all = columns.len();
    Sheet::new(columns, all, found.allocations.iter().map(row).collect())
}

const REQUESTED: &str = "extra requests";
const PREEMPTED: &str = "preempted";
const SPARED: &str = "no longer preempted";

fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Placed => "placed",
        Kind::Unplaced => "no longer placed",
        Kind::Moved => "on another node",
        Kind::Ended => "over",
        Kind::Waits => "waiting for another reason",
    }
}

/// The kind's name for programs.
pub fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Placed => "placed",
        Kind::Unplaced => "unplaced",
        Kind::Moved => "moved",
        Kind::Ended => "ended",
        Kind::Waits => "waits",
    }
}

fn section<T>(
    lines: &mut Vec<String>,
    title: &str,
    all: impl Iterator<Item = T>,
    row: impl Fn(T) -> String,
) {
    let mut all = all.peekable();
    if all.peek().is_none() {
        return;
    }
    lines.push(String::new());
    lines.push(format!("{title}:"));
    lines.extend(
        all.by_ref()
            .take(ROWS_MAX)
            .map(|one| format!("  {}", row(one))),
    );
    let more = all.count();
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

fn standing(standing: &Standing) -> String {
    match standing {
        Standing::AwaitingQuota => "waits: quota".into(),
        Standing::Waits(reason) => format!("waits: {}", words(reason.name())),
        Standing::On(node) => format!("on {node}"),
        Standing::Ended(cause) => format!("ended: {}", words(cause.name())),
    }
}

fn difference(one: &Difference, cell: CellNo) -> String {
    let (from, to) = (standing(&one.before), standing(&one.after));
    format!(
        "{} in {}: {from} -> {to}",
        one.allocation.id(cell),
        one.queue
    )
}

fn requested((index, one): (usize, &Requested)) -> String {
    let counts = one.counts.iter();
    let counts = counts.map(|(filter, nodes)| format!("{nodes} by {}", words(filter.name())));
    let why = match one.counts.is_empty() {
        true => String::new(),
        false => format!(
            " (nodes kept off: {})",
            counts.collect::<Vec<_>>().join(", ")
        ),
    };
    format!("request {}: {}{why}", index + 1, standing(&one.standing))
}

fn preempted(one: &Preempted, cell: CellNo) -> String {
    let by = match (one.by, one.by_extra) {
        (Some(by), _) => format!(" for {}", AllocationNo::id(by, cell)),
        (None, Some(extra)) => format!(" for request {}", extra + 1),
        (None, None) => String::new(),
    };
    let cause = words(one.cause.name());
    format!("{} in {}: {cause}{by}", one.allocation.id(cell), one.queue)
}

fn queue(one: &QueueDifference) -> String {
    let (from, to) = (one.before, one.after);
    let change = |from, to| format!("{:>9} -> {:>9}", percent(from), percent(to));
    format!(
        "{:<20} {}   {}",
        one.queue.as_str(),
        change(from.share_ppm, to.share_ppm),
        change(from.fair_share_ppm, to.fair_share_ppm),
    )
}
