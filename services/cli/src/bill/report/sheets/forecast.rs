//! What the month and the budgets will come to.

use super::{money, percent};
use crate::{
    amount,
    bill::{budgets::currency_of, in_currencies},
    print::{Cell, Sheet, column, counted, exactly, moment, named, number, plain},
};
use analytics::store::{BudgetForecast, MonthForecast};
use vocab::BudgetOf;

/// With its text, or a dash and nothing for programs.
fn if_known<T: Copy>(value: Option<T>, cell: impl Fn(T) -> Cell) -> Cell {
    value.map_or_else(|| named(""), cell)
}

pub fn month_ahead(lines: &[MonthForecast]) -> Sheet {
    let row = |line: &MonthForecast| {
        let judged = Some(line.judged).filter(|judged| *judged > 0);
        vec![
            plain(&line.tenant),
            plain(&line.resource),
            money(line.so_far_micro),
            if_known(line.expected_micro, money),
            if_known(line.low_micro, money),
            if_known(line.high_micro, money),
            number(line.judged),
            if_known(judged, |judged| percent(line.within.into(), judged.into())),
        ]
    };
    let columns = vec![
        column("tenant", "tenant"),
        column("resource", "resource"),
        column("so_far_micro", "month so far"),
        column("expected_micro", "expected at its end"),
        column("low_micro", "80 % from"),
        column("high_micro", "to"),
        column("judged_days", "days looked back on"),
        column("within_percent", "of them in the interval"),
    ];
    let sum = |amount: fn(&MonthForecast) -> Option<i128>| {
        let sum: Option<i128> = lines.iter().map(amount).sum();
        if_known(sum, money)
    };
    let total = vec![
        plain("all"),
        plain(""),
        sum(|line| Some(line.so_far_micro)),
        sum(|line| line.expected_micro),
        sum(|line| line.low_micro),
        sum(|line| line.high_micro),
        plain(""),
        plain(""),
    ];
    Sheet {
        total: Some(total),
        ..Sheet::new(columns, 2, lines.iter().map(row).collect())
    }
}

pub fn budgets_ahead(lines: &[BudgetForecast], currency: &str) -> Sheet {
    let row = |line: &BudgetForecast| {
        let of = BudgetOf::parse(&line.budget_of);
        // What is spent, and forecast, is not below 0.
        let amount = |amount: i128| match &of {
            Some(of) => counted(amount::spent(of, amount.unsigned_abs()), amount),
            None => plain(amount),
        };
        let exhausted = |at: Option<i64>| match at {
            None => exactly("not in this period".to_owned(), ""),
            Some(at) => moment(at),
        };
        vec![
            plain(&line.tenant),
            named(&line.team),
            named(&line.namespace),
            plain(&line.budget_of),
            plain(&line.period),
            moment(line.ends_ms),
            exhausted(line.exhausted_early_ms),
            exhausted(line.exhausted_ms),
            exhausted(line.exhausted_late_ms),
            amount(line.amount.into()),
            amount(line.spent),
            if_known(line.expected, amount),
            if_known(line.low, amount),
            if_known(line.high, amount),
        ]
    };
    let columns = vec![
        column("tenant", "tenant"),
        column("team", "team"),
        column("namespace", "namespace"),
        column("of", "of"),
        column("period", "every"),
        column("ends_ms", "until"),
        column("exhausted_early_ms", "exhausted early"),
        column("exhausted_at_ms", "expected"),
        column("exhausted_late_ms", "late"),
        column("amount", "budget"),
        column("spent", "spent"),
        column("expected", "expected at its end"),
        column("low", "80 % from"),
        column("high", "to"),
    ];
    let sheet = Sheet::new(columns, 9, lines.iter().map(row).collect());
    let of = lines.iter().map(|line| &*line.budget_of);
    in_currencies(sheet, of.map(|of| currency_of(of, currency)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn month(expected_micro: Option<i128>, judged: u64, within: u64) -> MonthForecast {
        MonthForecast {
            tenant: "t".to_owned(),
            resource: "cpu".to_owned(),
            so_far_micro: 2_000_000,
            expected_micro,
            low_micro: None,
            high_micro: expected_micro.map(|micro| micro + 1),
            judged,
            within,
        }
    }

    fn exact(rows: &[Vec<Cell>]) -> Vec<Vec<String>> {
        rows.iter()
            .map(|row| row.iter().map(Cell::exact).collect())
            .collect()
    }

    #[test]
    fn what_is_not_known_is_a_dash_and_so_is_its_sum() {
        let sheet = month_ahead(&[month(Some(5_000_000), 28, 21), month(None, 0, 0)]);
        assert_eq!(
            exact(&sheet.rows),
            [
                [
                    "t", "cpu", "2000000", "5000000", "", "5000001", "28", "75.0"
                ],
                ["t", "cpu", "2000000", "", "", "", "0", ""],
            ]
        );
        assert_eq!(sheet.rows[1][3].text, "-");
        let total = [sheet.total.unwrap_or_default()];
        assert_eq!(exact(&total)[0][..4], ["all", "", "4000000", ""]);
    }

    #[test]
    fn a_budget_has_three_ends_in_its_own_unit() {
        let budget = BudgetForecast {
            tenant: "t".to_owned(),
            team: "ml".to_owned(),
            namespace: String::new(),
            budget_of: "gpu".to_owned(),
            period: "week".to_owned(),
            ends_ms: 86_400_000,
            amount: 8000,
            spent: 2000,
            expected: Some(9000),
            low: Some(2500),
            high: Some(12_000),
            exhausted_early_ms: Some(1000),
            exhausted_ms: Some(2000),
            exhausted_late_ms: None,
        };
        let of_money = BudgetForecast {
            budget_of: "money".to_owned(),
            ..budget.clone()
        };
        let sheet = budgets_ahead(&[budget, of_money], "EUR");
        let last = exact(&sheet.rows)[1].last().cloned();
        assert_eq!(last.as_deref(), Some("EUR"));
        assert_eq!(
            exact(&sheet.rows)[0][6..],
            [
                "1000", "2000", "", "8000", "2000", "9000", "2500", "12000", ""
            ]
        );
        let texts: Vec<&str> = sheet.rows[0]
            .iter()
            .map(|cell| cell.text.as_str())
            .collect();
        assert_eq!(texts[2..5], ["-", "gpu", "week"]);
        assert_eq!(
            texts[6..9],
            [
                "1970-01-01T00:00:01Z",
                "1970-01-01T00:00:02Z",
                "not in this period"
            ]
        );
        assert!(texts[9].starts_with('8'), "{}", texts[9]);
    }
}
