//! Rows of the tables that lie beside them, so that who asks again need not wait for a server: use by the hour, and what runs, of
//! the tenants who have asked, or of all. What a batch adds to the tables it adds here, and nothing is seen of a batch before
//! all of it is there.

use super::{
    calendar::Hour,
    change::{Change, Clock, Fact, Running},
    meter::{Line, Used, key},
    price::{HourlyUse, RunUse, Whose},
};
use foldhash::fast::RandomState;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};
use vocab::{AllocationNo, Lsn, Millis, Month, ResourceKey, ResourceKind, Shared, Token};

/// A row that bills are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UseRow {
    Hour(HourlyUse),
    Run(RunUse),
}

impl UseRow {
    pub fn whose(&self) -> &Whose {
        match self {
            Self::Hour(hour) => &hour.whose,
            Self::Run(run) => &run.whose,
        }
    }
}

/// Rows of some tenants, as the tables have them at a position.
#[derive(Debug)]
pub struct Kept {
    /// None: it is not known where the tables stand.
    at: Option<Lsn>,
    clock: Option<Clock>,
    tenants: BTreeMap<Token, OfTenant>,
    /// Who is not here has no rows.
    all: bool,
    /// Whose rows are too many.
    large: BTreeSet<Token>,
    rows: usize,
    rows_max: usize,
    /// Counts the questions.
    asked: u64,
    whose: Shared<Whose>,
    /// Allocations of which no run is over; there may be others.
    first_attempts: HashSet<AllocationNo, RandomState>,
}

/// Runs of one allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunsOf {
    pub under_way: Vec<RunUse>,
    /// No other run of it is in the tables.
    pub all: bool,
    /// How far time is known of them, if that is known.
    pub clock: Option<Clock>,
}

#[derive(Debug, Default)]
struct OfTenant {
    /// Rows of bills before this month's are not here.
    from: Month,
    hours: BTreeMap<HourKey, Sum>,
    runs: BTreeSet<RunUse>,
    /// When it was last asked for, by the count of questions.
    asked: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct HourKey {
    hour: Hour,
    resource: ResourceKey,
    period: Month,
    since: Millis,
    whose: Arc<Whose>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    quantity: i128,
    ms: i64,
}

impl OfTenant {
    fn len(&self) -> usize {
        self.hours.len() + self.runs.len()
    }

    /// What comes to nothing is not a row.
    fn add_hour(&mut self, key: HourKey, quantity: i128, ms: i64) {
        let sum = self.hours.entry(key.clone()).or_default();
        sum.quantity = sum.quantity.saturating_add(quantity);
        sum.ms = sum.ms.saturating_add(ms);
        if *sum == Sum::default() {
            self.hours.remove(&key);
        }
    }

    fn run(&mut self, run: RunUse, under_way: bool) {
        match under_way {
            true => self.runs.insert(run),
            false => self.runs.remove(&run),
        };
    }
}

impl Kept {
    /// Keeps so many rows at the most.
    pub fn new(rows_max: usize) -> Self {
        Self {
            at: None,
            clock: None,
            tenants: BTreeMap::new(),
            all: false,
            large: BTreeSet::new(),
            rows: 0,
            rows_max,
            asked: 0,
            whose: Shared::default(),
            first_attempts: HashSet::default(),
        }
    }

    /// The tables stand there.
    pub fn resumed(&mut self, through: Lsn) {
        if self.at == Some(through) {
            return;
        }
        *self = Self {
            at: Some(through),
            // There is nothing in them yet.
            all: through == Lsn(0),
            ..Self::new(self.rows_max)
        };
    }

    /// All of a batch is in the tables.
    pub fn applied(&mut self, (after, to): (Lsn, Lsn), changes: &[Change]) {
        if self.at != Some(after) {
            self.resumed(to);
            return;
        }
        for change in changes {
            match &change.fact {
                Fact::Sums(sums) => {
                    for (line, used) in &sums.used {
                        self.used(line, used);
                    }
                }
                Fact::Running(run) => self.runs(run),
                Fact::Clock(clock) => self.clock = Some(*clock),
                Fact::FirstAttempts(first) => {
                    if first.all {
                        self.first_attempts.clear();
                    }
                    self.first_attempts.extend(&first.begun);
                    for over in &first.over {
                        self.first_attempts.remove(over);
                    }
                }
                _ => {}
            }
        }
        self.at = Some(to);
        self.make_room();
    }

