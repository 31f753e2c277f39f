//! The months that are billed: closed, shown, exported, explained and reconciled.

use super::{hours, in_currency, money, month, show::OfMonth, this_month, used};
use crate::{
    Failure, amount,
    context::{Context, Whose},
    operate::{Expected, told},
    print::{
        Cell, Column, Output, Page, Sheet, allocation, column, exactly, moment, moment_or_never,
        named, number, plain, valued,
    },
    tenants,
};
use analytics::store::{Export, Part, Reconciled, ReconciledMonth, Store, Tenants};
use clap::{Args, Subcommand, ValueEnum};
use schemas::v1;
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
};
use vocab::{HOUR_MS, Millis, Month};

#[derive(Subcommand)]
pub enum InvoiceCommand {
    /// Make the bill of a month final; the first month that is closed closes all before it.
    Close(Close),
    /// Show the bill of a month, line by line.
    Show(Show),
    /// Write the bill of a month to a file. A closed month gives the same bytes again, whenever and however often the tables
    /// were built.
    Export(Exporting),
    /// Say of which runs a tenant's use of an hour is made, and where in the ledger they are.
    Explain(Explain),
    /// Show that what the capacity costs is what was charged and what was not.
    Reconcile(Reconcile),
}

#[derive(Args)]
pub struct Close {
    /// 2026-11; it must have been over for an hour.
    #[arg(value_parser = month)]
    month: Month,
    #[command(flatten)]
    expected: Expected,
}

#[derive(Args)]
pub struct Show {
    /// 2026-11; without it, this month.
    #[arg(value_parser = month)]
    month: Option<Month>,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub struct Exporting {
    /// 2026-11.
    #[arg(value_parser = month)]
    month: Month,
    /// The form of the file.
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
    /// Where to; without it, to the standard output.
    #[arg(long, alias = "to", value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also a month that is not closed: its lines may still change.
    #[arg(long)]
    open: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The lines of the bill.
    Csv,
    /// FOCUS 1.2, with the capacity that nobody was charged for.
    FocusCsv,
    /// The same as Parquet.
    FocusParquet,
}

#[derive(Args)]
pub struct Explain {
    #[command(flatten)]
    whose: Whose,
    /// The beginning of a full hour: 2026-11-03T10:00:00Z.
    #[arg(value_parser = amount::moment_ms)]
    hour: i64,
    /// Only use of this resource: cpu, memory, gpu (all models) or gpu:<model>.
    #[arg(long)]
    resource: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub struct Reconcile {
    /// 2026-11, by pool and resource; without it, all months.
    #[arg(value_parser = month)]
    month: Option<Month>,
    #[command(flatten)]
    output: Output,
}

impl InvoiceCommand {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Close(close) => close.run(context).await,
            Self::Show(show) => show.run(context).await,
            Self::Export(export) => export.run(context).await,
            Self::Explain(explain) => explain.run(context).await,
            Self::Reconcile(reconcile) => reconcile.run(context).await,
        }
    }
}

impl Close {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let change = v1::ClosePeriod {
            month: self.month.0,
            expected_version: self.expected.expected_version,
        };
        let sending = &self.expected.sending;
        let operator = sending.operator(context).await?;
        let applied = operator.close_period(change, sending.id()).await?;
        told(
            &format!("close {}", self.month),
            &applied,
            self.expected.output,
        )
    }
}

impl Show {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.asker(self.whose.tenant.as_deref()).await?;
        let month = self.month.unwrap_or_else(|| this_month(context));
        let bill = OfMonth::ask(&client, month).await?;
        bill.page().print(self.output)
    }
}

