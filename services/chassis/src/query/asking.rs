//! How many queries each tenant has under way, so that one cannot take the place of the others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use vocab::{Refusal, Rule, Token};

/// Queries of one tenant under way at the same time.
pub const TENANT_MAX: u32 = 64;

#[derive(Debug, Clone, Default)]
pub struct Asking(Arc<Mutex<HashMap<Token, u32>>>);

/// One query under way; over when dropped.
#[derive(Debug)]
pub struct Turn {
    asking: Asking,
    tenant: Token,
}

impl Asking {
    /// A count is never left half changed, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, HashMap<Token, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn begin(&self, tenant: &Token) -> Result<Turn, Refusal> {
        let mut counts = self.lock();
        let count = counts.entry(tenant.clone()).or_default();
        if *count >= TENANT_MAX {
            let (limit, actual) = (TENANT_MAX.into(), u64::from(*count) + 1);
            return Err(Refusal::over(Rule::RateLimited, "queries", limit, actual));
        }
        *count += 1;
        Ok(Turn {
            asking: self.clone(),
            tenant: tenant.clone(),
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut counts = self.asking.lock();
        if let Some(count) = counts.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
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
        assert!(asking.begin(&b).is_ok());
        drop(turns);
        assert!(asking.begin(&a).is_ok());
        assert!(asking.lock().is_empty());
    }
}
