//! What was refused of late, and why.

use super::operation::broken;
use crate::store::{self, RefusedOperation};
use chassis::query::{Asked, Trouble, Verb, cut, page_limit};
use schemas::v1::{RefusalView, RefusalsPage, RefusalsQuery};
use sqlx::PgPool;
use vocab::{EventNo, Lsn, Rule};

/// Refusals of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 50;

/// The verb `refusals`.
pub struct RefusalsQueries {
    pub pool: PgPool,
}

impl Verb for RefusalsQueries {
    const NAME: &'static str = "refusals";
    type Query = RefusalsQuery;
    type Reply = RefusalsPage;

    fn position(query: &RefusalsQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<RefusalsQuery>) -> Result<RefusalsPage, Trouble> {
        let query = &asked.query;
        let limit = page_limit(query.limit, PAGE, PAGE_MAX)?;
        let rule = match query.rule {
            0 => None,
            number => {
                let rule = Rule::from_number(number);
                Some(rule.ok_or_else(|| Trouble::refused(Rule::SettingInvalid, "rule"))?)
            }
        };
        let before = match query.after {
            0 => EventNo(i64::MAX.unsigned_abs()),
            after if i64::try_from(after).is_err() => {
                return Err(Trouble::refused(Rule::SettingInvalid, "after"));
            }
            after => EventNo(after),
        };
        let whose = asked.whose();
        let mut found = store::refusals(&self.pool, whose, rule, before, limit + 1).await?;
        let has_more = cut(&mut found, limit);
        let refusals: Vec<_> = found.into_iter().map(view).collect();
        let last = refusals.last().filter(|_| has_more);
        Ok(RefusalsPage {
            next: last.map_or(0, |one| one.number),
            refusals,
            refusal: None,
            lsn: asked.applied.0,
        })
    }
}

fn view(refused: RefusedOperation) -> RefusalView {
    let broken = broken(&refused.refusal);
    RefusalView {
        number: refused.no.0,
        tenant: refused.tenant,
        operation_id: refused.operation_id.unwrap_or_default(),
        verb: refused.verb.unwrap_or_default(),
        broken: broken.refusal,
        explanation: broken.explanation,
        at_ms: refused.at.0,
        by: refused.by.unwrap_or_default(),
    }
}
