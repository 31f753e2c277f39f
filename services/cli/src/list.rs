//! What allocations a tenant has, as the tenant itself may ask by the bus.

use crate::{
    Failure, amount,
    context::{Context, Whose},
    explain::object,
    print::{
        Cell, Output, Page, Sheet, Tone, allocation, bound, column, exactly, moment_or_never,
        named, number, plain, quantity, valued, wide,
    },
    submit::{why, words},
};
use clap::{Args, ValueEnum};
use client::{AllocationStanding, AllocationView, AllocationsQuery};
use schemas::v1::{self, EndCause, Label, Waiting};
use serde_json::{Map, Value};
use vocab::ResourceKind;

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    whose: Whose,
    /// Only allocations in one of these states; default: all that have not ended. `failed`, `finished`, `cancelled` and `denied`
    /// are parts of `ended`, as `job-sets` counts them.
    #[arg(long = "state", value_enum, value_delimiter = ',')]
    states: Vec<State>,
    /// What is over, too.
    #[arg(long, conflicts_with = "states")]
    all: bool,
    /// Only what is in this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Only what is of this job set.
    #[arg(long)]
    job_set: Option<String>,
    /// Only what is of this team.
    #[arg(long)]
    team: Option<String>,
    /// Only what is of this namespace.
    #[arg(long)]
    namespace: Option<String>,
    /// What is on this node, or was on it last.
    #[arg(long)]
    node: Option<String>,
    /// Only members of this gang.
    #[arg(long)]
    gang: Option<String>,
    /// Only what is of this priority class.
    #[arg(long)]
    priority_class: Option<String>,
    /// Only what has this label, with this value or with any; of several all of them.
    #[arg(long = "label", value_name = "NAME[=VALUE]", value_parser = label)]
    labels: Vec<Label>,
    /// What has a name that begins so.
    #[arg(long)]
    name_prefix: Option<String>,
    /// Requested then or later: 2026-01-31T08:00:00Z, or so long ago as in 2h.
    #[arg(long, value_parser = amount::past)]
    since: Option<amount::Past>,
    /// Requested before, in the same form.
    #[arg(long, value_parser = amount::past)]
    until: Option<amount::Past>,
    /// In the order of this column, by its name in `-o csv`; with - before it from the largest on, as --sort=-cpu_milli. Without it
    /// the newest request comes first.
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true, value_parser = order)]
    sort: Option<Order>,
    /// Show these columns, in this order, by their names in `-o csv`. Forms json and yaml have all that there is.
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', value_parser = key)]
    columns: Vec<String>,
    /// How many at the most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Go on behind this one, as the last line of a list that was cut says.
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum State {
    /// Accepted; it may wait for quota.
    Requested,
    /// For a node.
    Waiting,
    Placed,
    Started,
    Stopping,
    Ended,
    /// Ended with success.
    Finished,
    /// Ended for any other cause than a cancel.
    Failed,
    Cancelled,
    /// Denied by quota.
    Denied,
}

impl State {
    /// Every state, as the contract numbers them.
    pub fn all() -> Vec<i32> {
        Self::numbers(Self::value_variants())
    }

