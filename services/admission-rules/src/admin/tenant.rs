//! Tenants, and how they are treated.

use crate::{
    Admission,
    check::{
        amount, bounded, given_name, in_order, names, optional, small_quantity, written_amount,
        written_name,
    },
};
use vocab::fact::TenantSet;
use vocab::{
    AllocationSpec, Limits, OnExceed, QueueSettings, ReclaimFrom, Refusal, Rule, Team,
    TenantSettings, Token,
};
use wire::Open;

/// A tenant's settings as they were written.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "SetTenant")]
pub struct TenantRequest {
    #[wire(1)]
    pub tenant: String,
    #[wire(3)]
    pub cohort: String,
    #[wire(4, optional)]
    pub weight_milli: Option<i64>,
    #[wire(5, optional)]
    pub preemptible: Option<bool>,
    #[wire(6)]
    pub on_exceed: Open<OnExceed>,
    #[wire(7)]
    pub reclaim: Open<ReclaimFrom>,
    #[wire(8, optional)]
    pub rate_milli: Option<i64>,
    #[wire(9)]
    pub rate_burst: i64,
    #[wire(10)]
    pub allocations_max: i64,
    #[wire(11)]
    pub priority_classes: Vec<String>,
    #[wire(12, optional)]
    pub priority_max: Option<i32>,
    #[wire(13)]
    pub default_cpu_milli: i64,
    #[wire(14)]
    pub default_memory_bytes: i64,
    #[wire(15)]
    pub closed: bool,
    /// Each `team` or `team/namespace`.
    #[wire(16)]
    pub teams: Vec<String>,
    /// The version that it is a change of; none: whichever it is.
    #[wire(2, optional)]
    pub expected_version: Option<u64>,
}

impl Admission {
    /// Requires that each class that the tenant may use is set, or was listed before.
    pub(super) fn check_tenant(&self, set: &TenantSet) -> Result<(), Refusal> {
        let before = self.settings.tenants.get(&set.tenant);
        let stands = |class| {
            before.is_some_and(|before| before.priority_classes.binary_search(class).is_ok())
        };
        let known = |class| self.settings.classes.contains_key(class) || stands(class);
        match set.settings.priority_classes.iter().all(known) {
            true => Ok(()),
            false => Err(Refusal::new(Rule::PriorityClassUnknown, "priority_classes")),
        }
    }
}

impl TenantRequest {
    pub(super) fn read(&self) -> Result<TenantSet, Refusal> {
        let defaults = TenantSettings::default();
        let invalid = |field: &str| Refusal::new(Rule::SettingInvalid, field);
        let max = AllocationSpec::PRIORITY_MAX;
        let priority_max = self.priority_max.unwrap_or(defaults.priority_max);
        if !(-max..=max).contains(&priority_max) {
            return Err(Refusal::new(Rule::PriorityOutOfRange, "priority_max"));
        }
        let rate_burst = amount(
            self.rate_burst,
            TenantSettings::RATE_BURST_MAX,
            "rate_burst",
        )?;
        let rate_milli = self
            .rate_milli
            .map_or(Ok(TenantSettings::RATE_MILLI_USUAL), |rate| {
                amount(rate, TenantSettings::RATE_MILLI_MAX, "rate_milli")
            })?;
        let rate_burst = match (self.rate_milli, rate_burst) {
            (None, 0) => TenantSettings::RATE_BURST_USUAL,
            (_, burst) => burst,
        };
        let settings = TenantSettings {
            cohort: optional(&self.cohort, "cohort")?,
            weight_milli: match self.weight_milli {
                None => defaults.weight_milli,
                Some(weight) => {
                    small_quantity(weight, QueueSettings::WEIGHT_MILLI_MAX, "weight_milli")?
                }
            },
            preemptible: self.preemptible.unwrap_or(defaults.preemptible),
            on_exceed: self.on_exceed.known().ok_or_else(|| invalid("on_exceed"))?,
            reclaim: self.reclaim.known().ok_or_else(|| invalid("reclaim"))?,
            rate_milli,
            rate_burst,
            allocations_max: amount(self.allocations_max, Limits::MAX, "allocations_max")?,
            priority_classes: names(
                &self.priority_classes,
                TenantSettings::CLASSES_MAX,
                "priority_classes",
            )?,
            priority_max,
            default_cpu_milli: amount(
                self.default_cpu_milli,
                AllocationSpec::CPU_MILLI_MAX,
                "default_cpu_milli",
            )?,
            default_memory_bytes: amount(
                self.default_memory_bytes,
                AllocationSpec::MEMORY_BYTES_MAX,
                "default_memory_bytes",
            )?,
        };
        Ok(TenantSet {
            tenant: given_name(&self.tenant, "tenant")?,
            settings,
            closed: self.closed,
            teams: self.teams()?,
        })
    }

    fn teams(&self) -> Result<Vec<Team>, Refusal> {
        let field = "teams";
        bounded(&self.teams, TenantSettings::TEAMS_MAX, field)?;
        let teams = self.teams.iter().map(|text| Team::parse(text));
        let teams = teams.collect::<Option<_>>().map(in_order);
        teams.ok_or_else(|| Refusal::new(Rule::NameInvalid, field))
    }
}

impl From<&TenantSet> for TenantRequest {
    fn from(set: &TenantSet) -> Self {
        let settings = &set.settings;
        let classes = settings.priority_classes.iter();
        Self {
            tenant: set.tenant.to_string(),
            cohort: written_name(settings.cohort.as_ref()),
            weight_milli: Some(settings.weight_milli.into()),
            preemptible: Some(settings.preemptible),
            on_exceed: Open::Known(settings.on_exceed),
            reclaim: Open::Known(settings.reclaim),
            rate_milli: Some(written_amount(settings.rate_milli)),
            rate_burst: written_amount(settings.rate_burst),
            allocations_max: written_amount(settings.allocations_max),
            priority_classes: classes.map(Token::to_string).collect(),
            priority_max: Some(settings.priority_max),
            default_cpu_milli: written_amount(settings.default_cpu_milli),
            default_memory_bytes: written_amount(settings.default_memory_bytes),
            closed: set.closed,
            teams: set.teams.iter().map(Team::to_string).collect(),
            expected_version: None,
        }
    }
}
