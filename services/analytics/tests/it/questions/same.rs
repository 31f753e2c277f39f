//! What the service answers by its own reckoning, held against the views of the bill.

use crate::questions::common::{CELL, Database, LEDGER, Outcome};
use analytics::store::{Beside, Dimension, InvoiceLine, Store, UseLine, Wanted, When};
use clickhouse::Row;
use serde::Deserialize;
use std::error::Error;
use uuid::Uuid;
use vocab::{Millis, Month, ResourceKey, Token};

/// More than there are lines.
const ALL: u32 = 1_000_000;

#[derive(Debug, Row, Deserialize)]
struct Bill {
    tenant: String,
    team: String,
    resource: String,
    micro_per_unit_hour: u64,
    has_rate: bool,
    is_correction: bool,
    quantity: i128,
    amount_micro: i128,
}

#[derive(Debug, Row, Deserialize)]
struct Use {
    begins_ms: i64,
    tenant: String,
    team: String,
    namespace: String,
    queue: String,
    job_set: String,
    priority_class: String,
    cluster: String,
    pool: String,
    resource: String,
    quantity: i128,
    amount_micro: i128,
}

const COLUMNS: [(Dimension, &str); 7] = [
    (Dimension::Team, "team"),
    (Dimension::Namespace, "namespace"),
    (Dimension::Queue, "queue"),
    (Dimension::JobSet, "job_set"),
    (Dimension::PriorityClass, "priority_class"),
    (Dimension::Cluster, "cluster"),
    (Dimension::Pool, "pool"),
];

/// Of the tables, of rows that lie beside them since the beginning, and of rows that were put there when somebody asked.
pub async fn the_service_says_what_the_views_say(database: &Database, store: &Store) -> Outcome {
    let of_tables = Store::new(database.client.clone(), &database.name, CELL);
    let of_asked = of_tables.clone().beside(Beside::default());
    of_asked.resume(LEDGER).await?;
    let stores = &[store, &of_tables, &of_asked];
    let names = |of: &'static str| async move {
        let sql =
            format!("SELECT DISTINCT toString({of}) AS name FROM chargeback_hourly ORDER BY name");
        database.client.query(&sql).fetch_all::<String>().await
    };
    let tenants = names("tenant").await?;
    assert!(tenants.len() > 2, "{tenants:?}");
    let tenants: Vec<Option<Token>> = std::iter::once(Ok(None))
        .chain(tenants.iter().map(|name| Token::new(name).map(Some)))
        .collect::<Result<_, _>>()?;
    let resources = names("resource").await?;
    let months: Vec<u32> = database
        .client
        .query("SELECT DISTINCT toYYYYMM(billing_period) AS month FROM chargeback_hourly ORDER BY month")
        .fetch_all()
        .await?;
    assert!(months.len() > 1, "{months:?}");
    for tenant in &tenants {
        for month in &months {
            bills_are_the_same(database, stores, tenant.as_ref(), Month(*month)).await?;
        }
        for wanted in questions(&resources) {
            uses_are_the_same(database, stores, tenant.as_ref(), wanted).await?;
        }
    }
    let runs: Vec<String> = database
        .client
        .query("SELECT toString(allocation) FROM run_costs GROUP BY allocation ORDER BY cityHash64(allocation) LIMIT 20")
        .fetch_all()
        .await?;
    for run in runs {
        let wanted = Wanted {
            when: When::Allocation(Uuid::parse_str(&run)?),
            ..of(vec![Dimension::Team, Dimension::Pool])
        };
        for tenant in &tenants {
            uses_are_the_same(database, stores, tenant.as_ref(), wanted.clone()).await?;
        }
    }
    Ok(())
}

fn of(by: Vec<Dimension>) -> Wanted {
    Wanted {
        when: When::Hours {
            from: Millis(0),
            until: Month::LAST.end(),
        },
        by,
        team: None,
        namespace: None,
        queue: None,
        job_set: None,
        priority_class: None,
        resource: None,
        limit: ALL,
        skip: 0,
    }
}

