//! Reports on a month: the page for a platform's lead and for finance, and its summaries in the terminal.

mod charts;
mod facts;
mod page;
mod sections;
mod sheets;

use super::{in_currency, month, this_month};
use crate::{
    Failure, amount,
    context::Context,
    print::{Output, Page, Sheet, bytes},
    tenants,
};
use analytics::store::{Bearer, Mark, Span, Spender, Store};
use clap::{Args, Subcommand, ValueEnum};
use facts::Facts;
use identity::files;
use page::LIBRARY;
use std::path::{Path, PathBuf};
use vocab::{EndCause, Millis, Month};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Report {
    #[command(subcommand)]
    summary: Option<Summary>,
    /// Write one page to this file, for its owner only, that needs nothing but itself; -: to the standard output.
    #[arg(long, required = true, value_name = "FILE")]
    html: Option<PathBuf>,
    /// 2026-11; without it, this month.
    #[arg(long, value_parser = month)]
    month: Option<Month>,
}

#[derive(Subcommand)]
enum Summary {
    /// Show what the capacity of all nodes was: allocated, reserved, idle, cordoned, unavailable.
    Utilization(Asked),
    /// Show who spent most.
    Top(Top),
    /// Show how many runs there were of each size, by their GPUs and by their cores.
    Sizes(Asked),
    /// Show how long allocations waited for the place that they got, and how many ended without one, by queue.
    Waits(Asked),
    /// Show what this month will come to, with an interval and how often that was right, and when budgets are exhausted.
    Forecast(Ahead),
    /// Show what each tenant bears of what a month's capacity costs, with its share of what nobody was charged for.
    Shares(Shares),
}

#[derive(Args)]
struct Asked {
    /// The hours of this month, 2026-11; without it and without --since, of this month.
    #[arg(long, value_parser = month, conflicts_with_all = ["since", "until"])]
    month: Option<Month>,
    /// Hours that begin then or later: 2026-01-31T08:00:00Z, or so long ago as in 2h.
    #[arg(long, alias = "from", value_parser = amount::past)]
    since: Option<amount::Past>,
    /// Hours that begin before, in the same form; without it, up to now.
    #[arg(long, value_parser = amount::past)]
    until: Option<amount::Past>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Ahead {
    /// Only this tenant's.
    #[arg(long)]
    tenant: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Top {
    /// Whom spending is told apart by.
    #[arg(long, value_enum, default_value_t = By::Team)]
    by: By,
    /// Show so many.
    #[arg(long, default_value_t = 10)]
    limit: u32,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Tenant,
    Team,
    JobSet,
    Queue,
}

impl By {
    fn spender(self) -> Spender {
        match self {
            Self::Tenant => Spender::Tenant,
            Self::Team => Spender::Team,
            Self::JobSet => Spender::JobSet,
            Self::Queue => Spender::Queue,
        }
    }
}

#[derive(Args)]
struct Shares {
    /// 2026-11; without it, this month.
    #[arg(long, value_parser = month)]
    month: Option<Month>,
    /// Who bears what was reserved, idle, cordoned and unavailable.
    #[arg(long, value_enum, default_value_t = Method::Proportional)]
    method: Method,
    /// Whose it is under the method cost-centre.
    #[arg(long, required_if_eq("method", "cost-centre"))]
    cost_centre: Option<String>,
    /// Give runs back to their tenants that ended in the month by this cause; several times for several causes.
    #[arg(long = "credit", value_enum, value_name = "CAUSE")]
    credited: Vec<Cause>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Method {
    /// Nobody.
    None,
    /// Tenants, as far as they were charged for the same resource of the same pool.
    Proportional,
    /// All tenants of the month's bill, equally.
    Equal,
    /// The cost centre.
    CostCentre,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Cause {
    Finished,
    Failed,
    Cancelled,
    NodeLost,
    RejectedByNode,
    Preempted,
    DependencyFailed,
    Expired,
    TimeLimit,
    Evicted,
}

impl From<Cause> for EndCause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Finished => Self::Finished,
            Cause::Failed => Self::Failed,
            Cause::Cancelled => Self::Cancelled,
            Cause::NodeLost => Self::NodeLost,
            Cause::RejectedByNode => Self::RejectedByNode,
            Cause::Preempted => Self::Preempted,
            Cause::DependencyFailed => Self::DependencyFailed,
            Cause::Expired => Self::Expired,
            Cause::TimeLimit => Self::TimeLimit,
            Cause::Evicted => Self::Evicted,
        }
    }
}

impl Shares {
    async fn run(self, context: &Context, store: &Store, about: About) -> Result<(), Failure> {
        let month = self.month.unwrap_or_else(|| this_month(context));
        let bearer = match (self.method, &self.cost_centre) {
            (Method::None, _) => Bearer::Nobody,
            (Method::Proportional, _) => Bearer::InProportion,
            (Method::Equal, _) => Bearer::AllEqually,
            (Method::CostCentre, name) => Bearer::CostCentre(name.as_deref().unwrap_or_default()),
        };
        let credited: Vec<EndCause> = self.credited.into_iter().map(EndCause::from).collect();
        let lines = store.shares(month, bearer, &credited).await?;
        about.page(sheets::shares(&lines), None).print(self.output)
    }
}

#[derive(Debug, thiserror::Error)]
enum ReportError {
    #[error("this program was built without its chart library: run `make setup` and build again")]
    NoChartLibrary,
    #[error("--until has to be later than --since")]
    EmptySpan,
}

impl Report {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match (self.summary, self.html) {
            (Some(summary), _) => summary.run(context).await,
            (None, Some(to)) => {
                let month = self.month.unwrap_or_else(|| this_month(context));
                write(context, month, &to).await
            }
            // clap asks for one of the two.
            (None, None) => Ok(()),
        }
    }
}