    /// The states of the contract that these are, each once.
    pub fn numbers(states: &[Self]) -> Vec<i32> {
        let mut numbers: Vec<i32> = states.iter().map(|it| it.standing().into()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Returns whether an allocation is in this state.
    pub fn is_of(self, one: &AllocationView) -> bool {
        let is_over = one.state() == AllocationStanding::Ended;
        match (self, one.ended.map(|ended| ended.cause())) {
            (Self::Finished, cause) => is_over && cause == Some(EndCause::Finished),
            (Self::Cancelled, cause) => is_over && cause == Some(EndCause::Cancelled),
            (Self::Denied, cause) => is_over && cause.is_none(),
            (Self::Failed, cause) => {
                let others = [EndCause::Finished, EndCause::Cancelled];
                is_over && cause.is_some_and(|cause| !others.contains(&cause))
            }
            (state, _) => one.state() == state.standing(),
        }
    }

    pub fn standing(self) -> AllocationStanding {
        match self {
            Self::Requested => AllocationStanding::Requested,
            Self::Waiting => AllocationStanding::Waiting,
            Self::Placed => AllocationStanding::Placed,
            Self::Started => AllocationStanding::Started,
            Self::Stopping => AllocationStanding::Stopping,
            Self::Ended | Self::Finished | Self::Failed | Self::Cancelled | Self::Denied => {
                AllocationStanding::Ended
            }
        }
    }
}

/// Allocations of a page, at the most.
const PAGE_MAX: u32 = 1000;
/// Those that are looked at for an order that the cell does not keep them in.
const SORTED_MAX: u32 = 10_000;

/// By which column, and which way.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Order {
    key: String,
    descending: bool,
}

impl Order {
    /// Whether the oldest request comes first; none: the cell does not keep them in this order.
    fn oldest_first(&self) -> Option<bool> {
        match self.key.as_str() {
            "requested_ms" => Some(!self.descending),
            "age_ms" => Some(self.descending),
            _ => None,
        }
    }

    fn of(&self, found: Vec<AllocationView>, now_ms: i64) -> Result<Vec<AllocationView>, Failure> {
        let order = sheet(&found, now_ms).order_by(&self.key, self.descending);
        let mut found: Vec<_> = found.into_iter().map(Some).collect();
        let order = order.map_err(Failure::usage)?.into_iter();
        Ok(order.filter_map(|no| found[no].take()).collect())
    }
}

fn key(text: &str) -> Result<String, String> {
    let sheet = sheet(&[], 0);
    sheet.column(text).map(|_| text.to_owned())
}

fn order(text: &str) -> Result<Order, String> {
    let (text, descending) = match text.strip_prefix('-') {
        Some(text) => (text, true),
        None => (text, false),
    };
    Ok(Order {
        key: key(text)?,
        descending,
    })
}

/// A label that is looked for; without a value any will do.
fn label(text: &str) -> Result<Label, String> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    match name {
        "" => Err(format!("{text}: write NAME or NAME=VALUE")),
        name => Ok(Label {
            name: name.to_owned(),
            value: value.to_owned(),
        }),
    }
}

impl List {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let by_cell = self.sort.as_ref().and_then(Order::oldest_first);
        let sort = self.sort.clone().filter(|_| by_cell.is_none());
        if sort.is_some() && self.after.is_some() {
            return Err(Failure::usage(
                "--after: it goes on in the order of the requests, and not of another column",
            ));
        }
        let client = context.asker_of_one(self.whose.tenant.as_deref()).await?;
        let now_ms = context.clock().now_ms();
        let (limit, output, columns) = (self.limit, self.output, self.columns.clone());
        let most = match sort {
            Some(_) => SORTED_MAX.max(limit),
            None => limit,
        };
        let none = match self.states.is_empty() && !self.all {
            true => "no allocations that have not ended; --all shows the others",
            false => "no allocations",
        };
        let states = self.states.clone();
        let is_wanted =
            |one: &AllocationView| states.is_empty() || states.iter().any(|state| state.is_of(one));
        let mut query = self.query(now_ms);
        query.oldest_first = by_cell.unwrap_or(false);
        let (mut found, mut lsn) = (Vec::new(), u64::MAX);
        loop {
            query.limit = (most - found.len() as u32).min(PAGE_MAX);
            let page = client.allocations(&query).await?;
            found.extend(page.allocations.into_iter().filter(is_wanted));
            (query.after, lsn) = (page.next, lsn.min(page.lsn));
            if query.after.is_empty() || found.len() as u32 >= most {
                break;
            }
        }
        let next = Some(query.after.as_str()).filter(|next| !next.is_empty());
        let looked_at = found.len();
        if let Some(order) = &sort {
            found = order.of(found, now_ms)?;
            found.truncate(limit as usize);
        }
        let is_cut = next.is_some() || found.len() < looked_at;
        let remark = match (&sort, next) {
            (None, next) => next.map(|next| format!("there may be more: --after {next}")),
            (Some(_), Some(_)) => Some(format!(
                "of the newest {looked_at}: there may be more, and in this order before these"
            )),
            (Some(_), None) => is_cut.then(|| {
                let shown = found.len();
                format!("the first {shown} of {looked_at}: --limit shows more")
            }),
        };
        // In another order than the cell's there is no next page.
        let next = next.filter(|_| sort.is_none());
        let sheet = sheet(&found, now_ms).only(&columns);
        Page::list(found.iter().map(json).collect(), lsn)
            .with("next", next)
            .with("may_be_more", is_cut)
            .sheet_or(sheet.map_err(Failure::usage)?, none)
            .lines(remark)
            .print(output)
    }

    fn query(self, now_ms: i64) -> AllocationsQuery {
        let mut states = State::numbers(&self.states);
        if self.all {
            states = State::all();
        }
        let ms = |past: Option<amount::Past>| past.map_or(0, |past| past.ms(now_ms));
        AllocationsQuery {
            states,
            queue: self.queue.unwrap_or_default(),
            job_set: self.job_set.unwrap_or_default(),
            team: self.team.unwrap_or_default(),
            namespace: self.namespace.unwrap_or_default(),
            node: self.node.unwrap_or_default(),
            gang: self.gang.unwrap_or_default(),
            priority_class: self.priority_class.unwrap_or_default(),
            labels: self.labels,
            name_prefix: self.name_prefix.unwrap_or_default(),
            since_ms: ms(self.since),
            until_ms: ms(self.until),
            after: self.after.unwrap_or_default(),
            ..AllocationsQuery::default()
        }
    }
}

