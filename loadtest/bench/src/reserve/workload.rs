//! What the measures ask for: each client reserves a resource, confirms, releases; many of them at a time.

use ledger::memory::Seeded;
use std::collections::VecDeque;
use vocab::{ReservationNo, ResourceAnswer, ResourceAsk, Token};

const HOLDERS: usize = 100;
/// Slots to confirm in; nobody needs them.
const TTL_SLOTS: u64 = 60;
/// Reservations that are held while others are decided: as many as clients that are under way.
const UNDER_WAY: usize = 1024;

/// Clients without a bus between them and the domain.
pub struct Workload {
    resources: Vec<Token>,
    holders: Vec<Token>,
    random: Seeded,
    reserved: VecDeque<(ReservationNo, Token)>,
    confirmed: VecDeque<(ReservationNo, Token)>,
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
            reserved: VecDeque::new(),
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

    /// As many reserves, and as many confirms and releases of those before them.
    pub fn asks(&mut self, chains: usize) -> Vec<ResourceAsk> {
        let mut asks = Vec::with_capacity(3 * chains);
        for _ in 0..chains {
            asks.push(self.reserve());
            if self.reserved.len() > UNDER_WAY {
                asks.extend(self.reserved.pop_front().map(confirm));
            }
            if self.confirmed.len() > UNDER_WAY {
                asks.extend(self.confirmed.pop_front().map(release));
            }
        }
        asks
    }

    /// What came of one of them.
    pub fn told(&mut self, no: ReservationNo, ask: ResourceAsk, answer: &ResourceAnswer) {
        match (ask, answer) {
            (_, ResourceAnswer::Refused(_)) => self.refused += 1,
            (ResourceAsk::Reserve { holder, .. }, _) => self.reserved.push_back((no, holder)),
            (
                ResourceAsk::Confirm {
                    reservation,
                    holder,
                    ..
                },
                _,
            ) => self.confirmed.push_back((reservation, holder)),
            _ => {}
        }
    }

    /// Reserves of what another client held.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn reserve(&mut self) -> ResourceAsk {
        // Names of their own, as messages bring them.
        let resource = self.random.below(self.resources.len() as u64) as usize;
        let holder = self.random.below(HOLDERS as u64) as usize;
        ResourceAsk::Reserve {
            resources: vec![token(self.resources[resource].as_str())],
            holder: token(self.holders[holder].as_str()),
            ttl_slots: TTL_SLOTS,
        }
    }
}

fn confirm((reservation, holder): (ReservationNo, Token)) -> ResourceAsk {
    ResourceAsk::Confirm {
        reservation,
        holder,
        epoch: 1,
    }
}

fn release((reservation, holder): (ReservationNo, Token)) -> ResourceAsk {
    ResourceAsk::Release {
        reservation,
        holder,
        epoch: 1,
    }
}
