//! Publishes requests to a cell and waits for their outcomes.
//!
//! There are three outcomes, and the types keep them apart: definite success ([`Submitted`] and its like), definite
//! failure ([`Failed::Refused`], [`NoOutcome::NotReceived`]) and indefinite ([`NoOutcome::Indefinite`]). After an
//! indefinite one the same operation is sent again under the same operation id; the cell answers with what it decided
//! the first time. [`Client::settle`] does so until the outcome is definite.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use client::{Client, ConnectOptions, Submit};
//! use vocab::Token;
//!
//! let options = ConnectOptions::tenant("nats://127.0.0.1:4222", "c1", Token::new("team-a")?)
//!     .user("team-a", "secret");
//! let client = Client::connect(options).await?;
//! let submitted = client
//!     .submit(
//!         Submit { name: "train-7".into(), cpu_milli: 4_000, memory_bytes: 8 << 30, gpu_count: 1, ..Submit::default() },
//!         "train-7-first",
//!     )
//!     .await?;
//! println!("{} {:?}", submitted.allocation_id, submitted.state);
//! # Ok(())
//! # }
//! ```

mod connect;
mod feed;
mod operation;
mod outcome;
mod pending;
mod verbs;

pub use connect::{Client, ConnectError, ConnectOptions, Party};
pub use feed::{Feed, FeedError, Follower, PAGE_MAX, Position};
pub use operation::Operation;
pub use outcome::{Failed, NoOutcome};
pub use pending::Pending;
pub use schemas::v1::{
    Applied, Cancel, Cancelled, DependencyRequest, ExtendedRequest, GangRequest, GroupTerm,
    LimitRequest, NumaPolicy, Operator, Outcome, PlacementPolicy, PlacementRules, QueueOrder,
    Refused, Requirement, ReservationRequest, SetCordon, SetPriorityClass, SetQueue, SetQuota,
    SetRate, SetReservation, SetScheduling, SetTenant, Spread, Submit, Submitted, TenantEvent,
    Toleration,
};