pub fn sheet(found: &[AllocationView], now_ms: i64) -> Sheet {
    let row = |one: &AllocationView| {
        vec![
            allocation(&one.allocation_id),
            named(&one.name),
            plain(&one.job_set),
            plain(state(one)).tone(tone(one)),
            plain(&one.queue),
            named(&one.node),
            named(&one.team),
            named(&one.namespace),
            named(&one.gang),
            named(&one.priority_class),
            named(&labels(one)),
            bound(one.ttl_ms),
            bound(one.time_limit_ms),
            quota(one),
            named(&one.waiting.as_ref().map_or_else(String::new, why)),
            asked(ResourceKind::Cpu, one.cpu_milli),
            asked(ResourceKind::Memory, one.memory_bytes),
            asked(ResourceKind::Gpu, one.gpu_count * one.gpu_milli),
            valued(
                amount::age(now_ms - one.requested_ms),
                now_ms - one.requested_ms,
            ),
            number(one.priority),
            number(one.attempts),
            moment_or_never(one.requested_ms),
            moment_or_never(one.placed_ms),
            moment_or_never(started_ms(one)),
            moment_or_never(one.ended.as_ref().map_or(0, |ended| ended.ended_ms)),
        ]
    };
    let columns = vec![
        column("allocation_id", "allocation"),
        column("name", "name"),
        column("job_set", "job set").rank(9),
        column("state", "state"),
        column("queue", "queue").rank(8),
        column("node", "node").rank(4),
        wide("team", "team"),
        wide("namespace", "namespace"),
        wide("gang", "gang"),
        wide("priority_class", "class"),
        wide("labels", "labels"),
        wide("ttl_ms", "ttl"),
        wide("time_limit_ms", "time limit"),
        wide("quota_flags", "quota"),
        wide("explanation", "why"),
        column("cpu_milli", "cpu").rank(6),
        column("memory_bytes", "memory").rank(7),
        column("gpu_milli", "gpu").rank(5),
        column("age_ms", "age"),
        wide("priority", "priority"),
        wide("attempts", "attempts"),
        wide("requested_ms", "requested"),
        wide("placed_ms", "placed"),
        wide("started_ms", "started"),
        wide("ended_ms", "ended"),
    ];
    Sheet::new(columns, 15, found.iter().map(row).collect())
}

