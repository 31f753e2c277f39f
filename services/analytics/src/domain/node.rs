//! The nodes' books: all that happens is a transfer, so that nothing of a node is ever in two places or in none.

use super::{
    Outbox,
    change::{Account, Amounts, Capacity, Fact, Moved, Site},
    meter::transfer,
};
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};
use vocab::{Millis, NodeCapacity, Token};

/// All nodes, by incarnation. An older incarnation stays until the scheduler has let go of its last allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    machines: BTreeMap<Token, BTreeMap<u64, Machine>>,
    /// Names that an operator has cordoned, also before there is such a node.
    cordoned: BTreeSet<Token>,
}

/// One incarnation of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
struct Machine {
    site: Arc<Site>,
    standing: Standing,
    cordoned: bool,
    /// What it says that it has; nothing once it is replaced.
    has: Amounts,
    /// The most that it has had; nothing once it is replaced.
    most: Amounts,
    /// What is not outside: what it has, and of each resource at least what is held. More than it ever had it cannot hold, and
    /// what is held beyond that shows as a negative rest.
    capacity: Amounts,
    /// What allocations have of it, reserved or allocated.
    held: Amounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Ready,
    Lost,
    /// A newer incarnation is there: this one has no more than what is still held of it.
    Replaced,
}

/// As it stands in snapshots: before a node could have less than what is held of it, it had all of its capacity until it was
/// replaced.
#[derive(Serialize, Deserialize)]
struct Stored {
    site: Arc<Site>,
    standing: StoredStanding,
    cordoned: bool,
    capacity: Amounts,
    held: Amounts,
}

#[derive(Serialize, Deserialize)]
enum StoredStanding {
    Ready,
    Lost,
    Replaced,
    Has {
        lost: bool,
        has: Amounts,
        most: Amounts,
    },
}

impl From<Stored> for Machine {
    fn from(stored: Stored) -> Self {
        let (all, none) = (stored.capacity, Amounts::default());
        let (standing, has, most) = match stored.standing {
            StoredStanding::Ready => (Standing::Ready, all, all),
            StoredStanding::Lost => (Standing::Lost, all, all),
            StoredStanding::Replaced => (Standing::Replaced, none, none),
            StoredStanding::Has { lost, has, most } if lost => (Standing::Lost, has, most),
            StoredStanding::Has { has, most, .. } => (Standing::Ready, has, most),
        };
        Self {
            site: stored.site,
            standing,
            cordoned: stored.cordoned,
            has,
            most,
            capacity: stored.capacity,
            held: stored.held,
        }
    }
}

impl From<Machine> for Stored {
    fn from(machine: Machine) -> Self {
        let (has, most) = (machine.has, machine.most);
        let whole = has == machine.capacity && most == machine.capacity;
        Self {
            site: machine.site,
            standing: match machine.standing {
                Standing::Replaced => StoredStanding::Replaced,
                Standing::Ready if whole => StoredStanding::Ready,
                Standing::Lost if whole => StoredStanding::Lost,
                standing => StoredStanding::Has {
                    lost: standing == Standing::Lost,
                    has,
                    most,
                },
            },
            cordoned: machine.cordoned,
            capacity: machine.capacity,
            held: machine.held,
        }
    }
}

