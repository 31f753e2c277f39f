//! Use and bill by what they are told apart by: of one tenant, or of all.

use super::{Store, StoreError, rows::CellRow, within};
use crate::domain::{Charge, Charges, Hour, HourlyUse, Known, LineKey, RunUse, UseRow, Whose};
use clickhouse::{Row, query::Query};
use serde::Deserialize;
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;
use vocab::{
    AllocationId, AllocationNo, DAY_MS, HOUR_MS, Millis, Month, ResourceKey, ResourceKind, Token,
};

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
    /// Those that are names.
    const NAMES: [Self; 7] = [
        Self::Team,
        Self::Namespace,
        Self::Queue,
        Self::JobSet,
        Self::PriorityClass,
        Self::Cluster,
        Self::Pool,
    ];

    /// Of the tables, for those that rows are looked for by.
    fn column(self) -> Option<&'static str> {
        match self {
            Self::Hour | Self::Day | Self::Cluster | Self::Pool => None,
            Self::Team => Some("team"),
            Self::Namespace => Some("namespace"),
            Self::Queue => Some("queue"),
            Self::JobSet => Some("job_set"),
            Self::PriorityClass => Some("priority_class"),
        }
    }

    fn name(self, whose: &Whose) -> Option<&Token> {
        match self {
            Self::Hour | Self::Day => None,
            Self::Team => whose.team.as_ref(),
            Self::Namespace => whose.namespace.as_ref(),
            Self::Queue => Some(&whose.queue),
            Self::JobSet => Some(&whose.job_set),
            Self::PriorityClass => whose.priority_class.as_ref(),
            Self::Cluster => whose.cluster.as_ref(),
            Self::Pool => whose.pool.as_ref(),
        }
    }
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
    /// `gpu` stands for the GPUs of all models.
    pub resource: Option<ResourceKey>,
    pub limit: u32,
    pub skip: u32,
}

/// What lines are not told apart by is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// A row of use: an hour's, or a run, over or not.
#[derive(Debug, Row, Deserialize)]
struct ReadRow {
    is_run: bool,
    /// Of an hour: of no meaning.
    #[serde(with = "clickhouse::serde::uuid")]
    allocation: Uuid,
    tenant: String,
    team: String,
    namespace: String,
    queue: String,
    job_set: String,
    priority_class: String,
    cluster: String,
    pool: String,
    /// Of an hour: cpu, memory, gpu or gpu:<model>. Of a run: the model of the node's GPUs.
    resource: String,
    begins_ms: i64,
    /// Of a run; 0: it is not over.
    ends_ms: i64,
    since_ms: i64,
    /// The year and the month, as `202611`.
    period: u32,
    quantity: i128,
    ms: i64,
    cpu_milli: u64,
    memory_bytes: u64,
    gpu_milli: u64,
}

const HOURS: &str = "SELECT false AS is_run, toUUID('00000000-0000-0000-0000-000000000000') AS allocation, toString(u.tenant) AS tenant, toString(u.team) AS team, toString(u.namespace) AS namespace,
         toString(u.queue) AS queue, u.job_set AS job_set, toString(u.priority_class) AS priority_class,
         toString(u.cluster) AS cluster, toString(u.pool) AS pool, toString(u.resource) AS resource,
         toInt64(toUnixTimestamp(u.hour)) * 1000 AS begins_ms, toInt64(0) AS ends_ms,
         toUnixTimestamp64Milli(u.since) AS since_ms, toYYYYMM(u.billing_period) AS period,
         toInt128(u.quantity) AS quantity, toInt64(u.ms) AS ms,
         toUInt64(0) AS cpu_milli, toUInt64(0) AS memory_bytes, toUInt64(0) AS gpu_milli
     FROM usage_hourly AS u FINAL";

