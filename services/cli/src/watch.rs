//! A tenant's events, as they are told.

use crate::{
    Failure, amount,
    context::{Context, Whose},
    look,
    print::{Cell, Output, Stream, column, moment, plain},
    submit::{how, state, waits, words},
};
use clap::Args;
use client::{Position, explanation};
use schemas::v1::{self, tenant_event};
use vocab::Millis;

#[derive(Args)]
pub struct Watch {
    #[command(flatten)]
    whose: Whose,
    /// Only this job set.
    #[arg(long)]
    job_set: Option<String>,
    /// Go on behind this position, written <lsn>.<index> as it is printed.
    #[arg(long, default_value = "0.0", value_parser = position)]
    after: Position,
    /// End when everything that is there was shown.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    output: Output,
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
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.tenant(self.whose.tenant.as_deref()).await?;
        let columns = vec![
            column("position", "position"),
            column("at_ms", "at"),
            column("job_set", "job set"),
            column("allocation", "allocation"),
            column("event", "event"),
        ];
        let mut stream = Stream::new(self.output, columns);
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
                page.iter().try_for_each(|event| stream.row(row(event)))?;
            }
        }
        let mut follower = client.follow(self.after, self.job_set).await?;
        loop {
            let page = follower.next_page().await?;
            page.iter().try_for_each(|event| stream.row(row(event)))?;
        }
    }
}

fn row(event: &v1::TenantEvent) -> Vec<Cell> {
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
            Some(v1::outcome::Result::JobSetCancelled(cancelled)) => {
                format!("cancel of {} accepted", cancelled.allocations)
            }
            Some(v1::outcome::Result::PrioritySet(set)) => {
                format!("priority of {} set", set.allocations)
            }
            Some(v1::outcome::Result::ResourceCreated(_)) => "created".into(),
            Some(v1::outcome::Result::LeaseGranted(granted)) => format!(
                "granted as {} until slot {}",
                granted.lease_id, granted.deadline_slot
            ),
            Some(v1::outcome::Result::Confirmed(_)) => "confirmed".into(),
            Some(v1::outcome::Result::Released(released)) => {
                format!("released, fencing token {}", released.fencing_token)
            }
            Some(v1::outcome::Result::Revoked(revoked)) => {
                format!("revoked, fencing token {}", revoked.fencing_token)
            }
            Some(v1::outcome::Result::Reclaimed(_)) => "reclaimed".into(),
            // Of a trial nothing is recorded, and so nothing is told here.
            Some(v1::outcome::Result::Passes(_)) => "would be accepted".into(),
            None => "an outcome that this version does not know".into(),
        },
        Some(tenant_event::Kind::Placed(placed)) => look::place(&placed.node, &placed.gpus),
        Some(tenant_event::Kind::Waiting(waiting)) => waits(waiting),
        Some(tenant_event::Kind::Denied(denied)) => format!(
            "denied: {}",
            denied.refusal.as_ref().map_or(String::new(), explanation)
        ),
        Some(tenant_event::Kind::Requested(requested)) => {
            format!("requested, {}", words(requested.qos()))
        }
        Some(tenant_event::Kind::PriorityChanged(changed)) => {
            format!("has priority {}", changed.priority)
        }
        Some(tenant_event::Kind::Expired(expired)) => {
            format!("lease {} expired", expired.lease_id)
        }
        Some(tenant_event::Kind::Started(_)) => "started".into(),
        Some(tenant_event::Kind::Stopping(_)) => "stopping".into(),
        Some(tenant_event::Kind::Ended(ended)) => {
            format!("ended: {}", how(ended.cause(), ended.exit))
        }
        Some(tenant_event::Kind::Preempted(preempted)) => {
            let until = amount::moment(Millis(preempted.grace_until_ms));
            format!("has to go: {}, by {until}", words(preempted.cause()))
        }
        Some(tenant_event::Kind::Requeued(requeued)) => {
            let from = amount::moment(Millis(requeued.not_before_ms));
            format!(
                "queued again: {}, not before {from}",
                how(requeued.cause(), requeued.exit)
            )
        }
        None => "something that this version does not know".into(),
    };
    let of = if event.name.is_empty() {
        &event.allocation_id
    } else {
        &event.name
    };
    vec![
        plain(format!("{}.{}", event.lsn, event.index)),
        moment(event.now_ms),
        plain(&event.job_set),
        plain(of),
        plain(what),
    ]
}
