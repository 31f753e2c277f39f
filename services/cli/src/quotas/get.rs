//! One account.

use super::json;
use crate::{
    Failure, amount,
    context::Context,
    print::{Cell, Output, Page, Sheet, column, exactly, named, plain, valued},
};
use clap::Args;
use quota::{
    project::{AccountState, BudgetState, TenantRow},
    store::{self, AccountRow, PlannedRow, WaitingRow},
};
use vocab::{Account, BudgetOf, CellNo, Limits, Millis, QuotaResource, Token};

#[derive(Args)]
pub struct Get {
    /// tenant, tenant/team or tenant/team/namespace.
    #[arg(value_parser = amount::account)]
    account: Account,
    /// Show up to this many of those that wait.
    #[arg(long, default_value_t = 20)]
    waiting: u32,
    #[command(flatten)]
    output: Output,
}

/// All that is known of an account.
pub struct View {
    pub account: Account,
    pub tenant: Option<TenantRow>,
    pub rows: Vec<AccountRow>,
    pub planned: Vec<PlannedRow>,
    pub budgets: Vec<(BudgetOf, BudgetState)>,
    /// In it and below it.
    pub waiting: Vec<WaitingRow>,
    pub cell: CellNo,
}

impl Get {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let pool = context.warm_state("quota").await?;
        let view = View {
            tenant: store::tenant(&pool, &self.account.tenant).await?,
            rows: store::account(&pool, &self.account).await?,
            planned: store::planned(&pool, &self.account).await?,
            budgets: store::budgets(&pool, &self.account).await?,
            waiting: store::waiting(&pool, &self.account, self.waiting).await?,
            cell: context.cell_no()?,
            account: self.account,
        };
        page(&view).print(self.output)
    }
}

fn page(view: &View) -> Page {
    let head = match &view.tenant {
        Some(tenant) => treatment(&view.account, tenant),
        None => format!("{}: no such tenant", view.account),
    };
    Page::new(json::view(view))
        .text(head)
        .sheet(resources(&view.rows))
        .lines(beside(view))
}

/// What has no column in the table of the resources.
fn beside(view: &View) -> Vec<String> {
    let planned = view.planned.iter().map(planned);
    let budgets = view.budgets.iter();
    let budgets = budgets.map(|(of, state)| budget(of, state));
    let waiting = view.waiting.iter();
    let waiting = waiting.map(|one| waits(view.cell, one));
    planned.chain(budgets).chain(waiting).collect()
}

fn treatment(account: &Account, tenant: &TenantRow) -> String {
    let cohort = tenant.cohort.as_ref();
    let cohort = cohort.map_or("no cohort".into(), |name| format!("cohort {name}"));
    let borrows = if tenant.preemptible {
        ""
    } else {
        ", borrows nothing"
    };
    let reclaim = tenant.reclaim.name().replace('_', " ");
    format!(
        "{account}: {cohort}{borrows}, beyond its limits: {}, takes back from: {reclaim}",
        tenant.on_exceed.name(),
    )
}

fn name(resource: &QuotaResource) -> String {
    match amount::unit(resource) {
        Some(unit) => format!("{resource} ({unit})"),
        None => resource.to_string(),
    }
}

fn resources(rows: &[AccountRow]) -> Sheet {
    let columns = vec![
        column("resource", "resource"),
        column("limit", "limit"),
        column("soft", "soft"),
        column("reserved", "reserved"),
        column("used", "used"),
        column("peak", "peak"),
        column("peak_at_ms", "at"),
        column("flags", "flags"),
    ];
    let all = columns.len();
    Sheet::new(columns, all, rows.iter().map(row).collect())
}

fn row(row: &AccountRow) -> Vec<Cell> {
    let state = &row.state;
    let of = |amount: u64| valued(amount::plain(&row.resource, amount.into()), amount);
    let limits = state.limits;
    let peak_at = state.peak.map(|peak| peak.at);
    vec![
        exactly(name(&row.resource), &row.resource),
        limits.map_or_else(
            || exactly("none set".to_owned(), ""),
            |limits| of(limits.hard),
        ),
        limits
            .and_then(|limits| limits.soft)
            .map_or_else(|| named(""), of),
        of(state.reserved),
        of(state.used),
        state.peak.map_or_else(|| named(""), |peak| of(peak.used)),
        peak_at.map_or_else(|| named(""), |at| valued(amount::moment(second(at)), at.0)),
        plain(flags(&row.resource, state).join(", ")),
    ]
}

