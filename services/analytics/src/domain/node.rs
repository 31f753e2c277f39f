//! The nodes' books: all that happens is a transfer, so that nothing of a node is ever in two places or in none.

use super::{
    Outbox,
    change::{Account, Amounts, Capacity, Fact, Moved, Transfer},
};
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, sync::Arc};
use vocab::{Millis, NodeCapacity, Token};

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
    at: Millis,
}

impl Book<'_, '_> {
    /// What no run has.
    fn transfer(&mut self, machine: &Machine, from: Account, to: Account, amounts: Amounts) {
        let moved = Moved {
            allocation: None,
            node: self.node.clone(),
            incarnation: self.incarnation,
            amounts,
            gpu_model: machine.gpu_model.clone(),
        };
        transfer(self.outbox, &Arc::new(moved), (from, to), self.at);
    }

    fn capacity(&mut self, amounts: Amounts) {
        self.outbox.push(Fact::Capacity(Box::new(Capacity {
            node: self.node.clone(),
            incarnation: self.incarnation,
            at: self.at,
            amounts,
        })));
    }
}

/// Nothing is no transfer.
pub fn transfer(
    outbox: &mut Outbox<'_>,
    moved: &Arc<Moved>,
    (from, to): (Account, Account),
    at: Millis,
) {
    if !moved.amounts.is_zero() {
        let moved = moved.clone();
        outbox.push(Fact::Transfer(Transfer {
            moved,
            from,
            to,
            at,
        }));
    }
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
                at,
            };
            book.transfer(machine, machine.standing.free(), Account::Outside, free);
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
            at,
        };
        book.transfer(&machine, Account::Outside, Account::Idle, machine.capacity);
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
            at,
        };
        book.transfer(machine, machine.standing.free(), next.free(), free);
        machine.standing = next;
        Ok(())
    }

    /// Reserves what the scheduler has placed. It may not have known that the incarnation is lost or replaced; what it
    /// decided holds until it ends it. Gives what is held, with the GPU model that the allocation got.
    pub fn placed(
        &mut self,
        mut moved: Moved,
        at: Millis,
        outbox: &mut Outbox<'_>,
        event: &impl fmt::Debug,
    ) -> Result<Arc<Moved>, IllegalEvent> {
        let machines = self
            .0
            .get_mut(&moved.node)
            .ok_or_else(|| IllegalEvent::new("no such node", event))?;
        if !machines.contains_key(&moved.incarnation) {
            let newest = machines.last_key_value();
            let (_, newest) = newest
                .filter(|(newest, _)| **newest > moved.incarnation)
                .ok_or_else(|| IllegalEvent::new("no such incarnation", event))?;
            let machine = Machine {
                gpu_model: newest.gpu_model.clone(),
                standing: Standing::Replaced,
                capacity: Amounts::default(),
                held: Amounts::default(),
            };
            machines.insert(moved.incarnation, machine);
        }
        let machine = machines
            .get_mut(&moved.incarnation)
            .ok_or_else(|| IllegalEvent::new("no such incarnation", event))?;
        moved.gpu_model.clone_from(&machine.gpu_model);
        let moved = Arc::new(moved);
        let way = (machine.standing.free(), Account::Reserved);
        transfer(outbox, &moved, way, at);
        machine.held += moved.amounts;
        if machine.standing == Standing::Replaced {
            machine.capacity += moved.amounts;
            moved.book(at, outbox).capacity(machine.capacity);
        }
        Ok(moved)
    }

    /// Gives back what was reserved.
    pub fn released(&mut self, moved: &Arc<Moved>, at: Millis, outbox: &mut Outbox<'_>) {
        let Some(machines) = self.0.get_mut(&moved.node) else {
            return;
        };
        let Some(machine) = machines.get_mut(&moved.incarnation) else {
            return;
        };
        let way = (Account::Reserved, machine.standing.free());
        transfer(outbox, moved, way, at);
        machine.held -= moved.amounts;
        if machine.standing == Standing::Replaced {
            machine.capacity -= moved.amounts;
            moved.book(at, outbox).capacity(machine.capacity);
            if machine.held.is_zero() {
                machines.remove(&moved.incarnation);
            }
        }
    }
}

impl Moved {
    fn book<'b, 'o>(&'b self, at: Millis, outbox: &'b mut Outbox<'o>) -> Book<'b, 'o> {
        Book {
            outbox,
            node: &self.node,
            incarnation: self.incarnation,
            at,
        }
    }
}