    /// Of the bills from that month on, with how far time is known of them if that is known; none: ask the tables.
    pub fn of(
        &mut self,
        tenant: &Token,
        from: Month,
    ) -> Option<(Option<Clock>, impl Iterator<Item = UseRow>)> {
        self.asked += 1;
        let asked = self.asked;
        let there = match self.tenants.get_mut(tenant) {
            Some(there) if there.from > from => return None,
            Some(there) => {
                there.asked = asked;
                Some(&*there)
            }
            None if self.all => None,
            None => return None,
        };
        let hours = there.into_iter().flat_map(|there| &there.hours);
        let hours = hours.map(|(key, sum)| {
            UseRow::Hour(HourlyUse {
                whose: key.whose.clone(),
                resource: key.resource.clone(),
                hour: key.hour,
                period: key.period,
                since: key.since,
                quantity: sum.quantity,
                ms: sum.ms,
            })
        });
        let runs = there.into_iter().flat_map(|there| &there.runs);
        let runs = runs.map(|run| UseRow::Run(run.clone()));
        Some((self.clock, hours.chain(runs)))
    }

    /// Of an allocation of a tenant; none: ask the tables for what is under way as well.
    pub fn runs_of(&mut self, tenant: &Token, allocation: AllocationNo) -> Option<RunsOf> {
        self.asked += 1;
        let runs = match self.tenants.get_mut(tenant) {
            Some(there) => {
                there.asked = self.asked;
                let runs = there.runs.iter();
                runs.filter(|run| run.allocation == allocation)
                    .cloned()
                    .collect()
            }
            None if self.all => Vec::new(),
            None => return None,
        };
        Some(RunsOf {
            under_way: runs,
            all: self.first_attempts.contains(&allocation),
            clock: self.clock,
        })
    }

    /// From which position of the tables the rows of a tenant would be kept that are not here, if they would be.
    pub fn wants(&self, tenant: &Token) -> Option<Lsn> {
        self.at.filter(|_| !self.large.contains(tenant))
    }

    /// More rows of one tenant are not worth their room.
    pub fn rows_max_of_one(&self) -> usize {
        self.rows_max / 4
    }

    /// The tenant has more.
    pub fn is_large(&mut self, tenant: &Token) {
        self.large.insert(tenant.clone());
    }

    /// Keeps the rows of a tenant that the tables had at a position, of the bills from that month on; nothing if that is past.
    pub fn keep(&mut self, tenant: &Token, (from, at): (Month, Lsn), rows: Vec<UseRow>) {
        if self.at != Some(at) || rows.len() > self.rows_max_of_one() {
            return;
        }
        let mut there = OfTenant {
            from,
            asked: self.asked,
            ..OfTenant::default()
        };
        for row in rows {
            match row {
                UseRow::Hour(hour) => {
                    let key = HourKey {
                        hour: hour.hour,
                        resource: hour.resource,
                        period: hour.period,
                        since: hour.since,
                        whose: self.whose.of(&hour.whose, |_| hour.whose.clone()),
                    };
                    there.add_hour(key, hour.quantity, hour.ms);
                }
                UseRow::Run(run) => {
                    let whose = self.whose.of(&run.whose, |_| run.whose.clone());
                    there.run(RunUse { whose, ..run }, true);
                }
            }
        }
        self.rows += there.len();
        let old = self.tenants.insert(tenant.clone(), there);
        self.rows -= old.map_or(0, |old| old.len());
        self.make_room();
    }

    fn used(&mut self, line: &Line, used: &Used) {
        let whose = Whose::of(&line.payer, &line.site);
        let each = ResourceKind::ALL.into_iter().zip(used.quantity.0);
        for ((kind, quantity), ms) in each.zip(used.ms.0) {
            let resource = key(kind, line.site.gpu_model.as_ref());
            self.change(&line.payer.tenant, &whose, |there, whose| {
                let key = HourKey {
                    hour: line.hour,
                    resource,
                    period: line.period,
                    since: line.since,
                    whose,
                };
                there.add_hour(key, quantity, ms);
            });
        }
    }

