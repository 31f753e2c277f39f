//! Every subject, stream and bucket name of a cell. Nothing else in the project spells one.
//!
//! A cell, tenant, job set or node name in a subject is a token `[A-Za-z0-9_-]{1,64}`; whoever builds a subject from
//! outside input has checked it before (`vocab::Token`).

/// Carries the last token of the reply subject.
pub const HEADER_REPLY: &str = "Apportion-Reply";
/// W3C trace context.
pub const HEADER_TRACEPARENT: &str = "traceparent";
/// Of a feed message: the ledger positions that its batch is of, `<first>-<last>`. Those of the next batch are higher.
pub const HEADER_POSITION: &str = "Apportion-Position";
/// Of a feed message: its number in its batch and how many there are, `<number>/<count>`.
pub const HEADER_PART: &str = "Apportion-Part";
/// Of a feed message: the id of the ledger that it was made from.
pub const HEADER_LEDGER: &str = "Apportion-Ledger";
/// Of a feed message: the digest of the ledger's record at the end of its batch.
pub const HEADER_DIGEST: &str = "Apportion-Digest";
/// What may be asked on `query.<tenant>.<verb>`, by the service that answers. Some only operators may:
/// [`OPERATORS_QUERIES`].
pub const QUERIES: [(&str, &[&str]); 5] = [
    (
        "admission",
        &["feed", "operation", "rates", "refusals", "settings"],
    ),
    (
        "scheduler",
        &[
            "allocation",
            "allocations",
            "explain",
            "job_sets",
            "lease",
            "node",
            "nodes",
            "preemptions",
            "queue",
            "queues",
            "reservations",
            "resource",
            "tenants",
            "try_place",
        ],
    ),
    ("quota", &["budget", "quota", "quota_history", "try_quota"]),
    ("analytics", &["bill", "usage"]),
    ("node-heartbeat", &["approvals", "logs"]),
];

/// Those of [`QUERIES`] that only operators may ask.
pub const OPERATORS_QUERIES: [&str; 5] = ["approvals", "node", "nodes", "rates", "tenants"];

/// The service that answers the verb; none: there is no such verb.
pub fn answers(verb: &str) -> Option<&'static str> {
    let of = |(_, verbs): &&(&str, &[&str])| verbs.contains(&verb);
    QUERIES.iter().find(of).map(|(service, _)| *service)
}

/// Where NATS' own tools ask services what they are (`nats micro ls`); here operators alone may.
pub const SERVICE_API: &str = "$SRV";

/// The name that stands for the operators where a tenant's name is expected. No tenant may begin with `_`.
pub const OPERATOR: &str = "_operator";

/// Where operators publish, as a token of the subject.
pub const ADMIN: &str = "admin";

/// The names of one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subjects {
    cell: String,
}

impl Subjects {
    pub fn new(cell: impl Into<String>) -> Self {
        Self { cell: cell.into() }
    }

    pub fn cell(&self) -> &str {
        &self.cell
    }

    fn subject(&self, rest: &str) -> String {
        format!("apportion.v1.{}.{rest}", self.cell)
    }

    /// Tenants publish their requests here.
    pub fn ingress(&self, tenant: &str) -> String {
        self.subject(&format!("ingress.{tenant}"))
    }

    /// Operators publish tenants, quotas and rates here.
    pub fn admin(&self) -> String {
        self.subject(ADMIN)
    }

    /// The same of one operator, whose name stands with what it sets.
    pub fn admin_of(&self, operator: &str) -> String {
        self.subject(&format!("{ADMIN}.{operator}"))
    }

    /// One writer's frames.
    pub fn ledger(&self, writer: &str) -> String {
        self.subject(&format!("ledger.{writer}"))
    }

    /// The tenant's event feed.
    pub fn event(&self, tenant: &str, job_set: &str) -> String {
        self.subject(&format!("event.{tenant}.{job_set}"))
    }

    /// Where an outcome is sent to, when the request named a token.
    pub fn reply(&self, tenant: &str, token: &str) -> String {
        self.subject(&format!("reply.{tenant}.{token}"))
    }

    /// Request and reply: what a tenant may ask.
    pub fn query(&self, tenant: &str, verb: &str) -> String {
        self.subject(&format!("query.{tenant}.{verb}"))
    }

    /// `heartbeat`, `assign`, `report`, `sync` or `logs` of one node.
    pub fn node(&self, node: &str, what: &str) -> String {
        self.subject(&format!("node.{node}.{what}"))
    }

    /// Request and reply: a machine asks to become a node.
    pub fn join(&self) -> String {
        self.subject("join")
    }

    /// The token at `index` after the cell: `token("…ingress.t1", 1)` is `t1`.
    pub fn token<'s>(&self, subject: &'s str, index: usize) -> Option<&'s str> {
        subject
            .strip_prefix("apportion.v1.")?
            .strip_prefix(&self.cell)?
            .strip_prefix('.')?
            .split('.')
            .nth(index)
    }

    fn stream(&self, what: &str) -> String {
        format!("APPORTION_{}_{what}", self.cell)
    }

    pub fn ledger_stream(&self) -> String {
        self.stream("LEDGER")
    }

    /// Requests of tenants and operators, until admission has decided them.
    pub fn ingress_stream(&self) -> String {
        self.stream("INGRESS")
    }

    /// Reports of node agents, until node-heartbeat has decided them.
    pub fn report_stream(&self) -> String {
        self.stream("REPORT")
    }

    /// The tenants' event feeds.
    pub fn event_stream(&self) -> String {
        self.stream("EVENT")
    }

    /// Key-value bucket of the last heartbeat of each node, by its name.
    pub fn heartbeat_bucket(&self) -> String {
        self.stream("HEARTBEAT")
    }

    /// Object store bucket of the snapshots.
    pub fn snapshot_bucket(&self) -> String {
        self.stream("SNAPSHOT")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_only_in_the_own_cell() {
        let s = Subjects::new("c1");
        assert_eq!(s.token(&s.ingress("t1"), 1), Some("t1"));
        assert_eq!(s.token(&s.node("n-1", "report"), 1), Some("n-1"));
        assert_eq!(s.token("apportion.v1.c2.ingress.t1", 1), None);
        assert_eq!(s.token("apportion.v1.c11.ingress.t1", 1), None);
        assert_eq!(s.token(&s.admin(), 1), None);
        assert_eq!(s.token(&s.admin_of("alice"), 1), Some("alice"));
    }
}
