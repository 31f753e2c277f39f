//! The fixed inputs, as tenants, operators and agents publish them.

use ledger::InboxMessage;
use prost::Message;
use schemas::v1::{
    Batch, NodeCapacity, NodeReport, Register, Request, RunPhase, SetQuota, SetTenant, Submit,
    node_report::Report, request::Verb,
};
use vocab::Token;

pub const ROUNDS: usize = 8;
/// Tasks of a round, in one message of each tenant.
pub const PER_ROUND: usize = TENANTS.len() * PER_MESSAGE;
pub const PER_MESSAGE: usize = 125;
pub const TENANTS: [&str; 2] = ["blue", "green"];
const TEAMS: usize = 2;
const NAMESPACES: usize = 5;
/// Room for a round, so that nothing waits.
const NODES: usize = 64;
const GIB: i64 = 1 << 30;

/// Tenants with limits at every level.
pub fn settings() -> Vec<InboxMessage> {
    let mut verbs = Vec::new();
    for tenant in TENANTS {
        verbs.push(Verb::SetTenant(SetTenant {
            tenant: tenant.to_owned(),
            ..SetTenant::default()
        }));
        let mut accounts = vec![(String::new(), String::new())];
        for team in 0..TEAMS {
            accounts.push((format!("team-{team}"), String::new()));
            let leaf = |namespace| (format!("team-{team}"), format!("namespace-{namespace}"));
            accounts.extend((0..NAMESPACES).map(leaf));
        }
        for (team, namespace) in accounts {
            for resource in ["cpu", "memory", "gpu"] {
                verbs.push(Verb::SetQuota(SetQuota {
                    tenant: tenant.to_owned(),
                    resource: resource.to_owned(),
                    limit: 1 << 52,
                    team: team.clone(),
                    namespace: namespace.clone(),
                    ..SetQuota::default()
                }));
            }
        }
    }
    let operation = |(no, verb)| request(format!("setting-{no}"), verb);
    let requests = verbs.into_iter().enumerate().map(operation);
    requests
        .map(|request| message("_operator", &request))
        .collect()
}

pub fn nodes() -> impl Iterator<Item = InboxMessage> {
    (0..NODES).map(|no| {
        let register = Report::Register(Register {
            capacity: Some(NodeCapacity {
                cpu_milli: 64_000,
                memory_bytes: 512 << 30,
                gpus: 8,
                gpu_model: "a100".to_owned(),
                ..NodeCapacity::default()
            }),
            change: 0,
        });
        report(&token(&format!("node-{no}")), 1, register)
    })
}

/// The messages of a round.
pub fn submits(round: usize) -> impl Iterator<Item = InboxMessage> {
    TENANTS.into_iter().map(move |tenant| {
        let first = round * PER_MESSAGE;
        let requests = (first..first + PER_MESSAGE).map(|no| {
            let submit = Submit {
                job_set: format!("jobs-{}", round % 4),
                name: format!("task-{no}"),
                cpu_milli: 500,
                memory_bytes: GIB,
                // Every fourth task takes half a device.
                gpu_count: i64::from(no % 4 == 0),
                gpu_milli: if no % 4 == 0 { 500 } else { 0 },
                team: format!("team-{}", no % TEAMS),
                namespace: format!("namespace-{}", no % NAMESPACES),
                ..Submit::default()
            };
            request(format!("operation-{no}"), Verb::Submit(submit))
        });
        let batch = Batch {
            requests: requests.collect(),
        };
        message(tenant, &request(String::new(), Verb::Batch(batch)))
    })
}

/// What an agent knows of one of its runs.
pub struct Run {
    pub node: Token,
    pub boot: u64,
    pub allocation_id: String,
    pub revision: u64,
    pub placed_ms: i64,
}

impl Run {
    pub fn started(&self) -> InboxMessage {
        self.report(RunPhase::Started, 10)
    }

    pub fn finished(&self) -> InboxMessage {
        self.report(RunPhase::FinishedOk, 60_000)
    }

    fn report(&self, phase: RunPhase, after_ms: i64) -> InboxMessage {
        let run = schemas::v1::Run {
            allocation_id: self.allocation_id.clone(),
            phase: phase.into(),
            at_ms: self.placed_ms + after_ms,
            revision: self.revision,
            exit: None,
        };
        report(&self.node, self.boot, Report::Run(run))
    }
}

fn report(node: &Token, boot: u64, report: Report) -> InboxMessage {
    let report = NodeReport {
        boot,
        report: Some(report),
    };
    message(node.as_str(), &report)
}

pub fn request(operation_id: String, verb: Verb) -> Request {
    Request {
        operation_id,
        verb: Some(verb),
    }
}

pub fn message(sender: &str, content: &impl Message) -> InboxMessage {
    InboxMessage {
        seq: 0,
        sender: token(sender),
        reply_to: None,
        trace: None,
        by: None,
        reserved_header: false,
        payload: content.encode_to_vec().into(),
    }
}

fn token(text: &str) -> Token {
    Token::new(text).expect("made of letters, digits and dashes")
}
