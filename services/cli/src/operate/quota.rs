//! Limits and budgets.

use super::{
    Expected, named,
    patch::{self, Flags, Patch},
    told,
};
use crate::{Failure, amount, context::Context};
use clap::Args;
use schemas::v1::{self, setting_view::Change};
use vocab::{Account, BudgetOf, Period, QuotaResource, Token};

/// Sets limits of one resource: those that are there and not given stay, of the same time.
#[derive(Args)]
pub struct QuotaSet {
    /// tenant, tenant/team or tenant/team/namespace.
    #[arg(value_parser = amount::account)]
    account: Account,
    /// cpu, memory, gpu, gpu:<model>, storage, pods, extended:<name> or leases.
    #[arg(value_parser = amount::resource)]
    resource: QuotaResource,
    /// Hard limit: 64 or 1500m of cpu, 1TiB of memory, 8 or 500m of gpu, a number of anything else.
    #[arg(required_unless_present_any = ["none", "soft", "burst", "borrow", "lend", "clear"])]
    limit: Option<String>,
    /// Above this it is allowed and flagged.
    #[arg(long)]
    soft: Option<String>,
    /// Up to this for a while.
    #[arg(long)]
    burst: Option<String>,
    /// How long at a stretch (30s, 10m, 2h); as long must pass before the next burst.
    #[arg(long, requires = "burst", value_parser = amount::duration_ms)]
    burst_for: Option<i64>,
    /// Of what others of the cohort lend it may take this much; all where nothing is said of it.
    #[arg(long)]
    borrow: Option<String>,
    /// Of what it does not use others of the cohort may take this much; all where nothing is said of it.
    #[arg(long)]
    lend: Option<String>,
    /// From this moment, as 2026-01-31T08:00:00Z; without it at once.
    #[arg(long, value_parser = amount::moment_ms)]
    from: Option<i64>,
    /// Up to this moment, when what held before holds again; without it for good.
    #[arg(long, value_parser = amount::moment_ms)]
    until: Option<i64>,
    /// There are no limits any more.
    #[arg(long, conflicts_with_all = ["limit", "soft", "burst", "borrow", "lend"])]
    none: bool,
    #[command(flatten)]
    patch: Patch,
}

impl Flags for QuotaSet {
    fn title(&self) -> String {
        format!("quota {} {}", self.account, self.resource)
    }

    fn whole(&self) -> Result<Change, String> {
        if self.patch.replaces() && !self.none && self.limit.is_none() {
            return Err("with --replace, say the limit as well".to_owned());
        }
        if self.patch.replaces() && self.burst.is_some() != self.burst_for.is_some() {
            return Err("with --replace, --burst and --burst-for go together".to_owned());
        }
        let read = |text: &Option<String>| {
            let text = text.as_deref();
            text.map(|text| amount::of_resource(&self.resource, text))
                .transpose()
        };
        let name = |token: &Option<Token>| token.as_ref().map_or(String::new(), Token::to_string);
        Ok(Change::Quota(v1::SetQuota {
            limit: read(&self.limit)?.unwrap_or(0),
            soft: read(&self.soft)?,
            burst: read(&self.burst)?,
            borrow: read(&self.borrow)?,
            lend: read(&self.lend)?,
            burst_ms: self.burst_for.unwrap_or(0),
            from_ms: self.from,
            until_ms: self.until,
            unlimited: self.none,
            expected_version: self.patch.expected.expected_version,
            resource: self.resource.to_string(),
            tenant: self.account.tenant.to_string(),
            team: name(&self.account.team),
            namespace: name(&self.account.namespace),
        }))
    }

    /// Without limits there is nothing that could stay.
    fn given(&self) -> Vec<&'static str> {
        patch::given([
            ("hard", self.none || self.limit.is_some()),
            ("soft", self.none || self.soft.is_some()),
            ("burst", self.none || self.burst.is_some()),
            ("burst_for", self.none || self.burst_for.is_some()),
            ("borrow", self.none || self.borrow.is_some()),
            ("lend", self.none || self.lend.is_some()),
        ])
    }

    fn patch(&self) -> &Patch {
        &self.patch
    }
}

