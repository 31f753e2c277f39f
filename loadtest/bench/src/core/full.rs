//! What tenants take at the most: all of them ask until each is refused for want of room, and what is resident then is
//! compared with what admission has counted.

use super::{
    cluster::token,
    measure::{MeasureError, resident_bytes},
};
use admission::feed::Feed;
use admission_rules::{Admission, Command, Config, TenantRequest, Verb};
use ledger::{Decider, Draft, Projection};
use serde::{Deserialize, Serialize};
use vocab::{At, EventNo, Lsn, Millis, Operation, Token};

#[derive(Debug, Serialize, Deserialize)]
pub struct Full {
    pub case: String,
    pub tenants: u32,
    pub operations: u64,
    /// What admission counts for them.
    pub counted_bytes: u64,
    /// What the deciding state and the fold of the feed take, with all that the allocator keeps.
    pub resident_bytes: u64,
}

struct Inbox {
    state: Admission,
    feed: Feed,
    config: Config,
    next: EventNo,
}

impl Inbox {
    /// Whether it was recorded.
    fn ask(&mut self, tenant: &Token, id: String, verb: Verb) -> Result<bool, MeasureError> {
        let operation = Operation {
            tenant: tenant.clone(),
            operation_id: Some(token(&id)),
            digest: [0; 16],
            reply_to: None,
            trace: None,
            by: None,
        };
        let mut draft = Draft::new(Millis(0), self.next);
        let verb = Ok(verb);
        self.state
            .handle(Command { operation, verb }, &self.config, &mut draft);
        let mut out = Vec::new();
        for event in draft.events() {
            let at = At {
                lsn: Lsn(self.next.0),
                index: 0,
                no: self.next,
                now: Millis(0),
            };
            self.feed.project_event(&at, event, &mut out)?;
            self.next = EventNo(self.next.0 + 1);
        }
        Ok(!draft.is_empty())
    }
}

/// By turns, so that each has its share of what all share.
pub fn measure(tenants: u32) -> Result<Full, MeasureError> {
    let mut inbox = Inbox {
        state: Admission::default(),
        feed: Feed::default(),
        config: Config::default(),
        next: EventNo(1),
    };
    let names: Vec<Token> = (0..tenants).map(|no| token(&format!("t{no:04}"))).collect();
    let operator = token(vocab::subjects::OPERATOR);
    for name in &names {
        let change = admission_rules::ChangeRequest::SetTenant(TenantRequest {
            tenant: name.to_string(),
            rate_milli: Some(0),
            ..TenantRequest::default()
        });
        inbox.ask(&operator, format!("set-{name}"), Verb::Admin(change))?;
    }
    let before = resident_bytes();
    let (mut operations, mut open) = (0, names.clone());
    for turn in 0u64.. {
        let mut still = Vec::with_capacity(open.len());
        for name in open {
            let verb = Verb::CancelJobSet {
                job_set: "none".into(),
            };
            // As long as those that clients make.
            if inbox.ask(&name, format!("{turn:032x}"), verb)? {
                operations += 1;
                still.push(name);
            }
        }
        open = still;
        if open.is_empty() {
            break;
        }
    }
    Ok(Full {
        case: "full".to_owned(),
        tenants,
        operations,
        counted_bytes: names.iter().map(|name| inbox.state.bytes_of(name)).sum(),
        resident_bytes: resident_bytes().saturating_sub(before),
    })
}
