//! Runs by how they end, how large they are and how long they waited.

use super::{super::super::kind, percent, used, waited};
use crate::print::{
    Sheet, absent, allocation, column, counted, exactly, moment, named, number, plain,
};
use analytics::store::{EndLine, LongWait, SizeLine, WaitLine};
use vocab::ResourceKind;

pub fn ends(lines: &[EndLine]) -> Sheet {
    let row = |line: &EndLine| {
        vec![
            exactly(line.cause.replace('_', " "), &line.cause),
            number(line.runs),
            used("cpu", line.cpu),
            used("memory", line.memory),
            used("gpu", line.gpu),
        ]
    };
    let columns = vec![
        column("cause", "ended by"),
        column("runs", "runs"),
        column("cpu", "CPU"),
        column("memory", "memory"),
        column("gpu", "GPU"),
    ];
    Sheet::new(columns, 1, lines.iter().map(row).collect())
}

/// `more than 2, up to 4 GPUs`.
pub fn size(line: &SizeLine) -> String {
    let unit = match kind(&line.resource) {
        Some(ResourceKind::Cpu) => "core",
        _ => "GPU",
    };
    match line.up_to_milli {
        0 => format!("no {unit}"),
        999 => format!("a part of one {unit}"),
        1000 => format!("1 {unit}"),
        2000 => format!("more than 1, up to 2 {unit}s"),
        milli => format!("more than {}, up to {} {unit}s", milli / 2000, milli / 1000),
    }
}

pub fn sizes(lines: &[SizeLine]) -> Sheet {
    let rows = lines.iter().map(|line| {
        let of_resource = lines.iter().filter(|other| other.resource == line.resource);
        let all: u64 = of_resource.map(|other| other.runs).sum();
        vec![
            plain(&line.resource),
            counted(size(line), line.up_to_milli),
            number(line.runs),
            percent(line.runs.into(), all.into()),
            used(&line.resource, line.quantity),
        ]
    });
    let columns = vec![
        column("resource", "resource"),
        column("up_to_milli", "size of a run"),
        column("runs", "runs"),
        column("percent", "of runs"),
        column("quantity", "used"),
    ];
    Sheet::new(columns, 2, rows.collect())
}

pub fn waits(lines: &[WaitLine]) -> Sheet {
    let figure = |ms: Option<i64>| ms.map_or_else(|| absent("-"), waited);
    let row = |line: &WaitLine| {
        vec![
            named(&line.queue),
            number(line.placed),
            number(line.unplaced),
            figure(line.p50_ms),
            figure(line.p90_ms),
            figure(line.p99_ms),
            figure(line.max_ms),
        ]
    };
    let columns = vec![
        column("queue", "queue"),
        column("placed", "got a place"),
        column("unplaced", "ended without one"),
        column("p50_ms", "50 % waited up to"),
        column("p90_ms", "90 %"),
        column("p99_ms", "99 %"),
        column("max_ms", "longest"),
    ];
    Sheet::new(columns, 1, lines.iter().map(row).collect())
}

pub fn longest(lines: &[LongWait]) -> Sheet {
    let words = |name: &str| exactly(named(&name.replace('_', " ")).text, name);
    let row = |line: &LongWait| {
        vec![
            allocation(&line.allocation.to_string()),
            plain(&line.tenant),
            named(&line.team),
            named(&line.queue),
            plain(&line.job_set),
            moment(line.queued_ms),
            words(&line.reason),
            match line.ended_by.as_str() {
                "" => exactly("got a place".to_owned(), ""),
                cause => words(cause),
            },
            waited(line.waited_ms),
        ]
    };
    let columns = vec![
        column("allocation", "allocation"),
        column("tenant", "tenant"),
        column("team", "team"),
        column("queue", "queue"),
        column("job_set", "job set"),
        column("queued_ms", "queued at"),
        column("reason", "last reason"),
        column("ended_by", "outcome"),
        column("waited_ms", "waited"),
    ];
    Sheet::new(columns, 8, lines.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_in_words() {
        let check = |resource: &str, up_to_milli, expected: &str| {
            let line = SizeLine {
                resource: resource.to_owned(),
                up_to_milli,
                runs: 1,
                quantity: 0,
            };
            assert_eq!(size(&line), expected);
        };
        check("gpu", 0, "no GPU");
        check("gpu", 999, "a part of one GPU");
        check("gpu", 1000, "1 GPU");
        check("cpu", 2000, "more than 1, up to 2 cores");
        check("gpu", 8000, "more than 4, up to 8 GPUs");
    }
}
