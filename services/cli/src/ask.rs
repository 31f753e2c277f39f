//! What is published on the bus: by tenants and by operators.

use crate::{Failure, amount, look, stack};
use chassis::stack::Stack;
use clap::{Args, Subcommand};
use client::{Operation, Position};
use schemas::v1;
use v1::{submitted, tenant_event};

#[derive(Args)]
pub struct Submit {
    #[arg(long)]
    tenant: String,
    /// Cores (4) or millicores (1500m).
    #[arg(long, value_parser = amount::cpu_milli)]
    cpu: i64,
    /// Memory (16GiB).
    #[arg(long, value_parser = amount::bytes)]
    memory: i64,
    /// GPU devices.
    #[arg(long, default_value_t = 0)]
    gpus: i64,
    /// Thousandths of the one device, for a share.
    #[arg(long, default_value_t = 0)]
    gpu_milli: i64,
    /// An allowed GPU model; may be repeated.
    #[arg(long = "gpu-model")]
    gpu_models: Vec<String>,
    /// Higher goes first.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    #[arg(long, default_value = "")]
    job_set: String,
    #[arg(long, default_value = "")]
    name: String,
    /// Idempotency key; the same one gets the same outcome.
    #[arg(long, default_value_t = Operation::fresh_id())]
    operation_id: String,
}

impl Submit {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let client = stack::tenant(stack, &self.tenant).await?;
        let request = v1::Submit {
            job_set: self.job_set,
            name: self.name,
            priority: self.priority,
            cpu_milli: self.cpu,
            memory_bytes: self.memory,
            gpu_count: self.gpus,
            gpu_milli: self.gpu_milli,
            gpu_models: self.gpu_models,
        };
        let submitted = client.submit(request, self.operation_id).await?;
        println!("{} {}", submitted.allocation_id, state(&submitted));
        Ok(())
    }
}

fn state(submitted: &v1::Submitted) -> String {
    match &submitted.state {
        Some(submitted::State::Placed(placed)) => look::place(&placed.node, &placed.gpus),
        Some(submitted::State::Waiting(waiting)) => format!("waits: {}", words(waiting.reason())),
        Some(submitted::State::Ended(ended)) => format!("ended: {}", words(ended.cause())),
        None => "in a state that this version does not know".into(),
    }
}

/// An enum's name as words.
fn words(value: impl std::fmt::Debug) -> String {
    let mut text = String::new();
    for c in format!("{value:?}").chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(c.to_lowercase());
    }
    text
}

#[derive(Args)]
pub struct Cancel {
    #[arg(long)]
    tenant: String,
    allocation_id: String,
    /// Idempotency key; the same one gets the same outcome.
    #[arg(long, default_value_t = Operation::fresh_id())]
    operation_id: String,
}

impl Cancel {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let client = stack::tenant(stack, &self.tenant).await?;
        let cancelled = client.cancel(self.allocation_id, self.operation_id).await?;
        println!("{} cancelled", cancelled.allocation_id);
        Ok(())
    }
}

#[derive(Args)]
pub struct Watch {
    #[arg(long)]
    tenant: String,
    /// Only this job set.
    #[arg(long)]
    job_set: Option<String>,
    /// Go on behind this position, written <lsn>.<index> as it is printed.
    #[arg(long, default_value = "0.0", value_parser = position)]
    after: Position,
    /// End when everything that is there was shown.
    #[arg(long)]
    once: bool,
}

fn position(text: &str) -> Result<Position, String> {
    let parts = text.split_once('.');
    let parsed = parts.and_then(|(lsn, index)| {
        Some(Position {
            lsn: lsn.parse().ok()?,
            index: index.parse().ok()?,
        })
    });
    parsed.ok_or_else(|| format!("{text}: write a position as <lsn>.<index>"))
}

impl Watch {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let client = stack::tenant(stack, &self.tenant).await?;
        if self.once {
            let mut after = self.after;
            loop {
                let page = client.feed_page(after, self.job_set.as_deref(), 0).await?;
                let Some(last) = page.last() else {
                    return Ok(());
                };
                after = Position {
                    lsn: last.lsn,
                    index: last.index,
                };
                page.iter().for_each(show);
            }
        }
        let mut follower = client.follow(self.after, self.job_set).await?;
        loop {
            follower.next_page().await?.iter().for_each(show);
        }
    }
}

