//! Limits of accounts, and their budgets.

use crate::{
    Admission,
    check::{amount, given_name, optional, quantity, written_amount, written_name},
    settings::{Sets as _, Setting},
};
use vocab::fact::{BudgetSet, QuotaSet};
use vocab::{
    Account, Budget, BudgetOf, Limits, Millis, Period, QuotaResource, Refusal, Rule, Validity,
};
use wire::Open;

/// An account as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountRequest {
    pub tenant: String,
    pub team: String,
    pub namespace: String,
}

/// Limits as they were written.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "SetQuota")]
pub struct QuotaRequest {
    #[wire(flatten(tenant = 1, team = 5, namespace = 6))]
    pub account: AccountRequest,
    #[wire(2)]
    pub resource: String,
    #[wire(3)]
    pub limit: i64,
    #[wire(7, optional)]
    pub soft: Option<i64>,
    #[wire(8, optional)]
    pub burst: Option<i64>,
    #[wire(9)]
    pub burst_ms: i64,
    #[wire(10, optional)]
    pub borrow: Option<i64>,
    #[wire(11, optional)]
    pub lend: Option<i64>,
    #[wire(12, optional)]
    pub from_ms: Option<i64>,
    #[wire(13, optional)]
    pub until_ms: Option<i64>,
    #[wire(14)]
    pub unlimited: bool,
    /// The version that it is a change of; none: whichever it is.
    #[wire(4, optional)]
    pub expected_version: Option<u64>,
}

/// A budget as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "SetBudget")]
pub struct BudgetRequest {
    #[wire(flatten(tenant = 1, team = 2, namespace = 3))]
    pub account: AccountRequest,
    #[wire(4)]
    pub of: String,
    #[wire(5, optional)]
    pub amount: Option<i64>,
    #[wire(6)]
    pub period: Open<Period>,
    /// The version that it is a change of; none: whichever it is.
    #[wire(7, optional)]
    pub expected_version: Option<u64>,
}

/// The last millisecond of the year 9999: what is later cannot be written as a date.
const MOMENT_MAX: i64 = 253_402_300_799_999;

fn invalid(field: &str) -> Refusal {
    Refusal::new(Rule::SettingInvalid, field)
}

impl AccountRequest {
    fn read(&self) -> Result<Account, Refusal> {
        let tenant = given_name(&self.tenant, "tenant")?;
        let team = optional(&self.team, "team")?;
        let namespace = optional(&self.namespace, "namespace")?;
        if namespace.is_some() && team.is_none() {
            return Err(Refusal::new(Rule::NameInvalid, "team"));
        }
        Ok(Account {
            tenant,
            team,
            namespace,
        })
    }
}

impl Admission {
    /// Requires a known tenant. A new limit or budget of a team requires that the tenant has the team; an earlier one may change, and be
    /// removed.
    fn check_account(
        &self,
        account: &Account,
        setting: &Setting,
        gives: bool,
    ) -> Result<(), Refusal> {
        let Account {
            tenant,
            team,
            namespace,
        } = account;
        if !self.settings.knows_tenant(tenant) {
            return Err(Refusal::new(Rule::TenantUnknown, "tenant"));
        }
        match gives && self.settings.version(setting) == 0 {
            true => (self.teams).check(tenant, team.as_ref(), namespace.as_ref()),
            false => Ok(()),
        }
    }

    pub(super) fn check_quota(&self, set: &QuotaSet, now: Millis) -> Result<(), Refusal> {
        self.check_account(&set.account, &set.setting(), set.limits.is_some())?;
        let Validity { from, until } = set.validity;
        for (at, field) in [(from, FROM), (until, UNTIL)] {
            if at.is_some_and(|at| at <= now) {
                return Err(interval_invalid(field));
            }
        }
        Ok(())
    }

    pub(super) fn check_budget(&self, set: &BudgetSet) -> Result<(), Refusal> {
        self.check_account(&set.account, &set.setting(), set.budget.is_some())
    }
}

const FROM: &str = "from_ms";
const UNTIL: &str = "until_ms";

fn interval_invalid(field: &str) -> Refusal {
    Refusal::new(Rule::IntervalInvalid, field)
}

impl BudgetRequest {
    pub(super) fn read(&self) -> Result<BudgetSet, Refusal> {
        let account = self.account.read()?;
        let of = BudgetOf::parse(&self.of);
        let of = of.ok_or_else(|| Refusal::new(Rule::ResourceUnknown, "of"))?;
        let budget = match self.amount {
            None => None,
            Some(most) => Some(Budget {
                amount: amount(most, Limits::MAX, "amount")?,
                period: self.period.known().ok_or_else(|| invalid("period"))?,
            }),
        };
        Ok(BudgetSet {
            account,
            of,
            budget,
        })
    }
}

