//! What the answers are made of, by brute force from the plan: every stretch of time in which nothing changes is looked
//! at by itself. Nothing of the service's code or SQL is used.

use crate::questions::{
    answer::when,
    history::Ledger,
    plan::{
        AWAY, Asked, BEGIN, CLOSED, END, KNOWN, PLACES, PRICES, Place, Plan, Price, Run, Unplaced,
    },
};
use std::collections::BTreeMap;
use vocab::{AllocationNo, EndCause, HOUR_MS};

pub struct Truth {
    pub plan: Plan,
    pub ledger: Ledger,
    pub lines: Vec<Line>,
    pub spans: Vec<Span>,
}

/// A line of the bill.
#[derive(Debug, Clone)]
pub struct Line {
    pub key: Key,
    pub quantity: i128,
    pub micro: i128,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The first moments of the bill's month and of the hour.
    pub bill: i64,
    pub hour: i64,
    pub tenant: &'static str,
    pub team: &'static str,
    pub namespace: &'static str,
    pub queue: &'static str,
    pub class: &'static str,
    pub job_set: &'static str,
    pub cluster: &'static str,
    pub pool: &'static str,
    pub resource: String,
    pub price: Option<u64>,
    /// What everybody pays there; 0: nothing is said.
    pub list: u64,
}

impl Key {
    pub fn scope(&self) -> Scope {
        [self.tenant, self.class, self.pool, self.cluster]
    }
}

impl Line {
    /// The hour's month.
    pub fn month(&self) -> i64 {
        when::month(self.key.hour)
    }

    pub fn is_correction(&self) -> bool {
        self.month() != self.key.bill
    }

    /// What was charged less than the list price.
    pub fn discount(&self) -> i128 {
        let key = &self.key;
        rounded(
            self.quantity * i128::from(key.list),
            per_unit_hour(&key.resource),
        ) - self.micro
    }

    pub fn is_gpu(&self) -> bool {
        self.key.resource.starts_with("gpu")
    }
}

/// A stretch of time of a node in which nothing changes.
pub struct Span {
    pub place: usize,
    pub from: i64,
    pub until: i64,
    /// By cpu, memory, gpu.
    pub capacity: [i128; 3],
    pub allocated: [i128; 3],
    pub reserved: [i128; 3],
    /// What is free is there for all, or not.
    pub free: Free,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Free {
    Cordoned,
    Idle,
    Unavailable,
}

impl Free {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cordoned => "cordoned",
            Self::Idle => "idle",
            Self::Unavailable => "unavailable",
        }
    }
}

impl Span {
    pub fn ms(&self) -> i128 {
        (self.until - self.from).into()
    }

    pub fn free(&self, kind: usize) -> i128 {
        self.capacity[kind] - self.allocated[kind] - self.reserved[kind]
    }

    pub fn of(&self, kind: usize, free: Free) -> i128 {
        if self.free == free {
            self.free(kind)
        } else {
            0
        }
    }
}

impl Place {
    /// What the bill calls its cpu, memory and GPUs.
    pub fn resource(&self, kind: usize) -> String {
        match kind {
            0 => "cpu".to_owned(),
            1 => "memory".to_owned(),
            _ if self.model.is_empty() => "gpu".to_owned(),
            _ => format!("gpu:{}", self.model),
        }
    }

    pub fn capacity(&self) -> [i128; 3] {
        [self.cpu_milli, self.memory_bytes, self.gpus * 1000].map(i128::from)
    }
}

impl Asked {
    pub fn amounts(&self) -> [i128; 3] {
        [self.cpu, self.memory, self.gpu].map(i128::from)
    }

    pub fn id(&self) -> String {
        let id = AllocationNo(self.allocation).id(crate::questions::common::CELL);
        id.0.to_string()
    }
}

/// What a run cost for one resource.
pub struct Cost {
    pub resource: String,
    pub quantity: i128,
    pub micro: i128,
}

