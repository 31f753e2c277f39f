//! Questions about one's own things, answered from the cell's read models.
//!
//! Read models follow the ledger. A question that names a position, such as the `lsn` of an outcome, is answered as of
//! that position or a later one; the cell waits for it a few seconds at the most and refuses with
//! [`Rule::NotApplied`](vocab::Rule::NotApplied) otherwise.

use crate::Client;
use async_nats::Request;
use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use prost::Message;
use schemas::v1::{
    AllocationQuery, AllocationReply, AllocationView, AllocationsPage, AllocationsQuery,
    ApprovalsPage, ApprovalsQuery, BillQuery, BillReply, BudgetQuery, BudgetReply, ExplainQuery,
    ExplainReply, FeedQuery, JobSetsPage, JobSetsQuery, LeaseQuery, LeaseReply, LeaseView,
    LogsQuery, LogsReply, NodeQuery, NodeReply, NodesPage, NodesQuery, OperationQuery,
    OperationReply, OperationView, PreemptionsPage, PreemptionsQuery, QueryRefused, QueueQuery,
    QueueReply, QueuesQuery, QueuesReply, QuotaHistoryPage, QuotaHistoryQuery, QuotaPage,
    QuotaQuery, RatesPage, RatesQuery, Refusal, RefusalsPage, RefusalsQuery, RefusedNode,
    ReservationsQuery, ReservationsReply, ResourceQuery, ResourceReply, ResourceView, SettingsPage,
    SettingsQuery, TenantsPage, TenantsQuery, TryPlaceQuery, TryPlaceReply, TryQuotaQuery,
    TryQuotaReply, UsagePage, UsageQuery,
};
use std::{future::Future, pin::pin, sync::atomic::Ordering, time::Duration};
use vocab::{Rule, subjects::OPERATORS_QUERIES};

const SERVICE_ERROR: &str = "Nats-Service-Error";
/// Between two askings of a question that has no answer yet.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// How often a question is asked, at the most.
const ASKED_MAX: u32 = 3;
/// Maximum number of attempts to reach the leader of a service: its processes share queries, and any of them may answer.
const LEADER_TRIES: u32 = 10;
/// How long an answer is waited for, from when the question was asked first.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time in which a question is asked again while its position is not applied: as long as a service waits for a position itself.
const POSITION_PATIENCE: Duration = Duration::from_secs(3);
const POSITION_PAUSE: Duration = Duration::from_millis(50);

/// Why a question was not answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("the cell does not answer: {0}")]
    Request(#[from] async_nats::RequestError),
    /// What the answer is read from is away.
    #[error("the cell cannot answer now: {}", explanation(.0))]
    Unavailable(Refusal),
    /// The bus does not let the party ask that.
    #[error(
        "the bus does not let it through; the creds may be of another tenant, or the cell of another name: {0}"
    )]
    Denied(String),
    #[error("the cell answers with an error: {0}")]
    Service(String),
    #[error("the cell sent no answer: {0}")]
    Decode(#[from] prost::DecodeError),
    /// The question broke a rule, or what it is about is not the asker's.
    #[error("refused: {}", explanation(.0))]
    Refused(Refusal),
    /// Neither a view nor a refusal.
    #[error("the cell sent an empty answer")]
    Empty,
}

/// A refusal in words: what was sent, what may be, and what would let it pass.
pub fn explanation(refusal: &Refusal) -> String {
    let Refusal {
        rule,
        subject,
        limit,
        actual,
    } = refusal;
    match Rule::from_number(*rule) {
        Some(rule) => vocab::Refusal::over(rule, subject, *limit, *actual).explanation(),
        None => format!("{subject}: rule {rule}, which this version does not know"),
    }
}

impl QueryError {
    /// The broken rule, if that is why.
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::Refused(refusal) | Self::Unavailable(refusal) => Rule::from_number(refusal.rule),
            Self::Request(_)
            | Self::Denied(_)
            | Self::Service(_)
            | Self::Decode(_)
            | Self::Empty => None,
        }
    }
}

