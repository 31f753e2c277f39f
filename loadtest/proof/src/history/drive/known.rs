//! What the clients have heard of: operations to repeat, leases to speak of.

use super::dice::Dice;
use crate::history::Answer;
use std::collections::VecDeque;
use vocab::{LeaseNo, ResourceAsk, Token};

const OPERATIONS_MAX: usize = 200;
const CLAIMS_MAX: usize = 12;

#[derive(Debug, Default)]
pub struct Known {
    operations: VecDeque<(Token, ResourceAsk)>,
    claims: VecDeque<Claim>,
}

/// A lease, as far as somebody was told.
#[derive(Debug, Clone)]
struct Claim {
    no: LeaseNo,
    holder: Token,
    fencing_token: u64,
}

impl Known {
    pub fn asked(&mut self, id: &Token, ask: &ResourceAsk) {
        if self.operations.len() == OPERATIONS_MAX {
            self.operations.pop_front();
        }
        self.operations.push_back((id.clone(), ask.clone()));
    }

    pub fn operation(&self, dice: &mut Dice) -> Option<(Token, ResourceAsk)> {
        let count = self.operations.len();
        let at = (count > 0).then(|| dice.below(count))?;
        self.operations.get(at).cloned()
    }

    pub fn answered(&mut self, ask: &ResourceAsk, answer: Answer) {
        match (ask, answer) {
            (
                ResourceAsk::Acquire { holder, .. },
                Answer::Granted {
                    lease,
                    fencing_token,
                    ..
                },
            ) => {
                if self.claims.len() == CLAIMS_MAX {
                    self.claims.pop_front();
                }
                self.claims.push_back(Claim {
                    no: LeaseNo(lease),
                    holder: holder.clone(),
                    fencing_token,
                });
            }
            (ResourceAsk::Revoke { lease }, Answer::Revoked { fencing_token }) => {
                let claim = self.claims.iter_mut().find(|claim| claim.no == *lease);
                if let Some(claim) = claim {
                    claim.fencing_token = fencing_token;
                }
            }
            _ => {}
        }
    }

    /// Newer ones are likelier to be of use.
    pub fn claim(&self, dice: &mut Dice) -> Option<(LeaseNo, Token, u64)> {
        let count = self.claims.len();
        let at = (count > 0).then(|| dice.below(count).max(dice.below(count)))?;
        let claim = self.claims.get(at)?;
        Some((claim.no, claim.holder.clone(), claim.fencing_token))
    }
}
