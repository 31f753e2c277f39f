//! What the measures ask for: each client acquires a resource, confirms, releases; many of them at a time.

use ledger::memory::Seeded;
use std::collections::VecDeque;
use vocab::{LeaseNo, ResourceAnswer, ResourceAsk, Token};

const HOLDERS: usize = 100;
/// Slots to confirm in; nobody needs them.
const TTL_SLOTS: u64 = 60;
/// Leases that are held while others are decided: as many as clients that are under way.
const UNDER_WAY: usize = 1024;

/// Clients without a bus between them and the domain.
pub struct Workload {
    resources: Vec<Token>,
    holders: Vec<Token>,
    random: Seeded,
    granted: VecDeque<(LeaseNo, Token)>,
    confirmed: VecDeque<(LeaseNo, Token)>,
    refused: u64,
}

pub fn token(text: &str) -> Token {
    Token::new(text)
        .unwrap_or_else(|_| unreachable!("{text} is made of letters, digits and dashes"))
}

impl Workload {
    pub fn new(resources: u64, seed: u64) -> Self {
        Self {
            resources: (0..resources)
                .map(|no| token(&format!("resource-{no:07}")))
                .collect(),
            holders: (0..HOLDERS)
                .map(|no| token(&format!("holder-{no}")))
                .collect(),
            random: Seeded::new(seed),
            granted: VecDeque::new(),
            confirmed: VecDeque::new(),
            refused: 0,
        }
    }

    pub fn creates(&self) -> Vec<ResourceAsk> {
        let resources = self.resources.iter().cloned();
        resources
            .map(|resource| ResourceAsk::Create { resource })
            .collect()
    }

    /// So many asks for a lease, and as many confirms and releases of those before them.
    pub fn asks(&mut self, chains: usize) -> Vec<ResourceAsk> {
        let mut asks = Vec::with_capacity(3 * chains);
        for _ in 0..chains {
            asks.push(self.acquire());
            if self.granted.len() > UNDER_WAY {
                asks.extend(self.granted.pop_front().map(confirm));
            }
            if self.confirmed.len() > UNDER_WAY {
                asks.extend(self.confirmed.pop_front().map(release));
            }
        }
        asks
    }

    /// What came of one of them.
    pub fn told(&mut self, no: LeaseNo, ask: ResourceAsk, answer: &ResourceAnswer) {
        match (ask, answer) {
            (_, ResourceAnswer::Refused(_)) => self.refused += 1,
            (ResourceAsk::Acquire { holder, .. }, _) => self.granted.push_back((no, holder)),
            (ResourceAsk::Confirm { lease, holder, .. }, _) => {
                self.confirmed.push_back((lease, holder))
            }
            _ => {}
        }
    }

    /// Asks for what another client held.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn acquire(&mut self) -> ResourceAsk {
        // Names of their own, as messages bring them.
        let resource = self.random.below(self.resources.len() as u64) as usize;
        let holder = self.random.below(HOLDERS as u64) as usize;
        ResourceAsk::Acquire {
            resources: vec![token(self.resources[resource].as_str())],
            holder: token(self.holders[holder].as_str()),
            ttl_slots: TTL_SLOTS,
        }
    }
}

fn confirm((lease, holder): (LeaseNo, Token)) -> ResourceAsk {
    ResourceAsk::Confirm {
        lease,
        holder,
        fencing_token: 1,
    }
}

fn release((lease, holder): (LeaseNo, Token)) -> ResourceAsk {
    ResourceAsk::Release {
        lease,
        holder,
        fencing_token: 1,
    }
}
