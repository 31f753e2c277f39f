//! Outcomes of requests, with their allocations.

use super::{how, many::Titled, why, words};
use crate::{
    Failure,
    follow::{exit_code, signal},
    list,
    print::{
        Cell, Output, Page, Sheet, absent, allocation, column, earliest, moment_or_never, named,
        number, plain,
    },
};
use client::AllocationView;
use schemas::v1::{Submitted, submitted};
use std::collections::BTreeMap;

/// Outcome of a request.
pub enum Came {
    Accepted(Submitted),
    /// With the explanation of the cell.
    Refused(String),
    Unknown,
}

struct One {
    title: String,
    operation_id: String,
    came: Came,
}

/// Requests of one command, in the order of their outcomes.
#[derive(Default)]
pub struct Sent {
    all: Vec<One>,
    /// The error if not all were accepted.
    pub failure: Option<Failure>,
}

impl Titled for (&str, &str) {
    fn title(&self) -> &str {
        self.0
    }

    fn operation_id(&self) -> &str {
        self.1
    }
}

impl Sent {
    pub fn add(&mut self, one: &impl Titled, came: Came) {
        self.all.push(One {
            title: one.title().to_owned(),
            operation_id: one.operation_id().to_owned(),
            came,
        });
    }

    /// The allocations of those that were accepted.
    pub fn ids(&self) -> Vec<String> {
        let ids = self.all.iter().filter_map(|one| match &one.came {
            Came::Accepted(done) => Some(done.allocation_id.clone()),
            Came::Refused(_) | Came::Unknown => None,
        });
        ids.collect()
    }

    /// Prints the list of all for a program, with the states of `views`. `decided` is the position of the outcomes. People read each
    /// outcome at once, and nothing here.
    pub fn print(
        &self,
        views: &[AllocationView],
        decided: u64,
        output: Output,
    ) -> Result<(), Failure> {
        let lsn = match views.is_empty() {
            true => decided,
            false => earliest(views.iter().map(|view| view.lsn)),
        };
        match output.is_for_programs() {
            true => Page::of(self.sheet(views), lsn, "nothing was asked for").print(output),
            false => Ok(()),
        }
    }

    /// Prints the only one as an object for a program, and a text for people.
    pub fn print_one(
        &self,
        text: &str,
        views: &[AllocationView],
        output: Output,
    ) -> Result<(), Failure> {
        let sheet = self.sheet(views);
        let value = sheet.records()[0].take();
        Page::new(value).text(text).rows(sheet).print(output)
    }

    fn sheet(&self, views: &[AllocationView]) -> Sheet {
        let by_id = views.iter().map(|view| (&*view.allocation_id, view));
        let by_id: BTreeMap<&str, &AllocationView> = by_id.collect();
        let rows = self.all.iter().map(|one| {
            let id = match &one.came {
                Came::Accepted(done) => &*done.allocation_id,
                Came::Refused(_) | Came::Unknown => "",
            };
            row(one, id, by_id.get(id).copied())
        });
        let columns = vec![
            column("name", "name"),
            column("allocation_id", "allocation"),
            column("operation_id", "operation"),
            column("result", "result"),
            column("state", "state"),
            column("node", "node"),
            column("why", "why"),
            column("started_ms", "started"),
            column("ended_ms", "ended"),
            column("exit_code", "exit code"),
            column("signal", "signal"),
        ];
        Sheet::new(columns, 9, rows.collect())
    }
}

fn row(one: &One, id: &str, view: Option<&AllocationView>) -> Vec<Cell> {
    let (result, [state, node, why]) = match (&one.came, view) {
        (Came::Accepted(_), Some(view)) => {
            let ended = view.ended.as_ref();
            let ended = ended.map(|ended| how(ended.cause(), ended.exit));
            let why = ended.or_else(|| view.waiting.as_ref().map(why));
            let node = view.node.clone();
            (
                "accepted",
                [words(view.state()), node, why.unwrap_or_default()],
            )
        }
        (Came::Accepted(done), None) => ("accepted", stands(done)),
        (Came::Refused(why), _) => ("refused", [String::new(), String::new(), why.clone()]),
        (Came::Unknown, _) => ("unknown", Default::default()),
    };
    let ended = view.and_then(|view| view.ended);
    let known = |number: Option<u32>| number.map_or_else(|| absent("-"), self::number);
    vec![
        named(&one.title),
        allocation(id),
        plain(&one.operation_id),
        plain(result),
        named(&state),
        named(&node),
        named(&why),
        moment_or_never(view.map_or(0, list::started_ms)),
        moment_or_never(ended.map_or(0, |ended| ended.ended_ms)),
        known(ended.and_then(|ended| exit_code(ended.exit))),
        known(ended.and_then(|ended| signal(ended.exit))),
    ]
}

/// Returns the state when it was accepted, the node, and the reason if it is not placed.
fn stands(done: &Submitted) -> [String; 3] {
    let of = |state: &str, node: &str, why: String| [state.to_owned(), node.to_owned(), why];
    match &done.state {
        Some(submitted::State::Placed(placed)) => of("placed", &placed.node, String::new()),
        Some(submitted::State::Waiting(waiting)) => of("waiting", "", why(waiting)),
        Some(submitted::State::Ended(ended)) => of("ended", "", words(ended.cause())),
        None => of("unknown", "", String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::v1::{AllocationState, EndCause, Ended, RunExit};

    #[test]
    fn programs_are_told_of_each_in_one_form() {
        let mut sent = Sent::default();
        let accepted = |id: &str| {
            Came::Accepted(Submitted {
                allocation_id: id.to_owned(),
                state: None,
            })
        };
        sent.add(&("a", "o-a"), accepted("id-a"));
        sent.add(&("b", "o-b"), Came::Refused("no".to_owned()));
        sent.add(&("c", "o-c"), Came::Unknown);
        sent.add(&("d", "o-d"), accepted("id-d"));
        assert_eq!(sent.ids(), ["id-a", "id-d"]);
        let ended = AllocationView {
            allocation_id: "id-a".to_owned(),
            state: AllocationState::Ended.into(),
            node: "n".to_owned(),
            ended: Some(Ended {
                cause: EndCause::Failed.into(),
                started_ms: 5,
                ended_ms: 9,
                exit: Some(RunExit {
                    code: 3,
                    ..RunExit::default()
                }),
            }),
            ..AllocationView::default()
        };
        let records = sent.sheet(&[ended]).records();
        let check = |at: usize, expected: serde_json::Value| assert_eq!(records[at], expected);
        let none = serde_json::Value::Null;
        check(
            0,
            serde_json::json!({
                "name": "a", "allocation_id": "id-a", "operation_id": "o-a", "result": "accepted", "state": "ended", "node": "n",
                "why": "failed, exit code 3", "started_ms": 5, "ended_ms": 9, "exit_code": 3, "signal": none,
            }),
        );
        check(
            1,
            serde_json::json!({
                "name": "b", "allocation_id": none, "operation_id": "o-b", "result": "refused", "state": none, "node": none,
                "why": "no", "started_ms": none, "ended_ms": none, "exit_code": none, "signal": none,
            }),
        );
        assert_eq!(records[2]["result"], "unknown");
        assert_eq!(records[3]["state"], "unknown");
    }
}
