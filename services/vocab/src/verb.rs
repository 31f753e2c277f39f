//! What an operation asks for.

use crate::Level;
use serde::{Deserialize, Serialize};

macro_rules! verbs {
    ($($name:ident = $number:literal, $text:literal,)*) => {
        /// What an operation asks for, whether it was accepted or not. Stable numbers, the same as the contract's. What comes
        /// later stands last: it is serialised by its place.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
        pub enum Verb { $($name = $number,)* }

        impl Verb {
            /// As the contract's request has it, in snake case.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

verbs! {
    Submit = 1, "submit",
    Cancel = 2, "cancel",
    CancelJobSet = 3, "cancel_job_set",
    SetPriority = 4, "set_priority",
    CreateResource = 5, "create_resource",
    Acquire = 6, "acquire",
    Confirm = 7, "confirm",
    Release = 8, "release",
    Revoke = 9, "revoke",
    Reclaim = 10, "reclaim",
    SetTenant = 11, "set_tenant",
    SetQuota = 12, "set_quota",
    SetRate = 13, "set_rate",
    SetQueue = 14, "set_queue",
    SetPriorityClass = 15, "set_priority_class",
    SetScheduling = 16, "set_scheduling",
    SetCordon = 17, "set_cordon",
    SetReservation = 18, "set_reservation",
    SetBudget = 19, "set_budget",
    SetNode = 20, "set_node",
    ClosePeriod = 21, "close_period",
    SetTaints = 22, "set_taints",
}

impl Verb {
    /// The feature level that a cell must have before a refusal names it: older builds cannot read one that they do not know.
    /// A verb that comes later has a later one.
    pub fn since(self) -> Level {
        Level::REFUSED_VERBS
    }
}
