//! What the resource types cost, for whom and where, and since when.

use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};
use vocab::{Millis, RateKey, RateList, RateRank, RateScope, fact::RateSet};

/// All rates, and the scopes of what is priced by them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rates {
    rates: RateList,
    scopes: Scopes,
}

/// The priority classes and places of claims, each once: a claim has a number and not four names. There are no more than
/// priority classes, pools and clusters make, and so none is forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Scopes {
    all: Vec<RateScope>,
    numbers: BTreeMap<RateScope, ScopeNo>,
}

/// Of a claim: its priority class, and the pool and cluster of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScopeNo(u32);

impl ScopeNo {
    /// Of what is never priced.
    pub const NONE: Self = Self(0);
}

/// Up to version 7 of the state no rate could be taken back.
#[derive(Deserialize)]
pub(super) struct RatesOf7 {
    rates: RateListOf7,
    scopes: Scopes,
}

#[derive(Deserialize)]
struct RateListOf7 {
    rates: BTreeMap<RateKey, BTreeMap<Millis, u64>>,
    /// They follow from the rates.
    _ranks: BTreeSet<Reverse<RateRank>>,
}

impl From<RatesOf7> for Rates {
    fn from(before: RatesOf7) -> Self {
        let RatesOf7 { rates, scopes } = before;
        let mut list = RateList::default();
        for (key, prices) in rates.rates {
            for (from, micro_per_unit_hour) in prices {
                list.set(key.clone(), from, Some(micro_per_unit_hour));
            }
        }
        Self {
            rates: list,
            scopes,
        }
    }
}

impl Rates {
    pub fn set(&mut self, set: &RateSet) {
        self.rates.set(set.key(), set.effective_from, set.price());
    }

    /// The number of a scope; there are less than 2^32 of them, as each takes more than a byte of memory.
    pub fn enter(&mut self, scope: RateScope) -> ScopeNo {
        let Scopes { all, numbers } = &mut self.scopes;
        let next = ScopeNo(all.len() as u32);
        let number = *numbers.entry(scope.clone()).or_insert(next);
        if number == next {
            all.push(scope);
        }
        number
    }

    pub fn scope(&self, number: ScopeNo) -> RateScope {
        let known = self.scopes.all.get(number.0 as usize);
        known.cloned().unwrap_or_default()
    }

    /// What a unit of it costs at a moment.
    pub fn at(&self, used: &RateKey, at: Millis) -> u64 {
        self.rates.at(used, at).unwrap_or(0)
    }

    /// Rate × milliseconds over `[from, to)`.
    pub fn over(&self, used: &RateKey, from: Millis, to: Millis) -> u128 {
        if from >= to {
            return 0;
        }
        let mut total = 0;
        let mut begin = from;
        while begin < to {
            let next = self.rates.next_change(used, begin);
            let end = next.map_or(to, |at| at.min(to));
            let ms = u128::from(end.0.abs_diff(begin.0));
            total += u128::from(self.at(used, begin)) * ms;
            begin = end;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{option, prelude::*};
    use vocab::{ResourceKey, ResourceKind, Token};

    fn name(letter: u8) -> Option<Token> {
        (letter > 0).then(|| Token::new(["x", "y"][usize::from(letter) - 1]).unwrap())
    }

    /// Each name is none, or one of two.
    fn keys() -> impl Strategy<Value = RateKey> {
        (any::<bool>(), [0..3u8, 0..3, 0..3, 0..3, 0..3]).prop_map(|(gpu, names)| {
            let [tenant, priority_class, pool, cluster, model] = names.map(name);
            let kind = [ResourceKind::Cpu, ResourceKind::Gpu][usize::from(gpu)];
            let model = model.filter(|_| gpu);
            RateKey {
                resource: ResourceKey { kind, model },
                scope: RateScope {
                    tenant,
                    priority_class,
                    pool,
                    cluster,
                },
            }
        })
    }

    /// Whether the rate fits the use, and what it names.
    fn named(rate: &RateKey, used: &RateKey) -> Option<[bool; 5]> {
        let names = |key: &RateKey| {
            let RateScope {
                tenant,
                priority_class,
                pool,
                cluster,
            } = key.scope.clone();
            [
                tenant,
                priority_class,
                pool,
                cluster,
                key.resource.model.clone(),
            ]
        };
        let (rate_names, used_names) = (names(rate), names(used));
        let mut both = rate_names.iter().zip(&used_names);
        let fits = rate.resource.kind == used.resource.kind
            && both.all(|(name, is)| name.is_none() || name == is);
        fits.then(|| rate_names.map(|name| name.is_some()))
    }

    proptest! {
        #[test]
        fn the_price_of_each_millisecond_is_that_of_the_first_rate_that_fits(
            said in prop::collection::vec((keys(), 0..30i64, option::weighted(0.7, 1..1000u64)), 0..12),
            again in prop::collection::vec((any::<prop::sample::Index>(), 0..30i64, option::of(1..1000u64)), 0..12),
            used in keys(),
            (from, to) in (0..40i64, 0..40i64),
        ) {
            let mut said = said;
            // Of what was set, some once more.
            for (which, from, price) in again {
                if !said.is_empty() {
                    let (key, ..) = said[which.index(said.len())].clone();
                    said.push((key, from, price));
                }
            }
            let mut rates = Rates::default();
            for (key, from, price) in &said {
                rates.set(&RateSet {
                    resource: key.resource.clone(),
                    micro_per_unit_hour: price.unwrap_or(0),
                    effective_from: Millis(*from),
                    scope: key.scope.clone(),
                    withdrawn: price.is_none(),
                });
            }
            // Something that was set later takes it back.
            let is_void = |no: usize| {
                let (key, from, _) = &said[no];
                let mut later = said[no + 1..].iter();
                later.any(|(other, at, price)| other == key && price.is_none() && at <= from)
            };
            let at = |ms: i64| {
                let begun = said.iter().enumerate();
                let begun = begun.filter(|(no, (_, from, _))| *from <= ms && !is_void(*no));
                let mut begun: Vec<_> = begun
                    .filter_map(|(no, (key, from, price))| Some((*from, no, named(key, &used)?, *price)))
                    .collect();
                begun.sort();
                let newest: BTreeMap<_, _> = (begun.into_iter())
                    .map(|(_, _, names, price)| (names, price))
                    .collect();
                let priced = newest.into_iter().filter_map(|(names, price)| Some((names, price?)));
                priced.max().map_or(0, |(_, price)| price)
            };
            for ms in 0..40 {
                prop_assert_eq!(rates.at(&used, Millis(ms)), at(ms));
            }
            let sum: u128 = (from..to).map(|ms| u128::from(at(ms))).sum();
            prop_assert_eq!(rates.over(&used, Millis(from), Millis(to)), sum);
        }
    }

    #[test]
    fn a_scope_has_one_number() {
        let mut rates = Rates::default();
        let scope = |letter| RateScope {
            pool: name(letter),
            ..RateScope::default()
        };
        let numbers = [0, 1, 0, 2, 1].map(|letter| rates.enter(scope(letter)));
        assert_eq!(numbers, [0, 1, 0, 2, 1].map(ScopeNo));
        assert_eq!(
            numbers.map(|no| rates.scope(no)),
            [0, 1, 0, 2, 1].map(scope)
        );
    }
}
