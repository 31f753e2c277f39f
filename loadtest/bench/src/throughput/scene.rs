//! What a case needs before its load begins: settings by the operator, nodes with their agents, clients.

use super::{
    BenchError,
    audit::{ReadyNodes, nodes_ready},
    case::{Case, NodeSize},
};
use crate::kit::usage::AGENTS;
use chassis::{Clock, Stopwatch, stack::Stack};
use client::{Client, ConnectOptions, Failed, Operation, SetRate};
use replay::{
    command::Size,
    drive::{Quota, Settings},
    fleet::{Fleet, FleetError, FleetOptions, FleetTally, Lifetime},
    reach::{operator, tenants},
    workload::Node,
};
use std::{ops::Range, sync::Arc, thread, time::Duration};
use tokio::sync::oneshot;
use vocab::{NodeCapacity, ResourceKind, Token};

/// A third of the lease that the launcher sets.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// An agent says what has come up meanwhile, not each run by itself.
const REPORT_PAUSE: Duration = Duration::from_millis(25);
/// Longer than the backlog of any rate that is tried, so that nothing is sent twice because it is slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a lease.
const NODES_TIMEOUT: Duration = Duration::from_secs(120);
const NODES_PERIOD: Duration = Duration::from_millis(200);
/// The contract's largest limit.
const QUOTA_MAX: u64 = 1 << 53;

pub struct Scene {
    /// One connection for each tenant.
    pub clients: Vec<Client>,
    /// What the run's operations and its job set begin with.
    pub run: String,
    pub agents: Agents,
}

impl Scene {
    pub async fn set(stack: &Stack, case: Case, size: Size) -> Result<Self, BenchError> {
        let all = tenants(stack);
        if all.len() < case.tenants() {
            return Err(BenchError::TooFewTenants {
                case: case.name(),
                wanted: case.tenants(),
                there: all.len(),
            });
        }
        let run = Operation::fresh_id()[..4].to_owned();
        let fleet = FleetOptions {
            nodes: nodes(case.nodes(size), case.node(size))?,
            lifetime: lifetime(case),
            ..fleet(stack)?
        };
        Self::with(stack, &all[..case.tenants()], run, fleet, case.batched()).await
    }

    /// With any nodes. Those of a scene before this one on the same stack register again under the same names: nodes that fall
    /// silent together are lost too slowly to wait for. `batched`: the senders put requests into messages.
    pub async fn with(
        stack: &Stack,
        tenants: &[Token],
        run: String,
        fleet: FleetOptions,
        batched: bool,
    ) -> Result<Self, BenchError> {
        let operator = operator(stack).await?;
        settings(tenants).apply(&operator).await?;
        prices(&operator).await?;
        let count = fleet.nodes.len() as u64;
        let since_ms = Clock::real().now_ms();
        let agents = Agents::start(fleet)?;
        until_ready(stack, count, since_ms).await?;
        let mut clients = Vec::new();
        for tenant in tenants {
            clients.push(connect(stack, tenant, batched).await?);
        }
        Ok(Self {
            clients,
            run,
            agents,
        })
    }
}

/// Until these nodes are ready, of agents that started since then, and no others.
pub async fn until_ready(stack: &Stack, wanted: u64, since_ms: i64) -> Result<(), BenchError> {
    let all = ReadyNodes {
        all: wanted,
        former: 0,
    };
    let since = Stopwatch::start();
    loop {
        let late = since.elapsed() > NODES_TIMEOUT;
        match nodes_ready(stack, since_ms).await {
            Ok(there) if there == all => return Ok(()),
            Ok(ReadyNodes { all, former }) if late => {
                return Err(BenchError::OtherNodes {
                    wanted,
                    all,
                    former,
                });
            }
            // On a stack that has just been started the tables may be yet to come.
            Err(error) if late => return Err(error.into()),
            Ok(_) | Err(_) => {}
        }
        tokio::time::sleep(NODES_PERIOD).await;
    }
}