impl Run {
    pub fn place(&self) -> &'static Place {
        &PLACES[self.place]
    }

    /// When it was used, up to what is known; nothing if it has not been.
    pub fn used(&self) -> Option<(i64, i64)> {
        let (start, _) = self.started?;
        let end = self.ended.map_or(KNOWN, |ended| ended.at);
        (start < end).then_some((start, end))
    }

    pub fn ms(&self) -> i64 {
        self.used().map_or(0, |(start, end)| end - start)
    }

    pub fn cause(&self) -> &'static str {
        self.ended.map_or("", |ended| ended.cause.name())
    }

    /// The first moment of the month in which it ended.
    pub fn month(&self) -> Option<i64> {
        self.ended.map(|ended| when::month(ended.at))
    }

    pub fn costs(&self) -> Vec<Cost> {
        let Some((start, end)) = self.used() else {
            return Vec::new();
        };
        let used = (0..3).filter(|kind| self.of.amounts()[*kind] > 0);
        used.map(|kind| {
            let (resource, amount) = (self.place().resource(kind), self.of.amounts()[kind]);
            let pieces = cut(start, end, price_moments());
            let exact = pieces.map(|(from, until)| {
                let ms = i128::from(until - from);
                let of = scope(&self.of, self.place());
                amount * ms * i128::from(price(&resource, of, from).unwrap_or(0))
            });
            Cost {
                micro: rounded(exact.sum(), per_unit_hour(&resource)),
                quantity: amount * i128::from(end - start),
                resource,
            }
        })
        .collect()
    }

    pub fn micro(&self) -> i128 {
        self.costs().iter().map(|cost| cost.micro).sum()
    }

    pub fn gpu_quantity(&self) -> i128 {
        self.of.amounts()[2] * i128::from(self.ms())
    }
}

pub fn price_moments() -> impl Iterator<Item = i64> {
    PRICES.iter().map(|price| price.applied())
}

/// `[from, until)` in pieces, cut at the moments.
pub fn cut(
    from: i64,
    until: i64,
    moments: impl Iterator<Item = i64>,
) -> impl Iterator<Item = (i64, i64)> {
    let mut cuts: Vec<i64> = moments.filter(|at| (from..until).contains(at)).collect();
    cuts.extend([from, until]);
    cuts.sort_unstable();
    cuts.dedup();
    let ends = cuts.clone().into_iter().skip(1);
    cuts.into_iter().zip(ends)
}

pub fn full_hours(from: i64, until: i64) -> impl Iterator<Item = i64> {
    (from / HOUR_MS + 1..=until / HOUR_MS).map(|hour| hour * HOUR_MS)
}

