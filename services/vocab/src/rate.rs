//! What a rate is for: which resource, whose use, and where; and which of several rates goes first.

use crate::{Millis, ResourceKey, Token};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
};

/// Whose use, and where, a rate is for: what is none is for all. Of a use: whose it is, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RateScope {
    pub tenant: Option<Token>,
    pub priority_class: Option<Token>,
    /// The node's label of that name, as `cluster`.
    pub pool: Option<Token>,
    pub cluster: Option<Token>,
}

impl RateScope {
    /// For everybody's use, everywhere.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

/// What a rate is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RateKey {
    pub resource: ResourceKey,
    pub scope: RateScope,
}

/// What a rate names beside its resource type, as bits: of the rates that fit, the highest goes first. One for a tenant goes
/// before one for a priority class, that before one for a pool, that before one for a cluster, and that before one for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RateRank(u8);

impl RateKey {
    fn names(&self) -> [&Option<Token>; 5] {
        let RateScope {
            tenant,
            priority_class,
            pool,
            cluster,
        } = &self.scope;
        let model = &self.resource.model;
        [tenant, priority_class, pool, cluster, model]
    }

    pub fn rank(&self) -> RateRank {
        let bits = self.names().map(|name| u8::from(name.is_some()));
        RateRank(bits.into_iter().fold(0, |rank, bit| rank << 1 | bit))
    }

    /// The rate of that rank that fits a use; none: the use has no name for what such a rate names.
    pub fn of_rank(&self, rank: RateRank) -> Option<Self> {
        let mut key = self.clone();
        let RateScope {
            tenant,
            priority_class,
            pool,
            cluster,
        } = &mut key.scope;
        let model = &mut key.resource.model;
        let names = [tenant, priority_class, pool, cluster, model];
        for (bit, name) in names.into_iter().rev().enumerate() {
            if rank.0 & 1 << bit == 0 {
                *name = None;
            }
        }
        (key.rank() == rank).then_some(key)
    }
}

/// What a rate says from a moment on, in millionths of the currency per billed unit and hour; none: it is taken back, and the
/// rates of wider names count as if it had never been set.
pub type RatePrice = Option<u64>;

/// Rates by the moment from which they hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateList {
    rates: BTreeMap<RateKey, BTreeMap<Millis, RatePrice>>,
    /// Of the rates that there are, the one that goes first in front.
    ranks: BTreeSet<Reverse<RateRank>>,
}

impl RateList {
    /// Of two for one moment the later one counts. What is taken back takes with it what was to come behind that moment.
    pub fn set(&mut self, key: RateKey, from: Millis, price: RatePrice) {
        self.ranks.insert(Reverse(key.rank()));
        let rates = self.rates.entry(key).or_default();
        if price.is_none() {
            rates.split_off(&from);
        }
        rates.insert(from, price);
    }

    /// Those that fit a use, the one that goes first in front.
    fn fitting(&self, used: &RateKey) -> impl Iterator<Item = &BTreeMap<Millis, RatePrice>> {
        let ranks = self.ranks.iter();
        ranks.filter_map(|Reverse(rank)| self.rates.get(&used.of_rank(*rank)?))
    }

    /// What a unit of it costs at a moment; none: no rate is in force.
    pub fn at(&self, used: &RateKey, at: Millis) -> Option<u64> {
        let mut in_force = self.fitting(used).filter_map(|rates| {
            let (_, price) = rates.range(..=at).next_back()?;
            *price
        });
        in_force.next()
    }

    /// When the next of the rates that fit a use begins or is taken back.
    pub fn next_change(&self, used: &RateKey, after: Millis) -> Option<Millis> {
        let next = |rates: &BTreeMap<Millis, RatePrice>| {
            let (at, _) = rates.range((Excluded(after), Unbounded)).next()?;
            Some(*at)
        };
        self.fitting(used).filter_map(next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> RateKey {
        let mut words = text.split_whitespace();
        let resource = ResourceKey::parse(words.next().unwrap()).unwrap();
        let mut scope = RateScope::default();
        for word in words {
            let (of, name) = word.split_once('=').unwrap();
            let name = Some(Token::new(name).unwrap());
            match of {
                "tenant" => scope.tenant = name,
                "class" => scope.priority_class = name,
                "pool" => scope.pool = name,
                "cluster" => scope.cluster = name,
                _ => panic!("{of}"),
            }
        }
        RateKey { resource, scope }
    }

    #[test]
    fn the_narrower_name_goes_first() {
        let all = [
            "gpu",
            "gpu:T4",
            "gpu cluster=c",
            "gpu:T4 cluster=c",
            "gpu pool=p",
            "gpu:T4 pool=p cluster=c",
            "gpu class=k",
            "gpu class=k pool=p",
            "gpu tenant=t",
            "gpu:T4 tenant=t class=k pool=p cluster=c",
        ];
        let ranks = all.map(|text| key(text).rank());
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
        let used = key(all[9]);
        for text in all {
            assert_eq!(used.of_rank(key(text).rank()), Some(key(text)));
        }
        assert_eq!(key("gpu pool=p").of_rank(key("gpu class=k").rank()), None);
        assert_eq!(key("cpu pool=p").of_rank(key("gpu:T4").rank()), None);
    }
}
