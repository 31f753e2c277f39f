//! What an account used in each hour.

use super::{Asked, json};
use crate::{
    Failure, amount,
    context::Context,
    pages::pages,
    print::{Cell, Output, Page, Sheet, column, counted, draws, moment, named, valued},
};
use clap::Args;
use client::{Client, QuotaHistoryQuery};
use quota::{project::HourRow, query::of_hour};
use vocab::{Account, HOUR_MS, Millis, QuotaResource, Token};

#[derive(Args)]
#[command(allow_missing_positional = true)]
pub struct History {
    #[command(flatten)]
    asked: Asked,
    /// cpu, memory, gpu, gpu:<model>, storage, pods, extended:<name> or leases.
    #[arg(value_parser = amount::resource)]
    resource: QuotaResource,
    /// How many hours, the current one included.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=9600))]
    hours: u32,
    #[command(flatten)]
    output: Output,
}

impl History {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let account = self.asked.account(context)?;
        let client = context.asker(Some(account.tenant.as_str())).await?;
        let now = context.clock().now_ms();
        let current = now.div_euclid(HOUR_MS) * HOUR_MS;
        let from = Millis(current - (i64::from(self.hours) - 1) * HOUR_MS);
        let (rows, lsn) = ask(&client, &account, &self.resource, from).await?;
        let value = rows.iter().map(json::hour).collect();
        let sheet = sheet(&self.resource, &rows);
        let page = Page::list(value, lsn).sheet_or(sheet, "nothing was used");
        let page = match draws() {
            true => page.text(sparkline(&rows, from, self.hours)),
            false => page,
        };
        page.print(self.output)
    }
}

/// Hours of a page, at the most.
const PAGE_MAX: u32 = 1000;

/// Returns a row for each hour, and the ledger position that they are of.
async fn ask(
    client: &Client,
    account: &Account,
    resource: &QuotaResource,
    from: Millis,
) -> Result<(Vec<HourRow>, u64), Failure> {
    let name = |name: &Option<Token>| name.as_ref().map_or("", Token::as_str).to_owned();
    pages(async |after, at_lsn| {
        let query = QuotaHistoryQuery {
            team: name(&account.team),
            namespace: name(&account.namespace),
            resource: resource.to_string(),
            from_ms: from.0,
            limit: PAGE_MAX,
            after,
            at_lsn,
            ..QuotaHistoryQuery::default()
        };
        let page = client.quota_history(&query).await?;
        let mut rows = Vec::new();
        for hour in &page.hours {
            let row = of_hour(hour).map_err(|it| it.to_string())?;
            rows.extend(row.each_hour().filter(|row| row.hour >= from));
        }
        Ok((rows, page.next, page.lsn))
    })
    .await
}

/// Weighed by time.
fn average(row: &HourRow) -> u128 {
    row.used_ms
        .checked_div(row.covered_ms.into())
        .unwrap_or(row.used_max.into())
}

fn sheet(resource: &QuotaResource, rows: &[HourRow]) -> Sheet {
    let columns = vec![
        column("hour_ms", amount::unit(resource).unwrap_or("amount")),
        column("used_min", "least used"),
        column("used_average", "average"),
        column("used_max", "most used"),
        column("reserved_max", "most reserved"),
        column("hard", "limit"),
    ];
    let rows = rows.iter().map(|hour| row(resource, hour));
    Sheet::new(columns, 1, rows.collect())
}

fn row(resource: &QuotaResource, row: &HourRow) -> Vec<Cell> {
    let of = |amount: u64| valued(amount::plain(resource, amount.into()), amount);
    let average = average(row);
    vec![
        moment(row.hour.0),
        of(row.used_min),
        counted(amount::plain(resource, average), average),
        of(row.used_max),
        of(row.reserved_max),
        row.hard.map_or_else(|| named(""), of),
    ]
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A bar for each hour's average, beside the highest of them; nothing for an hour in which nothing was used.
fn sparkline(rows: &[HourRow], from: Millis, hours: u32) -> String {
    let most = rows.iter().map(average).max().unwrap_or(0);
    let mut bars = vec![' '; usize::try_from(hours).unwrap_or(0)];
    for row in rows {
        let hour = (row.hour.0 - from.0).div_euclid(HOUR_MS);
        let slot = usize::try_from(hour)
            .ok()
            .and_then(|hour| bars.get_mut(hour));
        let height = (average(row) * 7).checked_div(most).unwrap_or(0);
        let bar = usize::try_from(height)
            .ok()
            .and_then(|height| BARS.get(height));
        if let (Some(slot), Some(bar)) = (slot, bar) {
            *slot = *bar;
        }
    }
    bars.iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_lines_and_bars() {
        let row = |hour: i64, used: u64| HourRow {
            hour: Millis(hour * HOUR_MS),
            hours: 1,
            used_min: 0,
            used_max: used * 2,
            used_ms: u128::from(used) * 3_600_000,
            covered_ms: 3_600_000,
            reserved_max: 0,
            hard: Some(8000),
        };
        let rows = [row(10, 8000), row(11, 4000), row(13, 0)];
        assert_eq!(sparkline(&rows, Millis(10 * HOUR_MS), 5), "█▄ ▁ ");
        assert_eq!(sparkline(&[], Millis(0), 3), "   ");
        let found = super::row(&QuotaResource::Cpu, &rows[1]);
        let columns: Vec<_> = found.iter().map(|cell| cell.text.as_str()).collect();
        let hour = "1970-01-01T11:00:00Z";
        assert_eq!(columns, [hour, "0.000", "4.000", "8.000", "0.000", "8.000"]);
        // The current hour has only begun.
        let begun = HourRow {
            covered_ms: 0,
            used_ms: 0,
            ..row(12, 5)
        };
        assert_eq!(average(&begun), 10);
    }
}