impl Client {
    /// Where an allocation stands at `at_lsn` or later; 0: whenever.
    pub async fn allocation(
        &self,
        allocation_id: impl Into<String>,
        at_lsn: u64,
    ) -> Result<AllocationView, QueryError> {
        let reply = self.allocation_whole(allocation_id, at_lsn).await?;
        reply.view.ok_or(QueryError::Empty)
    }

    /// All that is told of an allocation: where it stands, what it asked for, and the places that it has had.
    pub async fn allocation_whole(
        &self,
        allocation_id: impl Into<String>,
        at_lsn: u64,
    ) -> Result<AllocationReply, QueryError> {
        let query = AllocationQuery {
            allocation_id: allocation_id.into(),
            at_lsn,
        };
        self.ask("allocation", &query).await
    }

    /// A page of one's own allocations, the newest request first. The next one has the `next` of this one as `after`.
    pub async fn allocations(
        &self,
        query: &AllocationsQuery,
    ) -> Result<AllocationsPage, QueryError> {
        self.ask("allocations", query).await
    }

    /// Why an allocation stands where it stands, now or at an earlier position.
    pub async fn explain(&self, query: &ExplainQuery) -> Result<ExplainReply, QueryError> {
        self.ask("explain", query).await
    }

    /// A page of what was used and what it costs; to an operator by whom. The next one has the `next` of this one as `skip`.
    pub async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, QueryError> {
        self.ask("usage", query).await
    }

    /// A page of one's own bill of a month; to an operator of everybody's.
    pub async fn bill(&self, query: &BillQuery) -> Result<BillReply, QueryError> {
        self.ask("bill", query).await
    }

    /// A page of one's own budgets, those of the teams and namespaces, too; to an operator of everybody's.
    pub async fn budgets(&self, query: &BudgetQuery) -> Result<BudgetReply, QueryError> {
        self.ask("budget", query).await
    }

    /// A page of what one's accounts may hold and do hold; to an operator of all tenants'. The next one has the `next` of this
    /// one as `after`, and so it is with the other pages.
    pub async fn quota(&self, query: &QuotaQuery) -> Result<QuotaPage, QueryError> {
        self.ask("quota", query).await
    }

    /// A page of what an account of one's own used, hour by hour; to an operator that of each tenant.
    pub async fn quota_history(
        &self,
        query: &QuotaHistoryQuery,
    ) -> Result<QuotaHistoryPage, QueryError> {
        self.ask("quota_history", query).await
    }

    /// A page of what one has lost to others; to an operator of what anybody has.
    pub async fn preemptions(
        &self,
        query: &PreemptionsQuery,
    ) -> Result<PreemptionsPage, QueryError> {
        self.ask("preemptions", query).await
    }

    /// What quota would decide on a request of one's own: as the `passes` of a trial at the inbox has it.
    pub async fn try_quota(&self, query: &TryQuotaQuery) -> Result<TryQuotaReply, QueryError> {
        self.ask("try_quota", query).await
    }

    /// What the scheduler would decide on a request of one's own that has its quota.
    pub async fn try_place(&self, query: &TryPlaceQuery) -> Result<TryPlaceReply, QueryError> {
        self.ask("try_place", query).await
    }

    /// What one has waiting for a place, in the order in which it is tried.
    pub async fn queue(&self, query: &QueueQuery) -> Result<QueueReply, QueryError> {
        self.ask("queue", query).await
    }

    /// A page of the queues that one may submit to; to an operator of all.
    pub async fn queues(&self, query: &QueuesQuery) -> Result<QueuesReply, QueryError> {
        self.ask("queues", query).await
    }

    /// The advance reservations for the queues that one may submit to; to an operator all.
    pub async fn reservations(&self, at_lsn: u64) -> Result<ReservationsReply, QueryError> {
        let query = ReservationsQuery { at_lsn };
        self.ask("reservations", &query).await
    }

    /// A page of what was refused of late; to an operator whoever had asked.
    pub async fn refusals(&self, query: &RefusalsQuery) -> Result<RefusalsPage, QueryError> {
        self.ask("refusals", query).await
    }

