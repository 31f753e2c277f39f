//! What an allocation asks of quota, and how far it has come with that.

use super::{
    account::{AccountId, Path},
    gang::GangNo,
    purse::Purse,
    rates::ScopeNo,
    resource::{Choice, Parts, ResourceId},
};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use vocab::{AllocationNo, Millis, Token};

/// Who goes first: the higher priority, then the older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Order(Reverse<i32>, AllocationNo);

impl Order {
    /// None comes before it.
    pub const FIRST: Self = Self(Reverse(i32::MAX), AllocationNo(0));

    pub fn new(priority: i32, allocation: AllocationNo) -> Self {
        Self(Reverse(priority), allocation)
    }

    pub fn allocation(self) -> AllocationNo {
        self.1
    }
}

/// Who has to go first: the lower priority, then the younger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Seniority(i32, Reverse<AllocationNo>);

impl Seniority {
    pub fn new(priority: i32, allocation: AllocationNo) -> Self {
        Self(priority, Reverse(allocation))
    }

    pub fn allocation(self) -> AllocationNo {
        self.1.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum What {
    Resource(ResourceId),
    Budget(Purse),
}

/// Something of an account that one can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Point {
    pub account: AccountId,
    pub what: What,
}

impl Point {
    /// None comes before it.
    pub const FIRST: Self = Self {
        account: AccountId(0),
        what: What::Resource(ResourceId::FIRST),
    };

    pub fn resource(account: AccountId, resource: ResourceId) -> Self {
        let what = What::Resource(resource);
        Self { account, what }
    }

    /// Any of several models will do. One waits for that at one's tenant.
    pub fn is_choice(self) -> bool {
        matches!(self.what, What::Resource(resource) if resource.is_choice())
    }
}

/// What a claim waits for, as it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    /// To be told anew.
    Nowhere,
    /// For the other members of its gang.
    Gang,
    /// For the end of what it depends on.
    Others,
    At(Point),
    /// It asks for more than there may be held now.
    Aside {
        point: Point,
        amount: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// Not decided, or to be decided again.
    Asked,
    Waits {
        place: Place,
        /// What it asks for is its tenant's own, and is on its way back.
        owed: bool,
    },
    Holds(Hold),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hold {
    pub started: Option<Millis>,
    /// It has to stop.
    pub reclaimed: bool,
    pub leaves: Option<Leaves>,
}

impl Hold {
    /// Since when it runs, if it does.
    pub fn running(&self) -> Option<Millis> {
        self.started.filter(|_| self.leaves.is_none())
    }
}

/// Why what is held is to be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Leaves {
    Ended,
    /// What was taken back has stopped, and waits for quota anew.
    Stopped,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    pub path: Path,
    /// What it asks for but for the choice.
    pub parts: Parts,
    pub choice: Option<Box<Choice>>,
    pub priority: i32,
    pub gang: Option<GangNo>,
    /// It held quota before: it is not denied any more.
    pub again: bool,
    /// Model of the GPUs of its node.
    pub model: Option<Token>,
    /// What its price depends on beside that.
    pub scope: ScopeNo,
    pub stage: Stage,
}

impl Claim {
    pub fn order(&self, allocation: AllocationNo) -> Order {
        Order::new(self.priority, allocation)
    }

    pub fn seniority(&self, allocation: AllocationNo) -> Seniority {
        Seniority::new(self.priority, allocation)
    }

    /// What it counts on of its choice.
    fn of_choice(&self) -> impl Iterator<Item = (ResourceId, u64)> + Clone {
        let choice = self.choice.as_ref().into_iter();
        choice.flat_map(|choice| choice.counts_on.iter().map(|model| (*model, choice.amount)))
    }

    /// All that it counts for.
    pub fn counted(&self) -> impl Iterator<Item = (ResourceId, u64)> + Clone {
        self.parts.iter().copied().chain(self.of_choice())
    }

    /// What it counts on a resource type: one that may still be of any model counts on each.
    pub fn amount(&self, resource: ResourceId) -> u64 {
        let counts = |part: ResourceId| {
            part == resource || part == ResourceId::ANY_MODEL && resource.is_model()
        };
        let counted = self.counted().filter(|(part, _)| counts(*part));
        counted.fold(0, |sum, (_, amount)| sum.saturating_add(amount))
    }

    pub fn place(&self) -> Place {
        match self.stage {
            Stage::Waits { place, .. } => place,
            Stage::Asked | Stage::Holds(_) => Place::Nowhere,
        }
    }

    pub fn is_owed(&self) -> bool {
        matches!(self.stage, Stage::Waits { owed: true, .. })
    }

    pub fn hold(&self) -> Option<&Hold> {
        match &self.stage {
            Stage::Holds(hold) => Some(hold),
            Stage::Asked | Stage::Waits { .. } => None,
        }
    }

    pub fn hold_mut(&mut self) -> Option<&mut Hold> {
        match &mut self.stage {
            Stage::Holds(hold) => Some(hold),
            Stage::Asked | Stage::Waits { .. } => None,
        }
    }
}
