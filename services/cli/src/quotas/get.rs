//! One account.

use super::{Asked, ask_of, json};
use crate::{
    Failure, amount,
    bill::{all_budgets, budgets_sheet, currency},
    context::Context,
    manifest::not_among,
    print::{Cell, Output, Page, Sheet, column, exactly, named, plain, valued},
    tenants::teams,
};
use clap::Args;
use client::{BudgetView, TenantTreatment};
use quota::{
    project::{AccountState, WaitingState},
    query::of_wait,
    store::{AccountRow, PlannedRow},
};
use vocab::{
    Account, AllocationId, Limits, Millis, OnExceed, QuotaResource, ReclaimFrom, Refusal, Token,
};

#[derive(Args)]
pub struct Get {
    #[command(flatten)]
    asked: Asked,
    /// Show up to this many of those that wait.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(..=200))]
    waiting: u32,
    #[command(flatten)]
    output: Output,
}

/// One that waits for quota.
pub type Waiting = (AllocationId, WaitingState);

/// All that is known of an account.
pub struct View {
    pub account: Account,
    /// None: there is no such tenant.
    pub tenant: Option<TenantTreatment>,
    /// The teams and namespaces that the tenant has; empty: any may be named. None: the cell does not tell.
    pub teams: Option<Vec<String>>,
    pub rows: Vec<AccountRow>,
    pub planned: Vec<PlannedRow>,
    pub budgets: Vec<BudgetView>,
    /// In it and below it.
    pub waiting: Vec<Waiting>,
    /// Empty without budgets, and where no output has it.
    pub currency: String,
    /// Position of the ledger.
    pub lsn: u64,
}

impl Get {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let account = self.asked.account(context)?;
        let tenant = &account.tenant;
        let client = context.asker(Some(tenant.as_str())).await?;
        let told = ask_of(&client, &account, self.waiting).await?;
        let (mut budgets, of_budgets) = all_budgets(&client).await?;
        let name = |name: &Option<Token>| name.as_ref().map_or("", Token::as_str).to_owned();
        let own = (name(&account.team), name(&account.namespace));
        budgets.retain(|it| (&it.team, &it.namespace) == (&own.0, &own.1));
        let rows = told.rows.into_iter().map(|of| of.row);
        let waiting = told.waiting.iter().map(|one| of_wait(tenant, one));
        let waiting = waiting.collect::<Result<Vec<_>, _>>();
        let waiting = waiting.map_err(|it| it.to_string())?;
        let planned = told.planned.into_iter();
        let view = View {
            tenant: told.treatment,
            teams: teams(&client, tenant.as_str()).await,
            rows: rows.filter(|row| row.account == account).collect(),
            planned: planned.filter(|row| row.account == account).collect(),
            currency: match budgets.is_empty() {
                true => String::new(),
                false => currency(&client, self.output).await,
            },
            budgets,
            waiting,
            account,
            lsn: told.lsn.min(of_budgets),
        };
        page(&view).print(self.output)
    }
}

fn page(view: &View) -> Page {
    let head = match &view.tenant {
        Some(tenant) => treatment(&view.account, tenant),
        None => format!("{}: no such tenant", view.account),
    };
    let page = Page::new(json::view(view))
        .text(head)
        .lines(of_teams(view))
        .sheet_or(
            resources(&view.rows),
            "nothing is limited there, and nothing is held",
        )
        .lines(beside(view));
    match view.budgets.is_empty() {
        true => page,
        false => page.sheet(budgets_sheet(&view.budgets, false, &view.currency)),
    }
}

/// Which teams there are, or that this is none of them.
fn of_teams(view: &View) -> Option<String> {
    let (account, teams) = (&view.account, view.teams.as_ref()?);
    match account.team {
        Some(_) => not_among(teams, account).map(|why| format!("{account}: {why}")),
        None if teams.is_empty() => None,
        None => Some(format!("{account}: its teams are {}", teams.join(", "))),
    }
}

/// What has no column in the table of the resources.
fn beside(view: &View) -> Vec<String> {
    let planned = view.planned.iter().map(planned);
    let waiting = view.waiting.iter().map(waits);
    never_limited(view)
        .into_iter()
        .chain(planned)
        .chain(waiting)
        .collect()
}

/// The resources of which a tenant may hold nothing because it never had a limit of them.
fn never_limited(view: &View) -> Option<String> {
    let has = |wanted: &QuotaResource| {
        let mut rows = view.rows.iter().map(|row| &row.resource);
        rows.any(|of| match of {
            QuotaResource::GpuModel(_) => *wanted == QuotaResource::Gpu,
            of => of == wanted,
        })
    };
    let base = [
        QuotaResource::Cpu,
        QuotaResource::Memory,
        QuotaResource::Gpu,
    ];
    let missing: Vec<_> = base
        .iter()
        .filter(|it| !has(it))
        .map(ToString::to_string)
        .collect();
    let is_tenant = view.account.team.is_none() && view.tenant.is_some();
    (is_tenant && !missing.is_empty()).then(|| {
        let account = &view.account;
        let of = missing.join(", ");
        format!("{account} never had a limit of {of}: it may hold none (`apportion quota set {account} RESOURCE AMOUNT`)")
    })
}

