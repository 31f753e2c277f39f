//! What tenants may ask, by request and reply on `query.<tenant>.<verb>`. Written once: a service says which verbs are
//! its own and answers them. Each tenant's queries wait in a queue of their own ([`waiting`]).
//!
//! The tenant is the subject's, which the server has authenticated; it is handed to the verb beside the query, and
//! nothing in the payload can name another. All processes of a service share the work. What cannot be answered because
//! a database is away is refused as `ANSWER_UNAVAILABLE`. What a process had heard when it ended gets no answer: asking again does
//! no harm.

mod asking;
mod mark;
mod micro;
mod waiting;

pub use mark::Mark;

use crate::{
    clock::{Stamp, Stopwatch},
    error::Failure,
    hearing::{Heard, Line, Wanted},
    metrics::{Metric, Metrics},
    service::Context,
};
use asking::Asking;
use futures::{
    StreamExt,
    future::{BoxFuture, FutureExt},
    stream::FuturesUnordered,
};
use ledger_nats::{Questions, View};
use micro::Instance;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};
use prost::Message;
use schemas::{ToProst as _, v1};
use std::{convert::Infallible, future::Future, time::Duration};
use tokio::sync::Semaphore;
use uuid::Uuid;
use vocab::{
    AllocationSpec, Lsn, Refusal, Rule, Token,
    subjects::{self, OPERATOR, Subjects},
};
use waiting::{Arrival, TENANT_WAITING_MAX, Waiting};

/// The group in which the processes of a service share the queries.
const GROUP: &str = "query";
/// Of the service that hears all verbs. Another one: the server would otherwise give each query either to that service
/// or to the one that answers it.
const GROUP_OF_ALL: &str = "query-all";
/// What the rows of a page may take, at the most, but for a single one: a reply has to fit into a message of the bus.
pub const PAGE_BYTES_MAX: usize = 1 << 20;
/// A reply's encoded size, at the most: a little less than the servers take, for they close the connection of who sends more.
const REPLY_BYTES_MAX: usize = (8 << 20) - 4096;
/// A query's encoded size, at the most.
const QUERY_BYTES_MAX: usize = 65_536;
/// Queries under way, of all tenants; the others wait for their tenant's turn.
const UNDER_WAY_MAX: usize = 1024;
/// Messages taken from the connection at a time.
const HEARD_AT_ONCE: usize = 256;
/// Queries that are being answered. Those that wait for a position are not.
const ANSWERING_MAX: usize = 32;
/// How long a query waits for the position that it names: below any asker's patience.
const POSITION_PATIENCE: Duration = Duration::from_secs(3);
/// No answer takes longer. The asker waits for twice as long, and has asked again.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// A query that was understood.
#[derive(Debug)]
pub struct Asked<Q> {
    /// Who asks, and whose things may be told.
    pub tenant: Token,
    /// What the read model had applied when the query's turn came: not below the position that it named.
    pub applied: Lsn,
    pub query: Q,
}

impl<Q> Asked<Q> {
    /// Whose things are asked for; none: everybody's, as operators may.
    pub fn whose(&self) -> Option<&Token> {
        Some(&self.tenant).filter(|tenant| tenant.as_str() != OPERATOR)
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Trouble {
    /// The query broke a rule, or what it asks for is not the tenant's.
    Refused(Refusal),
    /// A server is away.
    Unavailable(Failure),
}

impl Trouble {
    pub fn refused(rule: Rule, subject: &str) -> Self {
        Self::Refused(Refusal::new(rule, subject))
    }
}

impl<E: Into<Failure>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Unavailable(error.into())
    }
}

/// How many a page may have: what was asked for, or, where nothing was, what is usual.
pub fn page_limit(asked: u32, usual: u32, max: u32) -> Result<u32, Trouble> {
    match asked {
        0 => Ok(usual),
        asked if asked > max => {
            let refusal = Refusal::over(Rule::QuantityTooLarge, "limit", max.into(), asked.into());
            Err(Trouble::Refused(refusal))
        }
        asked => Ok(asked),
    }
}

