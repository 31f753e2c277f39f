//! The operators' changes: tenants, quotas and rates, each with a version that the change may name.

use super::{Admission, Verb};
use vocab::{AdminChange, HOUR_MS, Millis, Refusal, ResourceKey, ResourceKind, Rule, Token};

/// Quotas stay exact in every client's number type.
const QUOTA_MAX: u64 = 1 << 53;
/// A million of the currency per unit and hour.
const RATE_MAX: u64 = 1_000_000_000_000;

fn tenant_name(text: &str) -> Result<Token, Refusal> {
    match Token::new(text) {
        // Names with a leading `_` are the cell's own.
        Ok(token) if !text.starts_with('_') => Ok(token),
        _ => Err(Refusal::new(Rule::NameInvalid, "tenant")),
    }
}

fn amount(value: i64, max: u64, field: &str) -> Result<u64, Refusal> {
    match u64::try_from(value) {
        Err(_) => Err(Refusal::new(Rule::QuantityNegative, field)),
        Ok(value) if value > max => Err(Refusal::over(Rule::QuantityTooLarge, field, max, value)),
        Ok(value) => Ok(value),
    }
}

/// The version that the change makes.
fn next_version(current: Option<u64>, expected: Option<u64>) -> Result<u64, Refusal> {
    let current = current.unwrap_or(0);
    match expected {
        Some(expected) if expected != current => Err(Refusal::over(
            Rule::VersionConflict,
            "expected_version",
            current,
            expected,
        )),
        _ => Ok(current + 1),
    }
}

impl Admission {
    pub(super) fn check_admin(
        &self,
        verb: Verb,
        now: Millis,
    ) -> Result<(AdminChange, u64), Refusal> {
        match verb {
            Verb::SetTenant { tenant, expected } => {
                let tenant = tenant_name(&tenant)?;
                let version = next_version(self.tenants.get(&tenant).copied(), expected)?;
                Ok((AdminChange::Tenant { tenant }, version))
            }
            Verb::SetQuota {
                tenant,
                resource,
                limit,
                expected,
            } => {
                let tenant = tenant_name(&tenant)?;
                if !self.tenants.contains_key(&tenant) {
                    return Err(Refusal::new(Rule::TenantUnknown, "tenant"));
                }
                let resource = ResourceKind::parse(&resource)
                    .ok_or_else(|| Refusal::new(Rule::ResourceUnknown, "resource"))?;
                let limit = amount(limit, QUOTA_MAX, "limit")?;
                let key = (tenant.clone(), resource);
                let version = next_version(self.quotas.get(&key).copied(), expected)?;
                let change = AdminChange::Quota {
                    tenant,
                    resource,
                    limit,
                };
                Ok((change, version))
            }
            Verb::SetRate {
                resource,
                micro_per_unit_hour,
                effective_from_ms,
                expected,
            } => {
                let resource = ResourceKey::parse(&resource)
                    .ok_or_else(|| Refusal::new(Rule::ResourceUnknown, "resource"))?;
                let rate = amount(micro_per_unit_hour, RATE_MAX, "micro_per_unit_hour")?;
                let current = self.rates.get(&resource).copied();
                let effective_from = Millis(effective_from_ms);
                check_effective(effective_from, current.is_none(), now)?;
                let version = next_version(current, expected)?;
                let change = AdminChange::Rate {
                    resource,
                    micro_per_unit_hour: rate,
                    effective_from,
                };
                Ok((change, version))
            }
            // The caller lets only operators' verbs through.
            Verb::Submit(_) | Verb::Cancel { .. } => Err(Refusal::new(Rule::UnknownVerb, "verb")),
        }
    }
}

/// The first rate of a resource may reach back, because nothing was billed by another; a later one may not.
fn check_effective(effective_from: Millis, first: bool, now: Millis) -> Result<(), Refusal> {
    let subject = "effective_from_ms";
    if effective_from.0 < 0 || effective_from.0 % HOUR_MS != 0 {
        return Err(Refusal::new(Rule::RateNotOnTheHour, subject));
    }
    if !first && effective_from <= now {
        return Err(Refusal::new(Rule::RateForAPastHour, subject));
    }
    Ok(())
}