fn questions(resources: &[String]) -> Vec<Wanted> {
    let all = COLUMNS.map(|(dimension, _)| dimension).to_vec();
    let by_hour = [vec![Dimension::Hour], all.clone()].concat();
    let mut wanted = vec![
        of(Vec::new()),
        of(vec![Dimension::Day, Dimension::JobSet]),
        of(by_hour.clone()),
        // A page in the middle.
        Wanted {
            limit: 7,
            skip: 5,
            ..of(vec![Dimension::Day, Dimension::Queue])
        },
        Wanted {
            when: When::Hours {
                from: Month(202_611).begin(),
                until: Month::LAST.end(),
            },
            ..of(all)
        },
    ];
    // The last one is about the GPUs of all models.
    let resources = resources.iter().map(String::as_str).chain(["gpu"]);
    wanted.extend(resources.map(|resource| Wanted {
        resource: ResourceKey::parse(resource),
        ..of(by_hour.clone())
    }));
    wanted
}

async fn bills_are_the_same(
    database: &Database,
    stores: &[&Store],
    tenant: Option<&Token>,
    month: Month,
) -> Outcome {
    let expected: Vec<Bill> = database
        .client
        .query(
            "SELECT toString(c.tenant) AS tenant, toString(c.team) AS team, toString(c.resource) AS resource,
                 c.micro_per_unit_hour AS micro_per_unit_hour, c.has_rate = 1 AS has_rate,
                 c.is_correction = 1 AS is_correction, sum(c.quantity) AS quantity, sum(c.amount_micro) AS amount_micro
             FROM chargeback_hourly AS c
             WHERE toYYYYMM(c.billing_period) = {month:UInt32} AND ({tenant:String} = '' OR c.tenant = {tenant:String})
             GROUP BY tenant, team, resource, micro_per_unit_hour, has_rate, is_correction
             ORDER BY tenant, team, resource, micro_per_unit_hour, has_rate, is_correction",
        )
        .param("month", month.0)
        .param("tenant", tenant.map_or("", Token::as_str))
        .fetch_all()
        .await?;
    let expected = expected.into_iter().map(|line| InvoiceLine {
        tenant: line.tenant,
        team: line.team,
        resource: line.resource,
        micro_per_unit_hour: line.micro_per_unit_hour,
        has_rate: line.has_rate,
        is_correction: line.is_correction,
        quantity: line.quantity,
        amount_micro: line.amount_micro,
    });
    let expected: Vec<_> = expected.collect();
    for store in stores {
        let found = store.bill(&store.known().await?, tenant, month).await?;
        same(&expected, &found, &format!("{tenant:?} in {month}"))?;
    }
    Ok(())
}