/// How a name begins; empty: anyhow.
pub fn name_prefix(text: &str) -> Result<String, Trouble> {
    match text.is_empty() || Token::new(text).is_ok() {
        true => Ok(text.to_owned()),
        false => Err(Trouble::refused(Rule::NameInvalid, "name_prefix")),
    }
}

/// Cuts what was found to a page. It was looked for one more than the page has; whether there was one, and so another page.
pub fn cut<T>(found: &mut Vec<T>, limit: u32) -> bool {
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    has_more
}

/// Cuts a page to what a message has room for; the first stays. Whether anything was cut.
pub fn cut_to_fit(found: &mut Vec<impl Message>) -> bool {
    let mut bytes = 0;
    let fits = |one: &&_| {
        bytes += Message::encoded_len(*one);
        bytes <= PAGE_BYTES_MAX
    };
    let fitting = found.iter().take_while(fits).count().max(1);
    let has_more = found.len() > fitting;
    found.truncate(fitting);
    has_more
}

/// The answer of a decider's state, for what no read model can answer, and the position that it is of.
pub async fn ask_state<D: 'static, A: Send + 'static>(
    questions: &Questions<D>,
    at_lsn: Lsn,
    ask: impl FnOnce(&mut D, &View) -> A + Send + 'static,
) -> Result<(A, Lsn), Trouble> {
    let answer = questions.ask(move |state, view| {
        let current = view.lsn >= at_lsn;
        (current.then(|| ask(state, view)), view.lsn)
    });
    match answer.await {
        Some((Some(answer), lsn)) => Ok((answer, lsn)),
        Some((None, lsn)) => {
            let refusal = Refusal::over(Rule::NotApplied, "at_lsn", lsn.0, at_lsn.0);
            Err(Trouble::Refused(refusal))
        }
        None => Err(Trouble::Unavailable("nobody decides any more".into())),
    }
}

/// Whose request is tried, and what it asks for. A request is a tenant's.
pub fn tried<Q>(
    asked: &Asked<Q>,
    spec: Option<&v1::AllocationSpec>,
) -> Result<(Token, AllocationSpec), Trouble> {
    let tenant = asked.whose().cloned();
    let tenant = tenant.ok_or_else(|| Trouble::refused(Rule::TenantUnknown, "tenant"))?;
    let spec = spec.ok_or_else(|| Trouble::refused(Rule::MalformedMessage, "spec"))?;
    let spec = AllocationSpec::read(&spec.encode_to_vec());
    Ok((tenant, spec.map_err(Trouble::Refused)?))
}

/// A verb of a service.
pub trait Verb: Send + Sync + 'static {
    /// The last token of the subject.
    const NAME: &'static str;
    /// To tenants there is no such verb.
    const OPERATORS_ONLY: bool = false;

    type Query: Message + Default;
    type Reply: Message;

    /// The position that the answer may not be older than; 0: any.
    fn position(query: &Self::Query) -> Lsn;

    fn answer(
        &self,
        asked: Asked<Self::Query>,
    ) -> impl Future<Output = Result<Self::Reply, Trouble>> + Send;
}

/// From milliseconds to what an asker's patience is.
const SECONDS: [f64; 9] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    verb: &'static str,
    /// answered, refused, or unavailable: what the answer is read from is away.
    outcome: &'static str,
}

pub(crate) const QUERY_SECONDS: Metric = Metric::histogram(
    "apportion_query_seconds",
    "From hearing a query to its answer, with what it waits for. `outcome` is answered, refused or unavailable; a verb that \
     is none of the service's is `unknown`",
)
.by(&["verb", "outcome"]);

pub(crate) const QUERIES_DROPPED: Metric = Metric::counter(
    "apportion_queries_dropped_total",
    "Queries without an answer, because their tenant's queue was full or they had waited too long",
);

/// How long queries take, from when they were heard to the answer, with what they wait for.
type Took = Family<Answered, Histogram, fn() -> Histogram>;