/// As people write them.
pub fn labels(one: &AllocationView) -> String {
    let labels = one.labels.iter();
    let labels = labels.map(|label| format!("{}={}", label.name, label.value));
    labels.collect::<Vec<_>>().join(" ")
}

/// What is asked for is not below 0.
fn asked(kind: ResourceKind, amount: i64) -> Cell {
    quantity(kind, amount.unsigned_abs())
}

/// Of the run that is under way, or was the last.
pub fn started_ms(one: &AllocationView) -> i64 {
    match &one.ended {
        Some(ended) => ended.started_ms,
        None => one.started_ms,
    }
}

/// Where it stands, and why in a word or two, as fits into a column.
pub fn state(one: &AllocationView) -> String {
    let reason = |waiting: &Waiting| match (&waiting.quota, waiting.reason()) {
        (Some(refusal), v1::WaitingReason::Quota | v1::WaitingReason::Unspecified) => {
            words(refusal.rule())
        }
        (_, reason) => words(reason),
    };
    stands(one, reason)
}

/// Returns the tone of its state.
pub fn tone(one: &AllocationView) -> Tone {
    match (one.state(), one.ended.map(|ended| ended.cause())) {
        (AllocationStanding::Ended, Some(EndCause::Finished)) => Tone::Faint,
        (AllocationStanding::Ended, _) => Tone::Bad,
        (AllocationStanding::Placed | AllocationStanding::Started, _) => Tone::Good,
        _ => Tone::Waits,
    }
}

/// Where it stands, and why in the cell's own words.
pub fn told(one: &AllocationView) -> String {
    stands(one, why)
}

fn stands(one: &AllocationView, reason: impl Fn(&Waiting) -> String) -> String {
    let standing = words(one.state());
    match (&one.ended, &one.waiting) {
        (Some(ended), _) => format!("{standing}: {}", words(ended.cause())),
        // Denied by quota, which is an end as well.
        (None, Some(waiting)) if one.state() == AllocationStanding::Ended => {
            format!("denied: {}", reason(waiting))
        }
        (None, Some(waiting)) => format!("waits: {}", reason(waiting)),
        (None, None) => standing,
    }
}

/// What is remarkable about the quota that it has, as programs and as people read it.
pub fn quota_flags(one: &AllocationView) -> impl Iterator<Item = (&'static str, &'static str)> {
    let flags = [
        (one.quota_soft, ("soft", "above a soft limit")),
        (one.quota_burst, ("burst", "above a hard limit in a burst")),
        (one.quota_borrowed, ("borrowed", "borrowed from the cohort")),
    ];
    flags
        .into_iter()
        .filter_map(|(is_set, of)| is_set.then_some(of))
}

/// The same as a cell.
pub fn quota(one: &AllocationView) -> Cell {
    let (names, texts): (Vec<_>, Vec<_>) = quota_flags(one).unzip();
    match names.is_empty() {
        true => named(""),
        false => exactly(texts.join(", "), names.join(" ")),
    }
}

