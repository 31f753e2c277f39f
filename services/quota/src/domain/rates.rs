//! What the resource types cost, and since when.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{Millis, ResourceKey, ResourceKind, Token};

/// Rates in millionths of the currency per billed unit and hour, by the moment from which they hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rates(BTreeMap<ResourceKey, BTreeMap<Millis, u64>>);

impl Rates {
    pub fn set(&mut self, resource: &ResourceKey, rate: u64, from: Millis) {
        let rates = self.0.entry(resource.clone()).or_default();
        rates.insert(from, rate);
    }

    fn of(&self, key: &ResourceKey, at: Millis) -> Option<u64> {
        let rates = self.0.get(key)?;
        rates.range(..=at).next_back().map(|(_, rate)| *rate)
    }

    /// What a unit of it costs at a moment: the model's own rate goes before the rate of GPUs.
    pub fn at(&self, kind: ResourceKind, model: Option<&Token>, at: Millis) -> u64 {
        let key = |model: Option<&Token>| ResourceKey {
            kind,
            model: model.cloned(),
        };
        let own = model.and_then(|model| self.of(&key(Some(model)), at));
        own.or_else(|| self.of(&key(None), at)).unwrap_or(0)
    }

    /// Rate × milliseconds over `[from, to)`.
    pub fn over(
        &self,
        kind: ResourceKind,
        model: Option<&Token>,
        from: Millis,
        to: Millis,
    ) -> u128 {
        if from >= to {
            return 0;
        }
        let mut total = 0;
        let mut begin = from;
        while begin < to {
            let end = self
                .next_change(kind, model, begin)
                .map_or(to, |at| at.min(to));
            let ms = u128::from(end.0.abs_diff(begin.0));
            total += u128::from(self.at(kind, model, begin)) * ms;
            begin = end;
        }
        total
    }

    fn next_change(
        &self,
        kind: ResourceKind,
        model: Option<&Token>,
        after: Millis,
    ) -> Option<Millis> {
        use std::ops::Bound::{Excluded, Unbounded};
        let next = |model: Option<&Token>| {
            let key = ResourceKey {
                kind,
                model: model.cloned(),
            };
            let rates = self.0.get(&key)?;
            rates
                .range((Excluded(after), Unbounded))
                .next()
                .map(|(at, _)| *at)
        };
        let own = model.and_then(|model| next(Some(model)));
        own.into_iter().chain(next(None)).min()
    }
}
