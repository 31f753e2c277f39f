//! Which subjects and streams there are, spelt by `vocab::subjects` and nowhere else.

use vocab::subjects::{
    self, HEADER_DIGEST, HEADER_LEDGER, HEADER_PART, HEADER_POSITION, HEADER_REPLY,
    HEADER_TRACEPARENT, OPERATOR, OPERATORS_QUERIES, Subjects,
};

/// Who has to understand a subject's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    Tenant,
    Agent,
    Service,
}

pub struct Subject {
    /// Its marker in the introduction.
    pub marker: &'static str,
    /// The function of `Subjects` that makes it.
    pub function: &'static str,
    pub subject: String,
    pub party: Party,
    pub publishes: &'static str,
    pub hears: &'static str,
    pub transport: String,
    /// Names of messages: what is published, then what is answered.
    pub payload: &'static [&'static str],
    pub headers: &'static [&'static str],
}

pub struct Stream {
    pub marker: &'static str,
    pub function: &'static str,
    pub name: String,
    pub holds: &'static str,
}

pub fn cell() -> Subjects {
    Subjects::new("<cell>")
}

pub fn subjects() -> Vec<Subject> {
    let mut all = of_tenants();
    all.extend(of_queries());
    all.extend(of_agents());
    all.push(of_services());
    all
}

fn of_tenants() -> Vec<Subject> {
    let s = cell();
    let received = |stream: String| format!("JetStream publish into the stream `{stream}`");
    let asked = &[HEADER_REPLY, HEADER_TRACEPARENT];
    vec![
        Subject {
            marker: "ingress",
            function: "ingress",
            subject: s.ingress("<tenant>"),
            party: Party::Tenant,
            publishes: "the tenant",
            hears: "admission",
            transport: received(s.ingress_stream()),
            payload: &["Request"],
            headers: asked,
        },
        Subject {
            marker: "admin",
            function: "admin",
            subject: s.admin(),
            party: Party::Tenant,
            publishes: "operators",
            hears: "admission",
            transport: received(s.ingress_stream()),
            payload: &["Request"],
            headers: asked,
        },
        Subject {
            marker: "admin_of",
            function: "admin_of",
            subject: s.admin_of("<operator>"),
            party: Party::Tenant,
            publishes: "the operator of this name",
            hears: "admission",
            transport: received(s.ingress_stream()),
            payload: &["Request"],
            headers: asked,
        },
        Subject {
            marker: "reply",
            function: "reply",
            subject: s.reply("<tenant>", "<token>"),
            party: Party::Tenant,
            publishes: "admission",
            hears: "the tenant",
            transport: "core NATS, may be lost".to_owned(),
            payload: &["Outcomes"],
            headers: &[],
        },
        Subject {
            marker: "event",
            function: "event",
            subject: s.event("<tenant>", "<job_set>"),
            party: Party::Tenant,
            publishes: "admission",
            hears: "the tenant",
            transport: format!(
                "core NATS for the tenant, who may lose some; kept in the stream `{}`",
                s.event_stream()
            ),
            payload: &["TenantEvents"],
            headers: &[HEADER_POSITION, HEADER_PART, HEADER_LEDGER, HEADER_DIGEST],
        },
    ]
}

fn of_queries() -> Vec<Subject> {
    // As the bus' permissions have it: `services/identity/src/domain/party.rs`.
    let asker = |verb: &str| match OPERATORS_QUERIES.contains(&verb) {
        true => (OPERATOR, "operators"),
        false => ("<tenant>", "the tenant"),
    };
    let one = |marker, verb: &str, payload| Subject {
        marker,
        function: "query",
        subject: cell().query(asker(verb).0, verb),
        party: Party::Tenant,
        publishes: asker(verb).1,
        hears: match verb {
            "logs" => "node-heartbeat, from the node's agent",
            // Admission refuses what there is not.
            verb => subjects::answers(verb).unwrap_or("admission"),
        },
        transport: "core NATS, request and reply".to_owned(),
        payload,
        headers: &[],
    };
    vec![
        one("query_feed", "feed", &["FeedQuery", "FeedPage"]),
        one(
            "query_allocation",
            "allocation",
            &["AllocationQuery", "AllocationReply"],
        ),
        one(
            "query_allocations",
            "allocations",
            &["AllocationsQuery", "AllocationsPage"],
        ),
        one(
            "query_explain",
            "explain",
            &["ExplainQuery", "ExplainReply"],
        ),
        one("query_usage", "usage", &["UsageQuery", "UsagePage"]),
        one("query_bill", "bill", &["BillQuery", "BillReply"]),
        one("query_budget", "budget", &["BudgetQuery", "BudgetReply"]),
        one(
            "query_refusals",
            "refusals",
            &["RefusalsQuery", "RefusalsPage"],
        ),
        one(
            "query_preemptions",
            "preemptions",
            &["PreemptionsQuery", "PreemptionsPage"],
        ),
        one("query_queues", "queues", &["QueuesQuery", "QueuesReply"]),
        one(
            "query_reservations",
            "reservations",
            &["ReservationsQuery", "ReservationsReply"],
        ),
        one("query_quota", "quota", &["QuotaQuery", "QuotaPage"]),
        one(
            "query_quota_history",
            "quota_history",
            &["QuotaHistoryQuery", "QuotaHistoryPage"],
        ),
        one("query_queue", "queue", &["QueueQuery", "QueueReply"]),
        one(
            "query_try_quota",
            "try_quota",
            &["TryQuotaQuery", "TryQuotaReply"],
        ),
        one(
            "query_try_place",
            "try_place",
            &["TryPlaceQuery", "TryPlaceReply"],
        ),
        one("query_logs", "logs", &["LogsQuery", "LogsReply"]),
        one("query_lease", "lease", &["LeaseQuery", "LeaseReply"]),
        one(
            "query_resource",
            "resource",
            &["ResourceQuery", "ResourceReply"],
        ),
        one(
            "query_operation",
            "operation",
            &["OperationQuery", "OperationReply"],
        ),
        one(
            "query_job_sets",
            "job_sets",
            &["JobSetsQuery", "JobSetsPage"],
        ),
        one(
            "query_approvals",
            "approvals",
            &["ApprovalsQuery", "ApprovalsPage"],
        ),
        one("query_node", "node", &["NodeQuery", "NodeReply"]),
        one("query_nodes", "nodes", &["NodesQuery", "NodesPage"]),
        one("query_tenants", "tenants", &["TenantsQuery", "TenantsPage"]),
        one("query_rates", "rates", &["RatesQuery", "RatesPage"]),
        one(
            "query_settings",
            "settings",
            &["SettingsQuery", "SettingsPage"],
        ),
        Subject {
            transport: "core NATS: the reply to a verb that there is not".to_owned(),
            ..one("query", "<verb>", &["QueryRefused"])
        },
    ]
}

