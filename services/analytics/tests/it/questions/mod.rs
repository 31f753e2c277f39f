//! The questions of docs/sql.md against answers that are computed without SQL.

mod answer;
mod finance;
mod forecast;
mod history;
mod levels;
mod plan;
mod platform;
mod prices;
mod same;
mod samples;
mod tenants;
mod truth;

use crate::common::{self, Database, Journal, Outcome};
use answer::{Cell, Row};
use std::{collections::BTreeMap, error::Error};
use truth::Truth;
use vocab::Millis;

const DOC: &str = include_str!("../../../../../docs/sql.md");

/// A question of the page, what it is asked with, and what is to come out.
pub struct Answer {
    pub question: &'static str,
    pub with: &'static [(&'static str, &'static str)],
    pub expect: fn(&Truth) -> Vec<Row>,
}

/// The queries by their headings.
fn questions() -> BTreeMap<&'static str, &'static str> {
    let sections = DOC.split("\n### ").skip(1);
    let question = |section: &'static str| {
        let (heading, rest) = section.split_once('\n').expect("a text below the heading");
        let mut blocks = rest.split("```sql\n").skip(1);
        let block = blocks.next().and_then(|rest| rest.split_once("```"));
        let (sql, _) = block.unwrap_or_else(|| panic!("{heading}: no query"));
        assert!(blocks.next().is_none(), "{heading}: two queries");
        (heading, sql)
    };
    sections.map(question).collect()
}

/// What the server says, one text for each value.
async fn ask(
    database: &Database,
    sql: &str,
    with: &[(&str, &str)],
) -> Result<Vec<Vec<String>>, Box<dyn Error>> {
    // The reader's limits.
    let limits = [
        ("readonly", "1"),
        ("max_result_rows", "1000000"),
        ("max_memory_usage", "1000000000"),
    ];
    let query = database.client.query_raw(sql);
    let query = limits.iter().fold(query, |query, (name, value)| {
        query.with_setting(*name, *value)
    });
    let query = with
        .iter()
        .fold(query, |query, (name, value)| query.param(name, value));
    let mut cursor = query.fetch_bytes("TabSeparated")?;
    let text = String::from_utf8(cursor.collect().await?.to_vec())?;
    let rows = text.lines();
    Ok(rows
        .map(|row| row.split('\t').map(str::to_owned).collect())
        .collect())
}

fn is(expected: &[Row], found: &[Vec<String>]) -> bool {
    let alike = |(expected, found): (&Row, &Vec<String>)| {
        expected.len() == found.len() && expected.iter().zip(found).all(|(a, b)| a.is(b))
    };
    expected.len() == found.len() && expected.iter().zip(found).all(alike)
}

/// The first rows that differ.
fn difference(expected: &[Row], found: &[Vec<String>]) -> String {
    let rows = 0..expected.len().max(found.len());
    let differ = rows.filter(|row| {
        let (expected, found) = (expected.get(*row), found.get(*row));
        !is(
            &expected.cloned().into_iter().collect::<Vec<_>>(),
            &found.cloned().into_iter().collect::<Vec<_>>(),
        )
    });
    let line = |row: &Row| {
        row.iter()
            .map(Cell::to_string)
            .collect::<Vec<_>>()
            .join(" | ")
    };
    let lines = differ.take(3).map(|row| {
        let expected = expected.get(row).map_or("nothing".to_owned(), line);
        let found = found
            .get(row)
            .map_or("nothing".to_owned(), |row| row.join(" | "));
        format!("  row {row}\n    expected {expected}\n    found    {found}\n")
    });
    lines.collect()
}

