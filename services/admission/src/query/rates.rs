//! Each rate that operators have set, as the request that would set it again.

use super::settings::{KEY_MAX, view};
use crate::store;
use chassis::query::{Asked, Trouble, Verb, cut, cut_to_fit, page_limit};
use schemas::v1::{RatesPage, RatesQuery};
use sqlx::PgPool;
use vocab::{Lsn, ResourceKey, Rule};

/// Rates of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 200;

/// The verb `rates`.
pub struct RatesQueries {
    pub pool: PgPool,
}

impl Verb for RatesQueries {
    const NAME: &'static str = "rates";
    const OPERATORS_ONLY: bool = true;
    type Query = RatesQuery;
    type Reply = RatesPage;

    fn position(query: &RatesQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<RatesQuery>) -> Result<RatesPage, Trouble> {
        let query = &asked.query;
        let limit = page_limit(query.limit, PAGE, PAGE_MAX)?;
        let resource = match query.resource.as_str() {
            "" => None,
            text => {
                let key = ResourceKey::parse(text);
                Some(key.ok_or_else(|| Trouble::refused(Rule::ResourceUnknown, "resource"))?)
            }
        };
        let after = match query.after.as_str() {
            "" => ("", 0),
            text => place(text).ok_or_else(|| Trouble::refused(Rule::SettingInvalid, "after"))?,
        };
        let mut found = store::rates(&self.pool, resource.as_ref(), after, limit + 1).await?;
        let mut has_more = cut(&mut found, limit);
        let mut rates = found.iter().map(view).collect::<Result<Vec<_>, _>>()?;
        has_more |= cut_to_fit(&mut rates);
        let last = rates.last().filter(|_| has_more);
        Ok(RatesPage {
            next: last.map_or_else(String::new, |one| format!("{} {}", one.key, one.version)),
            rates,
            refusal: None,
            lsn: asked.applied.0,
        })
    }
}

/// As the page before has written it.
fn place(after: &str) -> Option<(&str, i64)> {
    let (key, version) = after.rsplit_once(' ')?;
    let version = version.parse().ok().filter(|version| *version > 0)?;
    Some((key, version)).filter(|_| key.len() <= KEY_MAX && !key.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_only_where_one_ended() {
        let check = |after: &str, expected: bool| {
            let found = place(after).map(|(key, version)| format!("{key} {version}"));
            assert_eq!(found.as_deref(), expected.then_some(after));
        };
        for written in ["cpu 1", "gpu:T4 tenant=a pool=b 9223372036854775807"] {
            check(written, true);
        }
        let long = format!("{} 1", "x".repeat(KEY_MAX + 1));
        for unreadable in [
            "cpu",
            "cpu 0",
            "cpu -1",
            "cpu 9223372036854775808",
            "\0 1",
            &long,
        ] {
            check(unreadable, false);
        }
    }
}