pub fn on_exceed(treatment: &TenantTreatment) -> OnExceed {
    OnExceed::from_number(treatment.on_exceed).unwrap_or_default()
}

pub fn reclaim(treatment: &TenantTreatment) -> ReclaimFrom {
    ReclaimFrom::from_number(treatment.reclaim).unwrap_or_default()
}

fn treatment(account: &Account, tenant: &TenantTreatment) -> String {
    let cohort = match tenant.cohort.as_str() {
        "" => "no cohort".into(),
        name => format!("cohort {name}"),
    };
    let borrows = if tenant.preemptible {
        ""
    } else {
        ", borrows nothing"
    };
    let reclaim = reclaim(tenant).name().replace('_', " ");
    format!(
        "{account}: {cohort}{borrows}, beyond its limits: {}, takes back from: {reclaim}",
        on_exceed(tenant).name(),
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

fn waits((id, state): &Waiting) -> String {
    let refusal = state.refusal.as_ref();
    let reason = refusal.map_or("not tried again yet".into(), Refusal::explanation);
    let reclaimed = match state.reclaimed {
        None => "",
        Some(_) => ", its quota was taken back",
    };
    let below = [&state.account.team, &state.account.namespace];
    let below: Vec<_> = below.into_iter().flatten().map(Token::as_str).collect();
    let below = match below.join("/") {
        path if path.is_empty() => path,
        path => format!(" of {path}"),
    };
    format!(
        "waits    {id}{below} priority {} since {}: {reason}{reclaimed}",
        state.priority,
        amount::moment(state.since),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use quota::project::{Peak, Planned, Reclaimed};
    use vocab::{AllocationNo, CellNo, Rule, Validity};

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
            teams: Some(vec!["ml/train".to_owned(), "web".to_owned()]),
            tenant: Some(TenantTreatment {
                cohort: "c".to_owned(),
                preemptible: true,
                on_exceed: OnExceed::Wait as i32,
                reclaim: ReclaimFrom::LowerPriority as i32,
            }),
            rows: vec![AccountRow {
                account: account.clone(),
                resource: QuotaResource::Cpu,
                state,
            }],
            planned: vec![PlannedRow {
                account: account.clone(),
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
            budgets: vec![BudgetView {
                of: "gpu".to_owned(),
                amount: 8000,
                period: schemas::v1::Period::Day.into(),
                spent: "1500".to_owned(),
                burn: "500".to_owned(),
                as_of_ms: 1000,
                exhausted_at_ms: Some(60_000),
                ..BudgetView::default()
            }],
            waiting: vec![(
                AllocationNo(1).id(CellNo(3)),
                WaitingState {
                    account: Account::parse("a/x").unwrap(),
                    priority: 5,
                    since: Millis(0),
                    refusal: Some(Refusal::over(Rule::QuotaExceeded, "a/x cpu", 8, 9)),
                    reclaimed: Some(Reclaimed { by: None }),
                },
            )],
            account,
            currency: "EUR".to_owned(),
            lsn: 7,
        }
    }

    #[test]
    fn an_account_is_a_page() {
        let view = view();
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
            "waits    {} of x priority 5 since 1970-01-01T00:00:00Z: quota exceeded: a/x cpu: it would \
             come to 0.009 cores, and the account may hold 0.008 cores now; wait until allocations that hold it have ended, \
             ask for less, or have the limit raised, its quota was taken back",
            AllocationNo(1).id(CellNo(3)),
        );
        let tenant = view.tenant.as_ref().unwrap();
        assert_eq!(
            treatment(&view.account, tenant),
            "a: cohort c, beyond its limits: wait, takes back from: lower priority"
        );
        let teams = |account: &str| {
            let account = Account::parse(account).unwrap();
            of_teams(&View {
                account,
                ..self::view()
            })
        };
        let has = "a: its teams are ml/train, web";
        assert_eq!(teams("a").as_deref(), Some(has));
        assert_eq!(teams("a/ml/train"), None);
        let other =
            "a/wbe: it is not among the teams of a, which are ml/train, web; did you mean web?";
        assert_eq!(teams("a/wbe").as_deref(), Some(other));
        let expected = [
            "a never had a limit of memory, gpu: it may hold none (`apportion quota set a RESOURCE AMOUNT`)",
            "planned  pods: limit 30 from 1970-01-01T00:00:05Z (version 7)",
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
        assert_eq!(found["budgets"][0]["spent"], 1500);
        assert_eq!(found["waiting"][0]["reclaimed"], true);
        assert_eq!(found["planned"][0]["from_ms"], 5000);
    }
}
