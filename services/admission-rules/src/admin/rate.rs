//! Rates.

use crate::{
    Admission,
    check::{amount, optional, written_amount, written_name},
    settings::rate_name,
};
use vocab::fact::RateSet;
use vocab::{
    Millis, Month, RateScope, Refusal, ResourceKey, Rule,
    sabotage::{self, Bug},
};

/// A million of the currency per unit and hour.
const RATE_MAX: u64 = 1_000_000_000_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "SetRate")]
pub struct RateRequest {
    #[wire(1)]
    pub resource: String,
    #[wire(2)]
    pub micro_per_unit_hour: i64,
    #[wire(3)]
    pub effective_from_ms: i64,
    #[wire(4, optional)]
    pub expected_version: Option<u64>,
    #[wire(5)]
    pub tenant: String,
    #[wire(6)]
    pub priority_class: String,
    #[wire(7)]
    pub pool: String,
    #[wire(8)]
    pub cluster: String,
    #[wire(9)]
    pub withdrawn: bool,
    #[wire(10)]
    pub correction: bool,
}

const EFFECTIVE_FROM: &str = "effective_from_ms";

impl RateRequest {
    /// Returns whether it counts as soon as it is accepted.
    pub(super) fn is_at_once(&self) -> bool {
        self.effective_from_ms == 0 && !self.correction
    }

    /// Returns the rate. A change without a moment counts from the next millisecond.
    pub(super) fn read(&self, now: Millis) -> Result<RateSet, Refusal> {
        let resource = ResourceKey::parse(&self.resource)
            .ok_or_else(|| Refusal::new(Rule::ResourceUnknown, "resource"))?;
        let scope = RateScope {
            tenant: optional(&self.tenant, "tenant")?,
            priority_class: optional(&self.priority_class, "priority_class")?,
            pool: optional(&self.pool, "pool")?,
            cluster: optional(&self.cluster, "cluster")?,
        };
        let withdrawn = self.withdrawn;
        let most = if withdrawn { 0 } else { RATE_MAX };
        let micro_per_unit_hour = amount(self.micro_per_unit_hour, most, "micro_per_unit_hour")?;
        let from = Millis(self.effective_from_ms);
        if from < Millis(0) || from >= Month::LAST.end() {
            return Err(Refusal::new(Rule::SettingInvalid, EFFECTIVE_FROM));
        }
        if self.correction && (withdrawn || from > Millis(0)) {
            return Err(Refusal::new(Rule::SettingInvalid, "correction"));
        }
        let effective_from = match self.is_at_once() {
            true => Millis(now.0.saturating_add(1)),
            false => from,
        };
        Ok(RateSet {
            resource,
            micro_per_unit_hour,
            effective_from,
            scope,
            withdrawn,
        })
    }
}

impl Admission {
    /// `at_once`: the request names no moment.
    pub(super) fn check_rate(
        &self,
        set: &RateSet,
        now: Millis,
        at_once: bool,
    ) -> Result<(), Refusal> {
        self.check_scope(&set.scope)?;
        self.check_effective(set, now, at_once)
    }

    /// Pools and clusters are labels that a node may yet have; tenants and priority classes are settings.
    fn check_scope(&self, scope: &RateScope) -> Result<(), Refusal> {
        let unknown = |tenant| !self.settings.knows_tenant(tenant);
        if scope.tenant.as_ref().is_some_and(unknown) {
            return Err(Refusal::new(Rule::TenantUnknown, "tenant"));
        }
        let unknown = |class| !self.settings.classes.contains_key(class);
        if scope.priority_class.as_ref().is_some_and(unknown) {
            return Err(Refusal::new(Rule::PriorityClassUnknown, "priority_class"));
        }
        Ok(())
    }

    /// To the millisecond. Only the first rate of a resource and scope may do without a moment: it counts as soon as it is accepted,
    /// as a withdrawal does. Use before that keeps its price, unless the request states that it corrects the past, from the beginning of
    /// time on.
    fn check_effective(&self, set: &RateSet, now: Millis, at_once: bool) -> Result<(), Refusal> {
        let (subject, key) = (EFFECTIVE_FROM, set.key());
        let was_set = self.settings.rate_was_set(&key);
        if set.withdrawn && !was_set {
            return Err(Refusal::new(Rule::NeverSet, rate_name(&key)));
        }
        let later = was_set && !set.withdrawn;
        match (set.effective_from, self.closed_through) {
            _ if at_once && !later => Ok(()),
            (from, _) if from > now && !at_once => Ok(()),
            (from, _)
                if (from > Millis(0) || was_set) && !sabotage::armed(Bug::PastRateAccepted) =>
            {
                Err(Refusal::new(Rule::RateForAPastHour, subject))
            }
            (_, Some(Month(closed))) => {
                Err(Refusal::over(Rule::PeriodClosed, subject, closed.into(), 0))
            }
            (_, None) => Ok(()),
        }
    }
}

impl From<&RateSet> for RateRequest {
    fn from(set: &RateSet) -> Self {
        let scope = &set.scope;
        Self {
            resource: set.resource.to_string(),
            micro_per_unit_hour: written_amount(set.micro_per_unit_hour),
            effective_from_ms: set.effective_from.0,
            expected_version: None,
            tenant: written_name(scope.tenant.as_ref()),
            priority_class: written_name(scope.priority_class.as_ref()),
            pool: written_name(scope.pool.as_ref()),
            cluster: written_name(scope.cluster.as_ref()),
            withdrawn: set.withdrawn,
            correction: set.effective_from == Millis(0),
        }
    }
}
