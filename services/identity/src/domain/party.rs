//! Accounts and users of a cell: what each may say and hear.
//!
//! A user's permissions do not reach what the server publishes for the user. Whoever may create a consumer names the
//! subject that it delivers to, and whoever asks JetStream for anything names the subject that the answer goes to; the
//! server publishes there, whatever the user may publish, in the account that was asked. So no two parties share an
//! account, but the nodes:
//!
//! - Each stream lives in an account of its own, where nobody publishes but by a crossing that is listed here. A consumer
//!   delivers inside of that account: not to the stream's own subjects, which the server refuses, and there are no others.
//! - Each service, tenant and operator has an account of its own. An answer comes back to the account that asked, where
//!   the subjects of the others are not.
//! - The nodes share one, so that a node can come without the keys of the bus: its user is signed by a key that is good
//!   for nodes alone. There they hear assignments, and nobody can publish them but node-heartbeat; what an answer
//!   brings to another node's subject, the sender does not write (see the threat model).

use data_encoding::BASE64URL;
use vocab::{
    Writer,
    subjects::{OPERATOR, QUERIES, SERVICE_API, Subjects},
};

/// The cell of a server for many cells whose names are not known yet, as the tests need it. NATS has no wildcard inside
/// a token, so a stream's name then becomes "*" as a whole, and all streams share one account.
pub const ANY_CELL: &str = "*";
/// Every service has a user of its name.
pub const SERVICES: [&str; 5] = [
    "admission",
    "quota",
    "scheduler",
    "node-heartbeat",
    "analytics",
];
/// A snapshot is saved in two places by turns.
const SNAPSHOT_PLACES: [&str; 2] = ["", ".2"];
const INBOX: &str = "_INBOX.>";
const API_INFO: &str = "$JS.API.INFO";
/// One tenant takes neither the server's sockets nor its memory for itself: connections of the account, and
/// subscriptions of one connection.
pub const TENANT_CONNECTIONS_MAX: i64 = 256;
pub const TENANT_SUBSCRIPTIONS_MAX: i64 = 64;

/// What one node, or a machine that asks to become one, may have: the account is everybody's. A report is as large as its
/// inbox takes it.
const NODE_SUBSCRIPTIONS_MAX: i64 = 64;
const NODE_PAYLOAD_MAX: i64 = 96 << 10;
const JOIN_SUBSCRIPTIONS_MAX: i64 = 8;
const JOIN_PAYLOAD_MAX: i64 = 4 << 10;

/// The account of the server itself. Its user makes accounts known and takes them back.
pub const SYSTEM: &str = "SYS";
/// The account of all nodes.
pub const NODES: &str = "NODES";

/// The nodes' users are of these kinds, each signed by a key of its own, which knows their permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// One node, which has the name of its user.
    Node,
    /// A machine that is no node yet and may ask to become one.
    Join,
}

impl Role {
    pub const ALL: [Self; 2] = [Self::Node, Self::Join];

    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Join => "join",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Ledger,
    Ingress,
    Report,
    Event,
    Snapshot,
    Heartbeat,
}

const STREAMS: [Stream; 6] = [
    Stream::Ledger,
    Stream::Ingress,
    Stream::Report,
    Stream::Event,
    Stream::Snapshot,
    Stream::Heartbeat,
];

/// A subject of another account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    pub account: String,
    pub subject: String,
}

/// What another account may use of this one, if it has a token for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Export {
    /// Others publish it here; `parts`: the answer may come in parts.
    Service { subject: String, parts: bool },
    /// Others hear what is published here.
    Stream { subject: String },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    /// Whether it may have streams.
    pub jetstream: bool,
    /// What is published here and another account takes; the answer, if any, comes to an inbox.
    pub calls: Vec<Crossing>,
    /// What is heard here and another account publishes.
    pub hears: Vec<Crossing>,
    pub exports: Vec<Export>,
    /// How many connections, and how many subscriptions of one connection; none: no limit.
    pub connections_max: Option<i64>,
    pub subscriptions_max: Option<i64>,
    /// Which kinds of users have signing keys of their own.
    pub roles: Vec<(Role, Permissions)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    pub publish: Vec<String>,
    pub subscribe: Vec<String>,
    /// One answer for each request received, to the reply subject that the server made up for it.
    pub answers: bool,
    /// Of each connection; none: as many as the account may have.
    pub subscriptions_max: Option<i64>,
    /// Bytes of a message with its headers; none: as many as the server takes.
    pub payload_max: Option<i64>,
}