    /// A page of what is set of the tenant, and of the priority classes that it may use; to an operator of all that is set in the cell.
    pub async fn settings(&self, query: &SettingsQuery) -> Result<SettingsPage, QueryError> {
        self.ask("settings", query).await
    }

    /// A page of the rates that were set. Operators only.
    pub async fn rates(&self, query: &RatesQuery) -> Result<RatesPage, QueryError> {
        self.ask("rates", query).await
    }

    /// A page of one's job sets, with how many of their allocations stand where; to an operator of everybody's.
    pub async fn job_sets(&self, query: &JobSetsQuery) -> Result<JobSetsPage, QueryError> {
        self.ask("job_sets", query).await
    }

    /// A page of the tenants, with what each has. Operators only.
    pub async fn tenants(&self, query: &TenantsQuery) -> Result<TenantsPage, QueryError> {
        self.ask("tenants", query).await
    }

    /// A page of the nodes, with how full each is. Operators only.
    pub async fn nodes(&self, query: &NodesQuery) -> Result<NodesPage, QueryError> {
        self.ask("nodes", query).await
    }

    /// A page of who may be a node, and who is. Operators only.
    pub async fn approvals(&self, query: &ApprovalsQuery) -> Result<ApprovalsPage, QueryError> {
        self.ask("approvals", query).await
    }

    /// Returns the nodes with a refused registration or join; `None` if no process that leads answered. Operators only.
    pub async fn refused_nodes(
        &self,
        query: &ApprovalsQuery,
    ) -> Result<Option<Vec<RefusedNode>>, QueryError> {
        for _ in 0..LEADER_TRIES {
            let page = self.approvals(query).await?;
            if page.leading {
                return Ok(Some(page.refused_nodes));
            }
        }
        Ok(None)
    }

    /// One node, what is on it, and what has become of it. Operators only.
    pub async fn node(&self, query: &NodeQuery) -> Result<NodeReply, QueryError> {
        self.ask("node", query).await
    }

    /// A part of what a run of one's own has written, from the agent of the node that it runs on or ran on.
    pub async fn logs(&self, query: &LogsQuery) -> Result<LogsReply, QueryError> {
        self.ask("logs", query).await
    }

    /// Where a lease of named resources stands. The slot is needed where the cell counts slots by requests, and only
    /// there.
    pub async fn lease(
        &self,
        lease_id: impl Into<String>,
        slot: Option<u64>,
        at_lsn: u64,
    ) -> Result<LeaseView, QueryError> {
        let query = LeaseQuery {
            lease_id: lease_id.into(),
            slot,
            at_lsn,
        };
        let reply: LeaseReply = self.ask("lease", &query).await?;
        reply.view.ok_or(QueryError::Empty)
    }

    /// Where a named resource stands.
    pub async fn resource(
        &self,
        resource: impl Into<String>,
        at_lsn: u64,
    ) -> Result<ResourceView, QueryError> {
        let query = ResourceQuery {
            resource: resource.into(),
            at_lsn,
        };
        let reply: ResourceReply = self.ask("resource", &query).await?;
        reply.view.ok_or(QueryError::Empty)
    }

    /// What the cell knows of an operation, without sending it again.
    pub async fn operation(
        &self,
        operation_id: impl Into<String>,
        at_lsn: u64,
    ) -> Result<OperationView, QueryError> {
        let query = OperationQuery {
            operation_id: operation_id.into(),
            at_lsn,
        };
        let reply: OperationReply = self.ask("operation", &query).await?;
        reply.view.ok_or(QueryError::Empty)
    }

    /// Asks at the position that the connection reads after. An answer of an older one is better than none.
    pub(crate) async fn ask<R: Message + Default>(
        &self,
        verb: &str,
        query: &impl Positioned,
    ) -> Result<R, QueryError> {
        let after = self.0.reads_after.map(|lsn| lsn.max(self.decided_lsn()));
        let Some(later) = after.and_then(|lsn| query.at(lsn)) else {
            return self.ask_once(verb, query).await;
        };
        let mut late = pin!(tokio::time::sleep(POSITION_PATIENCE));
        loop {
            let answered = self.ask_once(verb, &later).await;
            match &answered {
                Err(error) if error.rule() == Some(Rule::NotApplied) => {}
                _ => return answered,
            }
            tokio::select! {
                biased;
                () = &mut late => {
                    self.0.read_behind.store(true, Ordering::Relaxed);
                    return self.ask_once(verb, query).await;
                }
                () = tokio::time::sleep(POSITION_PAUSE) => {}
            }
        }
    }

