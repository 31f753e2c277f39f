//! What accounts used in each hour.

use super::limits::{Unreadable, below};
use crate::{
    project::HourRow,
    store::{self, HistoryOf},
};
use chassis::query::{Asked, Trouble, Verb, page_limit};
use schemas::v1::{QuotaHistoryPage, QuotaHistoryQuery, QuotaHourView};
use sqlx::PgPool;
use vocab::{Lsn, Millis, QuotaResource, Rule, Token};

/// Hours of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 200;
/// The beginning of the year 10000.
const MOMENT_MAX: Millis = Millis(253_402_300_800_000);

/// The verb `quota_history`.
pub struct HistoryQueries {
    pub pool: PgPool,
}

impl Verb for HistoryQueries {
    const NAME: &'static str = "quota_history";
    type Query = QuotaHistoryQuery;
    type Reply = QuotaHistoryPage;

    fn position(query: &QuotaHistoryQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<QuotaHistoryQuery>) -> Result<QuotaHistoryPage, Trouble> {
        let query = &asked.query;
        let limit = page_limit(query.limit, PAGE, PAGE_MAX)?;
        let (team, namespace) = below(&query.team, &query.namespace)?;
        let resource = QuotaResource::parse(&query.resource);
        let resource =
            resource.ok_or_else(|| Trouble::refused(Rule::ResourceUnknown, "resource"))?;
        let (from, until) = (Millis(query.from_ms), Millis(query.until_ms));
        let until = Some(until).filter(|until| until.0 != 0);
        let ordered = until.is_none_or(|until| from < until && until <= MOMENT_MAX);
        if !(Millis(0)..MOMENT_MAX).contains(&from) || !ordered {
            return Err(Trouble::refused(Rule::IntervalInvalid, "until_ms"));
        }
        let after = match query.after.as_str() {
            "" => None,
            text => {
                let place = place(text);
                Some(place.ok_or_else(|| Trouble::refused(Rule::SettingInvalid, "after"))?)
            }
        };
        let of = HistoryOf {
            tenant: asked.whose(),
            team: team.as_ref(),
            namespace: namespace.as_ref(),
            resource: &resource,
            from,
            until,
            after,
            // One more than the page has, to see whether there is one.
            limit: limit + 1,
        };
        let found = store::history(&self.pool, &of).await?;
        let all = found.len();
        let shown = found.iter().take(limit as usize);
        let hours: Vec<_> = shown.map(view).collect();
        let last = hours.last().filter(|_| all > hours.len());
        Ok(QuotaHistoryPage {
            next: last.map_or_else(String::new, |it| format!("{} {}", it.tenant, it.hour_ms)),
            hours,
            refusal: None,
            lsn: asked.applied.0,
        })
    }
}

/// As the page before has written it.
fn place(after: &str) -> Option<(Token, Millis)> {
    let (tenant, hour) = after.split_once(' ')?;
    let hour = Millis(hour.parse().ok()?);
    let is_moment = (Millis(0)..MOMENT_MAX).contains(&hour);
    Some((Token::new(tenant).ok()?, hour)).filter(|_| is_moment)
}

fn view((tenant, row): &(Token, HourRow)) -> QuotaHourView {
    QuotaHourView {
        tenant: tenant.to_string(),
        hour_ms: row.hour.0,
        hours: row.hours,
        used_min: row.used_min,
        used_max: row.used_max,
        used_ms: row.used_ms.to_string(),
        covered_ms: row.covered_ms,
        reserved_max: row.reserved_max,
        hard: row.hard,
    }
}

/// What the cell has said.
pub fn of_hour(view: &QuotaHourView) -> Result<HourRow, Unreadable> {
    let used_ms = view.used_ms.parse();
    Ok(HourRow {
        hour: Millis(view.hour_ms),
        // It is divided by.
        hours: view.hours.max(1),
        used_min: view.used_min,
        used_max: view.used_max,
        used_ms: used_ms.map_err(|_| Unreadable("what was used"))?,
        covered_ms: view.covered_ms,
        reserved_max: view.reserved_max,
        hard: view.hard,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_only_where_one_ended() {
        let check = |after: &str, expected: bool| {
            let found = place(after).map(|(tenant, hour)| format!("{tenant} {}", hour.0));
            assert_eq!(found.as_deref(), expected.then_some(after));
        };
        check("team-a 1700000000000", true);
        for unreadable in [
            "team-a",
            "team-a x",
            "a b 1",
            " 1",
            "a -1",
            "a 253402300800000",
        ] {
            check(unreadable, false);
        }
    }

    #[test]
    fn what_is_told_of_an_hour_is_read_again() {
        let row = HourRow {
            hour: Millis(3_600_000),
            hours: 2,
            used_min: 1,
            used_max: 1,
            used_ms: 1 << 80,
            covered_ms: 7_200_000,
            reserved_max: 4,
            hard: Some(0),
        };
        let tenant = Token::new("t").unwrap();
        assert_eq!(of_hour(&view(&(tenant, row))).unwrap(), row);
        assert!(of_hour(&QuotaHourView::default()).is_err());
    }
}