/// Where a user's permissions stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rights {
    /// In the user's own token.
    Own(Permissions),
    /// With the signing key of the role.
    Role(Role),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Which of all: `quota`, `operator`, `tenant:team-a`.
    pub key: String,
    pub account: String,
    pub rights: Rights,
}

/// Whoever comes and goes while the bus runs. Each has an account, which no other account needs to know of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guest {
    Tenant(String),
    /// One of the operators, whose name stands with what it sets. Those without a name share the user `operator`.
    Operator(String),
}

impl Guest {
    /// What stands before the name in the keys of its kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Tenant(_) => "tenant",
            Self::Operator(_) => "operator",
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Tenant(name) | Self::Operator(name) => name,
        }
    }

    /// Which user it is: `tenant:team-a`, `operator:alice`.
    pub fn key(&self) -> String {
        format!("{}:{}", self.kind(), self.name())
    }

    /// Whose user has this key; none: nobody's who comes and goes.
    pub fn of_key(key: &str) -> Option<Self> {
        match key.split_once(':')? {
            ("tenant", name) => Some(Self::Tenant(name.to_owned())),
            ("operator", name) => Some(Self::Operator(name.to_owned())),
            _ => None,
        }
    }

    pub fn account(&self) -> String {
        match self {
            Self::Tenant(name) => format!("T_{name}"),
            Self::Operator(name) => format!("O_{name}"),
        }
    }
}

fn service_account(service: &str) -> String {
    service.to_uppercase().replace('-', "_")
}

/// A user that is alone in its account, with what it says and answers there.
struct Party {
    account: Account,
    key: String,
    says: Vec<String>,
    answers: Vec<String>,
}

impl Party {
    /// What the account can do, once more for its user, so that who tries more is told.
    fn user(&self) -> User {
        let subjects =
            |crossings: &[Crossing]| crossings.iter().map(|c| c.subject.clone()).collect();
        let (mut publish, mut subscribe): (Vec<String>, Vec<String>) =
            (subjects(&self.account.calls), subjects(&self.account.hears));
        publish.extend(self.says.iter().cloned());
        subscribe.extend(self.answers.iter().cloned());
        subscribe.push(INBOX.to_owned());
        User {
            key: self.key.clone(),
            account: self.account.name.clone(),
            rights: Rights::Own(Permissions {
                publish: unique(publish),
                subscribe: unique(subscribe),
                answers: !self.answers.is_empty(),
                ..Permissions::default()
            }),
        }
    }
}

/// Collects what a party does in the accounts of others.
struct Crossings<'c> {
    names: &'c Names,
    calls: Vec<Crossing>,
    hears: Vec<Crossing>,
}

impl<'c> Crossings<'c> {
    fn new(names: &'c Names) -> Self {
        Self {
            names,
            calls: Vec::new(),
            hears: Vec::new(),
        }
    }

    fn call(&mut self, account: &str, subjects: impl IntoIterator<Item = String>) {
        self.calls.extend(crossings(account, subjects));
    }

    fn hear(&mut self, account: &str, subjects: impl IntoIterator<Item = String>) {
        self.hears.extend(crossings(account, subjects));
    }

    /// To publish into a stream.
    fn store(&mut self, stream: Stream, subjects: impl IntoIterator<Item = String>) {
        self.call(self.names.account(stream), subjects);
    }

    /// To ask JetStream; `what` makes subjects of a stream's name.
    fn ask(&mut self, stream: Stream, what: impl Fn(&str) -> Vec<String>) {
        // The server gives an account that does not import this a JetStream interface of its own, which answers, faster
        // than the stream's account, that there is no JetStream.
        if !self.calls.iter().any(|call| call.subject == API_INFO) {
            self.store(stream, [API_INFO.to_owned()]);
        }
        self.store(stream, what(&self.names.stream(stream)));
    }