    async fn ask_once<R: Message + Default>(
        &self,
        verb: &str,
        query: &impl Message,
    ) -> Result<R, QueryError> {
        // What only operators ask about the cell is of no tenant.
        let of_tenants = !OPERATORS_QUERIES.contains(&verb);
        let about = self.0.about.as_ref().filter(|_| of_tenants);
        let whose = about.map_or(self.party().name(), |tenant| tenant.as_str());
        let subject = self.subjects().query(whose, verb);
        let payload = Bytes::from(query.encode_to_vec());
        self.0.replies.denial.clear();
        // What the bus forbids it says beside the question, which then has no answer.
        let denied = self.0.replies.denial.of(&subject);
        let ask = async |before: u32| {
            let left = PATIENCE - AGAIN_AFTER * before;
            let request = Request::new().payload(payload.clone()).timeout(Some(left));
            answer(self.0.nats.send_request(subject.clone(), request).await?)
        };
        tokio::select! {
            biased;
            answered = first_answer(ask, || tokio::time::sleep(AGAIN_AFTER), is_answer) => answered,
            said = denied => Err(QueryError::Denied(said)),
        }
    }
}

/// A question that can name the position of its answer.
pub(crate) trait Positioned: Message + Clone {
    /// The same question for a later position; none if it names that one, a later one, or cannot name any.
    fn at(&self, lsn: u64) -> Option<Self>;
}

macro_rules! positioned {
    ($($query:ident),* $(,)?) => {
        $(impl Positioned for $query {
            fn at(&self, lsn: u64) -> Option<Self> {
                (self.at_lsn < lsn).then(|| {
                    let mut later = self.clone();
                    later.at_lsn = lsn;
                    later
                })
            }
        })*
    };
}

positioned! {
    AllocationQuery, AllocationsQuery, ApprovalsQuery, BillQuery, BudgetQuery, ExplainQuery, FeedQuery, JobSetsQuery, LeaseQuery,
    NodeQuery, NodesQuery, OperationQuery, PreemptionsQuery, QueueQuery, QueuesQuery, QuotaHistoryQuery, QuotaQuery, RatesQuery,
    RefusalsQuery, ReservationsQuery, ResourceQuery, SettingsQuery, TenantsQuery, TryPlaceQuery, TryQuotaQuery, UsageQuery,
}

/// A node's agent answers, and it reads no ledger.
impl Positioned for LogsQuery {
    fn at(&self, _: u64) -> Option<Self> {
        None
    }
}

/// What a message says.
fn answer<R: Message + Default>(message: async_nats::Message) -> Result<R, QueryError> {
    let failure = message.headers.as_ref().and_then(|h| h.get(SERVICE_ERROR));
    if let Some(text) = failure {
        return Err(QueryError::Service(text.to_string()));
    }
    // Every reply has its refusal in the same place.
    let refused = QueryRefused::decode(message.payload.clone())?;
    if let Some(refusal) = refused.refusal {
        if refusal.rule == Rule::AnswerUnavailable.number() {
            return Err(QueryError::Unavailable(refusal));
        }
        return Err(QueryError::Refused(refusal));
    }
    Ok(R::decode(message.payload)?)
}

/// Whether it says what was asked, and not only that this asking of it was in vain.
fn is_answer<R>(said: &Result<R, QueryError>) -> bool {
    match said {
        Err(QueryError::Request(_)) => false,
        Err(refused) => refused.rule() != Some(Rule::RateLimited),
        Ok(_) => true,
    }
}