impl Machine {
    /// Where what is not held is. A replaced incarnation has no such thing.
    fn account(&self) -> Account {
        match self.standing {
            Standing::Ready if self.cordoned => Account::Cordoned,
            Standing::Ready => Account::Idle,
            Standing::Lost => Account::Unavailable,
            Standing::Replaced => Account::Outside,
        }
    }

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
        if from == to {
            return;
        }
        let moved = Moved {
            allocation: None,
            node: self.node.clone(),
            incarnation: self.incarnation,
            amounts,
            site: machine.site.clone(),
        };
        transfer(self.outbox, &Arc::new(moved), (from, to), self.at);
    }

    /// Brings in, or takes out, what the machine has more or less than before.
    fn settle(&mut self, machine: &mut Machine) {
        let before = machine.capacity;
        let held = match machine.standing {
            Standing::Replaced => machine.held,
            Standing::Ready | Standing::Lost => machine.held.at_most(&machine.most),
        };
        let now = machine.has.at_least(&held);
        if before == now {
            return;
        }
        let account = machine.account();
        let grown = now.at_least(&before) - before;
        let shrunk = before.at_least(&now) - now;
        self.transfer(machine, Account::Outside, account, grown);
        self.transfer(machine, account, Account::Outside, shrunk);
        machine.capacity = now;
        self.capacity(now);
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
        let cordoned = self.cordoned.contains(node);
        let machines = self.machines.entry(node.clone()).or_default();
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
            let mut book = Book {
                outbox,
                node,
                incarnation: *older,
                at,
            };
            let free = machine.free();
            book.transfer(machine, machine.account(), Account::Outside, free);
            machine.standing = Standing::Replaced;
            (machine.has, machine.most) = (Amounts::default(), Amounts::default());
            machine.capacity -= free;
            book.capacity(machine.capacity);
        }
        machines.retain(|_, machine| !machine.held.is_zero());
        let mut machine = Machine {
            site: Arc::new(Site::of(capacity)),
            standing: Standing::Ready,
            cordoned,
            has: Amounts::of_node(capacity),
            most: Amounts::of_node(capacity),
            capacity: Amounts::default(),
            held: Amounts::default(),
        };
        let mut book = Book {
            outbox,
            node,
            incarnation,
            at,
        };
        book.settle(&mut machine);
        machines.insert(incarnation, machine);
        Ok(())
    }

    /// It has other amounts. What is held of it stays, and is not outside before it is given back.
    pub fn resized(
        &mut self,
        node: &Token,
        incarnation: u64,
        capacity: &NodeCapacity,
        at: Millis,
        outbox: &mut Outbox<'_>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let machine = self
            .machines
            .get_mut(node)
            .and_then(|machines| machines.get_mut(&incarnation))
            .filter(|machine| machine.standing != Standing::Replaced)
            .ok_or_else(|| IllegalEvent::new("no such incarnation", event))?;
        machine.has = Amounts::of_node(capacity);
        machine.most = machine.most.at_least(&machine.has);
        let mut book = Book {
            outbox,
            node,
            incarnation,
            at,
        };
        book.settle(machine);
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
        let machines = self.machines.get(node);
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
            .machines
            .get_mut(node)
            .and_then(|machines| machines.get_mut(&incarnation))
            .filter(|machine| ![Standing::Replaced, next].contains(&machine.standing))
            .ok_or_else(|| IllegalEvent::new("not the other way in this incarnation", event))?;
        let before = machine.account();
        machine.standing = next;
        let mut book = Book {
            outbox,
            node,
            incarnation,
            at,
        };
        book.transfer(machine, before, machine.account(), machine.free());
        Ok(())
    }

    /// What is free of it is kept off new allocations, or not any more.
    pub fn cordon(&mut self, node: &Token, cordoned: bool, at: Millis, outbox: &mut Outbox<'_>) {
        match cordoned {
            true => self.cordoned.insert(node.clone()),
            false => self.cordoned.remove(node),
        };
        let machines = self.machines.get_mut(node);
        let newest = machines.and_then(|machines| machines.iter_mut().next_back());
        let Some((incarnation, machine)) = newest.filter(|(_, it)| it.cordoned != cordoned) else {
            return;
        };
        let before = machine.account();
        machine.cordoned = cordoned;
        let after = machine.account();
        if before != after {
            let mut book = Book {
                outbox,
                node,
                incarnation: *incarnation,
                at,
            };
            book.transfer(machine, before, after, machine.free());
        }
    }

    /// Reserves what the scheduler has placed. It may not have known that the incarnation is lost or replaced; what it
    /// decided holds until it ends it. Gives what is held, with the GPU model that the allocation got.
    pub fn placed(
        &mut self,
        (node, incarnation): (&Token, u64),
        moved: impl FnOnce(&Arc<Site>) -> Moved,
        at: Millis,
        outbox: &mut Outbox<'_>,
        event: &impl fmt::Debug,
    ) -> Result<Arc<Moved>, IllegalEvent> {
        let machines = self
            .machines
            .get_mut(node)
            .ok_or_else(|| IllegalEvent::new("no such node", event))?;
        if !machines.contains_key(&incarnation) {
            let newest = machines.last_key_value();
            let (_, newest) = newest
                .filter(|(newest, _)| **newest > incarnation)
                .ok_or_else(|| IllegalEvent::new("no such incarnation", event))?;
            let machine = Machine {
                site: newest.site.clone(),
                standing: Standing::Replaced,
                cordoned: false,
                has: Amounts::default(),
                most: Amounts::default(),
                capacity: Amounts::default(),
                held: Amounts::default(),
            };
            machines.insert(incarnation, machine);
        }
        let machine = machines
            .get_mut(&incarnation)
            .ok_or_else(|| IllegalEvent::new("no such incarnation", event))?;
        let moved = Arc::new(moved(&machine.site));
        let way = (machine.account(), Account::Reserved);
        transfer(outbox, &moved, way, at);
        machine.held += moved.amounts;
        moved.book(at, outbox).settle(machine);
        Ok(moved)
    }

    /// Gives back what was reserved.
    pub fn released(&mut self, moved: &Arc<Moved>, at: Millis, outbox: &mut Outbox<'_>) {
        let Some(machines) = self.machines.get_mut(&moved.node) else {
            return;
        };
        let Some(machine) = machines.get_mut(&moved.incarnation) else {
            return;
        };
        let way = (Account::Reserved, machine.account());
        transfer(outbox, moved, way, at);
        machine.held -= moved.amounts;
        moved.book(at, outbox).settle(machine);
        if machine.standing == Standing::Replaced && machine.held.is_zero() {
            machines.remove(&moved.incarnation);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As it stood in snapshots before nodes changed their size.
    #[derive(Serialize)]
    struct Before {
        site: Arc<Site>,
        standing: StandingBefore,
        cordoned: bool,
        capacity: Amounts,
        held: Amounts,
    }

    #[derive(Serialize)]
    enum StandingBefore {
        Ready,
        Lost,
        Replaced,
    }

    #[test]
    fn a_machine_of_before_is_read() {
        let amounts = |cpu_milli| Amounts {
            cpu_milli,
            ..Amounts::default()
        };
        let check = |standing, expected, has| {
            let before = Before {
                site: Arc::new(Site::of(&NodeCapacity::default())),
                standing,
                cordoned: false,
                capacity: amounts(5),
                held: amounts(5),
            };
            let bytes = postcard::to_allocvec(&before).unwrap();
            let read: Machine = postcard::from_bytes(&bytes).unwrap();
            assert_eq!((read.standing, read.has.cpu_milli), (expected, has));
            assert_eq!(read.most, read.has);
            assert_eq!(postcard::to_allocvec(&read).unwrap(), bytes);
        };
        check(StandingBefore::Ready, Standing::Ready, 5);
        check(StandingBefore::Lost, Standing::Lost, 5);
        check(StandingBefore::Replaced, Standing::Replaced, 0);
    }

    #[test]
    fn a_machine_is_read_as_it_was_written() {
        let amounts = |cpu_milli| Amounts {
            cpu_milli,
            ..Amounts::default()
        };
        let check = |standing, has, most, capacity| {
            let machine = Machine {
                site: Arc::new(Site::of(&NodeCapacity::default())),
                standing,
                cordoned: true,
                has: amounts(has),
                most: amounts(most),
                capacity: amounts(capacity),
                held: amounts(2),
            };
            let bytes = postcard::to_allocvec(&machine).unwrap();
            assert_eq!(postcard::from_bytes::<Machine>(&bytes).unwrap(), machine);
        };
        for standing in [Standing::Ready, Standing::Lost] {
            check(standing, 5, 5, 5);
            check(standing, 5, 9, 5);
            check(standing, 1, 3, 2);
        }
        check(Standing::Replaced, 0, 0, 2);
    }
}