fn took(metrics: &Metrics) -> Took {
    let family = Took::new_with_constructor(|| Histogram::new(SECONDS));
    metrics.register(&QUERY_SECONDS, family)
}

/// What was asked and how it was answered.
struct Counts {
    took: Took,
    dropped: Counter,
    instance: Instance,
}

impl Counts {
    fn count(&self, verb: &'static str, took: Duration, turn: &Result<Vec<u8>, Trouble>) {
        let (outcome, error) = match turn {
            Ok(_) => ("answered", None),
            Err(Trouble::Refused(refusal)) => {
                let Refusal { rule, subject, .. } = refusal;
                ("refused", Some(format!("{} {subject}", rule.name())))
            }
            Err(Trouble::Unavailable(error)) => ("unavailable", Some(error.to_string())),
        };
        let seconds = self.took.get_or_create(&Answered { verb, outcome });
        seconds.observe(took.as_secs_f64());
        self.instance.count(verb, took, error);
    }
}

/// The verbs that a service answers.
pub struct Queries {
    subjects: Subjects,
    verbs: Vec<(&'static str, Box<dyn Answers>)>,
    unknown: bool,
}

/// A verb whose messages are bytes.
trait Answers: Send + Sync {
    /// When the tenant, and then all of them together, have one query fewer that is being answered than they may.
    fn answer<'a>(
        &'a self,
        tenant: Token,
        payload: &'a [u8],
        answering: [&'a Semaphore; 2],
    ) -> BoxFuture<'a, Result<Vec<u8>, Trouble>>;
}

struct Answering<V> {
    verb: V,
    /// Of the read model that it looks at.
    mark: Mark,
    patience: Duration,
}

impl<V: Verb> Answers for Answering<V> {
    fn answer<'a>(
        &'a self,
        tenant: Token,
        payload: &'a [u8],
        [of_tenant, of_all]: [&'a Semaphore; 2],
    ) -> BoxFuture<'a, Result<Vec<u8>, Trouble>> {
        async move {
            if V::OPERATORS_ONLY && tenant.as_str() != OPERATOR {
                return Err(Trouble::refused(Rule::UnknownVerb, "verb"));
            }
            let query: V::Query = read(payload)?;
            let wanted = V::position(&query);
            let applied = self.mark.reach(wanted, self.patience).await;
            let applied = applied.map_err(|applied| {
                let refusal = Refusal::over(Rule::NotApplied, "at_lsn", applied.0, wanted.0);
                Trouble::Refused(refusal)
            })?;
            let _turns = (of_tenant.acquire().await?, of_all.acquire().await?);
            let asked = Asked {
                tenant,
                applied,
                query,
            };
            let reply = tokio::time::timeout(ANSWER_DEADLINE, self.verb.answer(asked)).await??;
            sendable(reply.encode_to_vec())
        }
        .boxed()
    }
}

/// The reply, as every verb refuses. What is wrong with a server is for operators to read.
fn said(verb: &'static str, turn: Result<Vec<u8>, Trouble>) -> Vec<u8> {
    let refusal = match turn {
        Ok(answer) => return answer,
        Err(Trouble::Refused(refusal)) => refusal,
        Err(Trouble::Unavailable(_)) => Refusal::new(Rule::AnswerUnavailable, verb),
    };
    let refusal = Some(refusal.to_prost());
    v1::QueryRefused { refusal }.encode_to_vec()
}

/// Whoever asked for more than a message carries can ask for fewer at once.
fn sendable(reply: Vec<u8>) -> Result<Vec<u8>, Trouble> {
    if reply.len() <= REPLY_BYTES_MAX {
        return Ok(reply);
    }
    let (limit, actual) = (REPLY_BYTES_MAX as u64, reply.len() as u64);
    let refusal = Refusal::over(Rule::PayloadTooLarge, "reply", limit, actual);
    Err(Trouble::Refused(refusal))
}

