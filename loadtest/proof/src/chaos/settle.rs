//! The end of a run: waits until all is over, then looks whether anything was lost, doubled or billed wrongly. Every wait
//! has an end.

use super::{
    agents,
    book::{Feeds, Wrong, check},
    ledger::Ledger,
    report::Check,
    runs,
    scene::Scene,
};
use chassis::{Stopwatch, stack::Stack};
use client::{Client, FeedError, PAGE_MAX, Position};
use ledger::{Bus, BusError, Chain, ChainError, Tail};
use replay::{
    drive::{
        Bill, BillError, Report, Settings, SettleError, WriteError, balance, bill_at, ready,
        write_report,
    },
    reach::{self, ReachError},
    workload::Workload,
};
use std::{collections::BTreeMap, io, path::Path, process::Command, time::Duration};
use vocab::{CellNo, HOUR_MS, Kinds, Lsn, Token};

const PERIOD: Duration = Duration::from_millis(200);
/// Without any progress.
const STALL_MAX: Duration = Duration::from_secs(60);
const READY_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum EndError {
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error("reading the ledger: {0}")]
    Bus(#[from] BusError),
    #[error("reading the ledger: {0}")]
    Chain(#[from] ChainError),
    #[error("reading a feed again: {0}")]
    Feed(#[from] FeedError),
    #[error(transparent)]
    Settle(#[from] SettleError),
    #[error(transparent)]
    Bill(#[from] BillError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("running the independent sum, {script}: {source}")]
    Script { script: String, source: io::Error },
}

/// Until every allocation is over in its tenant's feed.
pub async fn all_ended(scene: &Scene) -> Check {
    let (mut last, mut still) = (usize::MAX, Stopwatch::start());
    loop {
        let open = runs::open(&scene.followed().feeds);
        if open.is_empty() {
            return Check::passed("every allocation ended");
        }
        if open.len() != last {
            (last, still) = (open.len(), Stopwatch::start());
        }
        if still.elapsed() > STALL_MAX {
            return Check::of("every allocation ended", &open);
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Every service is ready again.
pub async fn services_ready(stack: &Stack) -> Check {
    let since = Stopwatch::start();
    loop {
        let mut away = Vec::new();
        for (name, service) in &stack.services {
            if !ready(service.http).await {
                away.push(format!("{name} is not ready"));
            }
        }
        if away.is_empty() || since.elapsed() > READY_MAX {
            return Check::of("every service is ready", &away);
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Whether the chain holds, as `apportion verify` has it; and the ledger as the feeds are compared with it.
pub async fn ledger(stack: &Stack) -> Result<(Ledger, String), EndError> {
    let bus = reach::ledger(stack).await?;
    let verified = match ledger_nats::verify(&bus, &[]).await {
        Ok(verified) => verified,
        Err(ledger_nats::VerifyError::Bus(error)) => return Err(error.into()),
        Err(ledger_nats::VerifyError::Chain(error)) => return Err(error.into()),
    };
    let mut ledger = Ledger::new(CellNo(stack.cell.number));
    let mut chain = Chain::default();
    let mut records = bus.follow(Lsn(1)).await?;
    while chain.last() < verified.last {
        let record = records.recv().await?;
        if let Some(frame) = chain.accept(&record, Kinds::ALL)? {
            frame
                .placed()
                .for_each(|(at, event)| ledger.see(&at, event));
        }
    }
    let (frames, events) = (verified.frames, verified.events);
    Ok((ledger, format!("{frames} frames, {events} events")))
}

/// Operations and feeds against the ledger; asked again for a while, for the feeds trail it.
pub async fn compared(scene: &Scene, stack: &Stack) -> Result<Vec<Check>, EndError> {
    let (ledger, size) = ledger(stack).await?;
    let (mut last, mut still) = (usize::MAX, Stopwatch::start());
    loop {
        let wrong = {
            let (book, followed) = (scene.book(), scene.followed());
            check(&book, &followed.feeds, &ledger)
        };
        let Wrong {
            lost,
            doubled,
            feed,
        } = &wrong;
        let count = lost.len() + doubled.len() + feed.len();
        if count < last {
            (last, still) = (count, Stopwatch::start());
        }
        if count == 0 || still.elapsed() > STALL_MAX {
            return Ok(vec![
                Check::passed("the ledger's chain holds").with(size),
                Check::of("no operation is lost", lost),
                Check::of("no operation is doubled", doubled),
                Check::of("the feeds are what the ledger says", feed),
            ]);
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Each feed once more from its beginning: what was followed through all faults is what stands there.
pub async fn read_again(
    feeds: &Feeds,
    clients: &BTreeMap<Token, Client>,
) -> Result<Check, EndError> {
    let mut wrong = Vec::new();
    for (tenant, client) in clients {
        let (mut again, mut after) = (Vec::new(), Position::default());
        loop {
            let page = client.page(after, None, PAGE_MAX, 0).await?;
            again.extend(page.events);
            match again.last() {
                Some(last) if page.more => after = Position::from(last),
                _ => break,
            }
        }
        let followed = feeds.get(tenant).map_or(&[][..], Vec::as_slice);
        if again != followed {
            let (then, now) = (followed.len(), again.len());
            wrong.push(format!(
                "{tenant}: {then} events followed, {now} read again"
            ));
        }
    }
    Ok(Check::of("the feeds read again are the same", &wrong))
}

/// Nothing was placed, started or ended twice, and no device or node was given out twice.
pub fn witnessed(scene: &Scene, conflicts: &[replay::fleet::Conflict]) -> Check {
    let (book, followed) = (scene.book(), scene.followed());
    let workload = Workload {
        nodes: agents::nodes(),
        pods: runs::pods(&book, &followed.feeds),
        is_as_recorded: false,
    };
    let findings = followed.witness.findings(&workload);
    let agents = conflicts.iter().map(|conflict| {
        let (device, assigned, held) = (conflict.device, &conflict.assigned_to, &conflict.held_by);
        format!("an agent was given device {device} for {assigned} while {held} ran on it")
    });
    let all = [findings.twice, findings.double_booked, findings.strange];
    let all: Vec<String> = all.into_iter().flatten().chain(agents).collect();
    Check::of("nothing ran or was given out twice", &all)
}

/// The bill against a sum that shares no code with the suite, and the books of everything.
pub async fn billed(
    scene: &Scene,
    stack: &Stack,
    settings: &Settings,
    (beside, script): (&Path, &Path),
) -> Result<Vec<Check>, EndError> {
    let bill = Bill::of(stack).map_err(ReachError::from)?;
    let intervals = {
        let (book, followed) = (scene.book(), scene.followed());
        runs::intervals(&book, &followed.feeds, &agents::nodes())
    };
    let last = scene.followed().witness.last_run_end().lsn;
    let lengths = intervals.iter().map(|run| run.ended_ms - run.started_ms);
    let (count, length) = (
        lengths.clone().filter(|ms| *ms > 0).count(),
        lengths.sum::<i64>(),
    );
    let standing = bill_at(last, count as u64, &bill).await?;
    let mut report = Report {
        finished: intervals
            .iter()
            .filter(|run| run.cause == "finished")
            .count() as u64,
        allocation_hours: length as f64 / HOUR_MS as f64,
        ..Report::default()
    };
    report.billed(bill.charges().await?, bill.hours().await?);
    let books = balance(&bill).await?;
    report.conserved(&books);
    write_report(&beside.join("report.json"), &report, &intervals, settings)?;
    let (there, wanted) = (standing.intervals, count as u64);
    let rows = (there != wanted).then(|| format!("{there} runs billed, {wanted} in the feeds"));
    Ok(vec![
        Check::of("every run is on the bill once", rows.as_slice()).with(format!("{there} runs")),
        independent_sum(beside, script)?,
        Check::of("the books of everything balance", &report.problems),
    ])
}

fn independent_sum(beside: &Path, script: &Path) -> Result<Check, EndError> {
    let done = Command::new("python3")
        .arg(script)
        .args(["--without-trace", "--report"])
        .arg(beside.join("report.json"))
        .output()
        .map_err(|source| EndError::Script {
            script: script.display().to_string(),
            source,
        })?;
    let said =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    let lines: Vec<String> = said.lines().map(str::to_owned).collect();
    const NAME: &str = "the bill is an independent sum";
    Ok(if done.status.success() {
        Check::passed(NAME).with(lines.concat())
    } else {
        Check::of(NAME, &lines)
    })
}