/// Columns show whole seconds.
fn second(at: Millis) -> Millis {
    Millis(at.0.div_euclid(1000) * 1000)
}

/// What is remarkable about an account.
fn flags(resource: &QuotaResource, state: &AccountState) -> Vec<String> {
    let of = |amount: u64| amount::plain(resource, amount.into());
    let since = |what: &str, at: Option<Millis>| {
        at.map(|at| format!("{what} since {}", amount::moment(second(at))))
    };
    let borrowed = (state.borrowed > 0).then(|| format!("borrows {}", of(state.borrowed)));
    let limits = state
        .limits
        .map_or(Vec::new(), |limits| extra(resource, limits));
    let soft = since("above soft", state.soft_since);
    let over = since("above limit", state.over_since);
    let flags = [soft, over, borrowed].into_iter().flatten();
    flags.chain(limits).collect()
}

/// What is set beside the limits that have columns.
fn extra(resource: &QuotaResource, limits: Limits) -> Vec<String> {
    let of = |amount: u64| amount::plain(resource, amount.into());
    let burst = limits.burst.map(|burst| {
        let seconds = limits.burst_ms / 1000;
        format!("burst {} for {seconds} s", of(burst))
    });
    let borrow = limits.borrow.map(|most| format!("may borrow {}", of(most)));
    let lend = limits.lend.map(|most| format!("lends {}", of(most)));
    [burst, borrow, lend].into_iter().flatten().collect()
}

fn planned(row: &PlannedRow) -> String {
    let of = |amount: u64| amount::plain(&row.resource, amount.into());
    let limits = match row.planned.limits {
        None => "no limits".into(),
        Some(limits) => {
            let soft = limits.soft.map(|soft| format!("soft {}", of(soft)));
            let parts = [format!("limit {}", of(limits.hard))].into_iter();
            let parts = parts.chain(soft).chain(extra(&row.resource, limits));
            parts.collect::<Vec<_>>().join(", ")
        }
    };
    let moment = |what: &str, at: Option<Millis>| {
        at.map_or(String::new(), |at| {
            format!(" {what} {}", amount::moment(at))
        })
    };
    format!(
        "planned  {}: {limits}{}{} (version {})",
        name(&row.resource),
        moment("from", row.planned.validity.from),
        moment("until", row.planned.validity.until),
        row.version,
    )
}

fn budget(of: &BudgetOf, state: &BudgetState) -> String {
    let lasts = match state.exhausted_at {
        None => format!("lasts until {}", amount::moment(state.period.1)),
        Some(at) if at <= state.as_of => format!("used up since {}", amount::moment(at)),
        Some(at) => format!("used up by {}", amount::moment(at)),
    };
    format!(
        "budget   {}: {} of {} per {}, {} an hour, {lasts} (as of {})",
        of.name(),
        amount::spent(of, state.spent),
        amount::spent(of, state.budget.amount.into()),
        state.budget.period.name(),
        amount::spent(of, state.burn),
        amount::moment(state.as_of),
    )
}