impl Exporting {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let store = context.usage().await?;
        if !self.open && !store.known().await?.is_closed(self.month) {
            let month = self.month;
            return Err(format!(
                "{month} is not closed, and its lines may change; --open writes it as it is"
            )
            .into());
        }
        let mut to: Box<dyn Write> = match &self.out {
            Some(path) => Box::new(BufWriter::new(File::create(path)?)),
            None => Box::new(std::io::stdout().lock()),
        };
        match self.format {
            Format::Csv => lines(&store, self.month, &mut to).await?,
            Format::FocusCsv => focus(&store, self.month, &mut to).await?,
            Format::FocusParquet => {
                let mut bytes = store.export(Export::FocusParquet, self.month, &Tenants::none())?;
                while let Some(piece) = Store::next_bytes(&mut bytes).await? {
                    to.write_all(&piece)?;
                }
            }
        }
        to.flush()?;
        Ok(())
    }
}

/// Writes ranges of tenants, so that no query needs more memory than a reader has. Column names precede the first range, and stand
/// alone if no tenant has a line.
async fn lines(store: &Store, month: Month, to: &mut dyn Write) -> Result<(), Failure> {
    let mut ranges = store.billed_tenants(month).await?;
    if ranges.is_empty() {
        ranges.push(Tenants::none());
    }
    for (no, tenants) in ranges.iter().enumerate() {
        let mut bytes = store.export(Export::Lines, month, tenants)?;
        let mut head = no > 0;
        while let Some(piece) = Store::next_bytes(&mut bytes).await? {
            let mut piece = piece.as_slice();
            if head {
                let Some(end) = piece.iter().position(|byte| *byte == b'\n') else {
                    continue;
                };
                (head, piece) = (false, &piece[end + 1..]);
            }
            to.write_all(piece)?;
        }
    }
    Ok(())
}

/// How ClickHouse writes what is not there.
const NULL: &str = "ᴺᵁᴸᴸ";

/// Numbers are not quoted in it, as programs that read FOCUS expect, and what is not there is empty.
async fn focus(store: &Store, month: Month, to: &mut dyn Write) -> Result<(), Failure> {
    let mut csv = csv::Writer::from_writer(to);
    let mut ranges = store.billed_tenants(month).await?;
    // Capacity that no tenant was charged for comes last.
    ranges.push(Tenants::none());
    let mut named = false;
    for tenants in &ranges {
        let mut bytes = store.export(Export::FocusRows, month, tenants)?;
        let (mut rest, mut head) = (Vec::new(), true);
        while let Some(piece) = Store::next_bytes(&mut bytes).await? {
            rest.extend_from_slice(&piece);
            let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else {
                continue;
            };
            let whole: Vec<u8> = rest.drain(..=end).collect();
            for row in whole
                .split(|byte| *byte == b'\n')
                .filter(|row| !row.is_empty())
            {
                let row: Vec<String> = serde_json::from_slice(row)?;
                if std::mem::take(&mut head) {
                    if !std::mem::replace(&mut named, true) {
                        csv.write_record(&row)?;
                    }
                    continue;
                }
                let plain = |text: &String| if text == NULL { "" } else { text }.to_owned();
                csv.write_record(row.iter().map(plain))?;
            }
        }
    }
    csv.flush()?;
    Ok(())
}

impl Explain {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        if self.hour.rem_euclid(HOUR_MS) != 0 {
            let wrong = "write the beginning of a full hour, as 2026-11-03T10:00:00Z";
            return Err(Failure::usage(wrong));
        }
        let tenant = context.tenant_name(self.whose.tenant.as_deref())?;
        let store = context.usage().await?;
        let as_of = store.through().await?;
        let parts = store
            .parts(&tenant, Millis(self.hour), self.resource.as_deref())
            .await?;
        if parts.is_empty() {
            tenants::check_known(context, tenant.as_str()).await?;
        }
        let columns = vec![
            column("resource", "resource"),
            column("allocation_id", "allocation"),
            column("operation_id", "operation"),
            column("name", "name"),
            column("team", "team"),
            column("job_set", "job set"),
            column("from_ms", "from"),
            column("to_ms", "to"),
            column("cause", "ended"),
            column("lsn", "lsn"),
            column("quantity", "used in the hour"),
        ];
        let sheet = Sheet::new(columns, 9, parts.iter().map(row).collect());
        let sums = parts
            .chunk_by(|a, b| a.resource == b.resource)
            .map(|of_one| {
                let resource = &of_one[0].resource;
                let sum = of_one.iter().map(quantity).sum();
                format!(
                    "{resource}: {} runs, {}",
                    of_one.len(),
                    hours(resource, sum)
                )
            });
        Page::of(sheet, as_of.0, "nothing was used")
            .lines(sums)
            .print(self.output)
    }
}