async fn uses_are_the_same(
    database: &Database,
    stores: &[&Store],
    tenant: Option<&Token>,
    wanted: Wanted,
) -> Outcome {
    let by = |dimension| wanted.by.contains(&dimension);
    let (from, begins) = match wanted.when {
        When::Hours { from, .. } => {
            let begins = match (by(Dimension::Hour), by(Dimension::Day)) {
                (true, _) => "toInt64(toUnixTimestamp(c.hour)) * 1000",
                (false, true) => "toInt64(toUnixTimestamp(toStartOfDay(c.hour))) * 1000",
                (false, false) => "toInt64(0)",
            };
            let from = from.0 / 1000;
            (
                format!("chargeback_hourly AS c WHERE c.hour >= toDateTime({from}, 'UTC')"),
                begins,
            )
        }
        When::Allocation(id) => (
            format!("run_costs AS c WHERE c.allocation = toUUID('{id}')"),
            "toInt64(0)",
        ),
    };
    let of_all = if tenant.is_none() {
        "toString(c.tenant)"
    } else {
        "''"
    };
    let columns = COLUMNS.map(|(dimension, name)| match by(dimension) {
        true => format!("toString(c.{name}) AS {name}"),
        false => format!("'' AS {name}"),
    });
    let sql = format!(
        "SELECT {begins} AS begins_ms, {of_all} AS tenant, {}, toString(c.resource) AS resource, sum(c.quantity) AS quantity,
             sum(c.amount_micro) AS amount_micro
         FROM {from} AND ({{tenant:String}} = '' OR c.tenant = {{tenant:String}})
             AND ({{resource:String}} = '' OR c.resource = {{resource:String}}
                 OR startsWith(c.resource, {{resource:String}} || ':'))
         GROUP BY ALL
         ORDER BY begins_ms, tenant, team, namespace, queue, job_set, priority_class, cluster, pool, resource
         LIMIT {} OFFSET {}",
        columns.join(", "),
        wanted.limit + 1,
        wanted.skip,
    );
    let query = database.client.query(&sql);
    let query = query.param("tenant", tenant.map_or("", Token::as_str));
    let resource = wanted.resource.as_ref();
    let resource = resource.map_or_else(String::new, ResourceKey::to_string);
    let query = query.param("resource", resource);
    let expected: Vec<Use> = query.fetch_all().await?;
    let expected = expected.into_iter().map(|line| UseLine {
        begins_ms: line.begins_ms,
        tenant: line.tenant,
        team: line.team,
        namespace: line.namespace,
        queue: line.queue,
        job_set: line.job_set,
        priority_class: line.priority_class,
        cluster: line.cluster,
        pool: line.pool,
        resource: line.resource,
        quantity: line.quantity,
        amount_micro: line.amount_micro,
    });
    let expected: Vec<_> = expected.collect();
    for store in stores {
        let found = store.usage(&store.known().await?, tenant, &wanted).await?;
        same(&expected, &found, &format!("{tenant:?}: {wanted:?}"))?;
    }
    Ok(())
}

/// From where the bills stand that are kept for who asks.
const THIS_MONTH: Month = Month(202_611);

/// So what was said above was said by them. Empties the tables.
pub async fn rows_beside_the_tables_do_without_them(
    database: &Database,
    since_the_beginning: &Store,
) -> Outcome {
    let fresh = || Store::new(database.client.clone(), &database.name, CELL);
    let since_asked = fresh().beside(Beside::default());
    since_asked.resume(LEDGER).await?;
    let known = fresh().known().await?;
    let sql = "SELECT DISTINCT toString(tenant) AS name FROM usage_hourly ORDER BY name";
    let tenants: Vec<String> = database.client.query(sql).fetch_all().await?;
    let mut expected = Vec::new();
    for tenant in tenants {
        let tenant = Token::new(&tenant)?;
        let bill = since_asked.bill(&known, Some(&tenant), THIS_MONTH).await?;
        assert!(!bill.is_empty(), "{tenant:?}");
        expected.push((tenant, bill));
    }
    for table in ["usage_hourly", "running_allocations"] {
        let empty = format!("TRUNCATE TABLE {table}");
        database.execute(&empty).await?;
    }
    for (tenant, bill) in &expected {
        for store in [since_the_beginning, &since_asked] {
            let found = store.bill(&known, Some(tenant), THIS_MONTH).await?;
            same(bill, &found, tenant.as_str())?;
        }
        let of_tables = fresh().bill(&known, Some(tenant), THIS_MONTH).await?;
        assert_eq!(of_tables, []);
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(
    expected: &[T],
    found: &[T],
    what: &str,
) -> Result<(), Box<dyn Error>> {
    let differ = expected
        .iter()
        .zip(found)
        .find(|(expected, found)| expected != found);
    if expected.len() == found.len() && differ.is_none() {
        return Ok(());
    }
    let (all, lines) = (expected.len(), found.len());
    Err(format!("{what}: {lines} lines, the views have {all}; {differ:?}").into())
}
