//! Forecasts of little or nothing, against figures that were worked out by hand.

use crate::common::{Database, Journal, Outcome};
use analytics::store::{BudgetForecast, MonthForecast, Store};
use vocab::{DAY_MS, HOUR_MS, Millis, Period};

/// 2026-11-01 00:00 UTC, a Sunday.
const NOVEMBER: i64 = 1_793_491_200_000;
const MICRO: u64 = 1_000_000;

fn at(days: i64, hours: i64) -> i64 {
    NOVEMBER + days * DAY_MS + hours * HOUR_MS
}

/// One node, and a core for 1 unit of the currency an hour.
fn begun() -> Journal {
    let mut journal = Journal::default();
    journal.node(at(0, 0), "n", None);
    journal.rate("cpu", MICRO, 0, 1);
    journal
}

async fn known(store: &Store, journal: &mut Journal, now: i64) -> Outcome {
    store.apply(&journal.batch()).await?;
    store.says(Millis(now), "EUR").await?;
    Ok(())
}

async fn rows(database: &Database, view: &str) -> Result<u64, Box<dyn std::error::Error>> {
    database.count(view).await
}

fn exhausted(forecast: &BudgetForecast) -> [Option<i64>; 3] {
    [
        forecast.exhausted_early_ms,
        forecast.exhausted_ms,
        forecast.exhausted_late_ms,
    ]
}

#[tokio::test]
async fn of_nothing_nothing_is_said() -> Outcome {
    let (database, store) = Database::store().await?;
    for view in ["demand_forecast", "demand_backtest", "budget_forecast"] {
        assert_eq!(rows(&database, view).await?, 0, "{view}: empty tables");
    }
    // Its first day is today.
    let mut journal = begun();
    // The week began before the ledger.
    journal.budget(at(0, 1), "t", "cpu", Some((9000, Period::Week)), 1);
    journal.start(1, "t", "n", (2000, 0, 0), at(0, 2));
    known(&store, &mut journal, at(0, 5)).await?;
    for view in ["demand_forecast", "demand_backtest"] {
        assert_eq!(rows(&database, view).await?, 0, "{view}: no day is known");
    }
    let found = store.budget_forecast(None).await?;
    let [found] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(
        (found.spent, found.expected, found.high),
        (6000, None, None)
    );
    assert_eq!(exhausted(found), [None; 3]);
    let month = store.month_forecast(Some("t")).await?;
    let expected = MonthForecast {
        tenant: "t".to_owned(),
        resource: "cpu".to_owned(),
        so_far_micro: 6_000_000,
        expected_micro: None,
        low_micro: None,
        high_micro: None,
        judged: 0,
        within: 0,
    };
    assert_eq!(month, [expected]);
    assert_eq!(store.month_forecast(Some("u")).await?, []);
    database.drop().await
}