/// Of a table of runs, with an expression for when one ended.
fn runs(table: &str, ends_ms: &str) -> String {
    format!(
        "SELECT true AS is_run, u.allocation AS allocation, toString(u.tenant) AS tenant, u.team AS team, u.namespace AS namespace, u.queue AS queue,
             u.job_set AS job_set, u.priority_class AS priority_class, u.cluster AS cluster, u.pool AS pool,
             u.gpu_model AS resource, toUnixTimestamp64Milli(u.started_at) AS begins_ms, {ends_ms} AS ends_ms,
             toInt64(0) AS since_ms, toUInt32(0) AS period, toInt128(0) AS quantity, toInt64(0) AS ms,
             u.cpu_milli AS cpu_milli, u.memory_bytes AS memory_bytes, u.gpu_milli AS gpu_milli
         FROM {table}"
    )
}

fn running() -> String {
    runs("running_allocations AS u FINAL", "toInt64(0)")
}

impl ReadRow {
    fn read(self) -> Result<UseRow, StoreError> {
        let unfit = |text: &str| StoreError::Unfit(text.to_owned());
        let name = |text: &str| Token::new(text).map_err(|_| unfit(text));
        let may_be = |text: &str| match text {
            "" => Ok(None),
            text => name(text).map(Some),
        };
        let whose = Arc::new(Whose {
            tenant: name(&self.tenant)?,
            team: may_be(&self.team)?,
            namespace: may_be(&self.namespace)?,
            queue: name(&self.queue)?,
            job_set: name(&self.job_set)?,
            priority_class: may_be(&self.priority_class)?,
            cluster: may_be(&self.cluster)?,
            pool: may_be(&self.pool)?,
        });
        if self.is_run {
            return Ok(UseRow::Run(RunUse {
                // The number that the id was made of: `AllocationNo::id`.
                allocation: AllocationNo(self.allocation.as_u64_pair().1),
                whose,
                gpu_model: may_be(&self.resource)?,
                amounts: [
                    (ResourceKind::Cpu, self.cpu_milli),
                    (ResourceKind::Memory, self.memory_bytes),
                    (ResourceKind::Gpu, self.gpu_milli),
                ],
                started_at: Millis(self.begins_ms),
                ended_at: (self.ends_ms != 0).then_some(Millis(self.ends_ms)),
            }));
        }
        let resource = ResourceKey::parse(&self.resource);
        Ok(UseRow::Hour(HourlyUse {
            whose,
            resource: resource.ok_or_else(|| unfit(&self.resource))?,
            hour: Hour::of(Millis(self.begins_ms)),
            period: Month(self.period),
            since: Millis(self.since_ms),
            quantity: self.quantity,
            ms: self.ms,
        }))
    }
}

/// Which rows of `usage_hourly`, and which runs.
pub(super) struct Rows<'w> {
    pub tenant: Option<&'w Token>,
    names: Vec<(Dimension, &'w str)>,
    hours: Hours<'w>,
}

enum Hours<'w> {
    /// That begin in `[from, until)`, of one resource or of all.
    Between(Millis, Millis, Option<&'w ResourceKey>),
    /// Of the bill of a month.
    Bill(Month),
    /// Of the bills from a month on.
    BillsFrom(Month),
}

impl<'w> Rows<'w> {
    fn wanted(tenant: Option<&'w Token>, wanted: &'w Wanted, hours: Hours<'w>) -> Self {
        let names = [
            (Dimension::Team, &wanted.team),
            (Dimension::Namespace, &wanted.namespace),
            (Dimension::Queue, &wanted.queue),
            (Dimension::JobSet, &wanted.job_set),
            (Dimension::PriorityClass, &wanted.priority_class),
        ];
        let names = names.into_iter();
        Self {
            tenant,
            names: names
                .filter_map(|(of, name)| Some((of, name.as_deref()?)))
                .collect(),
            hours,
        }
    }

    fn bill(tenant: Option<&'w Token>, month: Month) -> Self {
        Self {
            tenant,
            names: Vec::new(),
            hours: Hours::Bill(month),
        }
    }

    /// All of a tenant, of the bills from a month on.
    pub fn from(tenant: &'w Token, month: Month) -> Self {
        Self {
            tenant: Some(tenant),
            names: Vec::new(),
            hours: Hours::BillsFrom(month),
        }
    }

