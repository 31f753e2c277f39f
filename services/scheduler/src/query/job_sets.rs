//! Job sets, and how many of their allocations stand where.

use super::name_prefix;
use crate::{
    project::Standing,
    store::{self, JobSet, JobSetKey, WantedJobSets},
};
use chassis::query::{Asked, Trouble, Verb, page_limit};
use schemas::v1::{AllocationState, JobSetView, JobSetsPage, JobSetsQuery};
use sqlx::PgPool;
use vocab::{Lsn, Rule, Token};

/// Job sets of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 100;

/// The verb `job_sets`.
pub struct JobSetsQueries {
    pub pool: PgPool,
}

impl Verb for JobSetsQueries {
    const NAME: &'static str = "job_sets";
    type Query = JobSetsQuery;
    type Reply = JobSetsPage;

    fn position(query: &JobSetsQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<JobSetsQuery>) -> Result<JobSetsPage, Trouble> {
        let wanted = wanted(&asked.query)?;
        let after = key(&asked.query.after)
            .ok_or_else(|| Trouble::refused(Rule::SettingInvalid, "after"))?;
        let page = store::job_sets(&self.pool, asked.whose(), &wanted, &after).await?;
        Ok(JobSetsPage {
            job_sets: page.found.iter().map(view).collect(),
            refusal: None,
            next: page.next.map_or_else(String::new, |key| key.join(" ")),
            lsn: asked.applied.0,
        })
    }
}

/// As the page before has written it.
fn key(after: &str) -> Option<JobSetKey> {
    if after.is_empty() {
        return Some(JobSetKey::default());
    }
    let mut parts = after.split(' ');
    let mut part = || Some(Token::new(parts.next()?).ok()?.to_string());
    let key = [part()?, part()?, part()?];
    parts.next().is_none().then_some(key)
}

fn wanted(query: &JobSetsQuery) -> Result<WantedJobSets, Trouble> {
    let mut standings = Vec::new();
    for state in &query.states {
        let state = AllocationState::try_from(*state).unwrap_or(AllocationState::Unspecified);
        let of = of(state);
        if of.is_empty() {
            return Err(Trouble::refused(Rule::SettingInvalid, "states"));
        }
        standings.extend(of);
    }
    Ok(WantedJobSets {
        name_prefix: name_prefix(&query.name_prefix)?,
        queue: match query.queue.as_str() {
            "" => None,
            name => {
                let name = Token::new(name);
                Some(name.map_err(|_| Trouble::refused(Rule::NameInvalid, "queue"))?)
            }
        },
        standings,
        limit: page_limit(query.limit, PAGE, PAGE_MAX)? as usize,
    })
}

/// None: it is no state.
fn of(state: AllocationState) -> &'static [Standing] {
    match state {
        AllocationState::Unspecified => &[],
        AllocationState::Requested => &[Standing::Requested],
        AllocationState::Waiting => &[Standing::Waiting],
        AllocationState::Placed => &[Standing::Placed],
        AllocationState::Started => &[Standing::Running],
        AllocationState::Stopping => &[Standing::Stopping],
        AllocationState::Ended => &[
            Standing::Finished,
            Standing::Failed,
            Standing::Cancelled,
            Standing::Denied,
        ],
    }
}

fn view(one: &JobSet) -> JobSetView {
    let count = |standing| one.counts[standing as usize];
    JobSetView {
        tenant: one.tenant.to_string(),
        job_set: one.job_set.to_string(),
        queue: one.queue.to_string(),
        requested: count(Standing::Requested),
        waiting: count(Standing::Waiting),
        placed: count(Standing::Placed),
        started: count(Standing::Running),
        stopping: count(Standing::Stopping),
        finished: count(Standing::Finished),
        failed: count(Standing::Failed),
        cancelled: count(Standing::Cancelled),
        denied: count(Standing::Denied),
        first_requested_ms: one.first_requested.0,
        last_change_ms: one.last_change.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_where_the_one_before_ended() {
        let check = |after: &str, expected: Option<[&str; 3]>| {
            let expected = expected.map(|key| key.map(str::to_owned));
            assert_eq!(key(after), expected, "{after}");
        };
        check("", Some(["", "", ""]));
        check("t j q", Some(["t", "j", "q"]));
        for unreadable in ["t", "t j", "t j ", "t j q q", "t  q", "t j q/q", "t j \0"] {
            check(unreadable, None);
        }
    }

    #[test]
    fn every_standing_is_of_one_state() {
        let states = (1..=6).map(|state| AllocationState::try_from(state).unwrap());
        let mut all: Vec<usize> = states.flat_map(of).map(|it| *it as usize).collect();
        all.sort_unstable();
        assert_eq!(all, (0..Standing::COUNT).collect::<Vec<_>>());
    }
}