/// As programs read it.
pub fn json(one: &AllocationView) -> Value {
    let text = |text: &str| Some(text).filter(|text| !text.is_empty()).into();
    let ms = |ms: i64| Some(ms).filter(|ms| *ms != 0).into();
    let bound = |ms: u64| Some(ms).filter(|ms| *ms != 0).into();
    let amount = |amount: i64| Some(amount).filter(|amount| *amount != 0).into();
    let reason = one.waiting.as_ref().map(|waiting| words(waiting.reason()));
    let ended = one.ended.as_ref();
    let labels = one.labels.iter();
    let labels: Map<String, Value> = labels
        .map(|label| (label.name.clone(), label.value.as_str().into()))
        .collect();
    let labels = Value::Object(labels);
    object([
        ("allocation_id", one.allocation_id.as_str().into()),
        ("name", text(&one.name)),
        ("job_set", one.job_set.as_str().into()),
        ("state", words(one.state()).into()),
        ("waiting_reason", reason.into()),
        (
            "explanation",
            one.waiting
                .as_ref()
                .map_or(Value::Null, |waiting| text(&waiting.explanation)),
        ),
        ("end_cause", ended.map(|ended| words(ended.cause())).into()),
        ("queue", one.queue.as_str().into()),
        ("team", text(&one.team)),
        ("namespace", text(&one.namespace)),
        ("gang", text(&one.gang)),
        ("priority", one.priority.into()),
        ("priority_class", text(&one.priority_class)),
        ("labels", labels),
        ("cpu_milli", one.cpu_milli.into()),
        ("cpu_milli_limit", amount(one.cpu_milli_limit)),
        ("memory_bytes", one.memory_bytes.into()),
        ("memory_bytes_limit", amount(one.memory_bytes_limit)),
        ("gpu_count", one.gpu_count.into()),
        ("gpu_milli", one.gpu_milli.into()),
        ("gpu_models", one.gpu_models.clone().into()),
        ("qos", words(one.qos()).into()),
        ("run_time_ms", bound(one.run_time_ms)),
        ("node", text(&one.node)),
        ("attempts", one.attempts.into()),
        ("array_index", one.array_index.into()),
        ("ttl_ms", bound(one.ttl_ms)),
        ("time_limit_ms", bound(one.time_limit_ms)),
        (
            "quota_flags",
            quota_flags(one).map(|(name, _)| name).collect(),
        ),
        ("requested_ms", one.requested_ms.into()),
        ("placed_ms", ms(one.placed_ms)),
        ("started_ms", ms(started_ms(one))),
        ("ended_ms", ended.map(|ended| ended.ended_ms).into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::v1::{Ended, Refusal, Rule, WaitingReason};

    fn view() -> AllocationView {
        AllocationView {
            allocation_id: "00000000-0000-0001-0000-000000000007".to_owned(),
            job_set: "default".to_owned(),
            queue: "team-a".to_owned(),
            state: AllocationStanding::Requested.into(),
            cpu_milli: 1500,
            memory_bytes: 3 << 29,
            requested_ms: 1_700_000_000_000,
            ..AllocationView::default()
        }
    }

    #[test]
    fn a_state_says_why_and_a_page_says_it_in_the_cells_words() {
        let check = |change: fn(&mut AllocationView), short: &str, long: &str| {
            let mut one = view();
            change(&mut one);
            assert_eq!((state(&one).as_str(), told(&one).as_str()), (short, long));
        };
        check(|_| {}, "requested", "requested");
        check(
            |one| {
                one.state = AllocationStanding::Waiting.into();
                one.waiting = Some(Waiting {
                    reason: WaitingReason::NoRoomNow.into(),
                    ..Waiting::default()
                });
            },
            "waits: no room now",
            "waits: no room now",
        );
        let quota = |one: &mut AllocationView| {
            one.waiting = Some(Waiting {
                reason: WaitingReason::Quota.into(),
                quota: Some(Refusal {
                    rule: Rule::QuotaExceeded.into(),
                    ..Refusal::default()
                }),
                explanation: "quota exceeded: t cpu: ask for less".to_owned(),
            });
        };
        check(
            quota,
            "waits: quota exceeded",
            "waits: quota exceeded: t cpu: ask for less",
        );
        check(
            |one| {
                one.state = AllocationStanding::Ended.into();
                one.waiting = Some(Waiting {
                    quota: Some(Refusal {
                        rule: Rule::QuotaNeverFits.into(),
                        ..Refusal::default()
                    }),
                    explanation: "quota never fits: t gpu: ask for less".to_owned(),
                    ..Waiting::default()
                });
            },
            "denied: quota never fits",
            "denied: quota never fits: t gpu: ask for less",
        );
        check(
            |one| {
                one.state = AllocationStanding::Ended.into();
                one.ended = Some(Ended {
                    cause: EndCause::NodeLost.into(),
                    ..Ended::default()
                });
            },
            "ended: node lost",
            "ended: node lost",
        );
    }

    #[test]
    fn what_has_ended_is_in_one_state_of_its_end() {
        let ended = |cause: Option<EndCause>| AllocationView {
            state: AllocationStanding::Ended.into(),
            ended: cause.map(|cause| Ended {
                cause: cause.into(),
                ..Ended::default()
            }),
            ..view()
        };
        let check = |cause, expected| {
            let one = ended(cause);
            let of = State::value_variants().iter().filter(|it| it.is_of(&one));
            assert_eq!(
                of.collect::<Vec<_>>(),
                [&State::Ended, &expected],
                "{cause:?}"
            );
        };
        check(Some(EndCause::Finished), State::Finished);
        check(Some(EndCause::Cancelled), State::Cancelled);
        check(None, State::Denied);
        for cause in [EndCause::Failed, EndCause::NodeLost, EndCause::Unspecified] {
            check(Some(cause), State::Failed);
        }
        let failed = [State::Failed, State::Cancelled, State::Waiting];
        let numbers = [AllocationStanding::Waiting, AllocationStanding::Ended].map(i32::from);
        assert_eq!(State::numbers(&failed), numbers);
        assert!(State::Requested.is_of(&view()) && !State::Failed.is_of(&view()));
    }

    #[test]
    fn each_has_a_row() {
        let mut other = view();
        other.name = "train-1".to_owned();
        (other.gpu_count, other.gpu_milli) = (2, 500);
        (other.ttl_ms, other.time_limit_ms) = (3_600_000, 90_000);
        (other.quota_soft, other.quota_borrowed) = (true, true);
        other.priority_class = "urgent".to_owned();
        other.labels = [("grant", "7"), ("model", "bert")]
            .map(|(name, value)| Label {
                name: name.to_owned(),
                value: value.to_owned(),
            })
            .to_vec();
        let sheet = sheet(&[view(), other], 1_700_000_000_000 + 3_660_000);
        let texts =
            |row: &[Cell]| -> Vec<String> { row.iter().map(|cell| cell.text.clone()).collect() };
        assert_eq!(
            texts(&sheet.rows[0])[1..19],
            [
                "-",
                "default",
                "requested",
                "team-a",
                "-",
                "-",
                "-",
                "-",
                "-",
                "-",
                "-",
                "-",
                "-",
                "-",
                "1.500 cores",
                "1.500 GiB",
                "0.000 GPUs",
                "1h1m"
            ]
        );
        let second = texts(&sheet.rows[1]);
        assert_eq!(
            (second[1].as_str(), second[17].as_str()),
            ("train-1", "1.000 GPUs")
        );
        let expected = ["1h", "90s", "above a soft limit, borrowed from the cohort"];
        assert_eq!(second[11..14], expected);
        assert_eq!(
            (second[9].as_str(), second[10].as_str()),
            ("urgent", "grant=7 model=bert")
        );
        let record = &sheet.records()[1];
        assert_eq!(record["ttl_ms"], 3_600_000);
        assert_eq!(record["quota_flags"], "soft borrowed");
        assert_eq!(sheet.records()[0]["time_limit_ms"], Value::Null);
        assert_eq!(record["memory_bytes"], 3 << 29);
        assert_eq!(record["started_ms"], Value::Null);
        assert_eq!(sheet.columns.len(), second.len());
    }

    #[test]
    fn an_order_is_a_column_and_the_oldest_are_the_cells_own() {
        let read = |text: &str| order(text).map(|it| (it.oldest_first(), it.descending));
        assert_eq!(read("requested_ms"), Ok((Some(true), false)));
        assert_eq!(read("-requested_ms"), Ok((Some(false), true)));
        // What is the oldest has the largest age.
        assert_eq!(read("-age_ms"), Ok((Some(true), true)));
        assert_eq!(read("-cpu_milli"), Ok((None, true)));
        let wrong = read("cpu").unwrap_err();
        assert!(wrong.contains("cpu_milli, memory_bytes"), "{wrong}");
        assert_eq!(label("grant").map(|label| label.value), Ok(String::new()));
        assert!(label("=7").is_err());
    }
}
