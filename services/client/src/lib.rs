//! Publishes requests to a cell and waits for their outcomes.
//!
//! There are three outcomes, and the types keep them apart: definite success ([`Submitted`] and its like), definite
//! failure ([`Failed::Refused`], [`NoOutcome::NotReceived`]) and indefinite ([`NoOutcome::Indefinite`]). After an
//! indefinite one the same operation is sent again under the same operation id; the cell answers with what it decided
//! the first time. [`Client::settle`] does so until the outcome is definite.
//!
//! Many operations may be under way on one connection. [`Client::submit_all`] puts many into one message, and
//! [`ConnectOptions::batched`] does so by itself with whatever is sent while a message waits for its acknowledgement: the
//! inbox's synced write costs the same for one operation as for hundreds.
//!
//! A tenant's feed is complete: [`Allocations`] rebuilds from it where everything stands, and
//! [`Client::watch_job_set`] follows a job set to its end.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use client::{Client, ConnectOptions, Position, Submit};
//! use vocab::Token;
//!
//! let options = ConnectOptions::tenant("nats://127.0.0.1:4222", "c1", Token::new("team-a")?)
//!     .creds("team-a.creds");
//! let client = Client::connect(options).await?;
//! let submitted = client
//!     .submit(
//!         Submit { name: "train-7".into(), cpu_milli: 4_000, memory_bytes: 8 << 30, gpu_count: 1, ..Submit::default() },
//!         "train-7-first",
//!     )
//!     .await?;
//! println!("{} {:?}", submitted.allocation_id, submitted.state);
//!
//! // Many in one message; each has its own operation id and its own outcome.
//! let parts = (0..100).map(|i| {
//!     let submit = Submit { job_set: "sweep".into(), cpu_milli: 500, memory_bytes: 1 << 30, ..Submit::default() };
//!     (format!("sweep-{i}"), submit)
//! });
//! for (operation_id, submitted) in client.submit_all(parts).await {
//!     if let Err(failed) = submitted {
//!         println!("{operation_id}: {failed}");
//!     }
//! }
//!
//! // Until all of it has ended; another process may go on from `watch.position()`.
//! let mut watch = client.watch_job_set("sweep", Position::default()).await?;
//! while let Some(events) = watch.next_page().await? {
//!     println!("{} events, {} allocations", events.len(), watch.allocations().len());
//! }
//! # Ok(())
//! # }
//! ```

mod array;
mod batcher;
mod connect;
mod envelope;
mod feed;
mod operation;
mod outcome;
mod pending;
mod publish;
mod query;
mod replies;
mod states;
mod verbs;
mod watch;

pub use connect::{Client, ConnectError, ConnectOptions, Party};
pub use feed::{Feed, FeedError, Follower, PAGE_MAX, Position};
pub use operation::Operation;
pub use outcome::{Failed, NoOutcome};
pub use pending::Pending;
pub use query::{QueryError, explanation};
pub use schemas::v1::{
    Acquire, AcquireBundle, AllocationReply, AllocationState as AllocationStanding, AllocationView,
    AllocationsPage, AllocationsQuery, Applied, ApprovalView, ApprovalsPage, ApprovalsQuery,
    Attempt, BillLine, BillQuery, BillReply, BudgetQuery, BudgetReply, BudgetView, Cancel,
    CancelJobSet, Cancelled, ClosePeriod, Confirm, Confirmed, CreateResource, DependencyRequest,
    ExplainQuery, ExplainReply, ExtendedRequest, FeedPage, GangRequest, GroupTerm, IndexRange,
    JobSetCancelled, JobSetView, JobSetsPage, JobSetsQuery, LeaseGranted, LeaseState, LeaseView,
    LimitRequest, NodeAmounts, NodeApprovalRequest, NodeCapacity, NodeChangeView,
    NodeConditionView, NodeQuery, NodeReply, NodeRunView, NodeStanding, NodeView, NodesPage,
    NodesQuery, NumaPolicy, OperationState, OperationView, Operator, Outcome, PlacementPolicy,
    PlacementRules, PreemptionView, PreemptionsPage, PreemptionsQuery, PrioritySet, QueueOrder,
    QueueQuery, QueueReply, QueueView, QueuedView, QueuesQuery, QueuesReply, QuotaHistoryPage,
    QuotaHistoryQuery, QuotaHourView, QuotaPage, QuotaQuery, QuotaView, QuotaWait, RatesPage,
    RatesQuery, Reclaim, Reclaimed, RefusalView, RefusalsPage, RefusalsQuery, Refused, RefusedNode,
    Release, Released, Requirement, ReservationRequest, ReservationView, ResourceCreated,
    ResourceState, ResourceView, Revoke, Revoked, SetBudget, SetCordon, SetNode, SetPriorityClass,
    SetQueue, SetQuota, SetRate, SetReservation, SetScheduling, SetTaints, SetTenant, SettingView,
    SettingsPage, SettingsQuery, Spread, Submit, SubmitArray, Submitted, Taint, TaintEffect,
    TenantEvent, TenantTreatment, TenantView, TenantsPage, TenantsQuery, Toleration, TryPlaceQuery,
    TryPlaceReply, TryQuotaQuery, TryQuotaReply, UsageBy, UsageLine, UsagePage, UsageQuery,
    WaitingCount,
};
pub use states::{AllocationState, Allocations, Stands};
pub use verbs::Of;
pub use watch::JobSetWatch;