    /// They are pushed to an inbox, which must be heard in the account of the stream.
    fn read_snapshots(&mut self) {
        self.ask(Stream::Snapshot, read_snapshots);
        let account = self.names.account(Stream::Snapshot);
        self.hear(account, [INBOX.to_owned()]);
    }

    fn query(&mut self, tenant: &str) {
        for (service, verbs) in QUERIES {
            let subjects = heard(service, verbs).iter();
            let subjects = subjects.map(|verb| self.names.subjects.query(tenant, verb));
            self.call(&service_account(service), subjects);
        }
    }

    fn party(self, account: String, key: impl Into<String>) -> Party {
        Party {
            account: Account {
                name: account,
                calls: unique(self.calls),
                hears: unique(self.hears),
                ..Account::default()
            },
            key: key.into(),
            says: Vec::new(),
            answers: Vec::new(),
        }
    }
}

/// The verbs that a service hears. Admission refuses those that nobody has, so it hears them all.
fn heard<'v>(service: &str, verbs: &'v [&'v str]) -> &'v [&'v str] {
    match service {
        "admission" => &["*"],
        _ => verbs,
    }
}

fn crossings(account: &str, subjects: impl IntoIterator<Item = String>) -> Vec<Crossing> {
    let account = account.to_owned();
    let crossing = |subject| Crossing {
        account: account.clone(),
        subject,
    };
    subjects.into_iter().map(crossing).collect()
}

fn unique<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::with_capacity(values.len());
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}

// What may be done with a stream, as subjects of JetStream's own interface.

fn api(verb: &str, rest: &str) -> String {
    format!("$JS.API.{verb}.{rest}")
}

fn look_at(name: &str) -> Vec<String> {
    vec![api("STREAM.INFO", name)]
}

/// Look at a stream, read single messages from its leader, follow it with consumers that need no acknowledgement.
fn read(name: &str) -> Vec<String> {
    let mut subjects = look_at(name);
    subjects.extend([
        api("STREAM.MSG.GET", name),
        api("CONSUMER.CREATE", name),
        api("CONSUMER.CREATE", &format!("{name}.>")),
        api("CONSUMER.INFO", &format!("{name}.*")),
        api("CONSUMER.DELETE", &format!("{name}.*")),
        api("CONSUMER.MSG.NEXT", &format!("{name}.*")),
    ]);
    subjects
}

fn purge(name: &str) -> Vec<String> {
    vec![api("STREAM.PURGE", name)]
}

/// Read an inbox, and take from it what is decided.
fn read_and_purge(name: &str) -> Vec<String> {
    [read(name), purge(name)].concat()
}

/// Whatever is kept of a subject, from any copy of the stream.
fn look_up(name: &str) -> String {
    api("DIRECT.GET", &format!("{name}.>"))
}

/// The client library has snapshots pushed to it, with flow control, and looks for them by direct reads.
fn read_snapshots(name: &str) -> Vec<String> {
    let mut subjects = read(name);
    subjects.extend([
        api("DIRECT.GET", name),
        look_up(name),
        format!("$JS.FC.{name}.>"),
    ]);
    subjects
}

/// Make, look at, change, empty and delete a stream, and look at and delete messages in it.
fn manage(name: &str) -> Vec<String> {
    let mut subjects = look_at(name);
    subjects.extend(purge(name));
    for verb in ["CREATE", "UPDATE", "DELETE", "MSG.GET", "MSG.DELETE"] {
        subjects.push(api(&format!("STREAM.{verb}"), name));
    }
    subjects
}

/// The names of one cell, as permissions spell them.
struct Names {
    subjects: Subjects,
}

impl Names {
    fn new(cell: &str) -> Self {
        Self {
            subjects: Subjects::new(cell),
        }
    }

    fn any(&self) -> bool {
        self.subjects.cell() == ANY_CELL
    }

