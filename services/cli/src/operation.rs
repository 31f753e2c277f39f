//! What became of an operation, by its id.

use crate::{
    Failure,
    context::{Context, Whose},
    print::{Cell, Fields, Output, Page, Sheet, allocation, column, earliest, named, plain},
    submit::{Indexes, operations_in},
};
use clap::Args;
use client::{OperationView, QueryError};
use futures::{StreamExt, TryStreamExt, stream};
use schemas::v1::{OperationState, outcome::Result as Outcome};

#[derive(Args)]
pub struct Operation {
    #[command(flatten)]
    whose: Whose,
    /// The operation's id, as it was told before it was sent.
    operation_id: String,
    /// It was of `submit --array`: what became of each of these indexes.
    #[arg(long, value_name = "INDEXES", conflicts_with = "file")]
    array: Option<Indexes>,
    /// It was of `submit --file`: what became of each that this file asks for.
    #[arg(long, short = 'F', value_name = "FILE")]
    file: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Questions that are asked at once: a tenant may have 64 under way, and others of its own besides.
const AT_ONCE: usize = 8;

impl Operation {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let id = self.operation_id;
        let all = match (&self.array, &self.file) {
            (Some(indexes), _) => Some(indexes.operations(&id)),
            (None, Some(file)) => Some(operations_in(file, &id)?),
            (None, None) => None,
        };
        let client = context.asker(self.whose.tenant.as_deref()).await?;
        let Some(all) = all else {
            let view = client.operation(id, 0).await?;
            return page(&view).print(self.output);
        };
        let asked = all.into_iter().map(async |(title, id)| {
            let view = client.operation(id, 0).await?;
            Ok::<_, QueryError>((row(&title, &view), view.lsn))
        });
        let answers: Vec<_> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
        let lsn = earliest(answers.iter().map(|(_, lsn)| *lsn));
        let rows: Vec<_> = answers.into_iter().map(|(row, _)| row).collect();
        let is_unknown = |row: &Vec<Cell>| row.iter().any(|cell| cell.text == UNKNOWN);
        let remark = rows.iter().any(is_unknown).then(|| {
            let file = match self.file {
                Some(_) => "; the file has to be as it was sent",
                None => "",
            };
            format!("unknown: {NOTHING_RECORDED}{file}")
        });
        Page::of(sheet(rows), lsn, "nothing was asked for")
            .lines(remark)
            .print(self.output)
    }
}

const UNKNOWN: &str = "unknown";
const NOTHING_RECORDED: &str = "nothing of it is recorded: it was never received, is still at the inbox, was refused before anything was \
    recorded, or is older than operations are kept; sent again with this id, it is done once";

pub fn sheet(rows: Vec<Vec<Cell>>) -> Sheet {
    let columns = vec![
        column("of", "of"),
        column("operation_id", "operation").rank(9),
        column("state", "state"),
        column("outcome", "outcome"),
        column("allocation_id", "allocation"),
    ];
    Sheet::new(columns, 5, rows)
}

fn row(title: &str, view: &OperationView) -> Vec<Cell> {
    let known = Known::of(view);
    vec![
        plain(title),
        plain(&view.operation_id),
        plain(known.state),
        named(&known.outcome),
        allocation(known.allocation),
    ]
}

/// What there is to tell of one.
struct Known<'a> {
    state: &'static str,
    outcome: String,
    allocation: &'a str,
}

impl<'a> Known<'a> {
    fn of(view: &'a OperationView) -> Self {
        let result = view.outcome.as_ref().and_then(|it| it.result.as_ref());
        Self {
            state: match view.state() {
                OperationState::Open => "open",
                OperationState::Decided => "decided",
                OperationState::Unknown | OperationState::Unspecified => UNKNOWN,
            },
            outcome: result.map(outcome).unwrap_or_default(),
            allocation: match result {
                Some(Outcome::Submitted(it)) => &it.allocation_id,
                Some(Outcome::Cancelled(it)) => &it.allocation_id,
                _ => "",
            },
        }
    }
}

fn page(view: &OperationView) -> Page {
    let Known {
        state,
        outcome,
        allocation,
    } = Known::of(view);
    let fields = Fields::default()
        .add(
            "operation_id",
            "operation",
            plain(view.operation_id.as_str()),
        )
        .add("state", "state", plain(state))
        .add("outcome", "outcome", named(&outcome))
        .add("allocation_id", "allocation", named(allocation));
    let page = Page::one(fields);
    match state {
        UNKNOWN => page.text(format!(
            "{NOTHING_RECORDED}. Those of an array or a file are asked for with --array or --file"
        )),
        _ => page,
    }
}

fn outcome(result: &Outcome) -> String {
    let of_several = |verb: &str, allocations: u64| {
        let all = vocab::human::count(allocations.into(), "allocation");
        format!("{verb}: {all}")
    };
    match result {
        Outcome::Submitted(_) => "accepted".to_owned(),
        Outcome::Cancelled(_) => "cancelled".to_owned(),
        Outcome::Applied(it) => format!("set: version {}", it.version),
        Outcome::Refused(it) => format!("refused: {}", it.explanation),
        Outcome::JobSetCancelled(it) => of_several("cancelled", it.allocations),
        Outcome::PrioritySet(it) => of_several("priority set", it.allocations),
        Outcome::ResourceCreated(it) => format!("resource created: version {}", it.version),
        Outcome::LeaseGranted(it) => {
            let (lease, token) = (&it.lease_id, it.fencing_token);
            format!("lease {lease} granted, fencing token {token}")
        }
        Outcome::Confirmed(_) => "lease confirmed".to_owned(),
        Outcome::Released(it) => format!("released, fencing token {}", it.fencing_token),
        Outcome::Revoked(it) => format!("revoked, fencing token {}", it.fencing_token),
        Outcome::Reclaimed(_) => "reclaimed".to_owned(),
        Outcome::Passes(_) => "it would be accepted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::Form;
    use schemas::v1::{self, Applied, Submitted};

    #[test]
    fn an_outcome_is_told_in_words() {
        let check = |state: OperationState, result: Option<Outcome>, expected: &[&str]| {
            let view = OperationView {
                operation_id: "o".to_owned(),
                state: state.into(),
                outcome: result.map(|result| v1::Outcome {
                    result: Some(result),
                    ..v1::Outcome::default()
                }),
                lsn: 1,
            };
            let text = page(&view).written(Form::Table).unwrap();
            for line in expected {
                assert!(text.lines().any(|it| it == *line), "{line}\n{text}");
            }
        };
        let submitted = Outcome::Submitted(Submitted {
            allocation_id: "a".to_owned(),
            state: None,
        });
        let lines = [
            "state       decided",
            "outcome     accepted",
            "allocation  a",
        ];
        check(OperationState::Decided, Some(submitted), &lines);
        let applied = Outcome::Applied(Applied { version: 3 });
        check(
            OperationState::Decided,
            Some(applied),
            &["outcome     set: version 3", "allocation  -"],
        );
        check(OperationState::Open, None, &["state       open"]);
        check(OperationState::Unknown, None, &["state       unknown"]);
    }
}