/// Reads a query. Rejects fields that this version does not know, because an answer without them would be to another query.
pub fn read<Q: Message + Default>(payload: &[u8]) -> Result<Q, Trouble> {
    if payload.len() > QUERY_BYTES_MAX {
        let (limit, actual) = (QUERY_BYTES_MAX as u64, payload.len() as u64);
        let refusal = Refusal::over(Rule::PayloadTooLarge, "payload", limit, actual);
        return Err(Trouble::Refused(refusal));
    }
    let query =
        Q::decode(payload).map_err(|_| Trouble::refused(Rule::MalformedMessage, "payload"))?;
    if query.encoded_len() != payload.len() {
        let refusal = Refusal::not_as_written(payload, &query.encode_to_vec());
        return Err(Trouble::Refused(refusal));
    }
    Ok(query)
}

impl Queries {
    pub fn new(subjects: Subjects) -> Self {
        Self {
            subjects,
            verbs: Vec::new(),
            unknown: false,
        }
    }

    /// Answers a verb from a read model that is as far as `mark` says.
    pub fn on<V: Verb>(mut self, verb: V, mark: &Mark) -> Self {
        let answering = Answering {
            verb,
            mark: mark.clone(),
            patience: POSITION_PATIENCE,
        };
        self.verbs.push((V::NAME, Box::new(answering)));
        self
    }

    /// Refuses the verbs that no service has. For one service of the cell.
    pub fn and_unknown(mut self) -> Self {
        self.unknown = true;
        self
    }

    /// Answers until shutdown, on a thread of its own: no answer waits behind decisions, and no decision behind answers.
    pub async fn serve<T>(self, ctx: &Context<T>) -> Result<(), Failure> {
        let instance = self.instance(ctx);
        let line = ctx.line("hearing", self.wanted(&instance));
        let counts = Counts {
            took: took(&ctx.metrics),
            dropped: ctx.metrics.counter(&QUERIES_DROPPED),
            instance,
        };
        ctx.aside(GROUP, self.answer_all(line, counts)).await
    }

    async fn answer_all(self, line: Line, counts: Counts) -> Result<Infallible, Failure> {
        if let Some(mut queries) = line.open(HEARD_AT_ONCE).await {
            let asking = Asking::default();
            let answering = Semaphore::new(ANSWERING_MAX);
            let mut under_way = FuturesUnordered::new();
            let mut waiting = Waiting::new(ANSWER_DEADLINE);
            let mut heard = Vec::new();
            let since = Stopwatch::start();
            loop {
                tokio::select! {
                    1.. = queries.next_many(&mut heard, HEARD_AT_ONCE) => {
                        for query in heard.drain(..) {
                            let arrival = self.queue(query, &mut waiting, since.elapsed(), &counts);
                            under_way.extend(arrival.map(|refused| refused.boxed()));
                        }
                    }
                    Some(()) = under_way.next() => {}
                    // The connection is not kept any more.
                    else => break,
                }
                let mut dropped = 0;
                while under_way.len() < UNDER_WAY_MAX
                    && let Some(query) = waiting.pop(since.elapsed(), &mut dropped)
                {
                    under_way.push(self.answer(query, &asking, &answering, &counts).boxed());
                }
                counts.dropped.inc_by(dropped);
            }
        }
        // The service is to stop, which ends this.
        std::future::pending().await
    }

