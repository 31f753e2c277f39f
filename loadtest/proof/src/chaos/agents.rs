//! The nodes' agents: most of them steady, one that falls silent and one that is started anew.

use chassis::stack::Stack;
use replay::{
    fleet::{Conflict, Fleet, FleetError, FleetOptions},
    workload::Node,
};
use std::{sync::Arc, time::Duration};
use vocab::{NodeCapacity, Token};

const STEADY: usize = 8;
/// A fifth of the lease that the launcher sets.
const HEARTBEAT: Duration = Duration::from_secs(3);
pub const GPU_MODEL: &str = "T4";

pub struct Agents {
    stack: Stack,
    steady: Fleet,
    silent: Fleet,
    restarted: Option<Fleet>,
    /// Of agents that are no more.
    conflicts: Vec<Conflict>,
}

impl Agents {
    pub async fn start(stack: &Stack) -> Result<Self, FleetError> {
        Ok(Self {
            steady: fleet(stack, steady()).await?,
            silent: fleet(stack, vec![node("silent")]).await?,
            restarted: Some(fleet(stack, vec![node("restarted")]).await?),
            stack: stack.clone(),
            conflicts: Vec::new(),
        })
    }

    pub fn silence(&self, silent: bool) {
        self.silent.silence(silent);
    }

    /// It forgets all that it ran and registers as a new incarnation.
    pub async fn restart(&mut self) -> Result<(), FleetError> {
        if let Some(before) = self.restarted.take() {
            self.conflicts.extend(before.tally().conflicts);
        }
        self.restarted = Some(fleet(&self.stack, vec![node("restarted")]).await?);
        Ok(())
    }

    /// Devices that an agent was given twice.
    pub fn conflicts(&self) -> Vec<Conflict> {
        let living = [
            Some(&self.steady),
            Some(&self.silent),
            self.restarted.as_ref(),
        ];
        let living = living.into_iter().flatten();
        let living = living.flat_map(|fleet| fleet.tally().conflicts);
        self.conflicts.iter().cloned().chain(living).collect()
    }
}

pub fn nodes() -> Vec<Node> {
    let others = [node("silent"), node("restarted")];
    steady().into_iter().chain(others).collect()
}

fn steady() -> Vec<Node> {
    let node = |no| node(&format!("steady-{no}"));
    (0..STEADY).map(node).collect()
}

fn node(name: &str) -> Node {
    let token = |text: &str| Token::new(text).unwrap_or_else(|_| unreachable!("{text} is a token"));
    Node {
        name: token(name),
        capacity: NodeCapacity {
            cpu_milli: 32_000,
            memory_bytes: 128 << 30,
            gpus: 4,
            gpu_model: Some(token(GPU_MODEL)),
            ..NodeCapacity::default()
        },
    }
}

async fn fleet(stack: &Stack, nodes: Vec<Node>) -> Result<Fleet, FleetError> {
    let creds = stack.creds("fleet").unwrap_or_else(|_| {
        unreachable!("the launcher's stacks have a fleet");
    });
    Fleet::start(FleetOptions {
        url: stack.nats.url.clone(),
        ca_file: stack.ca_file().map(Into::into),
        creds,
        cell: stack.cell.name.clone(),
        nodes,
        clock: stack.clock(),
        heartbeat: HEARTBEAT,
        report_pause: Duration::ZERO,
        asks: false,
        lifetime: Arc::new(|change| super::clients::run_ms(&change.spec.as_ref()?.name)),
    })
    .await
}