/// Who has many requests at once puts them into messages himself; single ones are gathered by the library while a message
/// waits for its acknowledgement.
async fn connect(stack: &Stack, tenant: &Token, batched: bool) -> Result<Client, BenchError> {
    let creds = stack.creds(&format!("tenant:{tenant}"))?;
    let options = ConnectOptions::tenant(&stack.nats.url, &stack.cell.name, tenant.clone())
        .creds(creds)
        .ca_file(stack.ca_file())
        .patience(PATIENCE);
    let options = if batched { options } else { options.batched() };
    Ok(Client::connect(options).await?)
}

/// From the beginning of time on. A stack that was measured before has them, and refuses to change the past.
async fn prices(operator: &Client) -> Result<(), BenchError> {
    for (resource, micro_per_unit_hour) in [("cpu", 31_611), ("memory", 4_237)] {
        let rate = SetRate {
            resource: resource.to_owned(),
            micro_per_unit_hour,
            ..SetRate::default()
        };
        match operator.set_rate(rate, Operation::fresh_id()).await {
            Ok(_) | Err(Failed::Refused(_)) => {}
            Err(failed) => return Err(failed.into()),
        }
    }
    Ok(())
}

/// Limits that are never felt.
pub fn settings(tenants: &[Token]) -> Settings {
    let quota = |tenant: &Token| {
        ResourceKind::ALL.map(|resource| Quota {
            tenant: tenant.clone(),
            resource,
            limit: QUOTA_MAX,
        })
    };
    Settings {
        tenants: tenants.to_vec(),
        quotas: tenants.iter().flat_map(quota).collect(),
        rates: Vec::new(),
        tight: None,
    }
}

/// The simulated agents in a thread of their own, as if they were elsewhere: what they do keeps no request waiting in
/// the driver, and the kernel counts their time apart.
pub struct Agents {
    fleet: Option<Fleet>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Agents {
    fn start(options: FleetOptions) -> Result<Self, BenchError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (started, up) = std::sync::mpsc::channel();
        let thread = thread::Builder::new()
            .name(AGENTS.to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    // Whoever waits for them hears of it, or has gone.
                    let _ = started.send(Fleet::start(options).await);
                    let _ = stopped.await;
                });
            })?;
        let fleet: Result<Fleet, FleetError> = up.recv().map_err(|_| BenchError::AgentsGone)?;
        Ok(Self {
            fleet: Some(fleet?),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub fn tally(&self) -> FleetTally {
        self.fleet.as_ref().map(Fleet::tally).unwrap_or_default()
    }

    /// See [`Fleet::silence_those`].
    pub fn silence_those(&self, nodes: Range<usize>) {
        if let Some(fleet) = &self.fleet {
            fleet.silence_those(nodes);
        }
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        drop(self.fleet.take());
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has panicked, or ended; there is nothing to do about either here.
            let _ = thread.join();
        }
    }
}

/// Without nodes yet, whose runs last until they are stopped.
pub fn fleet(stack: &Stack) -> Result<FleetOptions, BenchError> {
    Ok(FleetOptions {
        url: stack.nats.url.clone(),
        ca_file: stack.ca_file().map(Into::into),
        creds: stack.creds("fleet")?,
        cell: stack.cell.name.clone(),
        nodes: Vec::new(),
        clock: stack.clock(),
        heartbeat: HEARTBEAT,
        report_pause: REPORT_PAUSE,
        asks: false,
        lifetime: Arc::new(|_| None),
    })
}

pub fn nodes(count: usize, size: NodeSize) -> Result<Vec<Node>, BenchError> {
    let node = |no: usize| {
        Ok(Node {
            name: Token::new(&format!("n{no:06}"))?,
            capacity: NodeCapacity {
                cpu_milli: size.cores * 1000,
                memory_bytes: size.memory_bytes,
                ..NodeCapacity::default()
            },
        })
    };
    (0..count).map(node).collect()
}

fn lifetime(case: Case) -> Lifetime {
    let ms = case.lifetime_ms();
    Arc::new(move |_| ms)
}