    /// The group in which the processes of the service share the queries.
    fn group(&self) -> &'static str {
        match self.unknown {
            true => GROUP_OF_ALL,
            false => GROUP,
        }
    }

    fn instance<T>(&self, ctx: &Context<T>) -> Instance {
        let id = Uuid::new_v4().simple().to_string();
        let mut instance = Instance::new(ctx.service, &ctx.cell.name, id, Stamp::now());
        for (name, _) in &self.verbs {
            instance.endpoint(name, self.subjects.query("*", name), self.group());
        }
        instance
    }

    /// No query may come by two subscriptions: the server counts each delivery as one of the answers that a service is
    /// allowed, and then refuses the only one.
    fn wanted(&self, instance: &Instance) -> Vec<Wanted> {
        let names = match self.unknown {
            true => vec!["*"],
            false => self.verbs.iter().map(|(name, _)| *name).collect(),
        };
        let subject = |name| Wanted::shared(self.subjects.query("*", name), self.group());
        let mut wanted: Vec<_> = names.into_iter().map(subject).collect();
        wanted.extend(instance.wanted());
        wanted
    }

    async fn answer(
        &self,
        (since, heard): (Stopwatch, Heard),
        asking: &Asking,
        answering: &Semaphore,
        counts: &Counts,
    ) {
        let said = match counts.instance.answer(&heard.subject) {
            Some(said) => said,
            None => self.reply(&heard, since, asking, answering, counts).await,
        };
        send(heard, said).await;
    }

    /// Puts a query into its tenant's queue. Returns a refusal to be sent where that is full.
    fn queue<'a>(
        &'a self,
        query: Heard,
        waiting: &mut Waiting<(Stopwatch, Heard)>,
        now: Duration,
        counts: &'a Counts,
    ) -> Option<impl Future<Output = ()> + 'a> {
        // Another service answers, or nobody waits.
        let name = self.subjects.token(&query.subject, 2).unwrap_or_default();
        let is_own = self.verbs.iter().any(|(own, _)| *own == name);
        if !is_own && subjects::answers(name).is_some() || query.reply_to.is_none() {
            return None;
        }
        let tenant = self.subjects.token(&query.subject, 1).unwrap_or_default();
        let tenant = tenant.to_owned();
        match waiting.push(&tenant, (Stopwatch::start(), query), now) {
            Arrival::Waits => None,
            Arrival::Refused((since, query)) => Some(self.refuse(query, since, counts)),
            Arrival::Dropped => {
                counts.dropped.inc();
                None
            }
        }
    }

    async fn refuse(&self, query: Heard, since: Stopwatch, counts: &Counts) {
        let limit = TENANT_WAITING_MAX as u64;
        let refusal = Refusal::over(Rule::RateLimited, "queries", limit, limit + 1);
        let turn = Err(Trouble::Refused(refusal));
        let verb = self.verb(&query).map_or("unknown", |(own, _)| *own);
        counts.count(verb, since.elapsed(), &turn);
        send(query, said(verb, turn)).await;
    }

    fn verb(&self, query: &Heard) -> Option<&(&'static str, Box<dyn Answers>)> {
        let name = self.subjects.token(&query.subject, 2).unwrap_or_default();
        self.verbs.iter().find(|(own, _)| *own == name)
    }

    async fn reply(
        &self,
        query: &Heard,
        since: Stopwatch,
        asking: &Asking,
        answering: &Semaphore,
        counts: &Counts,
    ) -> Vec<u8> {
        let own = self.verb(query);
        let turn = match own {
            Some((_, verb)) => self.turn(&**verb, query, asking, answering).await,
            None => Err(Trouble::refused(Rule::UnknownVerb, "verb")),
        };
        // Whatever else was asked for has one name: askers make names up.
        let verb = own.map_or("unknown", |(own, _)| *own);
        counts.count(verb, since.elapsed(), &turn);
        if let Err(Trouble::Unavailable(error)) = &turn {
            tracing::warn!(subject = %query.subject, %error, "query");
        }
        said(verb, turn)
    }

    async fn turn(
        &self,
        verb: &dyn Answers,
        query: &Heard,
        asking: &Asking,
        answering: &Semaphore,
    ) -> Result<Vec<u8>, Trouble> {
        let tenant = self.subjects.token(&query.subject, 1);
        let tenant = tenant.and_then(|name| Token::new(name).ok());
        let Some(tenant) = tenant else {
            return Err(Trouble::refused(Rule::NameInvalid, "tenant"));
        };
        let turn = asking.begin(&tenant).map_err(Trouble::Refused)?;
        let answering = [&turn.answering, answering];
        verb.answer(tenant, &query.payload, answering).await
    }
}

async fn send(query: Heard, said: Vec<u8>) {
    let Some(reply_to) = query.reply_to else {
        return;
    };
    if let Err(error) = reply_to.answer(said.into()).await {
        tracing::warn!(subject = %query.subject, %error, "query");
    }
}

#[cfg(test)]
mod tests;
