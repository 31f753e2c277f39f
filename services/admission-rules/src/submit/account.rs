//! The account that an allocation's quota is of, and what its run may take beyond what it asks for.

use super::SubmitRequest;
use crate::{
    Admission,
    check::{amount, optional, quantity},
};
use vocab::{AllocationSpec, Refusal, Rule, RunLimits, Token};

impl SubmitRequest {
    /// A namespace is a team's.
    pub(super) fn team_and_namespace(&self) -> Result<(Option<Token>, Option<Token>), Refusal> {
        let team = optional(&self.team, "team")?;
        let namespace = optional(&self.namespace, "namespace")?;
        if namespace.is_some() && team.is_none() {
            return Err(Refusal::new(Rule::NameInvalid, "team"));
        }
        Ok((team, namespace))
    }

    /// What a run may take at the most: said, it is not below what is asked for; not said, or the same, it is nothing more.
    pub(super) fn limits(&self, cpu_milli: u64, memory_bytes: u64) -> Result<RunLimits, Refusal> {
        let cpu = (
            self.cpu_milli_limit,
            AllocationSpec::CPU_MILLI_MAX,
            "cpu_milli_limit",
        );
        let memory = (
            self.memory_bytes_limit,
            AllocationSpec::MEMORY_BYTES_MAX,
            "memory_bytes_limit",
        );
        let beyond = |(limit, max, field): (i64, u64, &str), asked: u64| {
            let limit = amount(limit, max, field)?;
            match limit {
                0 => Ok(0),
                limit if limit < asked => {
                    Err(Refusal::over(Rule::SettingInvalid, field, asked, limit))
                }
                limit if limit == asked => Ok(0),
                limit => Ok(limit),
            }
        };
        Ok(RunLimits {
            cpu_milli: beyond(cpu, cpu_milli)?,
            memory_bytes: beyond(memory, memory_bytes)?,
        })
    }
}

impl Admission {
    /// What is not named is the tenant's default; best effort asks for nothing.
    pub(super) fn cpu_and_memory(
        &self,
        tenant: &Token,
        request: &SubmitRequest,
    ) -> Result<(u64, u64), Refusal> {
        if request.best_effort {
            let named = request.cpu_milli != 0 || request.memory_bytes != 0;
            return match named {
                true => Err(Refusal::new(Rule::SettingInvalid, "best_effort")),
                false => Ok((0, 0)),
            };
        }
        let settings = self.settings.tenants.get(tenant);
        let or_default = |named: i64, default: u64| match named {
            // A default was checked to be an amount that can be asked for.
            0 => default as i64,
            named => named,
        };
        let cpu = or_default(
            request.cpu_milli,
            settings.map_or(0, |t| t.default_cpu_milli),
        );
        let memory = or_default(
            request.memory_bytes,
            settings.map_or(0, |t| t.default_memory_bytes),
        );
        Ok((
            quantity(cpu, AllocationSpec::CPU_MILLI_MAX, "cpu_milli")?,
            quantity(memory, AllocationSpec::MEMORY_BYTES_MAX, "memory_bytes")?,
        ))
    }
}