impl QuotaRequest {
    pub(super) fn read(&self) -> Result<QuotaSet, Refusal> {
        let account = self.account.read()?;
        let resource = QuotaResource::parse(&self.resource)
            .ok_or_else(|| Refusal::new(Rule::ResourceUnknown, "resource"))?;
        let limits = self.limits(&resource)?;
        let validity = self.validity()?;
        let of_tenant = account.team.is_none();
        if let Some(limits) = limits.filter(|_| !of_tenant) {
            // Whoever has teams shares among them by their limits: only tenants lend.
            if limits.borrow.is_some() {
                return Err(invalid("borrow"));
            }
            if limits.lend.is_some() {
                return Err(invalid("lend"));
            }
        }
        let plain = limits.is_none_or(|limits| limits == Limits::hard(limits.hard));
        let fits = of_tenant && plain && validity == Validity::default();
        if resource == QuotaResource::Leases && !fits {
            // The kernel of leases counts them by tenant, and refuses at the limit.
            return Err(Refusal::new(Rule::NotSupported, "resource"));
        }
        Ok(QuotaSet {
            account,
            resource,
            limits,
            validity,
        })
    }

    /// None: without limits.
    fn limits(&self, resource: &QuotaResource) -> Result<Option<Limits>, Refusal> {
        let hard = amount(self.limit, Limits::MAX, "limit")?;
        let optional = |value: Option<i64>, field: &str| {
            let checked = value.map(|value| amount(value, Limits::MAX, field));
            checked.transpose()
        };
        let limits = Limits {
            hard,
            soft: optional(self.soft, "soft")?,
            burst: optional(self.burst, "burst")?,
            burst_ms: match self.burst {
                None => amount(self.burst_ms, 0, "burst_ms")?,
                Some(_) => quantity(self.burst_ms, Limits::BURST_MS_MAX, "burst_ms")?,
            },
            borrow: optional(self.borrow, "borrow")?,
            lend: optional(self.lend, "lend")?,
        };
        if self.unlimited {
            return match limits == Limits::default() {
                true => Ok(None),
                false => Err(invalid("unlimited")),
            };
        }
        // With the resource, which says what the amounts are measured in.
        let beside_hard = |field: &str, actual| {
            Refusal::over(
                Rule::SettingInvalid,
                format!("{field} {resource}"),
                hard,
                actual,
            )
        };
        if let Some(soft) = limits.soft.filter(|soft| *soft > hard) {
            return Err(beside_hard("soft", soft));
        }
        if let Some(burst) = limits.burst.filter(|burst| *burst < hard) {
            return Err(beside_hard("burst", burst));
        }
        Ok(Some(limits))
    }

    fn validity(&self) -> Result<Validity, Refusal> {
        if self.from_ms.is_some_and(|from| from > MOMENT_MAX) {
            return Err(interval_invalid(FROM));
        }
        let after = |until: i64| self.from_ms.is_none_or(|from| from < until);
        if (self.until_ms).is_some_and(|at| at > MOMENT_MAX || !after(at)) {
            return Err(interval_invalid(UNTIL));
        }
        Ok(Validity {
            from: self.from_ms.map(Millis),
            until: self.until_ms.map(Millis),
        })
    }
}

impl From<&Account> for AccountRequest {
    fn from(account: &Account) -> Self {
        Self {
            tenant: account.tenant.to_string(),
            team: written_name(account.team.as_ref()),
            namespace: written_name(account.namespace.as_ref()),
        }
    }
}

impl From<&QuotaSet> for QuotaRequest {
    fn from(set: &QuotaSet) -> Self {
        let limits = set.limits.unwrap_or_default();
        Self {
            account: AccountRequest::from(&set.account),
            resource: set.resource.to_string(),
            limit: written_amount(limits.hard),
            soft: limits.soft.map(written_amount),
            burst: limits.burst.map(written_amount),
            burst_ms: written_amount(limits.burst_ms),
            borrow: limits.borrow.map(written_amount),
            lend: limits.lend.map(written_amount),
            from_ms: set.validity.from.map(|from| from.0),
            until_ms: set.validity.until.map(|until| until.0),
            unlimited: set.limits.is_none(),
            expected_version: None,
        }
    }
}

impl From<&BudgetSet> for BudgetRequest {
    fn from(set: &BudgetSet) -> Self {
        let period = set.budget.as_ref().map(|budget| Open::Known(budget.period));
        Self {
            account: AccountRequest::from(&set.account),
            of: set.of.name().to_owned(),
            amount: set
                .budget
                .as_ref()
                .map(|budget| written_amount(budget.amount)),
            period: period.unwrap_or_default(),
            expected_version: None,
        }
    }
}
