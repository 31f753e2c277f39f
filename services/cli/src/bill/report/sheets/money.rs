//! Who spends, and what nobody pays for.

use super::{super::super::kind, basis_points, money, percent, used};
use crate::{
    amount,
    print::{Cell, Column, Sheet, column, counted, exactly, named, plain},
};
use analytics::store::{CostLine, InvoiceLine, Reconciled, ShareLine, Spender, SpentLine};
use quota::project::BudgetState;
use std::collections::BTreeMap;
use vocab::{Account, BudgetOf, Millis, ResourceKind, Token};

/// What a team owes, in millionths of the currency.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Charge {
    pub by_resource: BTreeMap<String, i128>,
    pub corrections: i128,
    pub total: i128,
}

/// By tenant and team, who owes most first.
pub fn charges(bill: &[InvoiceLine]) -> Vec<((String, String), Charge)> {
    let mut charges: BTreeMap<(String, String), Charge> = BTreeMap::new();
    for line in bill {
        let key = (line.tenant.clone(), line.team.clone());
        let charge = charges.entry(key).or_default();
        let of_resource = charge.by_resource.entry(line.resource.clone());
        *of_resource.or_default() += line.amount_micro;
        charge.total += line.amount_micro;
        if line.is_correction {
            charge.corrections += line.amount_micro;
        }
    }
    let mut charges: Vec<_> = charges.into_iter().collect();
    charges.sort_by_key(|(_, charge)| std::cmp::Reverse(charge.total));
    charges
}

pub fn charged(charges: &[((String, String), Charge)]) -> Sheet {
    let of_kind = |charge: &Charge, of: ResourceKind| -> i128 {
        let resources = charge.by_resource.iter();
        let resources = resources.filter(|(resource, _)| kind(resource) == Some(of));
        resources.map(|(_, micro)| *micro).sum()
    };
    let amounts = |charge: &Charge| {
        [
            of_kind(charge, ResourceKind::Cpu),
            of_kind(charge, ResourceKind::Memory),
            of_kind(charge, ResourceKind::Gpu),
            charge.corrections,
            charge.total,
        ]
    };
    let mut sums = [0; 5];
    for (_, charge) in charges {
        for (sum, micro) in sums.iter_mut().zip(amounts(charge)) {
            *sum += micro;
        }
    }
    let all = sums[4];
    let row = |first: [Cell; 2], amounts: [i128; 5]| -> Vec<Cell> {
        let share = percent(amounts[4], all);
        let amounts = amounts.into_iter().map(money);
        first.into_iter().chain(amounts).chain([share]).collect()
    };
    let rows = charges.iter().map(|((tenant, team), charge)| {
        let names = [plain(tenant), named(team)];
        row(names, amounts(charge))
    });
    let columns = vec![
        column("tenant", "tenant"),
        column("team", "team"),
        column("cpu_micro", "CPU"),
        column("memory_micro", "memory"),
        column("gpu_micro", "GPU"),
        column("corrections_micro", "of it corrections"),
        column("amount_micro", "amount"),
        column("percent", "of all"),
    ];
    Sheet {
        total: Some(row([plain("all"), plain("")], sums)),
        ..Sheet::new(columns, 2, rows.collect())
    }
}

/// What nobody was charged for.
pub fn costs(lines: &[CostLine]) -> Sheet {
    let row = |line: &CostLine| {
        vec![
            plain(&line.resource),
            plain(&line.state),
            used(&line.resource, line.quantity),
            money(line.amount_micro),
        ]
    };
    let columns = vec![
        column("resource", "resource"),
        column("state", "state"),
        column("quantity", "time"),
        column("amount_micro", "cost"),
    ];
    let total = lines.iter().map(|line| line.amount_micro).sum();
    Sheet {
        total: Some(vec![plain("all"), plain(""), plain(""), money(total)]),
        ..Sheet::new(columns, 2, lines.iter().map(row).collect())
    }
}

fn spender(by: Spender) -> Vec<Column> {
    let (tenant, team) = (column("tenant", "tenant"), column("team", "team"));
    match by {
        Spender::Tenant => vec![tenant],
        Spender::Team => vec![tenant, team],
        Spender::JobSet => vec![tenant, team, column("job_set", "job set")],
        Spender::Queue => vec![column("queue", "queue")],
    }
}

