//! What a tenant is told of its use, its bill and its budgets, and the months that are closed.

use crate::e2e::{
    agent::Agent,
    suite::{Outcome, Suite, eventually, id, small},
};
use client::{
    BillQuery, BudgetQuery, Client, ClosePeriod, QueryError, SetBudget, SetRate, Submit, UsageBy,
    UsageQuery,
};
use schemas::v1::{Period, Refusal, RunPhase};
use std::collections::BTreeMap;
use vocab::{Millis, Month, Rule};

fn refused<T>(asked: Result<T, QueryError>) -> Option<Rule> {
    asked.err().and_then(|error| error.rule())
}

async fn submit(tenant: &Client, team: &str, job_set: &str) -> String {
    let submit = Submit {
        team: team.to_owned(),
        job_set: job_set.to_owned(),
        ..small(job_set)
    };
    let submitted = tenant.submit(submit, id()).await.expect("it fits");
    submitted.allocation_id
}

fn of_month(month: u32) -> BillQuery {
    BillQuery {
        month,
        ..BillQuery::default()
    }
}

fn by(by: &[UsageBy]) -> UsageQuery {
    UsageQuery {
        by: by.iter().map(|by| (*by).into()).collect(),
        ..UsageQuery::default()
    }
}

#[tokio::test]
async fn a_tenant_reads_its_use_and_its_bill_and_nobody_elses() -> Outcome {
    let suite = Suite::start().await;
    let (tenant, other) = (
        suite.tenant("tenant-a").await,
        suite.tenant("tenant-b").await,
    );
    let mut agent: Agent = suite.node("n1").await;
    assert_eq!(tenant.bill(&BillQuery::default()).await?.lines, []);
    for (team, job_set) in [("ml", "train"), ("ml", "eval"), ("", "misc")] {
        let allocation = submit(&tenant, team, job_set).await;
        agent.run(&allocation, 20).await;
    }
    // It runs on, and time is known by what happens to others.
    let runs = submit(&tenant, "web", "serve").await;
    agent.assignment(&runs, false).await;
    let began = chassis::Clock::real().now_ms();
    agent.report(&runs, RunPhase::Started, began).await;
    let per_team = by(&[UsageBy::Team, UsageBy::JobSet]);
    eventually("the use of what runs", || async {
        submit(&other, "", "noise").await;
        let page = tenant.usage(&per_team).await.ok()?;
        let used = |team: &str| {
            let of_team = page.lines.iter().filter(|line| line.team == team);
            of_team.filter(|line| line.quantity != "0").count()
        };
        (used("web") == 2 && used("ml") == 4 && used("") == 2).then_some(())
    })
    .await;
    let over = chassis::Clock::real().now_ms();
    agent.report(&runs, RunPhase::FinishedOk, over).await;
    // The tables of one batch are written one after the other: the end of a run is there before its
    // cost is, and the batch applies after both.
    let store = suite.store();
    eventually("the end and its cost", || async {
        let ended = store.runs_behind(vocab::Lsn(0)).await.ok()?;
        let applied = store.through().await.ok()?;
        let unapplied = store.runs_behind(applied).await.ok()?;
        ((ended, unapplied) == (4, 0)).then_some(())
    })
    .await;
    let bill = tenant.bill(&BillQuery::default()).await?;
    assert!(!bill.closed && bill.currency == "USD" && bill.total_micro > 0);
    let sum: i64 = bill.lines.iter().map(|line| line.amount_micro).sum();
    assert_eq!(sum, bill.total_micro);
    let mut of_store = 0;
    for line in store.monthly_bill().await? {
        if line.tenant == "tenant-a" {
            of_store += i64::try_from(line.amount_micro)?;
        }
    }
    assert_eq!(bill.total_micro, of_store);
    // Pages are parts of the same.
    let mut query = by(&[UsageBy::Hour, UsageBy::Team, UsageBy::JobSet]);
    let all = tenant.usage(&query).await?;
    query.limit = 3;
    let mut paged = Vec::new();
    loop {
        let page = tenant.usage(&query).await?;
        paged.extend(page.lines);
        query.skip = page.next;
        if page.next == 0 {
            break;
        }
    }
    assert_eq!(paged, all.lines);
    let mut totals: BTreeMap<String, i64> = BTreeMap::new();
    for line in &all.lines {
        *totals.entry(line.resource.clone()).or_default() += line.amount_micro;
    }
    let whole = tenant.usage(&UsageQuery::default()).await?.lines;
    assert_eq!(whole.len(), totals.len(), "{whole:?}");
    let whole = whole.into_iter().map(|it| (it.resource, it.amount_micro));
    assert_eq!(whole.collect::<BTreeMap<_, _>>(), totals);
    let ml = UsageQuery {
        team: "ml".to_owned(),
        resource: "cpu".to_owned(),
        ..by(&[UsageBy::JobSet])
    };
    let lines = tenant.usage(&ml).await?.lines;
    let names: Vec<&str> = lines.iter().map(|line| line.job_set.as_str()).collect();
    assert_eq!(names, ["eval", "train"]);
    // Nobody sees what is another's.
    assert_eq!(other.usage(&ml).await?.lines, []);
    assert_eq!(other.bill(&BillQuery::default()).await?.total_micro, 0);
    operators_are_told_of_everybody(&suite, &tenant).await?;
    let broken = |change: fn(&mut UsageQuery)| {
        let mut query = UsageQuery::default();
        change(&mut query);
        query
    };
    for (query, rule) in [
        (broken(|it| it.by = vec![0]), Rule::SettingInvalid),
        (broken(|it| it.by = vec![3, 3]), Rule::SettingInvalid),
        (broken(|it| it.by = vec![99]), Rule::SettingInvalid),
        (broken(|it| it.team = "a b".to_owned()), Rule::NameInvalid),
        (
            broken(|it| it.resource = "disk".to_owned()),
            Rule::ResourceUnknown,
        ),
        (broken(|it| it.limit = 1001), Rule::QuantityTooLarge),
        (broken(|it| it.until_ms = 1), Rule::IntervalInvalid),
        (broken(|it| it.from_ms = -1), Rule::IntervalInvalid),
        (broken(|it| it.at_lsn = u64::MAX), Rule::NotApplied),
    ] {
        assert_eq!(refused(tenant.usage(&query).await), Some(rule), "{query:?}");
    }
    let invalid = Some(Rule::SettingInvalid);
    assert_eq!(refused(tenant.bill(&of_month(202_613)).await), invalid);
    let no_place = BillQuery {
        after: "tenant-a".to_owned(),
        ..BillQuery::default()
    };
    assert_eq!(refused(tenant.bill(&no_place).await), invalid);
    suite.close().await;
    Ok(())
}

