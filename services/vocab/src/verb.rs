//! What an operation asks for.

use crate::Level;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

macro_rules! verbs {
    ($($name:ident = $text:literal,)*) => {
        /// What an operation asks for, whether it was accepted or not. What comes later stands last: it is serialised by its
        /// place.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
        #[wire(text)]
        pub enum Verb { $($name,)* }

        impl Verb {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As the contract's request has it, in snake case.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

verbs! {
    Submit = "submit",
    Cancel = "cancel",
    CancelJobSet = "cancel_job_set",
    SetPriority = "set_priority",
    CreateResource = "create_resource",
    Acquire = "acquire",
    Confirm = "confirm",
    Release = "release",
    Revoke = "revoke",
    Reclaim = "reclaim",
    SetTenant = "set_tenant",
    SetQuota = "set_quota",
    SetRate = "set_rate",
    SetQueue = "set_queue",
    SetPriorityClass = "set_priority_class",
    SetScheduling = "set_scheduling",
    SetCordon = "set_cordon",
    SetReservation = "set_reservation",
    SetBudget = "set_budget",
    SetNode = "set_node",
    ClosePeriod = "close_period",
    SetTaints = "set_taints",
}

impl Verb {
    /// The feature level that a cell must have before a refusal names it: older builds cannot read one that they do not know.
    /// A verb that comes later has a later one.
    pub fn since(self) -> Level {
        Level::REFUSED_VERBS
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|verb| verb.name() == text)
    }
}

impl wire::Text for Verb {
    fn as_text(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.name())
    }

    fn parse_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}