/// Whose use, and where: tenant, priority class, pool and cluster.
pub type Scope = [&'static str; 4];

/// Whose use of a place it is.
pub fn scope(of: &Asked, place: &Place) -> Scope {
    [of.tenant, of.class, place.pool, place.cluster]
}

/// What everybody pays at a place.
pub fn list(place: &Place) -> Scope {
    ["", "", place.pool, place.cluster]
}

/// Returns whether a later withdrawal revoked it before it began.
fn is_void(price: &Price, prices: &[Price]) -> bool {
    prices.iter().any(|other| {
        let is_same = other.resource == price.resource && other.scope == price.scope;
        let is_later = other.version > price.version;
        is_same && is_later && other.micro.is_none() && other.applied() <= price.applied()
    })
}

/// Returns the price of the history at a moment.
pub fn price(resource: &str, scope: Scope, at: i64) -> Option<u64> {
    price_of(&PRICES, resource, scope, at)
}

/// Returns the price that names most, the first names before the later ones and all before the model; of those the newest. If
/// the newest is a withdrawal, the next one counts.
pub fn price_of(prices: &[Price], resource: &str, scope: Scope, at: i64) -> Option<u64> {
    let fits = |price: &&Price| {
        let of =
            price.resource == resource || (price.resource == "gpu" && resource.starts_with("gpu"));
        let mut names = price.scope.iter().zip(scope);
        of && !is_void(price, prices)
            && price.applied() <= at
            && names.all(|(name, is)| name.is_empty() || *name == is)
    };
    let first = |price: &&Price| {
        let names = price.scope.map(|name| !name.is_empty());
        (names, price.resource == resource)
    };
    let mut fitting: Vec<_> = prices.iter().filter(fits).collect();
    fitting.sort_by_key(|price| (first(price), price.applied(), price.version));
    let newest = fitting.chunk_by(|one, other| first(one) == first(other));
    let mut newest = newest.filter_map(|of_one| of_one.last()?.micro);
    newest.next_back()
}

/// Unit-milliseconds of what has the price.
pub fn per_unit_hour(resource: &str) -> i128 {
    let unit: i128 = if resource == "memory" { 1 << 30 } else { 1000 };
    unit * i128::from(HOUR_MS)
}

/// Half up, away from zero.
pub fn rounded(exact: i128, per: i128) -> i128 {
    (exact.abs() + per / 2) / per * exact.signum()
}

/// Quantity in units and hours, for people.
pub fn units(resource: &str, quantity: i128) -> f64 {
    quantity as f64 / per_unit_hour(resource) as f64
}

/// The value at which at least so many hundredths of the weight are at or below it.
pub fn quantile(hundredths: i128, weighted: &[(i128, i128)]) -> i128 {
    let mut sorted = weighted.to_vec();
    sorted.sort_unstable();
    let all: i128 = sorted.iter().map(|(_, weight)| weight).sum();
    let mut so_far = 0;
    let found = sorted.iter().find(|(_, weight)| {
        so_far += weight;
        so_far * 100 >= all * hundredths
    });
    found.expect("something").0
}

impl Truth {
    pub fn new(plan: Plan, ledger: Ledger) -> Self {
        let lines = lines(&plan);
        let spans = spans(&plan);
        Self {
            plan,
            ledger,
            lines,
            spans,
        }
    }

    /// Runs that were used for a time.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.plan.runs.iter().filter(|run| run.used().is_some())
    }

    pub fn over(&self) -> impl Iterator<Item = &Run> {
        self.runs().filter(|run| run.ended.is_some())
    }

    pub fn running(&self) -> impl Iterator<Item = &Run> {
        self.runs().filter(|run| run.ended.is_none())
    }

    pub fn ended_in(&self, month: i64) -> impl Iterator<Item = &Run> {
        self.over().filter(move |run| run.month() == Some(month))
    }

    /// Without a place, and over by now.
    pub fn unplaced(&self) -> impl Iterator<Item = &Unplaced> {
        self.plan.unplaced.iter().filter(|it| it.ended <= END)
    }

    /// Whose bill a line is in.
    pub fn billed(&self, month: i64) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.key.bill == month)
    }

    /// The capacity's stretches within a time, cut to it.
    pub fn within(&self, from: i64, until: i64) -> impl Iterator<Item = &Span> {
        // Spans end at every full hour, so that none stands out.
        self.spans
            .iter()
            .filter(move |span| span.from >= from && span.until <= until)
    }
}