/// All runs are over, so that nothing comes to the bill any more.
async fn operators_are_told_of_everybody(suite: &Suite, tenant: &Client) -> Outcome {
    let operator = suite.operator().await;
    let query = by(&[UsageBy::Team, UsageBy::JobSet]);
    let mut used = operator.usage(&query).await?.lines;
    let whose = |tenant: &str| matches!(tenant, "tenant-a" | "tenant-b");
    assert!(used.iter().all(|line| whose(&line.tenant)), "{used:?}");
    used.retain(|line| line.tenant == "tenant-a");
    assert_eq!(used, tenant.usage(&query).await?.lines);

    let views = suite.store().monthly_bill().await?;
    let mut query = BillQuery {
        limit: 2,
        ..BillQuery::default()
    };
    let (mut lines, mut total) = (Vec::new(), 0);
    loop {
        let page = operator.bill(&query).await?;
        assert!(page.lines.len() <= 2);
        lines.extend(page.lines);
        query.after = page.next;
        if query.after.is_empty() {
            break;
        }
        total = page.total_micro;
    }
    let (mut found, mut expected) = (BTreeMap::new(), BTreeMap::new());
    for line in &lines {
        *found.entry(line.tenant.clone()).or_default() += i128::from(line.amount_micro);
    }
    for line in views {
        *expected.entry(line.tenant).or_default() += line.amount_micro;
    }
    assert_eq!(found, expected);
    assert_eq!(found.values().sum::<i128>(), total.into());
    lines.retain(|line| line.tenant == "tenant-a");
    assert_eq!(lines, tenant.bill(&BillQuery::default()).await?.lines);
    Ok(())
}

