//! Who holds quota, of what, and within which limits.

use crate::{Millis, ResourceKind, Token};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// A tenant, one of its teams, or a namespace of a team.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Account {
    pub tenant: Token,
    pub team: Option<Token>,
    /// Only with a team.
    pub namespace: Option<Token>,
}

impl Account {
    pub fn tenant(tenant: Token) -> Self {
        Self {
            tenant,
            team: None,
            namespace: None,
        }
    }

    /// `tenant`, `tenant/team` or `tenant/team/namespace`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut names = text.split('/').map(Token::new);
        let tenant = names.next()?.ok()?;
        let team = names.next().transpose().ok()?;
        let namespace = names.next().transpose().ok()?;
        names.next().is_none().then_some(Self {
            tenant,
            team,
            namespace,
        })
    }

    /// The account above it.
    pub fn parent(&self) -> Option<Self> {
        self.team.as_ref()?;
        let team = match self.namespace {
            Some(_) => self.team.clone(),
            None => None,
        };
        Some(Self {
            tenant: self.tenant.clone(),
            team,
            namespace: None,
        })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tenant.fmt(f)?;
        let below = [&self.team, &self.namespace].into_iter().flatten();
        below.into_iter().try_for_each(|name| write!(f, "/{name}"))
    }
}

/// A team of a tenant, or one of its namespaces.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
#[wire(text)]
pub struct Team {
    pub team: Token,
    pub namespace: Option<Token>,
}

impl Team {
    /// `team` or `team/namespace`.
    pub fn parse(text: &str) -> Option<Self> {
        let (team, namespace) = match text.split_once('/') {
            Some((team, namespace)) => (team, Some(Token::new(namespace).ok()?)),
            None => (text, None),
        };
        Some(Self {
            team: Token::new(team).ok()?,
            namespace,
        })
    }

    /// A team covers itself and all of its namespaces, a namespace itself and its team.
    pub fn covers(&self, team: &Token, namespace: Option<&Token>) -> bool {
        let own = self.namespace.as_ref();
        self.team == *team && (own.is_none() || namespace.is_none() || own == namespace)
    }
}

impl fmt::Display for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.team.fmt(f)?;
        let namespace = self.namespace.iter();
        namespace
            .into_iter()
            .try_for_each(|name| write!(f, "/{name}"))
    }
}

impl wire::Text for Team {
    fn as_text(&self) -> Cow<'_, str> {
        Cow::Owned(self.to_string())
    }

    fn parse_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

/// A resource type that limits speak of.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
#[wire(text)]
pub enum QuotaResource {
    /// In millicores.
    Cpu,
    /// In bytes.
    Memory,
    /// In thousandths of a device.
    Gpu,
    /// In thousandths of a device. Counts what is on nodes of this model, and what may still come to be.
    GpuModel(Token),
    /// The extended resource `storage`, in the unit that the operator gave it.
    Storage,
    /// Allocations, waiting ones that hold quota included.
    Pods,
    /// In the unit that the operator gave it.
    Extended(Token),
    /// Leases of named resources that have not ended.
    Leases,
}

impl QuotaResource {
    pub const STORAGE: &'static str = "storage";

    pub fn of(kind: ResourceKind) -> Self {
        match kind {
            ResourceKind::Cpu => Self::Cpu,
            ResourceKind::Memory => Self::Memory,
            ResourceKind::Gpu => Self::Gpu,
        }
    }

    /// The extended resource of this name.
    pub fn extended(name: &Token) -> Self {
        match name.as_str() {
            Self::STORAGE => Self::Storage,
            _ => Self::Extended(name.clone()),
        }
    }

    /// `cpu`, `memory`, `gpu`, `gpu:<model>`, `storage`, `pods`, `extended:<name>` or `leases`.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text.split_once(':') {
            Some(("gpu", model)) => Self::GpuModel(Token::new(model).ok()?),
            Some(("extended", name)) => Self::extended(&Token::new(name).ok()?),
            Some(_) => return None,
            None => match text {
                Self::STORAGE => Self::Storage,
                "pods" => Self::Pods,
                "leases" => Self::Leases,
                _ => Self::of(ResourceKind::parse(text)?),
            },
        })
    }
}

/// Several models of which any would do, as refusals speak of them: `gpu:A100|H100`, and `gpu:*` for any at all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelChoice(pub Vec<Token>);

impl ModelChoice {
    pub fn parse(text: &str) -> Option<Self> {
        let models = text.strip_prefix("gpu:")?;
        if models == "*" {
            return Some(Self(Vec::new()));
        }
        let models: Result<Vec<_>, _> = models.split('|').map(Token::new).collect();
        models.ok().filter(|models| models.len() > 1).map(Self)
    }
}

impl fmt::Display for ModelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_first() {
            None => f.write_str("gpu:*"),
            Some((first, others)) => {
                write!(f, "gpu:{first}")?;
                others.iter().try_for_each(|model| write!(f, "|{model}"))
            }
        }
    }
}