/// The first answer to a question that is asked again while it has none: the process that heard it may have ended since, and a
/// question changes nothing. `ask` is told how often it was asked before. Where all that were asked so far were in vain, what the last of
/// them said.
async fn first_answer<A: Future, P: Future<Output = ()>>(
    ask: impl Fn(u32) -> A,
    pause: impl Fn() -> P,
    is_answer: impl Fn(&A::Output) -> bool,
) -> A::Output {
    let mut asked = 1;
    let mut open = FuturesUnordered::from_iter([ask(0)]);
    let mut waits = Box::pin(pause());
    loop {
        tokio::select! {
            biased;
            Some(said) = open.next() => {
                if is_answer(&said) || open.is_empty() {
                    return said;
                }
            }
            () = &mut waits, if asked < ASKED_MAX => {
                open.push(ask(asked));
                asked += 1;
                waits.set(pause());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, channel::oneshot, future::poll_immediate};
    use std::cell::RefCell;

    /// Each asking of a question, and each pause behind one, in the test's hands.
    #[derive(Default)]
    struct Hands {
        askings: RefCell<Vec<oneshot::Sender<Result<usize, usize>>>>,
        pauses: RefCell<Vec<oneshot::Sender<()>>>,
    }

    /// What happens to a question: a pause ends, or asking so and so has an answer or is in vain. Then what it comes to: how
    /// often it was asked, and what was said.
    async fn check(
        happens: &[Result<Result<usize, usize>, ()>],
        expected: (usize, Option<Result<usize, usize>>),
    ) {
        let hands = Hands::default();
        let told = RefCell::new(0..);
        let ask = |before: u32| {
            assert_eq!(told.borrow_mut().next(), Some(before));
            let (sender, receiver) = oneshot::channel();
            hands.askings.borrow_mut().push(sender);
            receiver.map(|said| said.unwrap())
        };
        let pause = || {
            let (sender, receiver) = oneshot::channel();
            hands.pauses.borrow_mut().push(sender);
            receiver.map(drop)
        };
        let mut asking = Box::pin(first_answer(ask, pause, Result::is_ok));
        let mut said = poll_immediate(asking.as_mut()).await;
        let mut askings = Vec::new();
        for one in happens {
            assert_eq!(said, None, "{happens:?}");
            askings.extend(hands.askings.take().into_iter().map(Some));
            match *one {
                Err(()) => drop(hands.pauses.take()),
                Ok(answer) => {
                    let asked = answer.unwrap_or_else(|asked| asked);
                    askings[asked].take().unwrap().send(answer).unwrap();
                }
            }
            said = poll_immediate(asking.as_mut()).await;
        }
        askings.extend(hands.askings.take().into_iter().map(Some));
        assert_eq!((askings.len(), said), expected, "{happens:?}");
    }

    #[tokio::test]
    async fn a_question_is_asked_again_until_an_asking_is_answered() {
        let (pause, answered, in_vain) = (Err(()), |asked| Ok(Ok(asked)), |asked| Ok(Err(asked)));
        check(&[], (1, None)).await;
        check(&[answered(0)], (1, Some(Ok(0)))).await;
        check(&[pause, pause], (3, None)).await;
        // It is asked three times at the most.
        check(&[pause, pause, pause], (3, None)).await;
        for one in 0..ASKED_MAX as usize {
            check(&[pause, pause, answered(one)], (3, Some(Ok(one)))).await;
        }
        // Nobody hears it at all.
        check(&[in_vain(0)], (1, Some(Err(0)))).await;
        // Who heard it first may still answer.
        check(&[pause, in_vain(1), answered(0)], (2, Some(Ok(0)))).await;
        check(&[pause, in_vain(1), pause, answered(2)], (3, Some(Ok(2)))).await;
        check(&[pause, in_vain(0), in_vain(1)], (2, Some(Err(1)))).await;
    }

    #[test]
    fn what_asks_for_patience_is_no_answer() {
        let refused = |rule: Rule| {
            let refusal = Refusal {
                rule: rule.number(),
                ..Refusal::default()
            };
            Err::<(), _>(QueryError::Refused(refusal))
        };
        assert!(is_answer(&Ok(())));
        assert!(is_answer(&refused(Rule::NotApplied)));
        assert!(!is_answer(&refused(Rule::RateLimited)));
    }
}
