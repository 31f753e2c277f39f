//! Submit: a request's quantities and names, checked one by one.

use vocab::{AllocationSpec, GpuRequest, Refusal, Rule, Token};

/// A submit as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubmitRequest {
    pub job_set: String,
    pub name: String,
    pub priority: i32,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub gpu_count: i64,
    pub gpu_milli: i64,
    pub gpu_models: Vec<String>,
}

const DEFAULT_JOB_SET: &str = "default";

fn token(text: &str, field: &str) -> Result<Token, Refusal> {
    Token::new(text).map_err(|_| Refusal::new(Rule::NameInvalid, field))
}

/// `1..=max`.
fn quantity(value: i64, max: u64, field: &str) -> Result<u64, Refusal> {
    match u64::try_from(value) {
        Err(_) => Err(Refusal::new(Rule::QuantityNegative, field)),
        Ok(0) => Err(Refusal::new(Rule::QuantityZero, field)),
        Ok(value) if value > max => Err(Refusal::over(Rule::QuantityTooLarge, field, max, value)),
        Ok(value) => Ok(value),
    }
}

impl SubmitRequest {
    /// The job set, for the event feed of a refusal, if it can be one.
    pub fn job_set_token(&self) -> Option<Token> {
        if self.job_set.is_empty() {
            return Token::new(DEFAULT_JOB_SET).ok();
        }
        Token::new(&self.job_set).ok()
    }

    /// The specification, or the first rule that it breaks.
    pub fn check(&self) -> Result<AllocationSpec, Refusal> {
        let job_set = self
            .job_set_token()
            .ok_or_else(|| Refusal::new(Rule::NameInvalid, "job_set"))?;
        let name = match self.name.as_str() {
            "" => None,
            name => Some(token(name, "name")?),
        };
        let max = AllocationSpec::PRIORITY_MAX;
        if !(-max..=max).contains(&self.priority) {
            return Err(Refusal::new(Rule::PriorityOutOfRange, "priority"));
        }
        Ok(AllocationSpec {
            job_set,
            name,
            priority: self.priority,
            cpu_milli: quantity(self.cpu_milli, AllocationSpec::CPU_MILLI_MAX, "cpu_milli")?,
            memory_bytes: quantity(
                self.memory_bytes,
                AllocationSpec::MEMORY_BYTES_MAX,
                "memory_bytes",
            )?,
            gpu: self.gpu()?,
        })
    }

    fn gpu(&self) -> Result<Option<GpuRequest>, Refusal> {
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
        let most = AllocationSpec::GPU_MODELS_MAX;
        if self.gpu_models.len() > most {
            return Err(Refusal::over(
                Rule::TooManyElements,
                "gpu_models",
                most as u64,
                self.gpu_models.len() as u64,
            ));
        }
        let mut models = self
            .gpu_models
            .iter()
            .map(|model| token(model, "gpu_models"))
            .collect::<Result<Vec<_>, _>>()?;
        models.sort();
        models.dedup();
        Ok(Some(GpuRequest {
            // Both were checked to fit: at most 16 and at most 1000.
            count: count as u16,
            milli: milli as u16,
            models,
        }))
    }
}
