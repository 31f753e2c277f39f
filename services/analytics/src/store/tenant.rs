//! Use and bill by what they are told apart by: of one tenant, or of all.

use super::{Store, StoreError, rows::CellRow};
use clickhouse::Row;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vocab::{Millis, Month, Token};

/// What lines of use are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    Hour,
    Day,
    Team,
    Namespace,
    Queue,
    JobSet,
    PriorityClass,
    Cluster,
    Pool,
}

impl Dimension {
    /// Those that are columns of the same name.
    const NAMES: [(Self, &'static str); 7] = [
        (Self::Team, "team"),
        (Self::Namespace, "namespace"),
        (Self::Queue, "queue"),
        (Self::JobSet, "job_set"),
        (Self::PriorityClass, "priority_class"),
        (Self::Cluster, "cluster"),
        (Self::Pool, "pool"),
    ];
}

/// Of which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Hours that begin in `[from, until)`.
    Hours { from: Millis, until: Millis },
    /// The runs of an allocation, whenever they were. Hours and days do not tell them apart.
    Allocation(Uuid),
}

/// Which lines.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub when: When,
    pub by: Vec<Dimension>,
    pub team: Option<String>,
    pub namespace: Option<String>,
    pub queue: Option<String>,
    pub job_set: Option<String>,
    pub priority_class: Option<String>,
    pub resource: Option<String>,
    pub limit: u32,
    pub skip: u32,
}

/// What lines are not told apart by is empty.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct UseLine {
    pub begins_ms: i64,
    /// Empty if it was asked for one's.
    pub tenant: String,
    pub team: String,
    pub namespace: String,
    pub queue: String,
    pub job_set: String,
    pub priority_class: String,
    pub cluster: String,
    pub pool: String,
    pub resource: String,
    pub quantity: i128,
    pub amount_micro: i128,
}

/// Of the bill of a month.
#[derive(Debug, Clone, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct InvoiceLine {
    pub tenant: String,
    pub team: String,
    pub resource: String,
    pub micro_per_unit_hour: u64,
    pub has_rate: bool,
    pub is_correction: bool,
    pub quantity: i128,
    pub amount_micro: i128,
}

impl Store {
    /// Of a tenant, or of each. One line more than was asked for, if there are more.
    pub async fn usage(
        &self,
        tenant: Option<&Token>,
        wanted: &Wanted,
    ) -> Result<Vec<UseLine>, StoreError> {
        let (hours, days) = match wanted.when {
            When::Hours { .. } => (
                wanted.by.contains(&Dimension::Hour),
                wanted.by.contains(&Dimension::Day),
            ),
            When::Allocation(_) => (false, false),
        };
        let from = match wanted.when {
            When::Hours { .. } => {
                "chargeback_hourly AS c WHERE c.hour >= toDateTime(?, 'UTC') AND c.hour < toDateTime(?, 'UTC')"
            }
            When::Allocation(_) => "run_costs AS c WHERE c.allocation = toUUID(?)",
        };
        let begins = match (hours, days) {
            (true, _) => "toInt64(toUnixTimestamp(c.hour)) * 1000",
            (false, true) => "toInt64(toUnixTimestamp(toStartOfDay(c.hour))) * 1000",
            (false, false) => "toInt64(0)",
        };
        let names: Vec<String> = Dimension::NAMES
            .into_iter()
            .map(|(dimension, name)| match wanted.by.contains(&dimension) {
                true => format!("toString(c.{name}) AS {name}"),
                false => format!("'' AS {name}"),
            })
            .collect();
        let filters = [
            ("team", &wanted.team),
            ("namespace", &wanted.namespace),
            ("queue", &wanted.queue),
            ("job_set", &wanted.job_set),
            ("priority_class", &wanted.priority_class),
            ("resource", &wanted.resource),
        ];
        let filters = filters
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let (of, tenant) = match tenant {
            Some(tenant) => ("''", Some(("tenant", tenant.as_str()))),
            None => ("toString(c.tenant)", None),
        };
        let filters: Vec<(&str, &str)> = filters.chain(tenant).collect();
        let also: String = filters
            .iter()
            .map(|(name, _)| format!(" AND c.{name} = ?"))
            .collect();
        let sql = format!(
            "SELECT {begins} AS begins_ms, {of} AS tenant, {}, toString(c.resource) AS resource, sum(c.quantity) AS quantity,
                 sum(c.amount_micro) AS amount_micro
             FROM {from}{also}
             GROUP BY begins_ms, tenant, team, namespace, queue, job_set, priority_class, cluster, pool, resource
             ORDER BY begins_ms, tenant, team, namespace, queue, job_set, priority_class, cluster, pool, resource
             LIMIT ? OFFSET ?",
            names.join(", "),
        );
        let mut query = self.query(&sql);
        query = match wanted.when {
            When::Hours { from, until } => query.bind(seconds(from)).bind(seconds(until)),
            When::Allocation(id) => query.bind(id.to_string()),
        };
        for (_, value) in filters {
            query = query.bind(value);
        }
        let limit = u64::from(wanted.limit) + 1;
        self.fetch_all(query.bind(limit).bind(wanted.skip)).await
    }

