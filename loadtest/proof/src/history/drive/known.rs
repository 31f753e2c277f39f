//! What the clients have heard of: operations to repeat, reservations to speak of.

use super::dice::Dice;
use crate::history::Answer;
use std::collections::VecDeque;
use vocab::{ReservationNo, ResourceAsk, Token};

const OPERATIONS_MAX: usize = 200;
const CLAIMS_MAX: usize = 12;

#[derive(Debug, Default)]
pub struct Known {
    operations: VecDeque<(Token, ResourceAsk)>,
    claims: VecDeque<Claim>,
}

/// A reservation, as far as somebody was told.
#[derive(Debug, Clone)]
struct Claim {
    no: ReservationNo,
    holder: Token,
    epoch: u64,
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
                ResourceAsk::Reserve { holder, .. },
                Answer::Reserved {
                    reservation, epoch, ..
                },
            ) => {
                if self.claims.len() == CLAIMS_MAX {
                    self.claims.pop_front();
                }
                self.claims.push_back(Claim {
                    no: ReservationNo(reservation),
                    holder: holder.clone(),
                    epoch,
                });
            }
            (ResourceAsk::Revoke { reservation }, Answer::Revoked { epoch }) => {
                let claim = self
                    .claims
                    .iter_mut()
                    .find(|claim| claim.no == *reservation);
                if let Some(claim) = claim {
                    claim.epoch = epoch;
                }
            }
            _ => {}
        }
    }

    /// Newer ones are likelier to be of use.
    pub fn claim(&self, dice: &mut Dice) -> Option<(ReservationNo, Token, u64)> {
        let count = self.claims.len();
        let at = (count > 0).then(|| dice.below(count).max(dice.below(count)))?;
        let claim = self.claims.get(at)?;
        Some((claim.no, claim.holder.clone(), claim.epoch))
    }
}