fn waits(cell: CellNo, one: &WaitingRow) -> String {
    let state = &one.state;
    let refusal = state.refusal.as_ref();
    let reason = refusal.map_or("not tried again yet".into(), ToString::to_string);
    let reclaimed = match state.reclaimed {
        None => String::new(),
        Some(by) => {
            let by = by.by.map_or("its burst was over".into(), |by| {
                format!("taken back for {}", by.id(cell))
            });
            format!(", {by}")
        }
    };
    let below = [&state.account.team, &state.account.namespace];
    let below: Vec<_> = below.into_iter().flatten().map(Token::as_str).collect();
    let below = match below.join("/") {
        path if path.is_empty() => path,
        path => format!(" of {path}"),
    };
    format!(
        "waits    {}{below} priority {} since {}: {reason}{reclaimed}",
        one.allocation.id(cell),
        state.priority,
        amount::moment(state.since),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use quota::project::{Peak, Planned, Reclaimed, WaitingState};
    use vocab::{
        AllocationNo, Budget, OnExceed, Period, ReclaimFrom, Refusal, ResourceKind, Rule, Validity,
    };

    fn view() -> View {
        let account = Account::parse("a").unwrap();
        let limits = Limits {
            soft: Some(2000),
            burst: Some(9000),
            burst_ms: 60_000,
            lend: Some(500),
            ..Limits::hard(4000)
        };
        let state = AccountState {
            limits: Some(limits),
            version: 3,
            reserved: 1000,
            used: 4500,
            peak: Some(Peak {
                used: 8000,
                at: Millis(1234),
            }),
            soft_since: Some(Millis(2000)),
            over_since: Some(Millis(3000)),
            borrowed: 1500,
            changed_at: Millis(0),
        };
        View {
            tenant: Some(TenantRow {
                tenant: account.tenant.clone(),
                cohort: Some(Token::new("c").unwrap()),
                preemptible: true,
                on_exceed: OnExceed::Wait,
                reclaim: ReclaimFrom::LowerPriority,
                version: 1,
            }),
            rows: vec![AccountRow {
                account: account.clone(),
                resource: QuotaResource::Cpu,
                state,
            }],
            planned: vec![PlannedRow {
                resource: QuotaResource::Pods,
                version: 7,
                planned: Planned {
                    limits: Some(Limits::hard(30)),
                    validity: Validity {
                        from: Some(Millis(5000)),
                        until: None,
                    },
                },
            }],
            budgets: vec![(
                BudgetOf::Use(ResourceKind::Gpu),
                BudgetState {
                    budget: Budget {
                        amount: 8000,
                        period: Period::Day,
                    },
                    version: 1,
                    period: Period::Day.around(Millis(0)),
                    spent: 1500,
                    as_of: Millis(1000),
                    burn: 500,
                    exhausted_at: Some(Millis(60_000)),
                },
            )],
            waiting: vec![WaitingRow {
                allocation: AllocationNo(1),
                state: WaitingState {
                    account: Account::parse("a/x").unwrap(),
                    priority: 5,
                    since: Millis(0),
                    refusal: Some(Refusal::over(Rule::QuotaExceeded, "a/x cpu", 8, 9)),
                    reclaimed: Some(Reclaimed {
                        by: Some(AllocationNo(2)),
                    }),
                },
            }],
            cell: CellNo(3),
            account,
        }
    }

    #[test]
    fn an_account_is_a_page() {
        let view = view();
        let id = |no: u64| format!("00000000-0000-0003-0000-00000000000{no}");
        let row = &resources(&view.rows).rows[0];
        let texts: Vec<_> = row.iter().map(|cell| cell.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "cpu (cores)",
                "4.000",
                "2.000",
                "1.000",
                "4.500",
                "8.000",
                "1970-01-01T00:00:01Z",
                "above soft since 1970-01-01T00:00:02Z, above limit since 1970-01-01T00:00:03Z, borrows 1.500, \
                 burst 9.000 for 60 s, lends 0.500",
            ]
        );
        let waits = format!(
            "waits    {} of x priority 5 since 1970-01-01T00:00:00Z: quota exceeded: a/x cpu (limit 8, actual 9), \
             taken back for {}",
            id(1),
            id(2)
        );
        let tenant = view.tenant.as_ref().unwrap();
        assert_eq!(
            treatment(&view.account, tenant),
            "a: cohort c, beyond its limits: wait, takes back from: lower priority"
        );
        let expected = [
            "planned  pods: limit 30 from 1970-01-01T00:00:05Z (version 7)",
            "budget   gpu: 1.500 GPU-hours of 8.000 GPU-hours per day, 0.500 GPU-hours an hour, used up by \
             1970-01-01T00:01:00Z (as of 1970-01-01T00:00:01Z)",
            &waits,
        ];
        assert_eq!(beside(&view), expected);
    }

    #[test]
    fn json_has_the_units_of_the_resources() {
        let found = json::view(&view());
        let cpu = &found["resources"][0];
        assert_eq!(cpu["limits"]["hard"], 4000);
        assert_eq!(cpu["peak_at_ms"], 1234);
        assert_eq!(found["budgets"][0]["spent"], "1500");
        assert_eq!(found["waiting"][0]["reclaimed"], true);
        assert_eq!(found["planned"][0]["from_ms"], 5000);
    }
}