    fn stream(&self, stream: Stream) -> String {
        if self.any() {
            return ANY_CELL.to_owned();
        }
        match stream {
            Stream::Ledger => self.subjects.ledger_stream(),
            Stream::Ingress => self.subjects.ingress_stream(),
            Stream::Report => self.subjects.report_stream(),
            Stream::Event => self.subjects.event_stream(),
            // An object store.
            Stream::Snapshot => format!("OBJ_{}", self.subjects.snapshot_bucket()),
            // A key-value store.
            Stream::Heartbeat => format!("KV_{}", self.subjects.heartbeat_bucket()),
        }
    }

    fn account(&self, stream: Stream) -> &'static str {
        match stream {
            _ if self.any() => "STREAMS",
            Stream::Ledger => "LEDGER",
            Stream::Ingress => "INGRESS",
            Stream::Report => "REPORT",
            Stream::Event => "EVENT",
            Stream::Snapshot => "SNAPSHOT",
            Stream::Heartbeat => "HEARTBEAT",
        }
    }

    /// What a stream is filled with that nobody publishes in its account: the nodes' heartbeats go to node-heartbeat, and what
    /// is heard of them besides says nothing to the node.
    fn hears(&self, stream: Stream) -> Vec<Crossing> {
        match stream {
            Stream::Heartbeat => crossings(NODES, [self.heartbeats()]),
            Stream::Ledger
            | Stream::Ingress
            | Stream::Report
            | Stream::Event
            | Stream::Snapshot => Vec::new(),
        }
    }

    fn heartbeats(&self) -> String {
        self.subjects.node("*", "heartbeat")
    }

    /// Parts of a snapshot have random names, so that anybody's can be written. What makes a snapshot of them is a
    /// message under its name, with their digest, and only its owner writes that: its decider's and its projections'.
    fn snapshots(&self, service: &str) -> Vec<String> {
        let bucket = match self.any() {
            true => ANY_CELL.to_owned(),
            false => self.subjects.snapshot_bucket(),
        };
        let mut names = vec![format!("projection-{service}")];
        if Writer::parse(service).is_some() {
            names.push(service.to_owned());
        }
        if service == "admission" {
            names.push("projection-feed".to_owned());
        }
        let mut subjects = vec![format!("$O.{bucket}.C.*")];
        for name in names {
            subjects.extend(SNAPSHOT_PLACES.map(|place| {
                let encoded = BASE64URL.encode(format!("{name}{place}").as_bytes());
                format!("$O.{bucket}.M.{encoded}")
            }));
        }
        subjects
    }
}

/// Where services say what they are, each process for itself.
fn service_api() -> String {
    format!("{SERVICE_API}.>")
}

fn service(names: &Names, name: &str) -> Party {
    let s = &names.subjects;
    let mut to = Crossings::new(names);
    let (mut says, mut answers) = (Vec::new(), Vec::new());
    to.ask(Stream::Ledger, read);
    to.read_snapshots();
    to.ask(Stream::Snapshot, purge);
    to.store(Stream::Snapshot, names.snapshots(name));
    if Writer::parse(name).is_some() {
        to.store(Stream::Ledger, [s.ledger(name)]);
    }
    if name == "admission" {
        to.ask(Stream::Ingress, read_and_purge);
        // The feeds are made of the ledger: those of another one are thrown away.
        to.ask(Stream::Event, read_and_purge);
        to.store(Stream::Event, [s.event("*", "*")]);
        // What came by a call is not handed on to those who hear an account, so they hear the events where they are said.
        says.extend([s.event("*", ">"), s.reply("*", ">")]);
    }
    if name == "node-heartbeat" {
        to.ask(Stream::Report, read_and_purge);
        says.push(s.node("*", "assign"));
        answers.extend(["heartbeat", "sync"].map(|verb| s.node("*", verb)));
        answers.push(s.join());
        // What a run has written, which its node's agent has.
        to.call(NODES, [s.node("*", "logs")]);
    }
    if name == "analytics" {
        to.hear(NODES, [names.heartbeats()]);
    }
    for (_, verbs) in QUERIES.iter().filter(|(service, _)| *service == name) {
        answers.extend(heard(name, verbs).iter().map(|verb| s.query("*", verb)));
    }
    answers.push(service_api());
    Party {
        says,
        answers,
        ..to.party(service_account(name), name)
    }
}

