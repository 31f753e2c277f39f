//! Every question, and the ways in which it is asked.
//!
//! Not among them: `logs`, which real agents answer, the feed, and `node`, of which operators have to know the name.

use super::fill::{JOB_SETS, Known, job_set, tried};
use clap::ValueEnum;
use client::{
    AllocationStanding, AllocationsQuery, BillQuery, BudgetQuery, Client, ExplainQuery,
    JobSetsQuery, NodesQuery, PreemptionsQuery, QueryError, QueueQuery, QueuesQuery, QuotaQuery,
    RatesQuery, RefusalsQuery, SettingsQuery, TenantsQuery, TryPlaceQuery, TryQuotaQuery, UsageBy,
    UsageQuery,
};
use ledger::memory::Seeded;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Question {
    Allocations,
    AllocationsWaiting,
    AllocationsStarted,
    AllocationsEnded,
    AllocationsOfJobSet,
    AllocationsOfQueue,
    AllocationsOnNode,
    AllocationsNamed,
    AllocationsSince,
    AllocationsNextPage,
    Allocation,
    Operation,
    Explain,
    ExplainAsOf,
    JobSets,
    Queue,
    Queues,
    Quota,
    Budget,
    Preemptions,
    Reservations,
    Refusals,
    Usage,
    UsageByJobSet,
    UsageOfAllocation,
    Bill,
    TryQuota,
    TryPlace,
    Resource,
    Lease,
    // By the operator, of everybody's.
    Settings,
    SettingsOfTenants,
    Rates,
    Nodes,
    NodesWithGpus,
    Tenants,
    AllJobSets,
    AllQueues,
    AllQuota,
    AllBudgets,
    AllPreemptions,
    AllReservations,
    AllRefusals,
}

use Question as Q;

const OF_OPERATORS: [Question; 13] = [
    Q::Settings,
    Q::SettingsOfTenants,
    Q::Rates,
    Q::Nodes,
    Q::NodesWithGpus,
    Q::Tenants,
    Q::AllJobSets,
    Q::AllQueues,
    Q::AllQuota,
    Q::AllBudgets,
    Q::AllPreemptions,
    Q::AllReservations,
    Q::AllRefusals,
];
/// Of so many questions one is an operator's.
const OPERATORS_ONE_IN: u64 = 20;

/// The questions that are asked, each of a party's as often as the others.
#[derive(Debug, Clone)]
pub struct Mix {
    of_tenants: Vec<Question>,
    of_operators: Vec<Question>,
}

impl Mix {
    pub fn without(left_out: &[Question]) -> Self {
        let all = Question::value_variants().iter().copied();
        let all = all.filter(|question| !left_out.contains(question));
        let (of_operators, of_tenants) = all.partition(|question| question.of_operators());
        Self {
            of_tenants,
            of_operators,
        }
    }

    pub fn all(&self) -> impl Iterator<Item = Question> {
        self.of_tenants.iter().chain(&self.of_operators).copied()
    }

    /// None: all of them are left out.
    pub fn draw(&self, dice: &mut Seeded) -> Option<Question> {
        let (first, second) = match dice.below(OPERATORS_ONE_IN) {
            0 => (&self.of_operators, &self.of_tenants),
            _ => (&self.of_tenants, &self.of_operators),
        };
        let draw = dice.draw();
        one_of(first, draw)
            .or_else(|| one_of(second, draw))
            .copied()
    }
}

impl Question {
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub fn of_operators(self) -> bool {
        OF_OPERATORS.contains(&self)
    }

