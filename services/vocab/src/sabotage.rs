//! Bugs put in on purpose, so that the simulation can show that it finds them. They exist only in builds with debug
//! assertions; in a release build `armed` is constant false.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Appends without the expected sequence.
    NoFence,
    /// Records one position more than was folded, so that recovery skips an input.
    WatermarkOffByOne,
    /// Takes a repeated operation for a new one.
    DuplicateNotRecognised,
    /// Ends a node's lease before its time.
    ExpiryEarly,
    /// Gives a node its resources back twice.
    DoubleRelease,
    /// Looks at the limits of the nearest account alone.
    OverAtHigherLevel,
    /// Lends what the cohort does not have.
    BorrowedBeyondPool,
    /// Lets a burst go on for ever.
    BurstForever,
    /// Ends a lease of named resources a slot before its deadline.
    LeaseEarly,
    /// Takes the word of a holder whose authority is gone.
    StaleFencingTokenAccepted,
    /// Lets runs go on when their node's lease is over.
    LeaseOutlived,
    /// Takes a node's work away as soon as the node is to be forgotten.
    ForgottenAtOnce,
    /// Adopts a step of a machine's clock.
    ClockStepAdopted,
    /// Makes room for what its queue may not have.
    PreemptOverQueueLimit,
    /// Places a nominee without another look at what its node is like.
    NomineeIgnoresFilters,
    /// Lets what was placed in a frame go in the same.
    PlacedAndPreempted,
    /// Takes a run that had finished for one that had to go.
    FinishedRunsAgain,
    /// Forgets to try again what there is room for now.
    WakeUpLost,
    /// Takes from who has more than its share, whatever that brings.
    EndlessPreemption,
    /// Places on models that quota has left out.
    ExceptedModelUsed,
    /// Keeps quota of any model after a run of one.
    ModelQuotaKept,
    /// Counts what is impossible as demand of its queue.
    ImpossibleDemandCounts,
    /// Goes on with a ledger that has lost its end.
    LostEndIgnored,
    /// Looks only at how long a ledger is, and not at what stands there.
    DigestIgnored,
    /// Stores a message of the feed by its sequence, whatever its predecessor is.
    FeedFencedBySequence,
    /// Forgets, on taking over, whose messages were decided ahead of others.
    AheadForgotten,
    /// Gives a tenant nothing of its own: what all share is larger by that.
    OwnRoomShared,
    /// Begins with a snapshot without a look at whether it is intact.
    DamagedSnapshotTaken,
    /// Goes on behind what is no frame of the chain.
    ForeignSkipped,
    /// Writes what the cell's feature level does not allow yet.
    LevelIgnored,
    /// Places on nodes of which nothing was heard for a while.
    SuspectIgnored,
    /// Lets what was not placed in time wait on.
    TtlIgnored,
    /// Lets a run go on for longer than it may.
    TimeLimitIgnored,
    /// Forgets what a node holds beyond what it has when something of it is given back.
    DebtForgotten,
    /// Takes any team for one of the tenant's.
    TeamsIgnored,
    /// Lets members of a gang ask for different gangs.
    GangTermsIgnored,
    /// Accepts a rate from a moment that has passed.
    PastRateAccepted,
}

#[cfg(debug_assertions)]
thread_local! {
    static ARMED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Arms one bug, or none, on this thread.
#[cfg(debug_assertions)]
pub fn arm(bug: Option<Bug>) {
    ARMED.with(|cell| cell.set(bug));
}

/// Returns whether the bug is armed on this thread.
#[cfg(debug_assertions)]
#[inline]
pub fn armed(bug: Bug) -> bool {
    ARMED.with(std::cell::Cell::get) == Some(bug)
}

/// Returns false: a release build has no bugs to arm.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn armed(_bug: Bug) -> bool {
    false
}