/// Two cores all Sunday long; it is 6:00 on Monday, and one core runs.
#[tokio::test]
async fn one_day_is_all_that_is_expected() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut journal = begun();
    journal.start(1, "t", "n", (2000, 1 << 30, 0), at(0, 0));
    journal.end(1, at(1, 0));
    journal.budget(at(1, 0), "t", "cpu", Some((54_000, Period::Week)), 1);
    journal.budget(at(1, 0), "t", "money", Some((96 * MICRO, Period::Month)), 1);
    journal.budget(at(1, 0), "t", "memory", Some((1, Period::Hour)), 1);
    journal.budget(at(1, 0), "t", "gpu", Some((7, Period::Month)), 1);
    journal.start(2, "t", "n", (1000, 0, 0), at(1, 0));
    known(&store, &mut journal, at(1, 6)).await?;
    // The two resources have 28 days, of which nothing is known but the day before.
    let days: Vec<(String, i128, Option<i128>, i128)> = database
        .client
        .query("SELECT DISTINCT resource, quantity, quantity_high, amount_micro FROM demand_forecast ORDER BY resource")
        .fetch_all()
        .await?;
    let hours = 24 * i128::from(HOUR_MS);
    let cpu = ("cpu".to_owned(), 2000 * hours, None, 48_000_000);
    let memory = ("memory".to_owned(), (1 << 30) * hours, None, 0);
    assert_eq!(days, [cpu, memory]);
    assert_eq!(rows(&database, "demand_forecast").await?, 56);
    assert_eq!(rows(&database, "demand_backtest").await?, 0);
    let found = store.budget_forecast(Some("t")).await?;
    // Six hours of the week, and what is left of seven days at 48 core-hours.
    let line = |of: &str| {
        found
            .iter()
            .find(|line| line.budget_of == of)
            .expect("it is set")
    };
    let cpu = line("cpu");
    assert_eq!(
        (cpu.spent, cpu.expected),
        (6000, Some(6000 + 7 * 48_000 - 12_000))
    );
    assert_eq!((cpu.low, cpu.high), (None, None));
    // 48 more core-hours take a day.
    assert_eq!(exhausted(cpu), [None, Some(at(2, 6)), None]);
    // What had ended when the month's budget began does not count.
    let money = line("money");
    assert_eq!(money.spent, 6_000_000);
    assert_eq!(
        money.expected,
        Some(6_000_000 + 29 * 48_000_000 - 12_000_000)
    );
    // 90 of 48 a day: one day and 21 hours.
    assert_eq!(money.exhausted_ms, Some(at(3, 3)));
    let memory = line("memory");
    assert_eq!((memory.spent, memory.expected), (0, Some(1 << 30)));
    assert_eq!(
        (line("gpu").expected, line("gpu").exhausted_ms),
        (Some(0), None)
    );
    let month = store.month_forecast(None).await?;
    let expected: Vec<_> = month
        .iter()
        .map(|it| (it.so_far_micro, it.expected_micro))
        .collect();
    assert_eq!(
        expected,
        [
            (54_000_000, Some(54_000_000 + 29 * 48_000_000 - 12_000_000)),
            (0, Some(0))
        ]
    );
    database.drop().await
}

/// A core each hour of a day, for as long as it is; more on the fourth day of a week. Nothing is rated but that.
#[tokio::test]
async fn what_repeats_is_forecast_without_an_error() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut journal = begun();
    for day in 0..80 {
        let cores = if day % 7 == 3 { 3000 } else { 1000 };
        journal.start(day + 1, "t", "n", (cores, 0, 0), at(day as i64, 0));
        journal.end(day + 1, at(day as i64 + 1, 0));
    }
    journal.budget(at(80, 0), "t", "cpu", Some((1, Period::Day)), 1);
    journal.budget(at(80, 0), "t", "cpu", Some((72_000, Period::Day)), 2);
    journal.budget(at(80, 0), "t", "gpu", Some((1, Period::Day)), 1);
    journal.budget(at(80, 0), "t", "gpu", None, 2);
    known(&store, &mut journal, at(80, 0)).await?;
    let forecast: Vec<(i128, Option<i128>, Option<i128>)> = database
        .client
        .query("SELECT intDiv(quantity, 3600000), intDiv(quantity_low, 3600000), intDiv(quantity_high, 3600000)
                FROM demand_forecast ORDER BY day")
        .fetch_all()
        .await?;
    let expected: Vec<_> = (80..108)
        .map(|day| if day % 7 == 3 { 72_000 } else { 24_000 })
        .map(|hours| (hours, Some(hours), Some(hours)))
        .collect();
    assert_eq!(forecast, expected);
    let tested: Vec<(u64, u64)> = database
        .client
        .query("SELECT count(), countIf(within = 1) FROM demand_backtest GROUP BY measure")
        .fetch_all()
        .await?;
    assert_eq!(tested, [(28, 28), (28, 28)]);
    // To the millisecond at the end of the day, which is no more of the period.
    let found = store.budget_forecast(None).await?;
    let [found] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(
        (found.amount, found.spent, found.expected),
        (72_000, 0, Some(72_000))
    );
    assert_eq!(exhausted(found), [None; 3]);
    // It is the 20th of January, whose first day is the 61st behind the first of November.
    let micro = |days: std::ops::Range<i128>| -> i128 {
        let cores = days.map(|day| if day % 7 == 3 { 3 } else { 1 });
        cores.map(|cores| cores * 24_000_000).sum()
    };
    let month = store.month_forecast(None).await?;
    let whole = Some(micro(61..92));
    let expected = MonthForecast {
        tenant: "t".to_owned(),
        resource: "cpu".to_owned(),
        so_far_micro: micro(61..80),
        expected_micro: whole,
        low_micro: whole,
        high_micro: whole,
        judged: 28,
        within: 28,
    };
    assert_eq!(month, [expected]);
    database.drop().await
}