/// The name of a line, as far as it is told apart.
pub fn spender_name(line: &SpentLine) -> String {
    let parts = [&line.tenant, &line.team, &line.job_set, &line.queue];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.map(String::as_str).collect::<Vec<_>>().join(" / ")
}

pub fn top(lines: &[SpentLine], by: Spender) -> Sheet {
    let row = |line: &SpentLine| -> Vec<Cell> {
        let names: Vec<&String> = match by {
            Spender::Tenant => vec![&line.tenant],
            Spender::Team => vec![&line.tenant, &line.team],
            Spender::JobSet => vec![&line.tenant, &line.team, &line.job_set],
            Spender::Queue => vec![&line.queue],
        };
        let numbers = [
            used("cpu", line.cpu),
            used("memory", line.memory),
            used("gpu", line.gpu),
            money(line.amount_micro),
        ];
        let names = names.into_iter().map(|name| named(name));
        names.chain(numbers).collect()
    };
    let mut columns = spender(by);
    let numbers = columns.len();
    columns.extend([
        column("cpu", "CPU"),
        column("memory", "memory"),
        column("gpu", "GPU"),
        column("amount_micro", "amount"),
    ]);
    Sheet::new(columns, numbers, lines.iter().map(row).collect())
}

/// Whose it is, what it is of, and how it stands.
pub type OneBudget = (Account, BudgetOf, BudgetState);

pub fn spent_part(state: &BudgetState) -> i128 {
    let spent = i128::try_from(state.spent).unwrap_or(i128::MAX);
    basis_points(spent, state.budget.amount.into())
}

pub fn budgets(budgets: &[OneBudget]) -> Sheet {
    let row = |(account, of, state): &OneBudget| {
        let name = |token: &Option<Token>| named(token.as_ref().map_or("", Token::as_str));
        let amount = |amount: u128| counted(amount::spent(of, amount), amount);
        let exhausted = match state.exhausted_at {
            None => exactly("not in this period".to_owned(), ""),
            Some(at) => counted(amount::moment(at), at.0),
        };
        let moment = |at: Millis| counted(amount::moment(at), at.0);
        vec![
            plain(&account.tenant),
            name(&account.team),
            name(&account.namespace),
            plain(of.name()),
            plain(state.budget.period.name()),
            moment(state.period.1),
            moment(state.as_of),
            exhausted,
            amount(state.budget.amount.into()),
            amount(state.spent),
            percent(spent_part(state), 10_000),
            amount(state.burn),
        ]
    };
    let columns = vec![
        column("tenant", "tenant"),
        column("team", "team"),
        column("namespace", "namespace"),
        column("of", "of"),
        column("period", "every"),
        column("ends_ms", "until"),
        column("as_of_ms", "as of"),
        column("exhausted_at_ms", "exhausted"),
        column("amount", "budget"),
        column("spent", "spent"),
        column("percent", "of budget"),
        column("burn", "an hour"),
    ];
    Sheet::new(columns, 8, budgets.iter().map(row).collect())
}

pub fn reconciled(lines: &[Reconciled]) -> Sheet {
    let row = |line: &Reconciled| {
        vec![
            named(&line.cluster),
            named(&line.pool),
            plain(&line.resource),
            plain(format!("{}..{}", line.first_lsn, line.last_lsn)),
            money(line.capacity_micro),
            money(line.charged_micro),
            money(line.discount_micro),
            money(line.reserved_micro),
            money(line.idle_micro),
            money(line.cordoned_micro),
            money(line.unavailable_micro),
            plain(&line.variance),
        ]
    };
    let columns = vec![
        column("cluster", "cluster"),
        column("pool", "pool"),
        column("resource", "resource"),
        column("ledger", "ledger"),
        column("capacity_micro", "capacity"),
        column("charged_micro", "charged"),
        column("discount_micro", "discount"),
        column("reserved_micro", "reserved"),
        column("idle_micro", "idle"),
        column("cordoned_micro", "cordoned"),
        column("unavailable_micro", "unavailable"),
        column("variance", "variance"),
    ];
    Sheet::new(columns, 4, lines.iter().map(row).collect())
}