    /// The bill of a month, up to now: of a tenant, or of all.
    pub async fn bill(
        &self,
        tenant: Option<&Token>,
        month: Month,
    ) -> Result<Vec<InvoiceLine>, StoreError> {
        let of = if tenant.is_some() {
            " AND c.tenant = ?"
        } else {
            ""
        };
        let sql = format!(
            "SELECT toString(c.tenant) AS tenant, toString(c.team) AS team, toString(c.resource) AS resource,
                 c.micro_per_unit_hour AS micro_per_unit_hour, c.has_rate = 1 AS has_rate,
                 c.is_correction = 1 AS is_correction, sum(c.quantity) AS quantity, sum(c.amount_micro) AS amount_micro
             FROM chargeback_hourly AS c
             WHERE c.billing_period = toDate(?){of}
             GROUP BY tenant, team, resource, micro_per_unit_hour, has_rate, is_correction
             ORDER BY tenant, team, resource, micro_per_unit_hour, has_rate, is_correction"
        );
        let mut query = self.query(&sql).bind(format!("{month}-01"));
        if let Some(tenant) = tenant {
            query = query.bind(tenant.as_str());
        }
        self.fetch_all(query).await
    }

    /// Whether the bill of a month is final.
    pub async fn is_closed(&self, month: Month) -> Result<bool, StoreError> {
        let query = self.query("SELECT count() FROM closed_periods WHERE period >= toDate(?)");
        let later: u64 = self.fetch_one(query.bind(format!("{month}-01"))).await?;
        Ok(later > 0)
    }

    /// The moment up to which everything is in the tables, and what runs is billed.
    pub async fn known_through(&self) -> Result<Millis, StoreError> {
        let query = self.query("SELECT toUnixTimestamp64Milli(at) FROM known_through");
        Ok(Millis(self.fetch_one(query).await?))
    }

    /// What amounts are millionths of; empty until the service has said it.
    pub async fn currency(&self) -> Result<String, StoreError> {
        self.fetch_one(self.query("SELECT argMax(currency, at) FROM cells"))
            .await
    }

    /// Nothing has happened up to then that is not in the tables.
    pub async fn says(&self, at: Millis, currency: &str) -> Result<(), StoreError> {
        let row = CellRow {
            cell: self.cell().0,
            at,
            currency: currency.to_owned(),
        };
        self.insert(&[row], &format!("cells:{}", at.0)).await
    }
}

/// Rounded up to the whole second: hours begin on one.
pub(super) fn seconds(at: Millis) -> i64 {
    at.0.div_euclid(1000) + i64::from(at.0.rem_euclid(1000) > 0)
}
