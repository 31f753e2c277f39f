//! Asks for what cannot be placed, reads why it waits, and takes it back: the recorded workload may never wait for long.

use super::{desk::Verb as Sent, scene::Scene};
use chassis::{Stopwatch, stack::Stack, warm::WarmError};
use client::{Client, GangRequest, NoOutcome, Operation, PlacementRules, Requirement, Submit};
use scheduler::{
    project::Said,
    store::{Explanation, explain},
};
use schemas::v1::{self, Cancel, outcome::Result as Decided, request::Verb};
use serde::Serialize;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{collections::BTreeMap, str::FromStr, time::Duration};
use vocab::{AllocationId, Millis, Rule, Token, WaitingReason, fact::AllocationWaiting};

const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(200);
/// Longer than the read model ever lags behind.
const PATIENCE: Duration = Duration::from_secs(20);
const PERIOD: Duration = Duration::from_millis(100);

/// What the read model says of one that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explained {
    pub asks_for: &'static str,
    pub reason: &'static str,
    /// Nodes, by what keeps it off them.
    pub nodes: BTreeMap<&'static str, u32>,
    /// What would have to become free, by resource.
    pub shortfall: BTreeMap<&'static str, u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("no tenant may ask for anything")]
    NoTenant,
    #[error("probe {asks_for}: {error}")]
    NoOutcome {
        asks_for: &'static str,
        error: NoOutcome,
    },
    #[error("probe {0} was not accepted")]
    Refused(&'static str),
    #[error("probe {asks_for} was not explained within {} s", PATIENCE.as_secs())]
    NotExplained { asks_for: &'static str },
    #[error("reading explanations: {0}")]
    Read(#[from] WarmError),
    #[error("reading explanations: {0}")]
    Postgres(#[from] sqlx::Error),
}

/// One core and one GiB each, but for what makes it impossible.
fn probes() -> [(&'static str, Submit); 4] {
    let plain = || Submit {
        job_set: "probes".to_owned(),
        cpu_milli: 1_000,
        memory_bytes: 1 << 30,
        ..Submit::default()
    };
    let of_no_model = Submit {
        gpu_count: 1,
        gpu_models: vec!["no-such-model".to_owned()],
        ..plain()
    };
    let requirement = Requirement {
        label: "zone".to_owned(),
        operator: v1::Operator::In.into(),
        values: vec!["no-such-zone".to_owned()],
    };
    let nowhere = Submit {
        rules: Some(PlacementRules {
            selector: vec![requirement],
            ..PlacementRules::default()
        }),
        ..plain()
    };
    let half_a_gang = Submit {
        gang: Some(GangRequest {
            name: "half".to_owned(),
            size: 2,
            ..GangRequest::default()
        }),
        ..plain()
    };
    let too_large = Submit {
        gpu_count: 16,
        ..plain()
    };
    [
        ("a GPU of a model that no node has", of_no_model),
        ("16 GPUs on one node", too_large),
        ("a zone that no node is in", nowhere),
        ("a gang of two, of which one comes", half_a_gang),
    ]
}

/// Every probe is an operation like any other, with its outcome and its cancel.
pub async fn probe(
    scene: &Scene,
    stack: &Stack,
    tenant: Option<&Token>,
) -> Result<Vec<Explained>, ProbeError> {
    let tenant = tenant.ok_or(ProbeError::NoTenant)?;
    let client = scene.clients.get(tenant).ok_or(ProbeError::NoTenant)?;
    let options = PgConnectOptions::from_str(&stack.postgres.url)?;
    let options = options.options([("search_path", "scheduler")]);
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.connect_with(options).await?;
    let mut found = Vec::new();
    for (no, (asks_for, submit)) in probes().into_iter().enumerate() {
        let submit = Submit {
            name: format!("probe-{no}"),
            ..submit
        };
        let sent = Probe {
            scene,
            client,
            no,
            asks_for,
        };
        let decided = sent.operate(Sent::Submit, Verb::Submit(submit)).await?;
        let Decided::Submitted(submitted) = decided else {
            return Err(ProbeError::Refused(asks_for));
        };
        let allocation_id = submitted.allocation_id;
        let explained = sent.explained(&pool, tenant, &allocation_id).await;
        sent.operate(Sent::Cancel, Verb::Cancel(Cancel { allocation_id }))
            .await?;
        found.push(explained?);
    }
    Ok(found)
}

struct Probe<'a> {
    scene: &'a Scene,
    client: &'a Client,
    no: usize,
    asks_for: &'static str,
}

impl Probe<'_> {
    async fn operate(&self, kind: Sent, verb: Verb) -> Result<Decided, ProbeError> {
        let verb_name = match kind {
            Sent::Submit => "submit",
            Sent::Cancel => "cancel",
        };
        let id = format!("{verb_name}-probe-{}", self.no);
        // After the pods.
        let index = self.scene.workload.pods.len() + self.no;
        self.scene.desk().sent(&id, kind, index);
        let operation = Operation::new(&id, verb);
        let outcome = self.client.settle(&operation, TRIES, PAUSE).await;
        let outcome = outcome.map_err(|error| ProbeError::NoOutcome {
            asks_for: self.asks_for,
            error,
        })?;
        self.scene.desk().answered(&outcome);
        outcome.result.ok_or(ProbeError::Refused(self.asks_for))
    }

    async fn explained(
        &self,
        pool: &PgPool,
        tenant: &Token,
        allocation: &str,
    ) -> Result<Explained, ProbeError> {
        let id = AllocationId::parse(allocation).ok_or(ProbeError::Refused(self.asks_for))?;
        let since = Stopwatch::start();
        while since.elapsed() < PATIENCE {
            let explanation = explain(pool, tenant, id, None, Millis(0)).await?;
            if let Some(found) = explanation.and_then(|found| self.read(&found)) {
                return Ok(found);
            }
            tokio::time::sleep(PERIOD).await;
        }
        Err(ProbeError::NotExplained {
            asks_for: self.asks_for,
        })
    }

    /// None while its pending group has not been explained.
    fn read(&self, explanation: &Explanation) -> Option<Explained> {
        let own = explanation.history.last()?.said();
        let said = match own {
            Said::AllocationWaiting(AllocationWaiting {
                pending_group: Some(_),
                ..
            }) => explanation.pending_group.as_ref()?.said(),
            own => own,
        };
        let explained = |reason: WaitingReason| Explained {
            asks_for: self.asks_for,
            reason: reason.name(),
            nodes: BTreeMap::new(),
            shortfall: BTreeMap::new(),
        };
        match said {
            Said::AllocationWaiting(fact) => Some(explained(fact.reason)),
            Said::QuotaWaiting(fact) => Some(explained(match fact.refusal.rule {
                Rule::IncompleteGang => WaitingReason::GangIncomplete,
                Rule::DependencyPending => WaitingReason::Dependency,
                _ => WaitingReason::Quota,
            })),
            Said::PendingGroupExplained(group) => {
                let nodes = group.counts.iter();
                let shortfall = group.shortfall.iter();
                Some(Explained {
                    nodes: nodes
                        .map(|(filter, nodes)| (filter.name(), *nodes))
                        .collect(),
                    shortfall: shortfall.map(|(of, amount)| (of.name(), *amount)).collect(),
                    ..explained(group.reason)
                })
            }
            _ => None,
        }
    }
}