async fn write(context: &Context, month: Month, to: &Path) -> Result<(), Failure> {
    if LIBRARY.is_empty() {
        return Err(ReportError::NoChartLibrary.into());
    }
    let facts = Facts::read(context, month).await?;
    let page = sections::page(&facts).html(LIBRARY)?;
    match to.as_os_str() == "-" {
        true => bytes(page.as_bytes()),
        false => Ok(files::write(to, &page)?),
    }
}

impl Summary {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let store = context.usage().await?;
        let about = About::read(&store).await?;
        let (asked, sheet) = match self {
            Self::Forecast(ahead) => return ahead.run(context, &store, about).await,
            Self::Shares(shares) => return shares.run(context, &store, about).await,
            Self::Utilization(asked) => {
                let lines = store.capacity(asked.span(context)?).await?;
                (asked, sheets::utilization(&lines))
            }
            Self::Top(Top { by, limit, asked }) => {
                let by = by.spender();
                let lines = store.spenders(asked.span(context)?, by, limit).await?;
                (asked, sheets::top(&lines, by))
            }
            Self::Sizes(asked) => {
                let lines = store.sizes(asked.span(context)?).await?;
                (asked, sheets::sizes(&lines))
            }
            Self::Waits(asked) => {
                let lines = store.waits(asked.span(context)?).await?;
                (asked, sheets::waits(&lines))
            }
        };
        about.page(sheet, None).print(asked.output)
    }
}

/// Position of the tables before they are read, and the currency of amounts.
struct About {
    mark: Mark,
    currency: String,
}

impl About {
    async fn read(store: &Store) -> Result<Self, Failure> {
        Ok(Self {
            mark: store.mark().await?,
            currency: store.currency().await?,
        })
    }

    /// Returns the list of a sheet, followed by the table of budgets.
    fn page(&self, sheet: Sheet, budgets: Option<Sheet>) -> Page {
        let mut columns = sheet.columns.iter();
        let is_of_money = columns.any(|column| column.key.ends_with("_micro"));
        let page = Page::list(sheet.records(), self.mark.lsn)
            .with("through_ms", self.mark.through_ms)
            .with("currency", &*self.currency);
        let page = match is_of_money {
            true => page.sheet_or(in_currency(sheet, &self.currency), "nothing was used"),
            false => page.sheet_or(sheet, "nothing was used"),
        };
        let page = match budgets {
            Some(budgets) => {
                (page.with("budgets", budgets.records())).sheet_or(budgets, "no budgets")
            }
            None => page,
        };
        let currency = match is_of_money {
            true => format!("amounts in {}, ", self.currency),
            false => String::new(),
        };
        let through = amount::moment(Millis(self.mark.through_ms));
        page.text(format!("{currency}up to {through}"))
    }
}

impl Ahead {
    async fn run(self, context: &Context, store: &Store, about: About) -> Result<(), Failure> {
        let tenant = self.tenant.as_deref();
        let month = sheets::month_ahead(&store.month_forecast(tenant).await?);
        let budgets = store.budget_forecast(tenant).await?;
        let budgets = sheets::budgets_ahead(&budgets, &about.currency);
        if let (Some(tenant), true) = (tenant, month.rows.is_empty() && budgets.rows.is_empty()) {
            tenants::check_known(context, tenant).await?;
        }
        about.page(month, Some(budgets)).print(self.output)
    }
}

impl Asked {
    fn span(&self, context: &Context) -> Result<Span, ReportError> {
        let now = context.clock().now_ms();
        let whole = Span::of(self.month.unwrap_or_else(|| Month::of(Millis(now))));
        let past =
            |past: Option<amount::Past>, or: Millis| past.map_or(or, |past| Millis(past.ms(now)));
        let span = Span {
            from: past(self.since, whole.from),
            until: past(self.until, whole.until),
        };
        match span.from < span.until {
            true => Ok(span),
            false => Err(ReportError::EmptySpan),
        }
    }
}