#[tokio::test]
async fn every_question_of_the_page_is_answered_rightly() -> Outcome {
    let questions = questions();
    assert!(questions.len() >= 30, "{} questions", questions.len());
    let answers: Vec<&Answer> = [
        tenants::ANSWERS,
        platform::ANSWERS,
        samples::ANSWERS,
        finance::ANSWERS,
        forecast::ANSWERS,
    ]
    .into_iter()
    .flatten()
    .collect();
    let headings: Vec<&str> = questions.keys().copied().collect();
    let mut answered: Vec<&str> = answers.iter().map(|answer| answer.question).collect();
    answered.sort_unstable();
    assert_eq!(
        headings, answered,
        "the page's questions, and those that have an answer"
    );

    let plan = plan::Plan::new();
    let (database, store, ledger) = history::fill(&plan).await?;
    let truth = Truth::new(plan, ledger);
    let mut wrong = String::new();
    for Answer {
        question,
        with,
        expect,
    } in answers
    {
        let found = match ask(&database, questions[question], with).await {
            Ok(found) => found,
            Err(error) => {
                wrong += &format!("{question}\n  {error}\n");
                continue;
            }
        };
        let expected = expect(&truth);
        // Nothing is right only where something would be wrong.
        let may_be_empty = *question == "Does everything add up?";
        assert_eq!(
            expected.is_empty(),
            may_be_empty,
            "{question}: nothing is asked for"
        );
        if !is(&expected, &found) {
            wrong += &format!("{question}\n{}", difference(&expected, &found));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    every_method_shares_out_the_whole_cost(&database).await?;
    same::the_service_says_what_the_views_say(&database, &store).await?;
    same::rows_beside_the_tables_do_without_them(&database, &store).await?;
    database.drop().await
}

/// A tenant's first 25 minutes, at 60 an hour.
#[tokio::test]
async fn minutes_are_no_forecast_of_a_month() -> Outcome {
    let (database, store) = Database::store().await?;
    let at = |minutes: i64| answer::when::NOVEMBER + minutes * 60_000;
    let mut journal = Journal::default();
    journal.node(at(0), "n", None);
    journal.rate("cpu", 60_000_000, 0, 1);
    journal.start(1, "t", "n", (1000, 0, 0), at(0));
    store.apply(&journal.batch()).await?;
    store.says(Millis(at(25)), "EUR").await?;
    let question = questions()["What will this month come to?"];
    let found = ask(&database, question, &[]).await?;
    assert_eq!(found, [["t", "25", "\\N", "\\N", "\\N", "EUR"]]);
    database.drop().await
}

/// Each tenant is charged something in October, so that only `none` leaves anything with nobody but what is given back
/// and discounts.
async fn every_method_shares_out_the_whole_cost(database: &Database) -> Outcome {
    let shares = "SELECT sum(amount_micro), countIf(tenant = '' AND part != 'discount'), countIf(tenant = 'it'), uniqExact(tenant)
                  FROM cost_shares(month = '2026-10-01', method = {method:String}, cost_centre = 'it', credited = '')";
    let whole = "SELECT (SELECT sum(amount_micro) FROM chargeback_hourly WHERE billing_period = '2026-10-01')
                     + (SELECT sum(amount_micro) FROM platform_cost_hourly WHERE billing_period = '2026-10-01')";
    let whole = ask(database, whole, &[]).await?[0][0].clone();
    let mut found = BTreeMap::new();
    for method in ["none", "proportional", "equal", "cost_centre"] {
        let answer = ask(database, shares, &[("method", method)]).await?;
        assert_eq!(answer[0][0], whole, "{method}");
        let is = |column: usize| answer[0][column] != "0";
        found.insert(method, (is(1), is(2)));
    }
    let expected = [
        ("cost_centre", (false, true)),
        ("equal", (false, false)),
        ("none", (true, false)),
    ];
    for (method, who) in expected {
        assert_eq!(found[method], who, "{method}");
    }
    let unknown = ask(database, shares, &[("method", "by_lot")]).await;
    let why = unknown.expect_err("no such method").to_string();
    assert!(why.contains("method must be"), "{why}");
    Ok(())
}
