//! The nodes' books: all that happens is a transfer, so that nothing of a node is ever in two places or in none.

use super::{
    Outbox,
    change::{Account, Amounts, Capacity, Fact, Transfer},
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
    /// What is not outside.
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

impl Standing {
    /// Where what is not held is. A replaced incarnation has no such thing.
    fn free(self) -> Account {
        match self {
            Self::Ready => Account::Idle,
            Self::Lost => Account::Unavailable,
            Self::Replaced => Account::Outside,
        }
    }
}

impl Machine {
    fn free(&self) -> Amounts {
        self.capacity - self.held
    }
}

/// Writes for one incarnation of a node.
struct Book<'b, 'o> {
    outbox: &'b mut Outbox<'o>,
    node: &'b Token,
    incarnation: u64,
    gpu_model: &'b Option<Token>,
    allocation: Option<AllocationNo>,
    at: Millis,
}

impl Book<'_, '_> {
    fn transfer(&mut self, from: Account, to: Account, amounts: Amounts) {
        if amounts.is_zero() {
            return;
        }
        self.outbox.push(Fact::Transfer(Transfer {
            node: self.node.clone(),
            incarnation: self.incarnation,
            gpu_model: self.gpu_model.clone(),
            allocation: self.allocation,
            from,
            to,
            at: self.at,
            amounts,
        }));
    }

    fn capacity(&mut self, amounts: Amounts) {
        self.outbox.push(Fact::Capacity(Capacity {
            node: self.node.clone(),
            incarnation: self.incarnation,
            at: self.at,
            amounts,
        }));
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
            book.transfer(machine.standing.free(), Account::Outside, free);
            machine.standing = Standing::Replaced;
            machine.capacity -= free;
            book.capacity(machine.capacity);
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
        book.transfer(Account::Outside, Account::Idle, machine.capacity);
        book.capacity(machine.capacity);
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
        book.transfer(machine.standing.free(), next.free(), free);
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
        book.transfer(machine.standing.free(), Account::Reserved, holding.amounts);
        machine.held += holding.amounts;
        if machine.standing == Standing::Replaced {
            machine.capacity += holding.amounts;
            book.capacity(machine.capacity);
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
            book.transfer(from, to, holding.amounts);
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
        book.transfer(Account::Reserved, machine.standing.free(), holding.amounts);
        machine.held -= holding.amounts;
        if machine.standing == Standing::Replaced {
            machine.capacity -= holding.amounts;
            book.capacity(machine.capacity);
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
