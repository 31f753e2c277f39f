//! The accounts: tenants, teams, namespaces, as small numbers. One that has nothing to say is forgotten.

use super::{
    account::{AccountId, Path},
    before::Before,
    node::Node,
};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap},
};
use vocab::{Account, AllocationNo};

/// Numbers of accounts are given out again, in an order that the history alone decides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub(super) struct UsageTree {
    slots: Vec<Option<Node>>,
    free: Vec<AccountId>,
    #[serde(skip)]
    index: HashMap<Account, AccountId>,
}

#[derive(Deserialize)]
struct Stored {
    slots: Vec<Option<Node>>,
    free: Vec<AccountId>,
}

impl From<Stored> for UsageTree {
    fn from(Stored { slots, free }: Stored) -> Self {
        let index = slots.iter().zip(0..).filter_map(|(slot, no)| {
            let account = slot.as_ref()?.account.clone();
            Some((account, AccountId(no)))
        });
        let index = index.collect();
        Self { slots, free, index }
    }
}

impl UsageTree {
    pub fn find(&self, account: &Account) -> Option<AccountId> {
        self.index.get(account).copied()
    }

    pub fn node(&self, id: AccountId) -> &Node {
        match self.slots.get(id.0 as usize) {
            Some(Some(node)) => node,
            // Claims, limits and settings keep the accounts that they name.
            _ => unreachable!("account {} is in nobody's use", id.0),
        }
    }

    pub fn node_mut(&mut self, id: AccountId) -> &mut Node {
        match self.slots.get_mut(id.0 as usize) {
            Some(Some(node)) => node,
            // As above.
            _ => unreachable!("account {} is in nobody's use", id.0),
        }
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// The account, made if need be together with those above it. Whoever wants it to stay gives it something to keep.
    pub fn enter(&mut self, account: Account) -> AccountId {
        if let Some(&id) = self.index.get(&account) {
            return id;
        }
        let parent = account.parent().map(|above| self.enter(above));
        let node = Node {
            account: account.clone(),
            parent,
            children: BTreeSet::new(),
            cells: Vec::new(),
            held: BTreeSet::new(),
            claims: 0,
            pins: 0,
            parked: 0,
            meters: Vec::new(),
            cohort: None,
            settings: None,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id.0 as usize] = Some(node);
                id
            }
            None => {
                self.slots.push(Some(node));
                // Memory runs out long before the numbers do.
                AccountId((self.slots.len() - 1) as u32)
            }
        };
        if let Some(parent) = parent {
            self.node_mut(parent).children.insert(id);
        }
        self.index.insert(account, id);
        id
    }

    /// The accounts that are of no other.
    pub fn tenants(&self) -> impl Iterator<Item = &Node> {
        let nodes = self.slots.iter().flatten();
        nodes.filter(|node| node.parent.is_none())
    }

    pub fn path(&self, leaf: AccountId) -> Path {
        Path::up(leaf, |account| self.node(account).parent)
    }

    /// Before a guest enters one account, with those above it.
    pub fn before(&self) -> Before<AccountId> {
        Before::of(&self.slots, &self.free, Path::MOST)
    }

    /// The guest's account was pruned.
    pub fn restore(&mut self, before: Before<AccountId>) {
        before.restore(&mut self.slots, &mut self.free);
    }

    /// Forgets the account, and those above it, if there is nothing to remember.
    pub fn prune(&mut self, id: AccountId) {
        let mut next = Some(id);
        while let Some(id) = next
            && self.node(id).is_idle()
        {
            let node = self.slots[id.0 as usize].take();
            self.free.push(id);
            next = None;
            if let Some(node) = node {
                self.index.remove(&node.account);
                next = node.parent;
            }
            if let Some(parent) = next {
                self.node_mut(parent).children.remove(&id);
            }
        }
    }

    /// Who holds quota at the accounts or below them: the lowest priority first, then the youngest.
    pub fn youngest(&self, roots: &[AccountId]) -> impl Iterator<Item = AllocationNo> {
        let mut heap = BinaryHeap::new();
        let mut lists = Vec::new();
        let mut open = roots.to_vec();
        while let Some(id) = open.pop() {
            let node = self.node(id);
            open.extend(&node.children);
            let mut list = node.held.iter();
            if let Some(first) = list.next() {
                heap.push(Reverse((*first, lists.len())));
                lists.push(list);
            }
        }
        std::iter::from_fn(move || {
            let Reverse((first, at)) = heap.pop()?;
            // `at` was a list's index when it was pushed, and lists only become more.
            if let Some(next) = lists[at].next() {
                heap.push(Reverse((*next, at)));
            }
            Some(first.allocation())
        })
    }
}