impl fmt::Display for QuotaResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Memory => f.write_str("memory"),
            Self::Gpu => f.write_str("gpu"),
            Self::GpuModel(model) => write!(f, "gpu:{model}"),
            Self::Storage => f.write_str(Self::STORAGE),
            Self::Pods => f.write_str("pods"),
            Self::Extended(name) => write!(f, "extended:{name}"),
            Self::Leases => f.write_str("leases"),
        }
    }
}

/// What an account may hold of one resource type, in its unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct Limits {
    /// No more than this, but for what it borrows or bursts.
    #[wire(1)]
    pub hard: u64,
    /// Above this it is flagged; not above `hard`.
    #[wire(2, optional)]
    pub soft: Option<u64>,
    /// Up to this for `burst_ms` at a stretch; not below `hard`.
    #[wire(3, optional)]
    pub burst: Option<u64>,
    #[wire(4)]
    pub burst_ms: u64,
    /// Tenants in a cohort: how much beyond `hard` it may take of what the others lend; none: all of it.
    #[wire(5, optional)]
    pub borrow: Option<u64>,
    /// Tenants in a cohort: how much of `hard` the others may take while it is not used; none: all of it.
    #[wire(6, optional)]
    pub lend: Option<u64>,
}

impl Limits {
    /// Limits stay exact in every client's number type.
    pub const MAX: u64 = 1 << 53;
    /// 31 days.
    pub const BURST_MS_MAX: u64 = 31 * 24 * 3_600_000;

    pub fn hard(hard: u64) -> Self {
        Self {
            hard,
            ..Self::default()
        }
    }
}

/// When limits hold: from a moment on, or in an interval, after which those before it hold again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// None: at once.
    pub from: Option<Millis>,
    /// None: for good.
    pub until: Option<Millis>,
}

/// How a tenant is treated at the inbox, by quota, and beside others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct TenantSettings {
    /// Tenants of one cohort lend each other what they do not use.
    #[wire(1)]
    pub cohort: Option<Token>,
    /// Weight of the tenant's own queue, unless an operator has set that queue; thousandths, 1..=1_000_000.
    #[wire(2)]
    pub weight_milli: u32,
    /// What it borrows may be taken back by the lender. Otherwise it cannot borrow.
    #[wire(3)]
    pub preemptible: bool,
    #[wire(4)]
    pub on_exceed: OnExceed,
    /// From whom it takes back what it has lent.
    #[wire(5)]
    pub reclaim: ReclaimFrom,
    /// Requests per second at the inbox, in thousandths; 0: any number.
    #[wire(6)]
    pub rate_milli: u64,
    /// Requests that may come at once, after a pause; 0: a second's worth.
    #[wire(7)]
    pub rate_burst: u64,
    /// Allocations that have not ended; 0: as many as the cell takes.
    #[wire(8)]
    pub allocations_max: u64,
    /// The priority classes that it may use; empty: any. Sorted.
    #[wire(9)]
    pub priority_classes: Vec<Token>,
    /// The highest priority that it may ask for without a class.
    #[wire(10)]
    pub priority_max: i32,
    /// What a request that names none asks for; 0: it has to name some.
    #[wire(11)]
    pub default_cpu_milli: u64,
    #[wire(12)]
    pub default_memory_bytes: u64,
}

impl TenantSettings {
    /// What a tenant may send for which nothing else was said: far more than people and most controllers do, and far less than
    /// what a cell takes, so that none can fill its ledger unasked.
    pub const RATE_MILLI_USUAL: u64 = 1_000_000;
    pub const RATE_BURST_USUAL: u64 = 10_000;
}

impl Default for TenantSettings {
    fn default() -> Self {
        Self {
            cohort: None,
            weight_milli: 1000,
            preemptible: true,
            on_exceed: OnExceed::Refuse,
            reclaim: ReclaimFrom::Any,
            rate_milli: 0,
            rate_burst: 0,
            allocations_max: 0,
            priority_classes: Vec::new(),
            priority_max: crate::AllocationSpec::PRIORITY_MAX,
            default_cpu_milli: 0,
            default_memory_bytes: 0,
        }
    }
}

impl TenantSettings {
    pub const RATE_MILLI_MAX: u64 = 1_000_000_000;
    pub const RATE_BURST_MAX: u64 = 1_000_000;
    pub const CLASSES_MAX: usize = 64;
    pub const TEAMS_MAX: usize = 256;
}

/// What becomes of a request beyond a limit. Stable numbers, the same as the contract's.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
pub enum OnExceed {
    #[default]
    Refuse = 0,
    /// It waits, in the order of priority, until it fits. What could never fit is refused.
    Wait = 1,
}

impl OnExceed {
    pub fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Wait => "wait",
        }
    }
}

