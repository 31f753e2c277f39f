//! The nodes' books: double entry, so that nothing of a node is ever in two places or in none.

use super::{
    Outbox,
    change::{Account, Amounts, Entry, Fact},
};
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};
use vocab::{AllocationNo, Millis, NodeCapacity, Token};

/// All nodes, by incarnation. An older incarnation stays until the scheduler has let go of its last allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes(BTreeMap<Token, BTreeMap<u64, Machine>>);

/// One incarnation of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Machine {
    gpu_model: Option<Token>,
    standing: Standing,
    /// What the `capacity` account has.
    capacity: Amounts,
    /// What allocations have of it, reserved or allocated.
    held: Amounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Standing {
    Ready,
    Lost,
    /// A newer incarnation is there: this one has no more than what is still held of it.
    Replaced,
}

impl Machine {
    fn free(&self) -> Amounts {
        self.capacity - self.held
    }
}

/// Writes entries for one incarnation of a node.
struct Book<'b, 'o> {
    outbox: &'b mut Outbox<'o>,
    node: &'b Token,
    incarnation: u64,
    gpu_model: &'b Option<Token>,
    allocation: Option<AllocationNo>,
    at: Millis,
}

impl Book<'_, '_> {
    fn post(&mut self, account: Account, amounts: Amounts) {
        if amounts.is_zero() {
            return;
        }
        self.outbox.push(Fact::Entry(Entry {
            node: self.node.clone(),
            incarnation: self.incarnation,
            gpu_model: self.gpu_model.clone(),
            allocation: self.allocation,
            account,
            at: self.at,
            amounts,
        }));
    }

    /// Adds to what is not held. A replaced incarnation has no such thing, so its capacity follows.
    fn post_free(&mut self, standing: Standing, amounts: Amounts) {
        match standing {
            Standing::Ready => self.post(Account::Idle, amounts),
            Standing::Lost => self.post(Account::Unavailable, amounts),
            Standing::Replaced => self.post(Account::Capacity, -amounts),
        }
    }
}

/// What an allocation has of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    pub allocation: AllocationNo,
    pub node: Token,
    pub incarnation: u64,
    pub amounts: Amounts,
}

impl Nodes {
    /// A new incarnation, ready and empty. The one before is replaced.
    pub fn registered(
        &mut self,
        node: &Token,
        incarnation: u64,
        capacity: &NodeCapacity,
        at: Millis,
        outbox: &mut Outbox<'_>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let machines = self.0.entry(node.clone()).or_default();
        if machines
            .last_key_value()
            .is_some_and(|(newest, _)| *newest >= incarnation)
        {
            return Err(IllegalEvent::new("not a newer incarnation", event));
        }
        for (older, machine) in machines.iter_mut() {
            if machine.standing == Standing::Replaced {
                continue;
            }
            let free = machine.free();
            let mut book = Book {
                outbox,
                node,
                incarnation: *older,
                gpu_model: &machine.gpu_model,
                allocation: None,
                at,
            };
            book.post_free(machine.standing, -free);
            book.post(Account::Capacity, -free);
            machine.standing = Standing::Replaced;
            machine.capacity -= free;
        }
        machines.retain(|_, machine| !machine.held.is_zero());
        let machine = Machine {
            gpu_model: capacity.gpu_model.clone(),
            standing: Standing::Ready,
            capacity: Amounts::of_node(capacity),
            held: Amounts::default(),
        };
        let mut book = Book {
            outbox,
            node,
            incarnation,
            gpu_model: &machine.gpu_model,
            allocation: None,
            at,
        };
        book.post(Account::Capacity, machine.capacity);
        book.post(Account::Idle, machine.capacity);
        machines.insert(incarnation, machine);
        Ok(())
    }

    pub fn lost(
        &mut self,
        node: &Token,
        incarnation: u64,
        at: Millis,
        outbox: &mut Outbox<'_>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        self.stands(node, incarnation, Standing::Lost, at, outbox, event)
    }

    pub fn ready(
        &mut self,
        node: &Token,
        incarnation: u64,
        at: Millis,
        outbox: &mut Outbox<'_>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let machines = self.0.get(node);
        let machine = machines.and_then(|machines| machines.get(&incarnation));
        // It was suspected, which changes nothing about what it has.
        if machine.is_some_and(|machine| machine.standing == Standing::Ready) {
            return Ok(());
        }
        self.stands(node, incarnation, Standing::Ready, at, outbox, event)
    }