    /// None of them is of an earlier bill: an hour is in that of its month, or in a later one.
    pub fn first_bill(&self) -> Month {
        match self.hours {
            Hours::Between(from, ..) => Month::of(from),
            Hours::Bill(month) | Hours::BillsFrom(month) => month,
        }
    }

    /// Whether what is somebody's is among them as far as names tell. Which hours count is seen of the lines that they come to.
    pub fn admit(&self, whose: &Whose) -> bool {
        let is =
            |(of, name): &(Dimension, &str)| of.name(whose).is_some_and(|it| it.as_str() == *name);
        self.names.iter().all(is)
    }

    /// Conditions for `u`.
    fn names(&self) -> String {
        let tenant = self.tenant.map(|_| "tenant");
        let names = self.names.iter().filter_map(|(of, _)| of.column());
        let names = tenant.into_iter().chain(names);
        names
            .map(|name| format!(" AND u.{name} = {{{name}:String}}"))
            .collect()
    }

    fn hours(&self) -> &'static str {
        match self.hours {
            Hours::Between(..) => {
                "u.hour >= toDateTime({from:UInt32}, 'UTC') AND u.hour < toDateTime({until:UInt32}, 'UTC')
                     AND ({resource:String} = '' OR u.resource = {resource:String}
                         OR startsWith(u.resource, {resource:String} || ':'))"
            }
            Hours::Bill(_) => {
                "toYYYYMM(u.billing_period) = {period:UInt32} AND u.hour < toDateTime({until:UInt32}, 'UTC')"
            }
            Hours::BillsFrom(_) => "toYYYYMM(u.billing_period) >= {period:UInt32}",
        }
    }

    fn bind_names(&self, query: Query) -> Query {
        let tenant = self.tenant.map(|tenant| ("tenant", tenant.as_str()));
        let names = self.names.iter();
        let names = names.filter_map(|(of, name)| Some((of.column()?, *name)));
        let all = tenant.into_iter().chain(names);
        all.fold(query, |query, (name, is)| query.param(name, is))
    }

    fn bind_hours(&self, query: Query) -> Query {
        match self.hours {
            Hours::Between(from, until, resource) => query
                .param("from", moment(from))
                .param("until", moment(until))
                .param(
                    "resource",
                    resource.map_or_else(String::new, ResourceKey::to_string),
                ),
            Hours::Bill(month) => query
                .param("period", month.0)
                .param("until", moment(month.end())),
            Hours::BillsFrom(month) => query.param("period", month.0),
        }
    }
}

/// The first sums, in the order of what they are of.
struct Sums<K> {
    sums: BTreeMap<K, (i128, i128)>,
    /// No more are kept: one that has gone is behind all that are kept, and stays so.
    most: usize,
}

impl<K: Ord> Sums<K> {
    fn of(most: usize) -> Self {
        Self {
            sums: BTreeMap::new(),
            most,
        }
    }

    fn add(&mut self, key: K, quantity: i128, amount_micro: i128) {
        let (all, all_micro) = self.sums.entry(key).or_default();
        *all = all.saturating_add(quantity);
        *all_micro = all_micro.saturating_add(amount_micro);
        if self.sums.len() > self.most {
            self.sums.pop_last();
        }
    }
}

/// What a line of use is told apart by, in the order of the answer; what it is not told apart by is none.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct UseKey {
    begins: Millis,
    tenant: Option<Token>,
    /// In the order of [`Dimension::NAMES`].
    names: [Option<Token>; Dimension::NAMES.len()],
    /// As it is written.
    resource: String,
}

impl UseKey {
    fn of(
        wanted: &Wanted,
        of_all: bool,
        whose: &Whose,
        resource: &ResourceKey,
        hour: Hour,
    ) -> Self {
        const DAY_HOURS: i64 = DAY_MS / HOUR_MS;
        let by = |dimension| wanted.by.contains(&dimension);
        let begins = match wanted.when {
            When::Hours { .. } if by(Dimension::Hour) => hour.begin(),
            When::Hours { .. } if by(Dimension::Day) => {
                Hour(hour.0 - hour.0.rem_euclid(DAY_HOURS)).begin()
            }
            When::Hours { .. } | When::Allocation(_) => Millis(0),
        };
        Self {
            begins,
            tenant: of_all.then(|| whose.tenant.clone()),
            names: Dimension::NAMES.map(|dimension| {
                let name = dimension.name(whose);
                name.filter(|_| by(dimension)).cloned()
            }),
            resource: resource.to_string(),
        }
    }
}

