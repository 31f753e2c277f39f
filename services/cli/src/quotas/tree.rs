//! All accounts by level, and the sums of the cohorts.

use super::{Of, ask, json};
use crate::{
    Failure, amount,
    context::{Context, Whose},
    print::{Output, Page, Sheet, column, named, plain, valued},
};
use clap::Args;
use client::QuotaQuery;
use quota::store::AccountRow;
use std::collections::BTreeMap;
use vocab::{Account, QuotaResource, Token};

#[derive(Args)]
pub struct Tree {
    /// Only this tenant, with its teams and namespaces; without, the context's, or all for an operator.
    #[arg(value_name = "TENANT", conflicts_with = "tenant")]
    of: Option<String>,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    output: Output,
}

impl Tree {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let tenant = self.whose.tenant.or(self.of);
        let client = context.asker(tenant.as_deref()).await?;
        let told = ask(&client, QuotaQuery::default()).await?;
        // A tenant is told of itself alone.
        let cohorts = match context.tenant_of(tenant.as_deref()) {
            Some(_) => Vec::new(),
            None => cohorts(&told.rows),
        };
        let rows: Vec<AccountRow> = told.rows.into_iter().map(|of| of.row).collect();
        let cohorts_json: serde_json::Value = cohorts.iter().map(json::cohort).collect();
        Page::list(rows.iter().map(json::account).collect(), told.lsn)
            .with("cohorts", cohorts_json)
            .lines(lines(&rows))
            .lines(cohorts.iter().map(cohort_line))
            .rows(sheet(&rows))
            .print(self.output)
    }
}

/// What the tenants of a cohort have together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cohort {
    pub tenants: u64,
    pub hard: u128,
    pub lendable: u128,
    pub reserved: u128,
    pub used: u128,
    pub borrowed: u128,
}

/// A cohort, and one of its resources.
pub type OfCohort = ((String, QuotaResource), Cohort);

/// By name and resource. Only tenants' own accounts lend.
fn cohorts(rows: &[Of<AccountRow>]) -> Vec<OfCohort> {
    let mut sums: BTreeMap<(String, QuotaResource), Cohort> = BTreeMap::new();
    let lend = |of: &&Of<AccountRow>| !of.cohort.is_empty() && of.row.account.team.is_none();
    for Of { row, cohort } in rows.iter().filter(lend) {
        let key = (cohort.clone(), row.resource.clone());
        let (sum, state) = (sums.entry(key).or_default(), &row.state);
        let limits = state.limits;
        let lendable = limits.map_or(0, |it| it.lend.unwrap_or(it.hard).min(it.hard));
        sum.tenants += 1;
        sum.hard += u128::from(limits.map_or(0, |limits| limits.hard));
        sum.lendable += u128::from(lendable);
        sum.reserved += u128::from(state.reserved);
        sum.used += u128::from(state.used);
        sum.borrowed += u128::from(state.borrowed);
    }
    sums.into_iter().collect()
}

fn sheet(rows: &[AccountRow]) -> Sheet {
    let row = |row: &AccountRow| {
        let state = &row.state;
        let of = |amount: u64| valued(amount::plain(&row.resource, amount.into()), amount);
        vec![
            plain(&row.account),
            plain(&row.resource),
            state
                .limits
                .map_or_else(|| named(""), |limits| of(limits.hard)),
            of(state.reserved),
            of(state.used),
            of(state.borrowed),
        ]
    };
    let columns = vec![
        column("account", "account"),
        column("resource", "resource"),
        column("limit", "limit"),
        column("reserved", "reserved"),
        column("used", "used"),
        column("borrowed", "borrowed"),
    ];
    Sheet::new(columns, 2, rows.iter().map(row).collect())
}

/// The accounts come by path, so each stands below those above it; one that holds nothing itself is named nevertheless.
fn lines(rows: &[AccountRow]) -> Vec<String> {
    if rows.is_empty() {
        return vec!["no account has limits or holds anything".to_owned()];
    }
    let mut lines = Vec::new();
    let mut above: Vec<Account> = Vec::new();
    for row in rows {
        let mut path: Vec<_> =
            std::iter::successors(Some(row.account.clone()), Account::parent).collect();
        path.reverse();
        let known = above.iter().zip(&path).take_while(|(a, b)| a == b).count();
        for (depth, account) in path.iter().enumerate().skip(known) {
            lines.push(format!("{}{}", "  ".repeat(depth), last_name(account)));
        }
        let indent = "  ".repeat(path.len());
        lines.push(format!("{indent}{}", line(row)));
        above = path;
    }
    lines
}