    fn runs(&mut self, run: &Running) {
        let whose = Whose::of(&run.of.payer, &run.moved.site);
        self.change(&run.of.payer.tenant, &whose, |there, whose| {
            there.run(RunUse::of(run, whose), run.under_way);
        });
    }

    fn change(
        &mut self,
        tenant: &Token,
        whose: &Whose,
        change: impl FnOnce(&mut OfTenant, Arc<Whose>),
    ) {
        if self.all && !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), OfTenant::default());
        }
        if let Some(there) = self.tenants.get_mut(tenant) {
            let whose = self.whose.of(whose, |whose| Arc::new(whose.clone()));
            let before = there.len();
            change(there, whose);
            self.rows = self.rows + there.len() - before;
        }
    }

    /// Lets go of those that were not asked for the longest, until there is a quarter of room.
    fn make_room(&mut self) {
        if self.rows <= self.rows_max {
            return;
        }
        self.all = false;
        let mut by_asked: Vec<_> = self
            .tenants
            .iter()
            .map(|(tenant, there)| (there.asked, tenant.clone()))
            .collect();
        by_asked.sort_unstable();
        for (_, tenant) in by_asked {
            if self.rows <= self.rows_max / 4 * 3 {
                break;
            }
            let gone = self.tenants.remove(&tenant);
            self.rows -= gone.map_or(0, |gone| gone.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        Amounts, Each, Owner, Payer, Site, Sums,
        change::{Change, FirstAttempts, Moved},
    };
    use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
    use vocab::HOUR_MS;

    const ROWS_MAX: usize = 12;
    const TENANTS: u8 = 4;

    /// What the tables hold: by tenant, hours and runs. What comes to nothing is in them no more.
    type Tables = BTreeMap<Token, (BTreeMap<HourKey, Sum>, BTreeSet<RunUse>)>;

    #[derive(Debug, Clone)]
    enum Step {
        Batch(Vec<Said>),
        /// Asks for a tenant's rows from that month on.
        Ask(u8, u8),
        /// Puts there what the tables had so many batches ago.
        Keep(u8, u8, usize),
        /// The projection reads where the tables stand; if another one has moved them, it has missed that many batches.
        Resume(bool),
    }

    #[derive(Debug, Clone)]
    enum Said {
        Used {
            tenant: u8,
            job_set: u8,
            hour: u8,
            cpu: i8,
            gpu: i8,
        },
        Runs {
            tenant: u8,
            job_set: u8,
            at: u8,
        },
        /// One that runs, by its place among them.
        Over(usize),
    }

    fn token(letter: char, no: u8) -> Token {
        Token::new(&format!("{letter}{no}")).unwrap()
    }

    /// Hours of the first six lie in one month, the others in the next.
    fn month_of(hour: u8) -> Month {
        Month(202_610 + u32::from(hour >= 6))
    }

    fn payer(tenant: u8, job_set: u8) -> Arc<Payer> {
        Arc::new(Payer {
            tenant: token('t', tenant),
            team: None,
            namespace: None,
            queue: token('q', job_set % 2),
            job_set: token('j', job_set),
            priority_class: None,
        })
    }

    /// Those of two zones are one site in the tables.
    fn site(no: u8) -> Arc<Site> {
        Arc::new(Site {
            cluster: None,
            zone: Some(token('z', no % 2)),
            pool: Some(token('p', no % 3)),
            gpu_model: Some(token('g', 0)),
        })
    }

    fn line(tenant: u8, job_set: u8, hour: u8) -> Line {
        Line {
            payer: payer(tenant, job_set),
            hour: Hour(hour.into()),
            since: Millis(0),
            period: month_of(hour),
            site: site(hour),
        }
    }

    fn running(tenant: u8, job_set: u8, at: u8) -> Running {
        Running {
            allocation: AllocationNo(at.into()),
            of: Owner {
                payer: payer(tenant, job_set),
                name: None,
                operation_id: None,
                gang: None,
                labels: Box::default(),
            },
            moved: Arc::new(Moved {
                allocation: None,
                node: token('n', at % 2),
                incarnation: 1,
                amounts: Amounts {
                    cpu_milli: 100,
                    ..Amounts::default()
                },
                site: site(at),
            }),
            started_at: Millis(i64::from(at % 3) * HOUR_MS),
            under_way: true,
        }
    }

    /// The facts of a batch, and what the tables hold behind it.
    fn batch(said: &[Said], running_now: &mut Vec<Running>, tables: &mut Tables) -> Vec<Change> {
        let (mut sums, mut facts) = (Sums::default(), Vec::new());
        for said in said {
            match *said {
                Said::Used {
                    tenant,
                    job_set,
                    hour,
                    cpu,
                    gpu,
                } => {
                    let line = line(tenant, job_set, hour);
                    let quantity = [cpu.into(), 0, gpu.into()];
                    let ms = [i64::from(cpu).signum(), 0, i64::from(gpu).signum()];
                    for (kind, (quantity, ms)) in ResourceKind::ALL
                        .into_iter()
                        .zip(quantity.into_iter().zip(ms))
                    {
                        let key = HourKey {
                            hour: line.hour,
                            resource: key(kind, line.site.gpu_model.as_ref()),
                            period: line.period,
                            since: line.since,
                            whose: Arc::new(Whose::of(&line.payer, &line.site)),
                        };
                        let (hours, _) = tables.entry(line.payer.tenant.clone()).or_default();
                        let sum = hours.entry(key).or_default();
                        sum.quantity += quantity;
                        sum.ms += ms;
                        hours.retain(|_, sum| *sum != Sum::default());
                    }
                    let used = Used {
                        quantity: Each(quantity),
                        ms: Each(ms),
                        first: Lsn(1),
                        last: Lsn(1),
                    };
                    sums.used.push((line, used));
                }
                Said::Runs {
                    tenant,
                    job_set,
                    at,
                } => {
                    let numbers = running_now.iter().map(|run| run.allocation.0);
                    let allocation = AllocationNo(numbers.max().unwrap_or(0) + 1);
                    let run = Running {
                        allocation,
                        ..running(tenant, job_set, at)
                    };
                    running_now.push(run.clone());
                    facts.push(run);
                }
                Said::Over(place) if !running_now.is_empty() => {
                    let run = running_now.remove(place % running_now.len());
                    facts.push(Running {
                        under_way: false,
                        ..run
                    });
                }
                Said::Over(_) => {}
            }
        }
        for run in &facts {
            let tenant = run.of.payer.tenant.clone();
            let use_of = RunUse::of(run, Arc::new(Whose::of(&run.of.payer, &run.moved.site)));
            let (_, runs) = tables.entry(tenant).or_default();
            match run.under_way {
                true => assert!(runs.insert(use_of)),
                false => assert!(runs.remove(&use_of)),
            }
        }
        let facts = facts.into_iter().map(|run| Fact::Running(Box::new(run)));
        let facts = facts.chain([Fact::Sums(Box::new(sums))]);
        let change = |(part, fact)| Change {
            lsn: Lsn(1),
            index: 0,
            part,
            fact,
        };
        (0..).zip(facts).map(change).collect()
    }

    /// Of the bills from a month on, in one order.
    fn rows(tables: &Tables, tenant: &Token, from: Month) -> Vec<UseRow> {
        let Some((hours, runs)) = tables.get(tenant) else {
            return Vec::new();
        };
        let hours = hours.iter().filter(|(key, _)| key.period >= from);
        let hours = hours.map(|(key, sum)| {
            UseRow::Hour(HourlyUse {
                whose: key.whose.clone(),
                resource: key.resource.clone(),
                hour: key.hour,
                period: key.period,
                since: key.since,
                quantity: sum.quantity,
                ms: sum.ms,
            })
        });
        let runs = runs.iter().cloned().map(UseRow::Run);
        hours.chain(runs).collect()
    }

    fn any_said() -> impl Strategy<Value = Said> {
        let small = 0..3u8;
        prop_oneof![
            (0..TENANTS, small.clone(), 0..12u8, -2..3i8, -1..2i8).prop_map(
                |(tenant, job_set, hour, cpu, gpu)| Said::Used {
                    tenant,
                    job_set,
                    hour,
                    cpu,
                    gpu
                }
            ),
            (0..TENANTS, small, 0..6u8).prop_map(|(tenant, job_set, at)| Said::Runs {
                tenant,
                job_set,
                at
            }),
            any::<usize>().prop_map(Said::Over),
        ]
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => prop::collection::vec(any_said(), 0..4).prop_map(Step::Batch),
            3 => (0..TENANTS, 0..2u8).prop_map(|(tenant, month)| Step::Ask(tenant, month)),
            3 => (0..TENANTS, 0..2u8, 0..3usize).prop_map(|(tenant, month, ago)| Step::Keep(tenant, month, ago)),
            1 => any::<bool>().prop_map(Step::Resume),
        ]
    }

    /// Checks that what is kept is what the tables hold. Returns how many questions about rows and about runs were answered.
    fn follow(steps: Vec<Step>, from_the_beginning: bool) -> Result<[u32; 2], TestCaseError> {
        let mut kept = Kept::new(ROWS_MAX);
        let mut running_now = Vec::new();
        let mut answered = [0; 2];
        // As they were after each batch; the position is the place among them.
        let mut past = vec![Tables::default()];
        if from_the_beginning {
            kept.resumed(Lsn(0));
        }
        let month = |no: u8| Month(202_610 + u32::from(no));
        for step in steps {
            let at = Lsn(past.len() as u64 - 1);
            match step {
                Step::Batch(said) => {
                    let mut tables = past[past.len() - 1].clone();
                    let changes = batch(&said, &mut running_now, &mut tables);
                    past.push(tables);
                    kept.applied((at, Lsn(at.0 + 1)), &changes);
                }
                Step::Ask(tenant, from) => {
                    let (tenant, from) = (token('t', tenant), month(from));
                    let of_bills = |row: &UseRow| match row {
                        UseRow::Hour(hour) => hour.period >= from,
                        UseRow::Run(_) => true,
                    };
                    let found = kept.of(&tenant, from);
                    let found = found.map(|(_, rows)| rows.filter(of_bills).collect::<Vec<_>>());
                    let expected = rows(&past[past.len() - 1], &tenant, from);
                    answered[0] += u32::from(found.as_ref().is_some_and(|rows| !rows.is_empty()));
                    prop_assert!(found.is_none_or(|found| found == expected));
                    let runs = expected.into_iter().filter_map(|row| match row {
                        UseRow::Run(run) if run.allocation == AllocationNo(1) => Some(run),
                        UseRow::Run(_) | UseRow::Hour(_) => None,
                    });
                    let found = kept.runs_of(&tenant, AllocationNo(1));
                    answered[1] += u32::from(found.is_some());
                    prop_assert!(
                        found.is_none_or(|found| found.under_way == runs.collect::<Vec<_>>())
                    );
                }
                Step::Keep(tenant, from, ago) => {
                    let at = past.len().saturating_sub(1 + ago);
                    let (tenant, from) = (token('t', tenant), month(from));
                    let all = rows(&past[at], &tenant, from);
                    let small = all.len() <= kept.rows_max_of_one();
                    kept.keep(&tenant, (from, Lsn(at as u64)), all);
                    let is_there = kept.of(&tenant, from).is_some();
                    let known = kept.at == Some(Lsn(past.len() as u64 - 1));
                    prop_assert!(is_there || !known || ago > 0 || !small);
                }
                Step::Resume(missed) => {
                    if missed {
                        let mut tables = past[past.len() - 1].clone();
                        batch(
                            &[
                                Said::Over(0),
                                Said::Runs {
                                    tenant: 0,
                                    job_set: 0,
                                    at: 0,
                                },
                            ],
                            &mut running_now,
                            &mut tables,
                        );
                        past.push(tables);
                    }
                    kept.resumed(Lsn(past.len() as u64 - 1));
                }
            }
            let rows: usize = kept.tenants.values().map(OfTenant::len).sum();
            prop_assert_eq!(kept.rows, rows);
            prop_assert!(rows <= ROWS_MAX, "{}", rows);
        }
        Ok(answered)
    }

    proptest! {
        #[test]
        fn what_is_kept_is_what_the_tables_hold(
            steps in prop::collection::vec(any_step(), 0..40),
            from_the_beginning: bool,
        ) {
            follow(steps, from_the_beginning)?;
        }
    }

    /// The property above holds, too, if nothing is ever kept.
    #[test]
    fn many_questions_are_answered_from_what_is_kept() {
        let strategy = (prop::collection::vec(any_step(), 0..40), any::<bool>());
        let mut runner = TestRunner::deterministic();
        let mut sums = [0; 2];
        for _ in 0..200 {
            let tree = strategy.new_tree(&mut runner);
            let (steps, from_the_beginning) = tree.expect("the strategy rejects nothing").current();
            let answered = follow(steps, from_the_beginning).unwrap();
            (sums[0], sums[1]) = (sums[0] + answered[0], sums[1] + answered[1]);
        }
        assert!(sums[0] >= 50 && sums[1] >= 20, "{sums:?}");
    }

    #[test]
    fn of_an_allocation_in_its_first_attempt_all_runs_are_here() {
        let mut kept = Kept::new(ROWS_MAX);
        kept.resumed(Lsn(0));
        let step = |kept: &mut Kept, at: u64, all: bool, begun: &[u64], over: &[u64]| {
            let numbers = |all: &[u64]| all.iter().copied().map(AllocationNo).collect();
            let first = FirstAttempts {
                all,
                begun: numbers(begun),
                over: numbers(over),
            };
            let change = Change {
                lsn: Lsn(at + 1),
                index: 0,
                part: 0,
                fact: Fact::FirstAttempts(first),
            };
            kept.applied((Lsn(at), Lsn(at + 1)), &[change]);
        };
        let all = |kept: &mut Kept| {
            let mut is = |no| kept.runs_of(&token('t', 0), AllocationNo(no)).unwrap().all;
            [1, 2, 3].map(&mut is)
        };
        step(&mut kept, 0, false, &[1, 2], &[2]);
        assert_eq!(all(&mut kept), [true, false, false]);
        step(&mut kept, 1, false, &[3], &[1]);
        assert_eq!(all(&mut kept), [false, false, true]);
        // What is over may have been missed.
        step(&mut kept, 2, true, &[2], &[]);
        assert_eq!(all(&mut kept), [false, true, false]);
        // Another one has written meanwhile.
        step(&mut kept, 7, false, &[1], &[]);
        assert!(kept.runs_of(&token('t', 0), AllocationNo(3)).is_none());
        step(&mut kept, 8, false, &[2], &[]);
        assert!(kept.first_attempts.iter().eq([&AllocationNo(2)]));
    }

    #[test]
    fn who_was_not_asked_for_the_longest_goes_first() {
        let mut kept = Kept::new(ROWS_MAX);
        kept.resumed(Lsn(0));
        let mut tables = Tables::default();
        let mut running = Vec::new();
        for tenant in 0..TENANTS {
            let said = [0, 1, 2].map(|hour| Said::Used {
                tenant,
                job_set: 0,
                hour,
                cpu: 1,
                gpu: 0,
            });
            let changes = batch(&said, &mut running, &mut tables);
            kept.applied((Lsn(tenant.into()), Lsn(u64::from(tenant) + 1)), &changes);
        }
        let is_there = |kept: &mut Kept, no| kept.of(&token('t', no), Month(0)).is_some();
        for no in [2, 3, 1, 0] {
            assert!(is_there(&mut kept, no));
        }
        let said = [Said::Runs {
            tenant: 0,
            job_set: 0,
            at: 0,
        }];
        let changes = batch(&said, &mut running, &mut tables);
        kept.applied((Lsn(TENANTS.into()), Lsn(u64::from(TENANTS) + 1)), &changes);
        assert_eq!(
            [0, 1, 2, 3].map(|no| is_there(&mut kept, no)),
            [true, true, false, false]
        );
    }
}
