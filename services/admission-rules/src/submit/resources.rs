//! Devices, and whatever else nodes count.

use super::SubmitRequest;
use crate::check::{bounded, by_name, names, quantity, token};
use smol_str::SmolStr;
use vocab::{AllocationSpec, GpuRequest, Refusal, Rule, Token};

impl SubmitRequest {
    pub(super) fn gpu(&self) -> Result<Option<GpuRequest>, Refusal> {
        let share_invalid = || Refusal::new(Rule::GpuShareInvalid, "gpu_milli");
        if self.gpu_count == 0 {
            let plain = self.gpu_milli == 0 && self.gpu_models.is_empty();
            return if plain {
                Ok(None)
            } else {
                Err(Refusal::new(Rule::QuantityZero, "gpu_count"))
            };
        }
        let count = quantity(self.gpu_count, AllocationSpec::GPUS_MAX, "gpu_count")?;
        let milli = match self.gpu_milli {
            0 => 1000,
            milli if milli < 0 => return Err(Refusal::new(Rule::QuantityNegative, "gpu_milli")),
            milli if milli > 1000 || (milli < 1000 && count > 1) => return Err(share_invalid()),
            milli => milli,
        };
        let models = names(
            &self.gpu_models,
            AllocationSpec::GPU_MODELS_MAX,
            "gpu_models",
        )?;
        Ok(Some(GpuRequest {
            // Both were checked to fit: at most 16 and at most 1000.
            count: count as u16,
            milli: milli as u16,
            models,
        }))
    }

    pub(super) fn extended(&self) -> Result<Vec<(Token, u64)>, Refusal> {
        let field = "extended";
        bounded(&self.extended, AllocationSpec::EXTENDED_MAX, field)?;
        let one = |(name, amount): &(SmolStr, i64)| {
            let name = token(name, field)?;
            let amount = quantity(*amount, AllocationSpec::EXTENDED_AMOUNT_MAX, field)?;
            Ok((name, amount))
        };
        let extended: Result<Vec<_>, Refusal> = self.extended.iter().map(one).collect();
        by_name(extended?, field)
    }
}