fn show(event: &v1::TenantEvent) {
    let what = match &event.kind {
        Some(tenant_event::Kind::Outcome(outcome)) => match &outcome.result {
            Some(v1::outcome::Result::Submitted(submitted)) => {
                format!("accepted, {}", state(submitted))
            }
            Some(v1::outcome::Result::Cancelled(_)) => "cancel accepted".into(),
            Some(v1::outcome::Result::Applied(applied)) => format!("version {}", applied.version),
            Some(v1::outcome::Result::Refused(refused)) => {
                format!("refused: {}", refused.explanation)
            }
            None => "an outcome that this version does not know".into(),
        },
        Some(tenant_event::Kind::Placed(placed)) => look::place(&placed.node, &placed.gpus),
        Some(tenant_event::Kind::Waiting(waiting)) => format!("waits: {}", words(waiting.reason())),
        Some(tenant_event::Kind::Started(_)) => "started".into(),
        Some(tenant_event::Kind::Stopping(_)) => "stopping".into(),
        Some(tenant_event::Kind::Ended(ended)) => format!("ended: {}", words(ended.cause())),
        None => "something that this version does not know".into(),
    };
    let at = amount::moment(vocab::Millis(event.now_ms));
    let of = if event.name.is_empty() {
        &event.allocation_id
    } else {
        &event.name
    };
    println!(
        "{}.{} {at} {} {of} {what}",
        event.lsn, event.index, event.job_set
    );
}

#[derive(Args)]
pub struct Tenant {
    tenant: String,
    /// Refuse if the version is another one.
    #[arg(long)]
    expected_version: Option<u64>,
}

impl Tenant {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let change = v1::SetTenant {
            tenant: self.tenant.clone(),
            expected_version: self.expected_version,
        };
        let operator = stack::operator(stack).await?;
        let applied = operator.set_tenant(change, Operation::fresh_id()).await?;
        println!("tenant {}: version {}", self.tenant, applied.version);
        Ok(())
    }
}

#[derive(Subcommand)]
pub enum QuotaCommand {
    /// Set the hard limit of one resource.
    Set {
        tenant: String,
        /// cpu (millicores), memory (bytes) or gpu (thousandths of a device).
        resource: String,
        limit: i64,
        /// Refuse if the version is another one.
        #[arg(long)]
        expected_version: Option<u64>,
    },
    /// Show limits, reserved, used and peak.
    Get { tenant: String },
}

impl QuotaCommand {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        match self {
            Self::Get { tenant } => look::quota(stack, &tenant).await,
            Self::Set {
                tenant,
                resource,
                limit,
                expected_version,
            } => {
                let title = format!("quota {tenant} {resource}");
                let change = v1::SetQuota {
                    tenant,
                    resource,
                    limit,
                    expected_version,
                };
                let operator = stack::operator(stack).await?;
                let applied = operator.set_quota(change, Operation::fresh_id()).await?;
                println!("{title}: version {}", applied.version);
                Ok(())
            }
        }
    }
}

#[derive(Args)]
pub struct Rate {
    /// cpu, memory, gpu or gpu:<model>.
    resource: String,
    /// Millionths of the currency per core-hour, GiB-hour or GPU-hour.
    micro_per_unit_hour: i64,
    /// A full hour, Unix milliseconds; 0 only for a resource's first rate.
    #[arg(long, default_value_t = 0)]
    from_ms: i64,
    /// Refuse if the version is another one.
    #[arg(long)]
    expected_version: Option<u64>,
}

impl Rate {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let title = format!("rate {}", self.resource);
        let change = v1::SetRate {
            resource: self.resource,
            micro_per_unit_hour: self.micro_per_unit_hour,
            effective_from_ms: self.from_ms,
            expected_version: self.expected_version,
        };
        let operator = stack::operator(stack).await?;
        let applied = operator.set_rate(change, Operation::fresh_id()).await?;
        println!("{title}: version {}", applied.version);
        Ok(())
    }
}
