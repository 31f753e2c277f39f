//! Read models that somebody empties, drops or puts back to an old copy while nothing is written: they are made anew by
//! themselves.

use crate::e2e::suite::{Outcome, SCHEMAS, Suite, eventually, id, small};
use client::{Client, Position};
use vocab::{At, Event, Lsn};

/// The tables of a projection. A copy is not one of them.
async fn tables(suite: &Suite, service: &str) -> Vec<String> {
    let sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = '{}' AND table_type = 'BASE TABLE'
               AND table_name NOT LIKE '\\_sqlx%' AND table_name NOT LIKE 'copy\\_%' ORDER BY 1";
    let rows = suite.rows(service, sql).await;
    rows.into_iter().flatten().flatten().collect()
}

/// All rows of all services, as text. How far they have come depends on how the ledger was cut into batches.
async fn rows(suite: &Suite) -> Vec<String> {
    let mut all = Vec::new();
    for service in SCHEMAS {
        for table in tables(suite, service).await {
            let sql = format!("SELECT row_to_json(t)::text FROM {{}}.{table} t ORDER BY 1");
            let found = suite.rows(service, &sql).await.into_iter().flatten();
            if table != "projection_position" {
                all.extend(found.flatten().map(|row| format!("{table} {row}")));
            }
        }
    }
    all
}

async fn fed(tenant: &Client) -> Vec<(u64, u32)> {
    let page = tenant.page(Position::default(), None, 1000, 0).await;
    let events = page.map(|page| page.events).unwrap_or_default();
    events
        .iter()
        .map(|event| (event.lsn, event.index))
        .collect()
}

/// One more allocation that runs and ends; nothing is written afterwards, and everything has its rows.
async fn one_run(suite: &Suite, agent: &mut crate::e2e::agent::Agent, runs: usize) -> Outcome {
    let tenant = suite.tenant("tenant-a").await;
    let submitted = tenant.submit(small("s"), id()).await?;
    agent.run(&submitted.allocation_id, 5).await;
    let release = |at: &At, event: &Event| match event {
        Event::QuotaReleased(_) => Some(at.lsn),
        _ => None,
    };
    let released = suite.events_of("the release", runs, release).await[runs - 1];
    let end = |at: &At, event: &Event| match event {
        Event::AllocationEnded(_) => Some(at.lsn),
        _ => None,
    };
    let ended = suite.events_of("the end", runs, end).await[runs - 1];
    suite.billed_through(ended).await;
    let expected: [(&str, Lsn); 2] = [("quota", released), ("scheduler", ended)];
    eventually("all rows", || async {
        for (service, lsn) in expected {
            let sql = format!(
                "SELECT 'x' FROM {{}}.projection_position WHERE lsn >= {}",
                lsn.0
            );
            if suite.rows(service, &sql).await.is_empty() {
                return None;
            }
        }
        Some(())
    })
    .await;
    Ok(())
}

/// Rows that nobody writes any more: twice the same, whatever the time between.
async fn settled(suite: &Suite) -> Vec<String> {
    eventually("rows that stay", || async {
        let before = rows(suite).await;
        let after = rows(suite).await;
        (before == after).then_some(after)
    })
    .await
}

#[tokio::test]
async fn what_is_emptied_or_put_back_is_made_anew() -> Outcome {
    let suite = Suite::start().await;
    let mut agent = suite.node("n1").await;
    let tenant = suite.tenant("tenant-a").await;
    one_run(&suite, &mut agent, 1).await?;
    for service in SCHEMAS {
        // Its first rows come after all its tables.
        eventually("first rows", || async {
            let sql = "SELECT 'x' FROM {}.projection_position";
            (!suite.rows(service, sql).await.is_empty()).then_some(())
        })
        .await;
        for table in tables(&suite, service).await {
            let sql = format!("CREATE TABLE {{}}.copy_{table} AS TABLE {{}}.{table}");
            suite.changes_tables(service, &sql).await?;
        }
    }
    one_run(&suite, &mut agent, 2).await?;
    let all_rows = settled(&suite).await;
    let all_fed = fed(&tenant).await;
    let bill = suite.store().monthly_bill().await?;
    assert!(!all_fed.is_empty() && !bill.is_empty() && !all_rows.is_empty());

    for from_copy in [false, true] {
        for service in SCHEMAS {
            let tables = tables(&suite, service).await;
            let names: Vec<_> = tables.iter().map(|table| format!("{{}}.{table}")).collect();
            let mut sql = format!("TRUNCATE {};", names.join(", "));
            for table in tables.iter().filter(|_| from_copy) {
                sql += &format!("INSERT INTO {{}}.{table} SELECT * FROM {{}}.copy_{table};");
            }
            // What the service has under way may hold locks the other way round.
            eventually("the tables changed", || async {
                suite.changes_tables(service, &sql).await.ok()
            })
            .await;
        }
        eventually("the same rows", || async {
            (rows(&suite).await == all_rows).then_some(())
        })
        .await;
    }

    eventually("the database dropped", || async {
        suite.drops_database().await.ok()
    })
    .await;
    eventually("the same bill", || async {
        (suite.store().monthly_bill().await.ok()? == bill).then_some(())
    })
    .await;

    suite.empties_feeds().await;
    eventually("the same feed", || async {
        (fed(&tenant).await == all_fed).then_some(())
    })
    .await;
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}