fn quantity(part: &Part) -> i128 {
    i128::from(part.amount) * i128::from(part.ms)
}

fn row(part: &Part) -> Vec<Cell> {
    let (cause, lsn) = match part.ended_ms {
        0 => (exactly("it runs".to_owned(), ""), named("")),
        _ => (plain(&part.cause), number(part.lsn)),
    };
    vec![
        plain(&part.resource),
        allocation(&part.allocation.to_string()),
        named(&part.operation_id),
        named(&part.name),
        named(&part.team),
        plain(&part.job_set),
        moment(part.started_ms),
        moment_or_never(part.ended_ms),
        cause,
        lsn,
        used(&part.resource, quantity(part)),
    ]
}

impl Reconcile {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let store = context.usage().await?;
        let as_of = store.through().await?;
        let sheet = match self.month {
            Some(month) => pools(&store.reconciliation(month).await?),
            None => months(&store.reconciled_months().await?),
        };
        let adds_up = |row: &Vec<Cell>| row.last().is_some_and(|variance| variance.text == "0");
        let good = sheet.rows.iter().all(adds_up);
        let currency = store.currency().await?;
        Page::of(in_currency(sheet, &currency), as_of.0, "no capacity")
            .text(format!(
                "amounts in {currency}; the variance is exact, before any rounding"
            ))
            .print(self.output)?;
        match good {
            true => Ok(()),
            false => Err("capacity and charges do not add up".into()),
        }
    }
}

/// What the capacity was, and what became of it.
fn states() -> [Column; 9] {
    [
        column("capacity_micro", "capacity"),
        column("charged_micro", "charged"),
        column("discount_micro", "discount"),
        column("reserved_micro", "reserved"),
        column("idle_micro", "idle"),
        column("cordoned_micro", "cordoned"),
        column("unavailable_micro", "unavailable"),
        column("rounding_micro", "rounding"),
        column("variance", "variance"),
    ]
}

fn pools(found: &[Reconciled]) -> Sheet {
    let rows = found.iter().map(|one| {
        vec![
            named(&one.cluster),
            named(&one.pool),
            plain(&one.resource),
            plain(format!("{}..{}", one.first_lsn, one.last_lsn)),
            money(one.capacity_micro),
            money(one.charged_micro),
            money(one.discount_micro),
            money(one.reserved_micro),
            money(one.idle_micro),
            money(one.cordoned_micro),
            money(one.unavailable_micro),
            valued(
                format!("{:.1} micro", one.rounding_micro),
                one.rounding_micro,
            ),
            plain(&one.variance),
        ]
    });
    let names = [
        column("cluster", "cluster"),
        column("pool", "pool"),
        column("resource", "resource"),
        column("ledger", "ledger"),
    ];
    let columns = names.into_iter().chain(states());
    Sheet::new(columns.collect(), 4, rows.collect())
}

fn months(found: &[ReconciledMonth]) -> Sheet {
    let rows = found.iter().map(|one| {
        vec![
            plain(&one.month),
            plain(if one.closed { "closed" } else { "open" }),
            plain(format!("{}..{}", one.first_lsn, one.last_lsn)),
            money(one.capacity_micro),
            money(one.charged_micro),
            money(one.discount_micro),
            money(one.reserved_micro),
            money(one.idle_micro),
            money(one.cordoned_micro),
            money(one.unavailable_micro),
            valued(
                format!("{:.1} micro", one.rounding_micro),
                one.rounding_micro,
            ),
            plain(&one.variance),
        ]
    });
    let names = [
        column("month", "month"),
        column("state", "state"),
        column("ledger", "ledger"),
    ];
    let columns = names.into_iter().chain(states());
    Sheet::new(columns.collect(), 3, rows.collect())
}