/// Whose commands reach the cell's administration, by a subject of its own where it has a name, and who looks at everything.
/// Changes no stream.
fn operator(names: &Names, named: Option<&Guest>) -> Party {
    let s = &names.subjects;
    let mut to = Crossings::new(names);
    for stream in STREAMS {
        to.ask(stream, look_at);
    }
    to.ask(Stream::Ledger, read);
    to.read_snapshots();
    to.ask(Stream::Heartbeat, |name| vec![look_up(name)]);
    let admin = named.map_or_else(|| s.admin(), |named| s.admin_of(named.name()));
    to.store(Stream::Ingress, [admin]);
    to.query("*");
    for service in SERVICES {
        to.call(&service_account(service), [service_api()]);
    }
    // Answers to the operators come under a tenant name that no tenant may have.
    to.hear(
        &service_account("admission"),
        [s.reply(OPERATOR, ">"), s.event("*", ">")],
    );
    match named {
        Some(named) => to.party(named.account(), named.key()),
        None => to.party("OPERATOR".to_owned(), "operator"),
    }
}

/// The only one who makes, changes and deletes streams. Says nothing in the cell but what the ledger had lost.
fn bus(names: &Names) -> Party {
    let mut to = Crossings::new(names);
    for stream in STREAMS {
        to.ask(stream, manage);
    }
    // The readers of the ledger say what they can read.
    to.ask(Stream::Ledger, |name| vec![api("CONSUMER.LIST", name)]);
    // What stood on the ledger and was lost is put back by it, from a copy.
    to.store(
        Stream::Ledger,
        Writer::ALL.map(|writer| names.subjects.ledger(writer.name())),
    );
    to.party("BUS".to_owned(), "bus")
}

fn tenant(names: &Names, tenant: &Guest) -> Party {
    let (s, name) = (&names.subjects, tenant.name());
    let mut to = Crossings::new(names);
    to.store(Stream::Ingress, [s.ingress(name)]);
    to.query(name);
    to.hear(
        &service_account("admission"),
        [s.event(name, ">"), s.reply(name, ">")],
    );
    let mut party = to.party(tenant.account(), tenant.key());
    party.account.connections_max = Some(TENANT_CONNECTIONS_MAX);
    party.account.subscriptions_max = Some(TENANT_SUBSCRIPTIONS_MAX);
    party
}

/// What the name of a user is in the permissions of its role.
const USER_NAME: &str = "{{name()}}";

/// The nodes' account, with its user `fleet`, who is all nodes.
fn nodes(names: &Names) -> Party {
    let s = &names.subjects;
    let inbox = service_account("node-heartbeat");
    let mut to = Crossings::new(names);
    to.store(Stream::Report, [s.node("*", "report")]);
    to.call(&inbox, ["sync", "heartbeat"].map(|verb| s.node("*", verb)));
    to.hear(&inbox, [s.node("*", "assign")]);
    to.call(&inbox, [s.join()]);
    let mut party = to.party(NODES.to_owned(), "fleet");
    party.answers.push(s.node("*", "logs"));
    let own = |what| s.node(USER_NAME, what);
    // An inbox of its own: answers to one node are not for others.
    let inbox = format!("_INBOX.{USER_NAME}.>");
    let node = Permissions {
        publish: vec![own("report"), own("sync"), own("heartbeat")],
        subscribe: vec![own("assign"), own("logs"), inbox.clone()],
        answers: true,
        subscriptions_max: Some(NODE_SUBSCRIPTIONS_MAX),
        payload_max: Some(NODE_PAYLOAD_MAX),
    };
    let join = Permissions {
        publish: vec![s.join()],
        subscribe: vec![inbox],
        answers: false,
        subscriptions_max: Some(JOIN_SUBSCRIPTIONS_MAX),
        payload_max: Some(JOIN_PAYLOAD_MAX),
    };
    party.account.roles = vec![(Role::Node, node), (Role::Join, join)];
    party
}

fn parties(names: &Names, guests: &[Guest]) -> Vec<Party> {
    let mut all: Vec<Party> = SERVICES.iter().map(|name| service(names, name)).collect();
    all.extend([operator(names, None), bus(names), nodes(names)]);
    all.extend(guests.iter().map(|guest| match guest {
        Guest::Tenant(_) => tenant(names, guest),
        Guest::Operator(_) => operator(names, Some(guest)),
    }));
    all
}