    /// `draw` chooses what it is about. Of an operator's, nothing is `known`.
    pub async fn ask(self, client: &Client, known: &Known, draw: u64) -> Result<(), QueryError> {
        let text = |from: &[String]| one_of(from, draw).cloned().unwrap_or_default();
        match self {
            Q::Allocations
            | Q::AllocationsWaiting
            | Q::AllocationsStarted
            | Q::AllocationsEnded
            | Q::AllocationsOfJobSet
            | Q::AllocationsOfQueue
            | Q::AllocationsOnNode
            | Q::AllocationsNamed
            | Q::AllocationsSince
            | Q::AllocationsNextPage => {
                let query = self.allocations(known, draw);
                client.allocations(&query).await.map(drop)
            }
            Q::Allocation => {
                let id = text(&known.allocations);
                client.allocation(id, 0).await.map(drop)
            }
            Q::Operation => {
                let id = text(&known.operations);
                client.operation(id, 0).await.map(drop)
            }
            Q::Explain | Q::ExplainAsOf => {
                let query = ExplainQuery {
                    allocation_id: text(&known.allocations),
                    as_of_lsn: if self == Q::ExplainAsOf { known.lsn } else { 0 },
                    at_lsn: 0,
                };
                client.explain(&query).await.map(drop)
            }
            Q::JobSets | Q::AllJobSets => {
                let query = JobSetsQuery::default();
                client.job_sets(&query).await.map(drop)
            }
            Q::Nodes => client.nodes(&NodesQuery::default()).await.map(drop),
            // Of no model that there is, so as many rows are looked at as may be.
            Q::NodesWithGpus => {
                let query = NodesQuery {
                    gpu_model: "none".to_owned(),
                    ..NodesQuery::default()
                };
                client.nodes(&query).await.map(drop)
            }
            Q::Tenants => client.tenants(&TenantsQuery::default()).await.map(drop),
            Q::Queue => client.queue(&QueueQuery::default()).await.map(drop),
            Q::Queues | Q::AllQueues => client.queues(&QueuesQuery::default()).await.map(drop),
            Q::Quota | Q::AllQuota => client.quota(&QuotaQuery::default()).await.map(drop),
            Q::Budget | Q::AllBudgets => client.budgets(&BudgetQuery::default()).await.map(drop),
            Q::Preemptions | Q::AllPreemptions => {
                let query = PreemptionsQuery::default();
                client.preemptions(&query).await.map(drop)
            }
            Q::Reservations | Q::AllReservations => client.reservations(0).await.map(drop),
            Q::Refusals | Q::AllRefusals => {
                let query = RefusalsQuery::default();
                client.refusals(&query).await.map(drop)
            }
            Q::Usage => client.usage(&UsageQuery::default()).await.map(drop),
            Q::UsageByJobSet => {
                let query = UsageQuery {
                    by: vec![UsageBy::JobSet.into(), UsageBy::Hour.into()],
                    ..UsageQuery::default()
                };
                client.usage(&query).await.map(drop)
            }
            Q::UsageOfAllocation => {
                let query = UsageQuery {
                    allocation_id: text(&known.allocations),
                    ..UsageQuery::default()
                };
                client.usage(&query).await.map(drop)
            }
            Q::TryQuota => {
                let query = TryQuotaQuery {
                    spec: Some(tried(known, draw)),
                    ..TryQuotaQuery::default()
                };
                client.try_quota(&query).await.map(drop)
            }
            Q::TryPlace => {
                let query = TryPlaceQuery {
                    spec: Some(tried(known, draw)),
                    ..TryPlaceQuery::default()
                };
                client.try_place(&query).await.map(drop)
            }
            Q::Bill => client.bill(&BillQuery::default()).await.map(drop),
            Q::Resource => client.resource(&known.resource, 0).await.map(drop),
            Q::Lease => client.lease(&known.lease, None, 0).await.map(drop),
            Q::Rates => client.rates(&RatesQuery::default()).await.map(drop),
            Q::Settings => client.settings(&SettingsQuery::default()).await.map(drop),
            Q::SettingsOfTenants => {
                let query = SettingsQuery {
                    setting: "tenant".to_owned(),
                    ..SettingsQuery::default()
                };
                client.settings(&query).await.map(drop)
            }
        }
    }

    fn allocations(self, known: &Known, draw: u64) -> AllocationsQuery {
        let (mut query, kind) = (AllocationsQuery::default(), draw % JOB_SETS);
        let text = |from: &[String]| one_of(from, draw).cloned().unwrap_or_default();
        match self {
            Q::AllocationsWaiting => query.states = vec![AllocationStanding::Waiting.into()],
            Q::AllocationsStarted => query.states = vec![AllocationStanding::Started.into()],
            Q::AllocationsEnded => query.states = vec![AllocationStanding::Ended.into()],
            Q::AllocationsOfJobSet => query.job_set = job_set(&known.run, kind),
            Q::AllocationsOfQueue => query.queue.clone_from(&known.tenant),
            Q::AllocationsOnNode => query.node = text(&known.nodes),
            Q::AllocationsNamed => query.name_prefix = format!("n{kind}-"),
            Q::AllocationsSince => query.since_ms = known.at_ms,
            Q::AllocationsNextPage => query.after = text(&known.allocations),
            _ => {}
        }
        query
    }
}

fn one_of<T>(from: &[T], draw: u64) -> Option<&T> {
    // Below the length, so it fits.
    from.get((draw % from.len().max(1) as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn check(left_out: &[Question], expected: usize) {
        let (mix, mut dice) = (Mix::without(left_out), Seeded::new(1));
        let drawn: BTreeSet<_> = (0..10_000).filter_map(|_| mix.draw(&mut dice)).collect();
        assert_eq!(drawn.len(), expected, "without {left_out:?}");
        assert!(left_out.iter().all(|question| !drawn.contains(question)));
    }

    #[test]
    fn every_question_is_drawn_but_those_that_are_left_out() {
        let all = Question::value_variants();
        check(&[], all.len());
        check(&[Q::Usage, Q::AllQueues], all.len() - 2);
        check(&OF_OPERATORS, all.len() - OF_OPERATORS.len());
        check(all, 0);
    }
}