fn last_name(account: &Account) -> &Token {
    let below = account.namespace.as_ref().or(account.team.as_ref());
    below.unwrap_or(&account.tenant)
}

fn line(row: &AccountRow) -> String {
    let state = &row.state;
    let held = u128::from(state.reserved) + u128::from(state.used);
    let of = |amount: u128| amount::plain(&row.resource, amount);
    let limit = match state.limits {
        None => "no limit".into(),
        Some(limits) => format!(
            "{} {}",
            of(limits.hard.into()),
            percent(held, limits.hard.into())
        ),
    };
    let borrowed = match state.borrowed {
        0 => String::new(),
        borrowed => format!(", borrows {}", of(borrowed.into())),
    };
    let unit = amount::unit(&row.resource).map_or(String::new(), |unit| format!(" {unit}"));
    format!(
        "{:<16} {} / {limit}{unit}{borrowed}",
        row.resource.to_string(),
        of(held)
    )
}

fn percent(held: u128, limit: u128) -> String {
    match held.saturating_mul(100).checked_div(limit) {
        Some(percent) => format!("({percent} %)"),
        None => "(-)".into(),
    }
}

fn cohort_line(((cohort, resource), row): &OfCohort) -> String {
    let of = |amount: u128| amount::plain(resource, amount);
    let held = row.reserved.saturating_add(row.used);
    let unit = amount::unit(resource).map_or(String::new(), |unit| format!(" {unit}"));
    format!(
        "cohort {cohort} ({} tenants) {resource}: {} / {} {}{unit}, lendable {}, borrowed {}",
        row.tenants,
        of(held),
        of(row.hard),
        percent(held, row.hard),
        of(row.lendable),
        of(row.borrowed),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use quota::project::AccountState;
    use vocab::Limits;

    #[test]
    fn levels_are_indented_below_each_other() {
        let row = |account: &str, resource: &str, limit: Option<u64>, used| AccountRow {
            account: Account::parse(account).unwrap(),
            resource: QuotaResource::parse(resource).unwrap(),
            state: AccountState {
                limits: limit.map(Limits::hard),
                used,
                ..AccountState::default()
            },
        };
        let rows = [
            row("a", "cpu", Some(4000), 3000),
            row("a", "memory", Some(3 << 29), 512 << 20),
            row("a", "pods", None, 7),
            row("a/x/n", "pods", Some(0), 1),
            row("b", "gpu", Some(1000), 0),
        ];
        let expected = [
            "a",
            "  cpu              3.000 / 4.000 (75 %) cores",
            "  memory           512 MiB / 1.5 GiB (33 %)",
            "  pods             7 / no limit",
            "  x",
            "    n",
            "      pods             1 / 0 (-)",
            "b",
            "  gpu              0.000 / 1.000 (0 %) GPUs",
        ];
        assert_eq!(lines(&rows), expected);
        assert_eq!(lines(&[]), ["no account has limits or holds anything"]);
        let tenant = |hard, lend, used, borrowed| Of {
            row: AccountRow {
                account: Account::parse("a").unwrap(),
                resource: QuotaResource::Cpu,
                state: AccountState {
                    limits: Some(Limits {
                        lend,
                        ..Limits::hard(hard)
                    }),
                    reserved: 500,
                    used,
                    borrowed,
                    ..AccountState::default()
                },
            },
            cohort: "c".to_owned(),
        };
        let mut team = tenant(1000, None, 70, 0);
        team.row.account = Account::parse("a/x").unwrap();
        let mut alone = tenant(1000, None, 70, 0);
        alone.cohort.clear();
        let rows = [
            tenant(2000, None, 1000, 500),
            tenant(6000, Some(1000), 2000, 0),
            team,
            alone,
        ];
        let cohorts = cohorts(&rows);
        assert_eq!(cohorts.len(), 1);
        let cohort = &cohorts[0];
        assert_eq!(
            cohort_line(cohort),
            "cohort c (2 tenants) cpu: 4.000 / 8.000 (50 %) cores, lendable 3.000, borrowed 0.500"
        );
    }
}
