//! All accounts by level, and the sums of the cohorts.

use super::json;
use crate::{
    Failure, amount,
    context::Context,
    explain::object,
    print::{Output, Page, Sheet, column, named, plain, valued},
};
use clap::Args;
use quota::store::{self, AccountRow, CohortRow};
use vocab::{Account, Token};

#[derive(Args)]
pub struct Tree {
    /// Only this tenant, with its teams and namespaces, and its cohort.
    tenant: Option<String>,
    #[command(flatten)]
    output: Output,
}

impl Tree {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let pool = context.warm_state("quota").await?;
        let tenant = self.tenant.as_deref().map(Token::new).transpose()?;
        let rows = store::accounts(&pool, tenant.as_ref()).await?;
        let mut cohorts = store::cohorts(&pool).await?;
        if let Some(tenant) = tenant {
            let own = store::tenant(&pool, &tenant).await?;
            let own = own.and_then(|tenant| tenant.cohort);
            cohorts.retain(|row| own.as_ref() == Some(&row.cohort));
        }
        let value = object([
            ("accounts", rows.iter().map(json::account).collect()),
            ("cohorts", cohorts.iter().map(json::cohort).collect()),
        ]);
        Page::new(value)
            .lines(lines(&rows))
            .lines(cohorts.iter().map(cohort_line))
            .rows(sheet(&rows))
            .print(self.output)
    }
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

fn cohort_line(row: &CohortRow) -> String {
    let of = |amount: u128| amount::plain(&row.resource, amount);
    let held = row.reserved.saturating_add(row.used);
    let unit = amount::unit(&row.resource).map_or(String::new(), |unit| format!(" {unit}"));
    format!(
        "cohort {} ({} tenants) {}: {} / {} {}{unit}, lendable {}, borrowed {}",
        row.cohort,
        row.tenants,
        row.resource,
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
    use vocab::{Limits, QuotaResource};

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
            row("a", "pods", None, 7),
            row("a/x/n", "pods", Some(0), 1),
            row("b", "gpu", Some(1000), 0),
        ];
        let expected = [
            "a",
            "  cpu              3.000 / 4.000 (75 %) cores",
            "  pods             7 / no limit",
            "  x",
            "    n",
            "      pods             1 / 0 (-)",
            "b",
            "  gpu              0.000 / 1.000 (0 %) GPUs",
        ];
        assert_eq!(lines(&rows), expected);
        let cohort = CohortRow {
            cohort: Token::new("c").unwrap(),
            resource: QuotaResource::Cpu,
            tenants: 2,
            hard: 8000,
            lendable: 3000,
            reserved: 1000,
            used: 3000,
            borrowed: 500,
        };
        assert_eq!(
            cohort_line(&cohort),
            "cohort c (2 tenants) cpu: 4.000 / 8.000 (50 %) cores, lendable 3.000, borrowed 0.500"
        );
    }
}
