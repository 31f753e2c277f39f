//! What is asked next: mostly something that can succeed, often enough what cannot.

use super::known::Known;
use ledger::memory::Seeded;
use vocab::{LeaseNo, ResourceAsk, Token};

/// Few enough that all tables fill up.
#[derive(Debug, Clone)]
pub struct Names {
    /// More than may be created.
    pub resources: Vec<Token>,
    pub holders: Vec<Token>,
    /// The longest time to live that is granted.
    pub ttl_slots_max: u64,
    /// The most that one lease may be of.
    pub members_max: usize,
}

pub struct Dice(Seeded);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Seeded::new(seed))
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    /// What was asked before is asked again.
    pub fn again(&mut self) -> bool {
        self.0.chance(150)
    }

    /// Under its id something else.
    pub fn other_content(&mut self) -> bool {
        self.0.chance(250)
    }

    pub fn twice_at_once(&mut self) -> bool {
        self.0.chance(100)
    }

    pub fn slot_ends(&mut self) -> bool {
        self.0.chance(30)
    }

    pub fn ask(&mut self, names: &Names, known: &Known) -> ResourceAsk {
        match self.below(100) {
            0..10 => ResourceAsk::Create {
                resource: self.one_of(&names.resources),
            },
            10..50 => self.acquire(names),
            50..70 => {
                let (lease, holder, fencing_token) = self.claim(names, known);
                ResourceAsk::Confirm {
                    lease,
                    holder,
                    fencing_token,
                }
            }
            70..90 => {
                let (lease, holder, fencing_token) = self.claim(names, known);
                ResourceAsk::Release {
                    lease,
                    holder,
                    fencing_token,
                }
            }
            90..95 => ResourceAsk::Revoke {
                lease: self.claim(names, known).0,
            },
            _ => ResourceAsk::Reclaim {
                lease: self.claim(names, known).0,
            },
        }
    }

    fn acquire(&mut self, names: &Names) -> ResourceAsk {
        let most = names.members_max as u64;
        // A bundle now and then, of too many at times; a member may be named twice.
        let members = match self.below(10) {
            0..7 => 1,
            7..9 => 1 + self.0.below(most),
            _ => self.0.below(2) * (most + 1),
        };
        let ttl_slots = match self.below(20) {
            0 => 0,
            1 => names.ttl_slots_max + 1,
            _ => 1 + self.0.below(names.ttl_slots_max),
        };
        ResourceAsk::Acquire {
            resources: (0..members)
                .map(|_| self.one_of(&names.resources))
                .collect(),
            holder: self.one_of(&names.holders),
            ttl_slots,
        }
    }

    /// A lease and who may speak for it; now and then who may not, or none that was ever granted.
    fn claim(&mut self, names: &Names, known: &Known) -> (LeaseNo, Token, u64) {
        let claim = known.claim(self);
        let (no, mut holder, mut fencing_token) =
            claim.unwrap_or_else(|| (LeaseNo(1), self.one_of(&names.holders), 1));
        match self.below(20) {
            0 => holder = self.one_of(&names.holders),
            1 => fencing_token += 1,
            2 => return (LeaseNo(no.0 + 1_000_000), holder, fencing_token),
            _ => {}
        }
        (no, holder, fencing_token)
    }

    fn one_of(&mut self, tokens: &[Token]) -> Token {
        tokens[self.below(tokens.len())].clone()
    }
}