    /// Moves what is free from idle to unavailable or back.
    fn stands(
        &mut self,
        node: &Token,
        incarnation: u64,
        next: Standing,
        at: Millis,
        outbox: &mut Outbox<'_>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let machine = self
            .0
            .get_mut(node)
            .and_then(|machines| machines.get_mut(&incarnation))
            .filter(|machine| ![Standing::Replaced, next].contains(&machine.standing))
            .ok_or_else(|| IllegalEvent::new("not the other way in this incarnation", event))?;
        let free = machine.free();
        let mut book = Book {
            outbox,
            node,
            incarnation,
            gpu_model: &machine.gpu_model,
            allocation: None,
            at,
        };
        book.post_free(machine.standing, -free);
        book.post_free(next, free);
        machine.standing = next;
        Ok(())
    }

    /// Reserves what the scheduler has placed. It may not have known that the incarnation is lost or replaced; what it
    /// decided holds until it ends it. Gives the GPU model that the allocation got.
    pub fn placed(
        &mut self,
        holding: &Holding,
        at: Millis,
        outbox: &mut Outbox<'_>,
        event: &impl fmt::Debug,
    ) -> Result<Option<Token>, IllegalEvent> {
        let machines = self
            .0
            .get_mut(&holding.node)
            .ok_or_else(|| IllegalEvent::new("no such node", event))?;
        let newest = machines
            .last_key_value()
            .map(|(incarnation, machine)| (*incarnation, machine.gpu_model.clone()));
        let machine = match machines.entry(holding.incarnation) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let (_, gpu_model) = newest
                    .filter(|(newest, _)| *newest > holding.incarnation)
                    .ok_or_else(|| IllegalEvent::new("no such incarnation", event))?;
                entry.insert(Machine {
                    gpu_model,
                    standing: Standing::Replaced,
                    capacity: Amounts::default(),
                    held: Amounts::default(),
                })
            }
        };
        let mut book = holding.book(&machine.gpu_model, at, outbox);
        book.post_free(machine.standing, -holding.amounts);
        book.post(Account::Reserved, holding.amounts);
        machine.held += holding.amounts;
        if machine.standing == Standing::Replaced {
            machine.capacity += holding.amounts;
        }
        Ok(machine.gpu_model.clone())
    }

    /// Moves a holding between reserved and allocated.
    pub fn moved(
        &self,
        holding: &Holding,
        (from, to): (Account, Account),
        at: Millis,
        outbox: &mut Outbox<'_>,
    ) {
        if let Some(machine) = self.machine(holding) {
            let mut book = holding.book(&machine.gpu_model, at, outbox);
            book.post(from, -holding.amounts);
            book.post(to, holding.amounts);
        }
    }

    /// Gives back what was reserved.
    pub fn released(&mut self, holding: &Holding, at: Millis, outbox: &mut Outbox<'_>) {
        let Some(machines) = self.0.get_mut(&holding.node) else {
            return;
        };
        let Some(machine) = machines.get_mut(&holding.incarnation) else {
            return;
        };
        let mut book = holding.book(&machine.gpu_model, at, outbox);
        book.post(Account::Reserved, -holding.amounts);
        book.post_free(machine.standing, holding.amounts);
        machine.held -= holding.amounts;
        if machine.standing == Standing::Replaced {
            machine.capacity -= holding.amounts;
            if machine.held.is_zero() {
                machines.remove(&holding.incarnation);
            }
        }
    }

    /// There is one for as long as anything is held of it.
    fn machine(&self, holding: &Holding) -> Option<&Machine> {
        self.0.get(&holding.node)?.get(&holding.incarnation)
    }
}

impl Holding {
    fn book<'b, 'o>(
        &'b self,
        gpu_model: &'b Option<Token>,
        at: Millis,
        outbox: &'b mut Outbox<'o>,
    ) -> Book<'b, 'o> {
        Book {
            outbox,
            node: &self.node,
            incarnation: self.incarnation,
            gpu_model,
            allocation: Some(self.allocation),
            at,
        }
    }
}
