//! How many queries each tenant has under way, so that one cannot take the place of the others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Semaphore;
use vocab::{Refusal, Rule, Token};

/// Queries of one tenant under way at the same time.
pub const TENANT_MAX: u32 = 64;
/// Of those, the ones that are being answered; the others wait without keeping anybody else from it.
pub const TENANT_ANSWERING_MAX: usize = 4;

#[derive(Debug, Clone, Default)]
pub struct Asking(Arc<Mutex<HashMap<Token, Tenant>>>);

#[derive(Debug)]
struct Tenant {
    under_way: u32,
    answering: Arc<Semaphore>,
}

/// One query under way; over when dropped.
#[derive(Debug)]
pub struct Turn {
    asking: Asking,
    tenant: Token,
    /// Of the tenant.
    pub answering: Arc<Semaphore>,
}

impl Asking {
    /// A count is never left half changed, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Tenant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn begin(&self, tenant: &Token) -> Result<Turn, Refusal> {
        let mut counts = self.lock();
        let asking = counts.entry(tenant.clone()).or_insert_with(|| Tenant {
            under_way: 0,
            answering: Arc::new(Semaphore::new(TENANT_ANSWERING_MAX)),
        });
        if asking.under_way >= TENANT_MAX {
            let (limit, actual) = (TENANT_MAX.into(), u64::from(asking.under_way) + 1);
            return Err(Refusal::over(Rule::RateLimited, "queries", limit, actual));
        }
        asking.under_way += 1;
        Ok(Turn {
            asking: self.clone(),
            tenant: tenant.clone(),
            answering: asking.answering.clone(),
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut counts = self.asking.lock();
        if let Some(asking) = counts.get_mut(&self.tenant) {
            asking.under_way -= 1;
            if asking.under_way == 0 {
                counts.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_a_bounded_number_of_turns_and_gives_them_back() {
        let asking = Asking::default();
        let (a, b) = (Token::new("a").unwrap(), Token::new("b").unwrap());
        let turns: Vec<_> = (0..TENANT_MAX).map(|_| asking.begin(&a).unwrap()).collect();
        assert_eq!(asking.begin(&a).unwrap_err().rule, Rule::RateLimited);
        let other = asking.begin(&b).unwrap();
        let held: Vec<_> = turns
            .iter()
            .filter_map(|turn| turn.answering.try_acquire().ok())
            .collect();
        assert_eq!(held.len(), TENANT_ANSWERING_MAX);
        assert!(other.answering.try_acquire().is_ok());
        drop((held, other));
        drop(turns);
        assert!(asking.begin(&a).is_ok());
        assert!(asking.lock().is_empty());
    }
}
