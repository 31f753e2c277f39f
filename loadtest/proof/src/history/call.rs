//! What a client saw of one call, and what the ledger says.

use named_resources::{LeaseView, model::Ruled};
use serde::{Deserialize, Serialize};
use vocab::{LeaseState, ResourceAnswer, ResourceAsk, Rule, Slot, Token};

/// One message that was sent. Sent again, it is another call of the same operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    pub client: Token,
    pub tenant: Token,
    pub operation_id: Token,
    pub ask: ResourceAsk,
    pub invoked_ns: u64,
    pub seen: Seen,
}

/// What came back, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Seen {
    /// Decided at this position of the ledger.
    Answered {
        at_ns: u64,
        lsn: u64,
        answer: Answer,
    },
    /// Definitely not taken, by a rule that records nothing; none: the inbox did not even store it.
    Unwritten { at_ns: u64, rule: Option<Rule> },
    /// Indefinite: it may have taken effect, or still do so.
    Nothing,
}

/// An answer as its reader sees it. Of a refusal only the rule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    Created,
    Granted {
        lease: u64,
        fencing_token: u64,
        deadline: Slot,
    },
    Confirmed,
    Released {
        fencing_token: u64,
    },
    Revoked {
        fencing_token: u64,
    },
    Reclaimed,
    Refused {
        rule: Rule,
    },
}

/// An answer as the ledger has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    pub answer: Answer,
    /// What has ended by it is remembered up to and with this slot, which clients are not told.
    pub retire_after: Option<Slot>,
}

/// A lease that was looked up, outside of the ledger's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Read {
    pub client: Token,
    pub tenant: Token,
    pub lease: u64,
    pub invoked_ns: u64,
    pub answered_ns: u64,
    /// The position that it named: it must not see less. None: it has to see all that was answered before it.
    pub named_lsn: Option<u64>,
    /// What it saw: the ledger up to and with this position, at this slot.
    pub lsn: u64,
    pub slot: Slot,
    pub found: Found,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Found {
    Lease {
        state: LeaseState,
        fencing_token: u64,
        holder: Token,
        deadline: Slot,
    },
    Refused {
        rule: Rule,
    },
}

/// One decision on the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub lsn: u64,
    /// Of the event in its frame.
    pub index: u32,
    pub tenant: Token,
    /// The slot at which it was asked, or at which it expired.
    pub slot: Slot,
    pub fact: Fact,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fact {
    /// `ResourceDecided`, with the operation and the content of its `ResourceAsked`.
    Decided {
        operation_id: Token,
        ask: ResourceAsk,
        decision: Decision,
    },
    /// `OperationRefused`: the inbox refused it and recorded that, without its content.
    Refused { operation_id: Token, rule: Rule },
    /// `LeaseExpired`: nobody asked for it.
    Expired {
        lease: u64,
        fencing_token: u64,
        retire_after: Slot,
    },
}

impl Call {
    /// When it was over and what it said, if it has an answer of the ledger.
    pub fn answered(&self) -> Option<(u64, u64, Answer)> {
        match self.seen {
            Seen::Answered { at_ns, lsn, answer } => Some((at_ns, lsn, answer)),
            Seen::Unwritten { .. } | Seen::Nothing => None,
        }
    }

    /// When it was over, if ever.
    pub fn ended_ns(&self) -> Option<u64> {
        match self.seen {
            Seen::Answered { at_ns, .. } | Seen::Unwritten { at_ns, .. } => Some(at_ns),
            Seen::Nothing => None,
        }
    }
}

impl Decision {
    /// What a `ResourceDecided` says; `event_no` is the number of that event.
    pub fn of(event_no: u64, answer: &ResourceAnswer) -> Self {
        let (answer, retire_after) = match answer {
            ResourceAnswer::Created => (Answer::Created, None),
            ResourceAnswer::Granted { deadline } => {
                let granted = Answer::Granted {
                    lease: event_no,
                    fencing_token: 1,
                    deadline: *deadline,
                };
                (granted, None)
            }
            ResourceAnswer::Confirmed => (Answer::Confirmed, None),
            ResourceAnswer::Released {
                fencing_token,
                retire_after,
            } => (
                Answer::Released {
                    fencing_token: *fencing_token,
                },
                Some(*retire_after),
            ),
            ResourceAnswer::Revoked { fencing_token } => (
                Answer::Revoked {
                    fencing_token: *fencing_token,
                },
                None,
            ),
            ResourceAnswer::Reclaimed { retire_after } => (Answer::Reclaimed, Some(*retire_after)),
            ResourceAnswer::Refused(refusal) => (Answer::refused(refusal.rule), None),
        };
        Self {
            answer,
            retire_after,
        }
    }

    /// What the model says; `event_no` is what a lease is called if it grants one.
    pub fn ruled(event_no: u64, said: Ruled<ResourceAnswer>) -> Self {
        match said {
            Ok(answer) => Self::of(event_no, &answer),
            Err(rule) => Answer::refused(rule).into(),
        }
    }
}

impl Found {
    pub fn ruled(found: Ruled<&LeaseView>) -> Self {
        match found {
            Ok(found) => Self::Lease {
                state: found.state,
                fencing_token: found.fencing_token,
                holder: found.holder.clone(),
                deadline: found.deadline,
            },
            Err(rule) => Self::Refused { rule },
        }
    }
}

impl From<Answer> for Decision {
    fn from(answer: Answer) -> Self {
        Self {
            answer,
            retire_after: None,
        }
    }
}

impl Answer {
    pub fn refused(rule: Rule) -> Self {
        Self::Refused { rule }
    }
}

impl Entry {
    pub fn operation_id(&self) -> Option<&Token> {
        match &self.fact {
            Fact::Decided { operation_id, .. } | Fact::Refused { operation_id, .. } => {
                Some(operation_id)
            }
            Fact::Expired { .. } => None,
        }
    }

    /// What its clients are told.
    pub fn answer(&self) -> Option<Answer> {
        match &self.fact {
            Fact::Decided { decision, .. } => Some(decision.answer),
            Fact::Refused { rule, .. } => Some(Answer::refused(*rule)),
            Fact::Expired { .. } => None,
        }
    }

    /// The content, where the ledger has it.
    pub fn ask(&self) -> Option<&ResourceAsk> {
        match &self.fact {
            Fact::Decided { ask, .. } => Some(ask),
            Fact::Refused { .. } | Fact::Expired { .. } => None,
        }
    }

    /// Whether it may be the outcome of a call with this content.
    pub fn is_about(&self, ask: &ResourceAsk) -> bool {
        self.ask().is_none_or(|recorded| recorded == ask)
    }
}