/// Returns whether `wanted` includes `resource`: without a model it includes all models.
fn covers(wanted: &ResourceKey, resource: &ResourceKey) -> bool {
    wanted.kind == resource.kind && (wanted.model.is_none() || wanted.model == resource.model)
}

fn text(name: Option<Token>) -> String {
    name.map_or_else(String::new, |name| name.to_string())
}

impl Store {
    /// Gives what the rows of a statement say, one after the other.
    async fn rows(&self, query: Query, mut each: impl FnMut(UseRow)) -> Result<(), StoreError> {
        let mut cursor = query.fetch::<ReadRow>()?;
        while let Some(row) = within(cursor.next()).await? {
            each(row.read()?);
        }
        Ok(())
    }

    /// Rows of the tables, and what runs.
    pub(super) async fn read(
        &self,
        rows: &Rows<'_>,
        each: impl FnMut(UseRow),
    ) -> Result<(), StoreError> {
        let (hours, names, running) = (rows.hours(), rows.names(), running());
        let sql = format!("{HOURS} WHERE {hours}{names} UNION ALL {running} WHERE true{names}");
        let query = rows.bind_hours(self.query(&sql));
        self.rows(rows.bind_names(query), each).await
    }

    /// Those of an allocation, over or not.
    async fn runs_of(
        &self,
        known: &Known,
        rows: &Rows<'_>,
        allocation: AllocationId,
    ) -> Result<(Known, Vec<RunUse>), StoreError> {
        let beside = self.runs_beside(known, rows, allocation);
        let ended = runs(
            "allocation_intervals AS u",
            "toUnixTimestamp64Milli(u.ended_at)",
        );
        let (names, running) = (rows.names(), running());
        let of = format!("WHERE u.allocation = {{allocation:UUID}}{names}");
        let sql = match &beside {
            Some((_, beside)) if beside.all => None,
            Some(_) => Some(format!("{ended} {of}")),
            None => Some(format!("{ended} {of} UNION ALL {running} {of}")),
        };
        let mut runs = Vec::new();
        if let Some(sql) = sql {
            let query = rows.bind_names(self.query(&sql));
            let query = query.param("allocation", allocation.to_string());
            self.rows(query, |row| {
                if let UseRow::Run(run) = row {
                    runs.push(run);
                }
            })
            .await?;
        }
        let Some((known, beside)) = beside else {
            return Ok((known.clone(), runs));
        };
        // What ran when that was looked at may have ended before the tables were read.
        let mut under_way = beside.under_way;
        under_way.retain(|run| runs.iter().all(|it| it.started_at != run.started_at));
        runs.extend(under_way);
        Ok((known, runs))
    }

