//! A row as people write it: `slot [#operation] [name:] ask -> outcome`, line by line.
//!
//! `name:` binds the lease that is granted, `$name` speaks of it; `$name+1` is the number behind it. `#operation`
//! gives the operation an id, so that it can be sent again; another connection sends lines that begin with `other`.

use crate::e2e::{
    cell::{Cell, TENANT},
    suite::{DEADLINE, id, token},
};
use client::{Client, Operation};
use proof::history::{Answer, wire};
use std::{collections::BTreeMap, time::Duration};
use vocab::fact::LeaseExpired;
use vocab::{Event, LeaseNo, ResourceAsk, Slot, Token};

pub struct Row {
    pub cell: Cell,
    clients: [Client; 2],
    named: BTreeMap<String, u64>,
    /// The outcomes of operations with an id, as they were first told.
    told: BTreeMap<String, client::Outcome>,
}

/// More than any row asks.
const PLENTY: u64 = 64;

impl Row {
    pub async fn start() -> Self {
        Self::with(PLENTY).await
    }

    pub async fn with(operations_max: u64) -> Self {
        let cell = Cell::start(operations_max).await;
        let clients = [cell.client().await, cell.client().await];
        Self {
            cell,
            clients,
            named: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// Resources `1` to `4`, at slot 0.
    pub async fn with_resources() -> Self {
        let mut row = Self::start().await;
        for resource in 1..=4 {
            row.check(&format!("0 create {resource} -> created")).await;
        }
        row
    }

    /// Asks line by line and compares what is answered.
    pub async fn check(&mut self, script: &str) {
        for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
            let (asked, expected) = line.split_once(" -> ").expect("ask -> outcome");
            let said = self.line(asked).await;
            assert_eq!(said, expected, "{line}\nin\n{script}");
        }
    }

    async fn line(&mut self, asked: &str) -> String {
        let mut words = asked.split_whitespace().peekable();
        let by = usize::from(words.next_if_eq(&"other").is_some());
        let slot = slot(words.next().expect("a slot"));
        let operation_id = words.next_if(|word| word.starts_with('#'));
        let name = words.next_if(|word| word.ends_with(':'));
        let rest: Vec<&str> = words.collect();
        let ask = self.ask(&rest);
        let outcome = self.send(by, slot, operation_id, &ask).await;
        let answer = wire::answer(&outcome, self.cell.suite.cell_no());
        let answer = answer.unwrap_or_else(|| panic!("{asked}: {outcome:?}"));
        if let (Some(name), Answer::Granted { lease, .. }) = (name, answer) {
            let name = name.trim_end_matches(':').to_owned();
            self.named.insert(name, lease);
        }
        told(answer)
    }

    async fn send(
        &mut self,
        by: usize,
        slot: Slot,
        operation_id: Option<&str>,
        ask: &ResourceAsk,
    ) -> client::Outcome {
        let own = operation_id.map(|id| id.trim_start_matches('#').to_owned());
        let verb = wire::verb(ask, Some(slot), self.cell.suite.cell_no());
        let operation = Operation::new(own.clone().unwrap_or_else(id), verb);
        let outcome = settle(&self.clients[by], &operation).await;
        if let Some(own) = own {
            let first = self.told.entry(own).or_insert_with(|| outcome.clone());
            if first.lsn == outcome.lsn {
                // Said of the same position, it is word for word the same.
                assert_eq!(*first, outcome);
            }
        }
        outcome
    }

    /// The number of a lease: `$name`, `$name+1`, or a plain one.
    fn number(&self, word: &str) -> LeaseNo {
        let Some(name) = word.strip_prefix('$') else {
            return LeaseNo(word.parse().expect("a number"));
        };
        let (name, more) = name.split_once('+').unwrap_or((name, "0"));
        LeaseNo(self.named[name] + more.parse::<u64>().expect("a number"))
    }

    fn ask(&self, words: &[&str]) -> ResourceAsk {
        let number = |text: &str| text.parse().expect("a number");
        match *words {
            ["create", resource] => ResourceAsk::Create {
                resource: token(resource),
            },
            ["acquire", resources, holder, ttl] => ResourceAsk::Acquire {
                resources: list(resources),
                holder: token(holder),
                ttl_slots: number(ttl),
            },
            ["confirm", no, holder, fencing_token] => ResourceAsk::Confirm {
                lease: self.number(no),
                holder: token(holder),
                fencing_token: number(fencing_token),
            },
            ["release", no, holder, fencing_token] => ResourceAsk::Release {
                lease: self.number(no),
                holder: token(holder),
                fencing_token: number(fencing_token),
            },
            ["revoke", no] => ResourceAsk::Revoke {
                lease: self.number(no),
            },
            ["reclaim", no] => ResourceAsk::Reclaim {
                lease: self.number(no),
            },
            _ => panic!("no ask: {words:?}"),
        }
    }

    pub fn client(&self) -> &Client {
        &self.clients[0]
    }

    /// Events on the ledger.
    pub async fn events(&self) -> usize {
        self.cell.suite.events().await.len()
    }

    /// The slots at which the lease of this name expired.
    pub async fn expired(&self, name: &str) -> Vec<Slot> {
        let of = LeaseNo(self.named[name]);
        let events = self.cell.suite.events().await;
        let expired = events.iter().filter_map(|(_, event)| match event {
            Event::LeaseExpired(LeaseExpired {
                tenant,
                lease,
                slot,
                ..
            }) if tenant.as_str() == TENANT && *lease == of => Some(*slot),
            _ => None,
        });
        expired.collect()
    }

    pub async fn end(self) {
        self.cell.close().await;
    }
}

/// An outcome that is late is asked for again, as any client does.
async fn settle(client: &Client, operation: &Operation) -> client::Outcome {
    let settled = client.settle(operation, 10, Duration::from_millis(50));
    let outcome = tokio::time::timeout(DEADLINE, settled).await;
    let outcome = outcome.unwrap_or_else(|_| panic!("{} hangs", operation.id()));
    outcome.unwrap_or_else(|error| panic!("{}: {error}", operation.id()))
}

/// `max` is the last slot, `max-24` so many before it.
fn slot(word: &str) -> Slot {
    match word.strip_prefix("max") {
        Some("") => Slot::MAX,
        Some(less) => Slot::MAX - less[1..].parse::<u64>().expect("a number"),
        None => word.parse().expect("a slot"),
    }
}

/// `-` is none at all.
fn list(words: &str) -> Vec<Token> {
    let names = words.split(',').filter(|name| *name != "-");
    names.map(token).collect()
}

/// Numbers of leases come as they come, so they are left out.
fn told(answer: Answer) -> String {
    match answer {
        Answer::Created => "created".to_owned(),
        Answer::Granted {
            fencing_token,
            deadline,
            ..
        } => format!("granted fencing_token={fencing_token} deadline={deadline}"),
        Answer::Confirmed => "confirmed".to_owned(),
        Answer::Released { fencing_token } => format!("released fencing_token={fencing_token}"),
        Answer::Revoked { fencing_token } => format!("revoked fencing_token={fencing_token}"),
        Answer::Reclaimed => "reclaimed".to_owned(),
        Answer::Refused { rule } => rule.name().to_owned(),
    }
}
