//! Many allocations that run: what the services hold in memory then, and how long the scheduler takes to be ready
//! again after it was killed.

use super::{
    BenchError, case::Case, figures::Versions, load::Load, observer::Observer, scene::Scene,
    task::Tasks,
};
use crate::kit::{
    figures::round,
    usage::{SERVICES, TOGETHER, Usage},
};
use chassis::{Stopwatch, stack::Stack};
use replay::{
    command::Size,
    drive::{FaultError, command, gauge},
    machine::Machine,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LiveFigures {
    pub case: Case,
    pub live: u64,
    /// From the first request until all of them ran, and every read model knew.
    pub fill_s: f64,
    /// All five services.
    pub services_rss_mb: f64,
    pub rss_mb: BTreeMap<String, f64>,
    /// From the kill until the scheduler was ready and decided again, the launcher's pause included.
    pub scheduler_restart_s: f64,
    pub machine: Machine,
    pub versions: Versions,
}

const READY_TIMEOUT: Duration = Duration::from_secs(120);
const READY_PERIOD: Duration = Duration::from_millis(20);

pub async fn measure(
    stack: &Stack,
    live: u64,
    batch: u64,
    size: Size,
) -> Result<LiveFigures, BenchError> {
    let machine = Machine::look();
    let observer = Observer::open(stack).await?;
    let scene = Scene::set(stack, Case::Live, size).await?;
    let load = Load::new(&scene, Tasks::new(&scene.run), batch);
    let usage = Usage::begin(stack).await;
    let since = Stopwatch::start();
    load.all(live).await;
    let running = |_: &_| scene.agents.tally().started >= load.counts.accepted();
    let full = observer.settled(since, &load.counts, running).await?;
    let rss_mb = usage.end(stack).await.rss_mb;
    let services = SERVICES.iter().filter_map(|name| rss_mb.get(*name));
    Ok(LiveFigures {
        case: Case::Live,
        live: full.accepted,
        fill_s: round(full.at.as_secs_f64(), 1),
        services_rss_mb: round(services.sum(), 1),
        scheduler_restart_s: round(restart(stack).await?.as_secs_f64(), 2),
        rss_mb,
        machine: machine.and_after(),
        versions: Versions::ask(stack).await,
    })
}

async fn restart(stack: &Stack) -> Result<Duration, BenchError> {
    let control = stack.control.as_deref().ok_or(FaultError::NoControl)?;
    let scheduler = stack.services.get("scheduler");
    let address = scheduler.ok_or(BenchError::NoScheduler)?.http;
    let since = Stopwatch::start();
    // It may share its process with the others.
    let together = stack.pids().iter().any(|(name, _)| name == TOGETHER);
    let process = if together { TOGETHER } else { "scheduler" };
    // Answered when the process is gone, so what is ready from then on is the next one.
    command(control, format!("kill {process}")).await?;
    // Standing by is ready, too; here it is to decide.
    let leads = async || gauge(address, "apportion_leading").await == Some(1);
    while !(ready(address).await && leads().await) {
        if since.elapsed() > READY_TIMEOUT {
            return Err(BenchError::NotBack(READY_TIMEOUT.as_secs()));
        }
        tokio::time::sleep(READY_PERIOD).await;
    }
    Ok(since.elapsed())
}

async fn ready(address: SocketAddr) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /readyz HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        Ok::<_, std::io::Error>(status)
    };
    // Nobody listens while it is away.
    asked.await.is_ok_and(|status| status.ends_with(b" 200"))
}