/// From whom a lender takes back. Stable numbers, the same as the contract's.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
pub enum ReclaimFrom {
    /// Whoever borrows.
    #[default]
    Any = 0,
    /// Whoever borrows at a lower priority than the one who needs it.
    LowerPriority = 1,
    /// Nobody: it waits until it is given back.
    Never = 2,
}

impl ReclaimFrom {
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::LowerPriority => "lower_priority",
            Self::Never => "never",
        }
    }
}

/// What a budget counts.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
#[wire(text)]
pub enum BudgetOf {
    /// Millionths of the currency, by the rates.
    Money,
    /// The resource's unit times hours: millicore-hours, byte-hours, thousandths of a GPU-hour.
    Use(ResourceKind),
}

impl BudgetOf {
    /// `money`, `cpu`, `memory` or `gpu`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "money" => Some(Self::Money),
            _ => ResourceKind::parse(text).map(Self::Use),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Money => "money",
            Self::Use(kind) => kind.name(),
        }
    }
}

/// The stretches of time that a budget is for, in UTC. Stable numbers, the same as the contract's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub enum Period {
    Hour = 1,
    Day = 2,
    /// From Monday on.
    Week = 3,
    /// Of the calendar.
    Month = 4,
}

impl Period {
    pub fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|period| period.name() == text)
    }

    /// The period that `now` is in: its beginning, and the beginning of the next.
    pub fn around(self, now: Millis) -> (Millis, Millis) {
        const HOUR: i64 = crate::HOUR_MS;
        const DAY: i64 = crate::DAY_MS;
        let stretch = |length: i64, offset: i64| {
            // Periods at either end of the range of moments are cut off.
            let (length, offset) = (i128::from(length), i128::from(offset));
            let from = (i128::from(now.0) - offset).div_euclid(length) * length + offset;
            let moment = |ms: i128| {
                let within = ms.clamp(i64::MIN.into(), i64::MAX.into());
                // In range after the clamp.
                Millis(i64::try_from(within).unwrap_or(i64::MAX))
            };
            (moment(from), moment(from + length))
        };
        match self {
            Self::Hour => stretch(HOUR, 0),
            Self::Day => stretch(DAY, 0),
            // The first of January 1970 was a Thursday.
            Self::Week => stretch(7 * DAY, 4 * DAY),
            Self::Month => {
                let month = crate::Month::of(now);
                (month.begin(), month.end())
            }
        }
    }
}

/// What an account may use up in every period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct Budget {
    #[wire(1)]
    pub amount: u64,
    #[wire(2)]
    pub period: Period,
}

impl wire::Text for QuotaResource {
    fn as_text(&self) -> Cow<'_, str> {
        Cow::Owned(self.to_string())
    }

    fn parse_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

impl wire::Text for BudgetOf {
    fn as_text(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.name())
    }

    fn parse_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_reads_what_it_writes_and_knows_who_is_above() {
        let parents: Vec<Option<String>> = ["a", "a/b", "a/b/c"]
            .into_iter()
            .map(|text| {
                let account = Account::parse(text).unwrap();
                assert_eq!(account.to_string(), text);
                account.parent().map(|parent| parent.to_string())
            })
            .collect();
        assert_eq!(parents, [None, Some("a".into()), Some("a/b".into())]);
        for bad in ["", "a/", "/b", "a//c", "a/b/c/d", "a/b.c"] {
            assert_eq!(Account::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_resource_reads_what_it_writes() {
        for text in [
            "cpu",
            "memory",
            "gpu",
            "gpu:T4",
            "storage",
            "pods",
            "extended:fpga",
            "leases",
        ] {
            assert_eq!(QuotaResource::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            QuotaResource::parse("extended:storage"),
            Some(QuotaResource::Storage)
        );
        for bad in ["", "disk", "cpu:x", "gpu:", "extended:", "pods:a"] {
            assert_eq!(QuotaResource::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn periods_begin_where_the_calendar_says() {
        let check = |period: Period, now: i64, expected: (i64, i64)| {
            let (from, next) = period.around(Millis(now * 1000));
            assert_eq!((from.0 / 1000, next.0 / 1000), expected, "{period:?} {now}");
        };
        // 2024-02-29 12:34:56 UTC, a Thursday.
        let now = 1_709_210_096;
        check(Period::Hour, now, (1_709_208_000, 1_709_211_600));
        check(Period::Day, now, (1_709_164_800, 1_709_251_200));
        check(Period::Week, now, (1_708_905_600, 1_709_510_400));
        check(Period::Month, now, (1_706_745_600, 1_709_251_200));
        // December 1999 and January 1970.
        check(Period::Month, 946_684_799, (944_006_400, 946_684_800));
        check(Period::Month, 0, (0, 2_678_400));
        check(Period::Week, 0, (-259_200, 345_600));
    }
}