    /// Gives the lines of the bill that these come to, and perhaps others of other hours and bills.
    async fn charges(
        &self,
        known: &Known,
        rows: &Rows<'_>,
        mut each: impl FnMut(Charge),
    ) -> Result<(), StoreError> {
        let add = |charges: &mut Charges<'_>, row, each: &mut dyn FnMut(Charge)| match row {
            UseRow::Hour(hour) => charges.hourly(hour).into_iter().for_each(each),
            UseRow::Run(run) => charges.running(&run),
        };
        if let Some((known, kept)) = self.kept(known, rows).await? {
            let mut charges = known.charges();
            for row in kept {
                add(&mut charges, row, &mut each);
            }
            charges.finish().for_each(each);
            return Ok(());
        }
        let mut charges = known.charges();
        self.read(rows, |row| add(&mut charges, row, &mut each))
            .await?;
        charges.finish().for_each(each);
        Ok(())
    }

    /// Of a tenant, or of each. One line more than was asked for, if there are more.
    pub async fn usage(
        &self,
        known: &Known,
        tenant: Option<&Token>,
        wanted: &Wanted,
    ) -> Result<Vec<UseLine>, StoreError> {
        let skip = usize::try_from(wanted.skip).unwrap_or(usize::MAX);
        let limit = usize::try_from(wanted.limit).unwrap_or(usize::MAX);
        let limit = limit.saturating_add(1);
        let mut sums = Sums::of(skip.saturating_add(limit));
        let is_wanted = |resource: &ResourceKey| {
            let wanted = wanted.resource.as_ref();
            wanted.is_none_or(|wanted| covers(wanted, resource))
        };
        let key = |whose: &Whose, resource: &ResourceKey, hour| {
            UseKey::of(wanted, tenant.is_none(), whose, resource, hour)
        };
        match wanted.when {
            When::Hours { from, until } => {
                let hours = Hours::Between(from, until, wanted.resource.as_ref());
                let rows = Rows::wanted(tenant, wanted, hours);
                self.charges(known, &rows, |charge| {
                    let LineKey {
                        whose,
                        resource,
                        hour,
                        ..
                    } = &charge.key;
                    if (from..until).contains(&hour.begin()) && is_wanted(resource) {
                        let key = key(whose, resource, *hour);
                        sums.add(key, charge.quantity, charge.amount_micro);
                    }
                })
                .await?;
            }
            When::Allocation(id) => {
                // No hours are read of the tables, and those that lie beside them are passed over.
                let rows = Rows::wanted(tenant, wanted, Hours::BillsFrom(Month::LAST));
                let (known, runs) = self.runs_of(known, &rows, AllocationId(id)).await?;
                for run in &runs {
                    for (resource, quantity, amount_micro) in known.cost(run) {
                        if is_wanted(&resource) {
                            let key = key(&run.whose, &resource, Hour(0));
                            sums.add(key, quantity, amount_micro);
                        }
                    }
                }
            }
        }
        let lines = sums.sums.into_iter().skip(skip).take(limit);
        let lines = lines.map(|(key, (quantity, amount_micro))| {
            let [
                team,
                namespace,
                queue,
                job_set,
                priority_class,
                cluster,
                pool,
            ] = key.names.map(text);
            UseLine {
                begins_ms: key.begins.0,
                tenant: text(key.tenant),
                team,
                namespace,
                queue,
                job_set,
                priority_class,
                cluster,
                pool,
                resource: key.resource,
                quantity,
                amount_micro,
            }
        });
        Ok(lines.collect())
    }

    /// The bill of a month, up to now: of a tenant, or of all.
    pub async fn bill(
        &self,
        known: &Known,
        tenant: Option<&Token>,
        month: Month,
    ) -> Result<Vec<InvoiceLine>, StoreError> {
        let mut sums = Sums::of(usize::MAX);
        self.charges(known, &Rows::bill(tenant, month), |charge| {
            let Charge {
                key,
                quantity,
                amount_micro,
            } = charge;
            if key.period == month {
                let is_correction = Month::of(key.hour.begin()) != key.period;
                let resource = key.resource.to_string();
                let price = (key.price.unwrap_or(0), key.price.is_some());
                let Whose { tenant, team, .. } = &*key.whose;
                let of = (tenant.clone(), team.clone(), resource);
                sums.add((of, price, is_correction), quantity, amount_micro);
            }
        })
        .await?;
        let lines = sums.sums.into_iter();
        let lines = lines.map(|((of, price, is_correction), (quantity, amount_micro))| {
            let ((tenant, team, resource), (micro_per_unit_hour, has_rate)) = (of, price);
            InvoiceLine {
                tenant: tenant.to_string(),
                team: text(team),
                resource,
                micro_per_unit_hour,
                has_rate,
                is_correction,
                quantity,
                amount_micro,
            }
        });
        Ok(lines.collect())
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

/// The same as a moment of a table, or the nearest that there is.
fn moment(at: Millis) -> u32 {
    u32::try_from(seconds(at)).unwrap_or(if at.0 < 0 { 0 } else { u32::MAX })
}