fn of_agents() -> Vec<Subject> {
    let s = cell();
    let node = |what: &str| s.node("<node>", what);
    let one = |marker, subject| Subject {
        marker,
        function: "node",
        subject,
        party: Party::Agent,
        publishes: "the node's agent",
        hears: "node-heartbeat",
        transport: "core NATS, may be lost".to_owned(),
        payload: &[],
        headers: &[],
    };
    vec![
        Subject {
            transport: format!("JetStream publish into the stream `{}`", s.report_stream()),
            payload: &["NodeReport"],
            ..one("report", node("report"))
        },
        Subject {
            transport: "core NATS, may be lost; answered where it was sent as a request".to_owned(),
            payload: &["Heartbeat", "LeaseRenewed"],
            ..one("heartbeat", node("heartbeat"))
        },
        Subject {
            publishes: "node-heartbeat",
            hears: "the node's agent",
            payload: &["Assignment"],
            ..one("assign", node("assign"))
        },
        Subject {
            transport: "core NATS, request (empty) and reply".to_owned(),
            payload: &["AssignmentList"],
            ..one("sync", node("sync"))
        },
        Subject {
            publishes: "node-heartbeat",
            hears: "the node's agent",
            transport: "core NATS, request and reply".to_owned(),
            payload: &["NodeLogsQuery", "LogsReply"],
            ..one("logs", node("logs"))
        },
        Subject {
            function: "join",
            publishes: "a machine that is to become a node",
            transport: "core NATS, request and reply".to_owned(),
            payload: &["JoinRequest", "JoinReply"],
            ..one("join", s.join())
        },
    ]
}

fn of_services() -> Subject {
    let s = cell();
    Subject {
        marker: "ledger",
        function: "ledger",
        subject: s.ledger("<writer>"),
        party: Party::Service,
        publishes: "the service of that name",
        hears: "services",
        transport: format!("JetStream, fenced, in the stream `{}`", s.ledger_stream()),
        payload: &["Frame"],
        headers: &[],
    }
}

pub fn streams() -> Vec<Stream> {
    let s = cell();
    let stream = |marker, name, holds| Stream {
        marker,
        function: marker,
        name,
        holds,
    };
    vec![
        stream(
            "ingress_stream",
            s.ingress_stream(),
            "requests, until they are decided",
        ),
        stream(
            "report_stream",
            s.report_stream(),
            "agents' reports, until they are decided",
        ),
        stream(
            "event_stream",
            s.event_stream(),
            "the tenants' feeds: 4 GiB together, oldest out first",
        ),
        stream(
            "ledger_stream",
            s.ledger_stream(),
            "every decision, for ever",
        ),
        stream(
            "heartbeat_bucket",
            s.heartbeat_bucket(),
            "a key-value store in memory: the last heartbeat of each node, by its name, for 40 s",
        ),
        stream(
            "snapshot_bucket",
            s.snapshot_bucket(),
            "an object store: snapshots of the services' states",
        ),
    ]
}

/// What a marker in the introduction stands for.
pub fn markers() -> Vec<(String, String)> {
    let s = cell();
    let code = |text: &str| format!("`{text}`");
    let mut all: Vec<(String, String)> = [
        ("header_reply", HEADER_REPLY),
        ("header_traceparent", HEADER_TRACEPARENT),
        ("header_position", HEADER_POSITION),
        ("header_part", HEADER_PART),
        ("header_ledger", HEADER_LEDGER),
        ("header_digest", HEADER_DIGEST),
        ("operator", OPERATOR),
    ]
    .map(|(marker, text)| (marker.to_owned(), code(text)))
    .into();
    all.push(("reply_all".to_owned(), code(&s.reply("<tenant>", "*"))));
    all.push((
        "reply_operator".to_owned(),
        code(&s.reply(OPERATOR, "<token>")),
    ));
    all.push(("event_all".to_owned(), code(&s.event("<tenant>", ">"))));
    for row in subjects() {
        all.push((row.marker.to_owned(), code(&row.subject)));
    }
    for row in streams() {
        all.push((row.marker.to_owned(), code(&row.name)));
    }
    all
}