#[tokio::test]
async fn a_tenant_reads_its_budgets() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let operator = suite.operator().await;
    let all = BudgetQuery::default();
    assert_eq!(tenant.budgets(&all).await?.budgets, []);
    for (team, of, amount) in [("", "money", 5_000_000), ("ml", "cpu", 9000)] {
        let change = SetBudget {
            tenant: "tenant-a".to_owned(),
            team: team.to_owned(),
            of: of.to_owned(),
            amount: Some(amount),
            period: Period::Month.into(),
            ..SetBudget::default()
        };
        operator.set_budget(change, id()).await?;
    }
    let budgets = eventually("both budgets", || async {
        let budgets = tenant.budgets(&all).await.ok()?.budgets;
        (budgets.len() == 2).then_some(budgets)
    })
    .await;
    let found: Vec<_> = budgets
        .iter()
        .map(|it| {
            (
                it.team.as_str(),
                it.of.as_str(),
                it.amount,
                it.spent.as_str(),
            )
        })
        .collect();
    let expected = [("", "money", 5_000_000, "0"), ("ml", "cpu", 9000, "0")];
    assert_eq!(found, expected);
    assert!(budgets.iter().all(|it| it.begins_ms < it.ends_ms));
    let other = suite.tenant("tenant-b").await;
    assert_eq!(other.budgets(&all).await?.budgets, []);
    // To operators, page by page.
    let one = BudgetQuery { limit: 1, ..all };
    let first = operator.budgets(&one).await?;
    assert_eq!(first.next, "tenant-a money");
    let query = BudgetQuery {
        after: first.next,
        at_lsn: first.lsn,
        ..one
    };
    let second = operator.budgets(&query).await?;
    assert_eq!(second.next, "");
    assert_eq!([first.budgets, second.budgets].concat(), budgets);
    assert!(budgets.iter().all(|it| it.tenant == "tenant-a"));
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn a_month_is_closed_once_and_stays_so() -> Outcome {
    let suite = Suite::start().await;
    let operator = suite.operator().await;
    let now = Month::of(Millis(chassis::Clock::real().now_ms()));
    let last = Month::of(Millis(now.begin().0 - 1));
    let before = Month::of(Millis(last.begin().0 - 1));
    let close = |month: Month| {
        let change = ClosePeriod {
            month: month.0,
            expected_version: None,
        };
        operator.close_period(change, id())
    };
    let rule = |refusal: Refusal| Rule::from_number(refusal.rule);
    let not_over = crate::e2e::operators::refused(close(now).await);
    assert_eq!(rule(not_over), Some(Rule::PeriodNotOver));
    assert_eq!(close(before).await?.version, 1);
    let again = crate::e2e::operators::refused(close(before).await);
    assert_eq!(
        (again.limit, rule(again)),
        (before.0.into(), Some(Rule::PeriodClosed))
    );
    // A rate from the beginning of time on would change it.
    let reaches_back = SetRate {
        resource: "gpu:NEW".to_owned(),
        micro_per_unit_hour: 1,
        correction: true,
        ..SetRate::default()
    };
    let refused = crate::e2e::operators::refused(operator.set_rate(reaches_back, id()).await);
    assert_eq!(rule(refused), Some(Rule::PeriodClosed));
    let tenant = suite.tenant("tenant-a").await;
    eventually("the month to be closed in the bill", || async {
        let bill = tenant.bill(&of_month(before.0)).await.ok()?;
        bill.closed.then_some(())
    })
    .await;
    assert!(!tenant.bill(&of_month(last.0)).await?.closed);
    suite.close().await;
    Ok(())
}