/// Bounds what an account uses up in every period.
#[derive(Args)]
pub struct QuotaBudget {
    /// tenant, tenant/team or tenant/team/namespace.
    #[arg(value_parser = amount::account)]
    account: Account,
    /// money, cpu, memory or gpu.
    #[arg(value_parser = amount::budget_of)]
    of: BudgetOf,
    /// 250.50 of money; hours of 64 or 1500m of cpu, 16GiB of memory, 8 or 500m of gpu.
    #[arg(required_unless_present = "none")]
    amount: Option<String>,
    /// hour, day, week (from Monday on) or month, in UTC.
    #[arg(long, required_unless_present = "none", value_parser = period)]
    per: Option<i32>,
    /// There is no budget any more.
    #[arg(long, conflicts_with_all = ["amount", "per"])]
    none: bool,
    #[command(flatten)]
    expected: Expected,
}

fn period(text: &str) -> Result<i32, String> {
    named(&Period::ALL.map(|one| (one.name(), one as i32)), text)
}

impl QuotaBudget {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let (sending, output) = (self.expected.sending.clone(), self.expected.output);
        let title = format!("budget {} {}", self.account, self.of.name());
        let change = self.request().map_err(Failure::usage)?;
        let operator = sending.operator(context).await?;
        let id = sending.id();
        told(&title, &operator.set_budget(change, id).await?, output)
    }

    pub fn request(self) -> Result<v1::SetBudget, String> {
        let amount = self.amount.as_deref();
        let name = |token: Option<Token>| token.map_or(String::new(), String::from);
        Ok(v1::SetBudget {
            amount: amount
                .map(|text| amount::of_budget(&self.of, text))
                .transpose()?,
            period: self.per.unwrap_or(0),
            of: self.of.name().into(),
            expected_version: self.expected.expected_version,
            tenant: self.account.tenant.into(),
            team: name(self.account.team),
            namespace: name(self.account.namespace),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{FromArgMatches, Parser};

    fn read<T: Args + FromArgMatches>(line: &str) -> Result<T, String> {
        #[derive(Parser)]
        struct Line<T: Args> {
            #[command(flatten)]
            one: T,
        }
        let words = ["test"].into_iter().chain(line.split_whitespace());
        let line = Line::<T>::try_parse_from(words);
        line.map(|line| line.one).map_err(|error| error.to_string())
    }

    #[test]
    fn limits_are_in_the_units_of_their_resource() {
        let set = |line| {
            let whole = read::<QuotaSet>(line).and_then(|set| set.whole());
            whole.map(|change| match change {
                Change::Quota(set) => set,
                other => panic!("{other:?}"),
            })
        };
        let expected = v1::SetQuota {
            tenant: "a".into(),
            team: "b".into(),
            namespace: "c".into(),
            resource: "gpu:T4".into(),
            limit: 8000,
            soft: Some(500),
            burst: Some(9000),
            burst_ms: 600_000,
            borrow: Some(0),
            lend: Some(1000),
            from_ms: Some(1000),
            until_ms: Some(2000),
            unlimited: false,
            expected_version: Some(3),
        };
        let all = "a/b/c gpu:T4 8 --soft 500m --burst 9 --burst-for 10m --borrow 0 --lend 1 \
                   --from 1970-01-01T00:00:01Z --until 1970-01-01T00:00:02Z --expected-version 3";
        assert_eq!(set(all), Ok(expected));
        let limit = |line| set(line).map(|set| (set.limit, set.unlimited));
        assert_eq!(limit("a memory 1TiB"), Ok((1 << 40, false)));
        assert_eq!(limit("a pods 30"), Ok((30, false)));
        assert_eq!(limit("a cpu --none"), Ok((0, true)));
        for bad in [
            "a cpu",
            "a cpu x",
            "a pods 1500m",
            "a disk 1",
            "a/b/c/d cpu 1",
        ] {
            assert!(set(bad).is_err(), "{bad}");
        }
        for bad in ["a cpu 1 --burst-for 2s", "a cpu 1 --none"] {
            assert!(set(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn budgets_are_in_money_or_hours() {
        let set = |line| read::<QuotaBudget>(line).and_then(QuotaBudget::request);
        let amount = |line| set(line).map(|set| (set.of, set.amount, set.period));
        let month = v1::Period::Month as i32;
        let money = ("money".into(), Some(250_500_000), month);
        assert_eq!(amount("a money 250.50 --per month"), Ok(money));
        let hour = v1::Period::Hour as i32;
        let gpu = ("gpu".into(), Some(500), hour);
        assert_eq!(amount("a/b gpu 500m --per hour"), Ok(gpu));
        assert_eq!(amount("a cpu --none"), Ok(("cpu".into(), None, 0)));
        for bad in [
            "a money 1",
            "a money 1 --per year",
            "a pods 1 --per day",
            "a cpu --per day",
        ] {
            assert!(set(bad).is_err(), "{bad}");
        }
    }
}