/// All accounts but the system's.
pub fn accounts(cell: &str, guests: &[Guest]) -> Vec<Account> {
    let names = Names::new(cell);
    let with = |guests: &[Guest]| {
        let mut all = stream_accounts(&names);
        all.extend(parties(&names, guests).into_iter().map(|p| p.account));
        all
    };
    // What any guest needs is exported for all, so that another one changes no account but its own.
    let anybody = with(&[Guest::Tenant, Guest::Operator].map(|guest| guest("*".to_owned())));
    let mut all = with(guests);
    for account in &mut all {
        account.exports = exports(&anybody, &account.name);
    }
    all
}

fn stream_accounts(names: &Names) -> Vec<Account> {
    let account = |name: &str| Account {
        name: name.to_owned(),
        jetstream: true,
        hears: STREAMS
            .into_iter()
            .filter(|stream| names.account(*stream) == name)
            .flat_map(|stream| names.hears(stream))
            .collect(),
        ..Account::default()
    };
    let accounts = unique(STREAMS.map(|stream| names.account(stream)).to_vec());
    accounts.into_iter().map(account).collect()
}

/// Whoever connects by creds that the operator of the bus hands out.
pub fn users(cell: &str, guests: &[Guest], simulated_fleet: bool) -> Vec<User> {
    let names = Names::new(cell);
    let parties = parties(&names, guests);
    let mut all: Vec<User> = parties.iter().map(Party::user).collect();
    all.retain(|user| simulated_fleet || user.key != "fleet");
    all.push(User {
        key: Role::Join.name().to_owned(),
        account: NODES.to_owned(),
        rights: Rights::Role(Role::Join),
    });
    all.push(User {
        key: "system".to_owned(),
        account: SYSTEM.to_owned(),
        rights: Rights::Own(Permissions {
            publish: vec![CLAIMS_UPDATE.to_owned(), CLAIMS_DELETE.to_owned()],
            subscribe: vec![INBOX.to_owned()],
            ..Permissions::default()
        }),
    });
    all
}

/// Where the server takes a new or changed account, and where it gives accounts back.
pub const CLAIMS_UPDATE: &str = "$SYS.REQ.CLAIMS.UPDATE";
pub const CLAIMS_DELETE: &str = "$SYS.REQ.CLAIMS.DELETE";

/// What others use of an account. Of two of which one contains the other only the wider: the server refuses both, and a
/// token says which part of it is meant.
fn exports(others: &[Account], account: &str) -> Vec<Export> {
    let of = |crossings: fn(&Account) -> &[Crossing]| {
        let all = others.iter().flat_map(crossings);
        let here = all.filter(|crossing| crossing.account == account);
        widest(unique(
            here.map(|crossing| crossing.subject.clone()).collect(),
        ))
    };
    let services = of(|account| &account.calls).into_iter();
    let streams = of(|account| &account.hears).into_iter();
    services
        .map(|subject| Export::Service {
            // Each process of a service answers its own.
            parts: subject.contains(".CONSUMER.MSG.NEXT.") || subject == service_api(),
            subject,
        })
        .chain(streams.map(|subject| Export::Stream { subject }))
        .collect()
}

fn widest(subjects: Vec<String>) -> Vec<String> {
    let within = |one: &String| {
        subjects
            .iter()
            .any(|other| other != one && contains(other, one))
    };
    subjects
        .iter()
        .filter(|one| !within(one))
        .cloned()
        .collect()
}

