//! What an account used in each hour.

use super::json;
use crate::{Failure, amount, stack};
use chassis::stack::Stack;
use clap::Args;
use quota::{project::HourRow, store};
use sqlx::types::JsonValue;
use vocab::{Account, HOUR_MS, Millis, QuotaResource};

#[derive(Args)]
pub struct History {
    /// tenant, tenant/team or tenant/team/namespace.
    #[arg(value_parser = amount::account)]
    account: Account,
    /// cpu, memory, gpu, gpu:<model>, storage, pods, extended:<name> or leases.
    #[arg(value_parser = amount::resource)]
    resource: QuotaResource,
    /// How many hours, the current one included.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=9600))]
    hours: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl History {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let pool = stack::warm_state(stack, "quota").await?;
        let now = stack.clock().now_ms();
        let current = now.div_euclid(HOUR_MS) * HOUR_MS;
        let from = Millis(current - (i64::from(self.hours) - 1) * HOUR_MS);
        let rows = store::history(&pool, &self.account, &self.resource, from).await?;
        if self.json {
            println!("{:#}", rows.iter().map(json::hour).collect::<JsonValue>());
            return Ok(());
        }
        let unit = amount::unit(&self.resource).unwrap_or("amount");
        println!(
            "{:<20} {:>14} {:>14} {:>14} {:>14} {:>14}",
            unit, "least used", "average", "most used", "most reserved", "limit"
        );
        for row in &rows {
            println!("{}", line(&self.resource, row));
        }
        println!("{}", sparkline(&rows, from, self.hours));
        Ok(())
    }
}

/// Weighed by time.
fn average(row: &HourRow) -> u128 {
    row.used_ms
        .checked_div(row.covered_ms.into())
        .unwrap_or(row.used_max.into())
}

fn line(resource: &QuotaResource, row: &HourRow) -> String {
    let of = |amount: u64| amount::plain(resource, amount.into());
    format!(
        "{:<20} {:>14} {:>14} {:>14} {:>14} {:>14}",
        amount::moment(row.hour),
        of(row.used_min),
        amount::plain(resource, average(row)),
        of(row.used_max),
        of(row.reserved_max),
        row.hard.map_or("-".into(), of),
    )
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
        let found = line(&QuotaResource::Cpu, &rows[1]);
        let columns: Vec<_> = found.split_whitespace().collect();
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