/// What a tenant may bear, in the order of the columns.
const PARTS: [(&str, &str, &str); 7] = [
    ("charged", "charged_micro", "charged"),
    ("credited", "credited_micro", "credited"),
    ("discount", "discount_micro", "discount"),
    ("reserved", "reserved_micro", "reserved"),
    ("idle", "idle_micro", "idle"),
    ("cordoned", "cordoned_micro", "cordoned"),
    ("unavailable", "unavailable_micro", "unavailable"),
];

/// By tenant, and last what nobody bears; the sum is what the capacity costs.
pub fn shares(lines: &[ShareLine]) -> Sheet {
    let mut tenants: BTreeMap<(bool, &str), [i128; PARTS.len()]> = BTreeMap::new();
    for line in lines {
        let amounts = tenants.entry((line.tenant.is_empty(), &line.tenant));
        let amounts = amounts.or_default();
        for ((part, ..), amount) in PARTS.iter().zip(amounts) {
            if *part == line.part {
                *amount += line.amount_micro;
            }
        }
    }
    let row = |name: Cell, amounts: &[i128; PARTS.len()]| -> Vec<Cell> {
        let all = amounts.iter().sum();
        let cells = amounts.iter().copied().chain([all]).map(money);
        std::iter::once(name).chain(cells).collect()
    };
    let name = |tenant: &str| match tenant.is_empty() {
        true => exactly("nobody".to_owned(), ""),
        false => plain(tenant),
    };
    let rows = tenants.iter();
    let rows = rows.map(|((_, tenant), amounts)| row(name(tenant), amounts));
    let mut columns = vec![column("tenant", "tenant")];
    columns.extend(PARTS.map(|(_, key, title)| column(key, title)));
    columns.push(column("total_micro", "total"));
    let mut sheet = Sheet::new(columns, 1, rows.collect());
    let mut total = [0; PARTS.len()];
    for amounts in tenants.values() {
        for (sum, amount) in total.iter_mut().zip(amounts) {
            *sum += amount;
        }
    }
    sheet.total = Some(row(plain("all"), &total));
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_bears_what_is_summed_by_tenant() {
        let line = |tenant: &str, part: &str, amount_micro| ShareLine {
            tenant: tenant.to_owned(),
            part: part.to_owned(),
            amount_micro,
        };
        let lines = [
            line("", "discount", 7),
            line("", "credited", 30),
            line("a", "charged", 100),
            line("a", "credited", -30),
            line("a", "idle", 5),
            line("b", "unavailable", 3),
        ];
        let sheet = shares(&lines);
        let exact = |row: &Vec<Cell>| row.iter().map(|cell| cell.exact().to_owned()).collect();
        let rows: Vec<Vec<String>> = sheet.rows.iter().chain(&sheet.total).map(exact).collect();
        let expected = [
            ["a", "100", "-30", "0", "0", "5", "0", "0", "75"],
            ["b", "0", "0", "0", "0", "0", "0", "3", "3"],
            ["", "0", "30", "7", "0", "0", "0", "0", "37"],
            ["all", "100", "0", "7", "0", "5", "0", "3", "115"],
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_bill_is_summed_by_team_and_nothing_is_lost() {
        let line = |tenant: &str, team: &str, resource: &str, amount_micro, is_correction| {
            let (tenant, team, resource) = (tenant.into(), team.into(), resource.into());
            InvoiceLine {
                tenant,
                team,
                resource,
                micro_per_unit_hour: 1,
                has_rate: true,
                is_correction,
                quantity: 1,
                amount_micro,
            }
        };
        let bill = [
            line("a", "", "cpu", 5, false),
            line("a", "x", "gpu:T4", 100, false),
            line("a", "x", "gpu", 20, false),
            line("a", "x", "memory", -3, true),
            line("b", "", "cpu", 8, false),
        ];
        let sheet = charged(&charges(&bill));
        let exact = |row: &Vec<Cell>| row.iter().map(|cell| cell.exact().to_owned()).collect();
        let rows: Vec<Vec<String>> = sheet.rows.iter().chain(&sheet.total).map(exact).collect();
        let expected = [
            ["a", "x", "0", "-3", "120", "-3", "117", "90.0"],
            ["b", "", "8", "0", "0", "0", "8", "6.15"],
            ["a", "", "5", "0", "0", "0", "5", "3.84"],
            ["all", "", "13", "-3", "120", "-3", "130", "100.0"],
        ];
        assert_eq!(rows, expected);
    }
}