/// Whether whatever matches the second pattern matches the first.
pub fn contains(wide: &str, narrow: &str) -> bool {
    let (mut wide, mut narrow) = (wide.split('.'), narrow.split('.'));
    loop {
        match (wide.next(), narrow.next()) {
            (None, None) => return true,
            (Some(">"), Some(_)) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_contains_what_it_matches() {
        let check = |wide, narrow, expected| {
            assert_eq!(contains(wide, narrow), expected, "{wide} {narrow}");
        };
        check("a.b", "a.b", true);
        check("a.*", "a.b", true);
        check("a.*", "a.*", true);
        check("a.b", "a.*", false);
        check("a.*", "a.>", false);
        check("a.>", "a.*", true);
        check("a.>", "a.b.c", true);
        check("a.>", "a", false);
        check("a", "a.b", false);
        check("*.b", "a.c", false);
    }

    /// Every crossing has an export that contains it, and the account that it crosses to is there.
    #[test]
    fn every_crossing_is_exported() {
        for cell in ["c1", ANY_CELL] {
            let all = accounts(cell, &guests(&["tenant:t1", "operator:o1"]));
            let exported = |crossing: &Crossing, service: bool| {
                let account = all.iter().find(|account| account.name == crossing.account);
                let exports = account.map_or(&[][..], |account| &account.exports);
                exports.iter().any(|export| match export {
                    Export::Service { subject, .. } => {
                        service && contains(subject, &crossing.subject)
                    }
                    Export::Stream { subject } => !service && contains(subject, &crossing.subject),
                })
            };
            for account in &all {
                for crossing in &account.calls {
                    assert!(exported(crossing, true), "{} {crossing:?}", account.name);
                }
                for crossing in &account.hears {
                    assert!(exported(crossing, false), "{} {crossing:?}", account.name);
                }
            }
        }
    }

    fn guests(keys: &[&str]) -> Vec<Guest> {
        let guest = |key: &&str| Guest::of_key(key).expect("the key of a guest");
        keys.iter().map(guest).collect()
    }

    #[test]
    fn a_guest_changes_no_account_but_its_own() {
        let check = |there: &[&str], comes: &str| {
            let before = accounts("c1", &guests(there));
            let after = accounts("c1", &guests(&[there, &[comes]].concat()));
            assert_eq!(before, after[..before.len()], "{comes}");
            assert_eq!(after.len(), before.len() + 1, "{comes}");
        };
        check(&["tenant:t1"], "tenant:t2");
        check(&["tenant:t1"], "operator:t1");
        check(&[], "operator:alice");
        check(&["operator:alice"], "operator:bob");
    }

    /// Of all that there are, so that none can say what another one says.
    #[test]
    fn an_operator_with_a_name_differs_from_the_others_by_its_subject_alone() {
        let users = users("c1", &guests(&["operator:alice", "operator:bob"]), false);
        let of = |key: &str| {
            let user = users.iter().find(|user| user.key == key);
            match user.map(|user| (&user.account, &user.rights)) {
                Some((account, Rights::Own(permissions))) => (account, permissions.clone()),
                other => panic!("{key}: {other:?}"),
            }
        };
        let s = Subjects::new("c1");
        let (account, common) = of("operator");
        assert_eq!(account, "OPERATOR");
        for name in ["alice", "bob"] {
            let (account, mut named) = of(&format!("operator:{name}"));
            assert_eq!(*account, format!("O_{name}"));
            let own = s.admin_of(name);
            let admin = |subject: &String| contains(subject, &own) || subject.contains(".admin");
            let said: Vec<_> = named.publish.iter().filter(|one| admin(one)).collect();
            assert_eq!(said, [&own]);
            for subject in named.publish.iter_mut().filter(|one| **one == own) {
                *subject = s.admin();
            }
            assert_eq!(named, common, "{name}");
        }
    }

    #[test]
    fn a_key_names_its_guest() {
        let check = |key: &str, account: Option<&str>| {
            let guest = Guest::of_key(key);
            assert_eq!(guest.as_ref().map(Guest::account).as_deref(), account);
            assert!(guest.is_none_or(|guest| guest.key() == key));
        };
        check("tenant:team-a", Some("T_team-a"));
        check("operator:alice", Some("O_alice"));
        for nobody in ["operator", "quota", "node:n1", "", "alice"] {
            check(nobody, None);
        }
    }

    #[test]
    fn the_fleet_is_there_only_if_asked_for() {
        let keys = |fleet| -> Vec<String> {
            let users = users("c1", &[], fleet).into_iter();
            users.map(|user| user.key).collect()
        };
        assert!(keys(true).contains(&"fleet".to_owned()));
        assert!(!keys(false).contains(&"fleet".to_owned()));
    }
}