/// What was believed of October when it was closed stands in its bill; what is true and was not believed, in
/// November's.
fn lines(plan: &Plan) -> Vec<Line> {
    let mut sums: BTreeMap<Key, i128> = BTreeMap::new();
    let mut book = |run: &Run, bill: Option<i64>, from: i64, until: i64, sign: i128| {
        let moments = full_hours(from, until).chain(price_moments());
        for (from, until) in cut(from, until, moments) {
            for (kind, amount) in run
                .of
                .amounts()
                .into_iter()
                .enumerate()
                .filter(|(_, it)| *it > 0)
            {
                let (of, place) = (&run.of, run.place());
                let resource = place.resource(kind);
                let key = Key {
                    bill: bill.unwrap_or(when::month(from)),
                    hour: when::hour(from),
                    tenant: of.tenant,
                    team: of.team,
                    namespace: of.namespace,
                    queue: of.queue,
                    class: of.class,
                    job_set: of.job_set,
                    cluster: place.cluster,
                    pool: place.pool,
                    price: price(&resource, scope(of, place), from),
                    list: price(&resource, list(place), from).unwrap_or(0),
                    resource,
                };
                *sums.entry(key).or_default() += sign * amount * i128::from(until - from);
            }
        }
    };
    let closed = when::NOVEMBER;
    for run in &plan.runs {
        let Some((start, told)) = run.started else {
            continue;
        };
        let end = run.ended.map_or(KNOWN, |ended| ended.at);
        if start < closed {
            let end = end.min(closed);
            let believed = match run.ended {
                _ if told >= CLOSED => start,
                Some(ended) if ended.released < CLOSED => end,
                _ => closed,
            };
            book(run, None, start, believed, 1);
            book(run, Some(closed), believed.min(end), end, 1);
            book(run, Some(closed), end, believed.max(end), -1);
        }
        if end > closed {
            book(run, None, start.max(closed), end, 1);
        }
    }
    sums.into_iter()
        .filter(|(_, quantity)| *quantity != 0)
        .map(|(key, quantity)| {
            let exact = quantity * i128::from(key.price.unwrap_or(0));
            Line {
                micro: rounded(exact, per_unit_hour(&key.resource)),
                key,
                quantity,
            }
        })
        .collect()
}

fn spans(plan: &Plan) -> Vec<Span> {
    (0..PLACES.len())
        .flat_map(|place| spans_of(plan, place))
        .collect()
}

fn spans_of(plan: &Plan, place: usize) -> Vec<Span> {
    let runs: Vec<&Run> = plan.runs.iter().filter(|run| run.place == place).collect();
    let registered = BEGIN + place as i64;
    let away: Vec<_> = AWAY
        .iter()
        .filter(|away| away.node == PLACES[place].name)
        .collect();
    let bounds = |run: &Run| {
        let released = run.ended.map_or(KNOWN, |ended| ended.released);
        let used = run.started.map_or((released, released), |(start, _)| {
            (start, run.ended.map_or(KNOWN, |ended| ended.at))
        });
        (run.placed, used.0, used.1, released)
    };
    let mut moments: Vec<i64> = runs
        .iter()
        .flat_map(|run| {
            let (placed, start, end, released) = bounds(run);
            [placed, start, end, released]
        })
        .collect();
    moments.extend(away.iter().flat_map(|away| [away.from, away.until]));
    moments.extend(full_hours(registered, KNOWN).chain(price_moments()));
    cut(registered, KNOWN, moments.into_iter())
        .map(|(from, until)| {
            let mut span = Span {
                place,
                from,
                until,
                capacity: PLACES[place].capacity(),
                allocated: [0; 3],
                reserved: [0; 3],
                free: Free::Idle,
            };
            for run in &runs {
                let (placed, start, end, released) = bounds(run);
                for (kind, amount) in run.of.amounts().into_iter().enumerate() {
                    if (start..end).contains(&from) {
                        span.allocated[kind] += amount;
                    } else if (placed..released).contains(&from) {
                        span.reserved[kind] += amount;
                    }
                }
            }
            if let Some(away) = away
                .iter()
                .find(|away| (away.from..away.until).contains(&from))
            {
                span.free = if away.lost {
                    Free::Unavailable
                } else {
                    Free::Cordoned
                };
            }
            span
        })
        .collect()
}

/// It did not come to what it was for.
pub fn lost(cause: EndCause) -> bool {
    matches!(
        cause,
        EndCause::Failed | EndCause::NodeLost | EndCause::Preempted
    )
}

/// Adds up what has the same key.
pub fn group<K: Ord, const N: usize>(
    items: impl IntoIterator<Item = (K, [i128; N])>,
) -> BTreeMap<K, [i128; N]> {
    let mut sums = BTreeMap::new();
    for (key, numbers) in items {
        let sum = sums.entry(key).or_insert([0; N]);
        for (sum, number) in sum.iter_mut().zip(numbers) {
            *sum += number;
        }
    }
    sums
}
