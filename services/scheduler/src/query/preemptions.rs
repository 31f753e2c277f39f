//! What was lost to others.

use crate::{
    project::{Outcome, Over, Position},
    store::{self, PreemptionEvent},
};
use chassis::query::{Asked, Trouble, Verb, cut, page_limit};
use schemas::v1::{PreemptionView, PreemptionsPage, PreemptionsQuery};
use sqlx::PgPool;
use vocab::{AllocationId, Lsn, Millis, PreemptionCause, Rule};

/// Preemptions of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 50;

/// The verb `preemptions`.
pub struct PreemptionsQueries {
    pub pool: PgPool,
}

impl Verb for PreemptionsQueries {
    const NAME: &'static str = "preemptions";
    type Query = PreemptionsQuery;
    type Reply = PreemptionsPage;

    fn position(query: &PreemptionsQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<PreemptionsQuery>) -> Result<PreemptionsPage, Trouble> {
        let query = &asked.query;
        let limit = page_limit(query.limit, PAGE, PAGE_MAX)?;
        let before = position(&query.after)
            .ok_or_else(|| Trouble::refused(Rule::SettingInvalid, "after"))?;
        let mut found = store::preemptions(&self.pool, asked.whose(), before, limit + 1).await?;
        let has_more = cut(&mut found, limit);
        let preemptions: Vec<_> = found.iter().map(view).collect();
        let last = preemptions.last().filter(|_| has_more);
        Ok(PreemptionsPage {
            next: last.map_or_else(String::new, |one| format!("{}.{}", one.lsn, one.index)),
            preemptions,
            refusal: None,
            lsn: asked.applied.0,
        })
    }
}

/// As the page before has written it.
fn position(after: &str) -> Option<Position> {
    if after.is_empty() {
        return Some(Position {
            lsn: Lsn(u64::MAX),
            index: 0,
        });
    }
    let (lsn, index) = after.split_once('.')?;
    Some(Position {
        lsn: Lsn(lsn.parse().ok()?),
        index: index.parse().ok()?,
    })
}

fn view(one: &PreemptionEvent) -> PreemptionView {
    let over = one.over;
    PreemptionView {
        lsn: one.position.lsn.0,
        index: one.position.index,
        allocation_id: one.victim.to_string(),
        tenant: one.tenant.clone(),
        queue: one.queue.clone(),
        node: one.node.clone(),
        // The numbers are the contract's.
        cause: one.cause as i32,
        by_allocation_id: one.by.map_or_else(String::new, |by| by.to_string()),
        at_ms: one.at.0,
        grace_until_ms: one.grace_until.0,
        outcome: over
            .map_or("stopping", |over| over.outcome.name())
            .to_owned(),
        stopped_at_ms: over.map_or(0, |over| over.at.0),
        requeued: over.is_some_and(|over| over.requeued),
        freed_cpu_milli: one.cpu_milli.unwrap_or(0),
        freed_memory_bytes: one.memory_bytes.unwrap_or(0),
        freed_gpu_milli: one.gpu_milli.unwrap_or(0),
        priority: one.priority,
        by_priority: one.by_priority,
    }
}

/// A preemption as the cell has said it; none: it is none of the contract's, or of a later version.
pub fn of_preemption(view: &PreemptionView) -> Option<PreemptionEvent> {
    let outcome = Outcome::ALL
        .into_iter()
        .find(|one| one.name() == view.outcome);
    let freed = |amount: u64| outcome.map(|_| amount);
    let by = match view.by_allocation_id.as_str() {
        "" => None,
        id => Some(AllocationId::parse(id)?),
    };
    Some(PreemptionEvent {
        position: Position {
            lsn: Lsn(view.lsn),
            index: view.index,
        },
        victim: AllocationId::parse(&view.allocation_id)?,
        tenant: view.tenant.clone(),
        queue: view.queue.clone(),
        node: view.node.clone(),
        cause: PreemptionCause::from_number(view.cause)?,
        by,
        priority: view.priority,
        by_priority: view.by_priority,
        at: Millis(view.at_ms),
        grace_until: Millis(view.grace_until_ms),
        over: outcome.map(|outcome| Over {
            outcome,
            at: Millis(view.stopped_at_ms),
            requeued: view.requeued,
        }),
        cpu_milli: freed(view.freed_cpu_milli),
        memory_bytes: freed(view.freed_memory_bytes),
        gpu_milli: freed(view.freed_gpu_milli),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_where_the_one_before_ended() {
        let check = |after: &str, expected: Option<(u64, u32)>| {
            let found = position(after).map(|at| (at.lsn.0, at.index));
            assert_eq!(found, expected, "{after}");
        };
        check("", Some((u64::MAX, 0)));
        check("7.3", Some((7, 3)));
        for unreadable in [
            "7",
            "7.",
            ".3",
            "-7.3",
            "7.3.1",
            "7.x",
            "99999999999999999999.0",
        ] {
            check(unreadable, None);
        }
    }
}
