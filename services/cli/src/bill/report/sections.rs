//! What stands in the page.

use super::{
    charts::{self, Chart},
    facts::Facts,
    page::{Page, Part, Section},
    sheets::{self, IdleByHour, States},
};
use crate::{amount, print::Sheet};
use analytics::store::{CapacityLine, Mark, Spender};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{DAY_MS, HOUR_MS, Millis};

/// With more hours than these, days are shown.
const HOURS_MAX: usize = 72;
/// Longer tables are folded up.
const ROWS_OPEN: usize = 40;

pub fn page(facts: &Facts) -> Page {
    Page {
        title: format!("Use and cost of {}", facts.month),
        facts: head(facts),
        sections: vec![
            bill(facts),
            use_over_time(facts),
            waste(facts),
            idle(facts),
            spenders(facts),
            sizes(facts),
            waits(facts),
            budgets(facts),
            reconciliation(facts),
        ],
    }
}

fn part(caption: &str, chart: Option<Chart>, sheet: Sheet) -> Part {
    Part {
        caption: caption.to_owned(),
        folded: sheet.rows.len() > ROWS_OPEN,
        chart,
        sheet,
    }
}

/// Parts without rows go, and if none is left, a sentence says so.
fn section(
    id: &'static str,
    title: &'static str,
    text: &str,
    nothing: &str,
    mut parts: Vec<Part>,
) -> Section {
    parts.retain(|part| !part.sheet.rows.is_empty());
    let text = if parts.is_empty() { nothing } else { text };
    Section {
        id,
        title,
        text: text.to_owned(),
        parts,
    }
}

fn head(facts: &Facts) -> Vec<(&'static str, String)> {
    let (before, after) = facts.marks;
    let state = match facts.closing {
        Some(closing) => format!(
            "closed at {}, at position {} of the ledger: its bill is final",
            amount::moment(Millis(closing.closed_ms)),
            closing.lsn
        ),
        None => "open: its figures may still change".to_owned(),
    };
    let through = |mark: Mark| amount::moment(Millis(mark.through_ms));
    let moment = match before == after {
        true => through(after),
        false => format!("{} to {}, table by table", through(before), through(after)),
    };
    let lines = facts.reconciled.iter().filter(|line| line.last_lsn > 0);
    let first = lines.clone().map(|line| line.first_lsn).min();
    let made_of = match (first, lines.map(|line| line.last_lsn).max()) {
        (Some(first), Some(last)) => format!("positions {first} to {last} of the ledger"),
        _ => "no use".to_owned(),
    };
    let currency = match facts.currency.as_str() {
        "" => "not known yet".to_owned(),
        currency => currency.to_owned(),
    };
    vec![
        ("month", facts.month.to_string()),
        ("state", state),
        ("up to", moment),
        ("currency", currency),
        ("what was charged is made of", made_of),
        (
            "the tables have read",
            format!("positions {} to {}", after.after_lsn + 1, after.lsn),
        ),
    ]
}

fn bill(facts: &Facts) -> Section {
    let charges = sheets::charges(&facts.bill);
    let chart = charts::charges(&charges, &facts.currency);
    let caption = format!("Amounts in {}", facts.currency);
    section(
        "bill",
        "The bill by tenant and team",
        "What each team owes for the month, with corrections of earlier months that became known in it.",
        "No tenant used anything in this month.",
        vec![part(&caption, Some(chart), sheets::charged(&charges))],
    )
}

fn buckets(capacity: &[CapacityLine], resource: &str, step_ms: i64) -> BTreeMap<i64, States> {
    let of_resource = capacity.iter().filter(|line| line.resource == resource);
    let of_resource: Vec<CapacityLine> = of_resource.cloned().collect();
    sheets::summed(&of_resource, |line| {
        line.begins_ms.div_euclid(step_ms) * step_ms
    })
}

fn resources(capacity: &[CapacityLine]) -> BTreeSet<String> {
    capacity.iter().map(|line| line.resource.clone()).collect()
}

fn use_over_time(facts: &Facts) -> Section {
    let capacity = &facts.capacity;
    let hours: BTreeSet<i64> = capacity.iter().map(|line| line.begins_ms).collect();
    let (step, step_ms) = match hours.len() {
        0..=HOURS_MAX => ("hour", HOUR_MS),
        _ => ("day", DAY_MS),
    };
    let mut parts = vec![part(
        "The whole month",
        Some(charts::utilization(capacity)),
        sheets::utilization(capacity),
    )];
    for resource in resources(capacity) {
        let buckets = buckets(capacity, &resource, step_ms);
        let chart = charts::over_time(&resource, &buckets, step);
        let sheet = sheets::over_time(&resource, &buckets);
        let caption = format!("{resource} by {step}");
        parts.push(Part {
            folded: true,
            ..part(&caption, chart, sheet)
        });
    }
    section(
        "use",
        "Use over time",
        "What the capacity of all nodes was at each moment: allocated to runs that had started, reserved for runs that \
         had not, idle, kept free by a cordon, or unavailable.",
        "No node was there in this month.",
        parts,
    )
}

fn waste(facts: &Facts) -> Section {
    let costs = part(
        &format!(
            "Capacity that no tenant was charged for; cost in {}",
            facts.currency
        ),
        Some(charts::costs(&facts.costs, &facts.currency)),
        sheets::costs(&facts.costs),
    );
    let ends = part(
        "Time of runs that are over, by what ended them",
        None,
        sheets::ends(&facts.ends),
    );
    section(
        "waste",
        "Waste",
        "Reserved capacity waits for its run to start. The time of runs that failed, were preempted, were refused by \
         their node or lost with it was charged and may have been in vain.",
        "There was no capacity and no run in this month.",
        vec![costs, ends],
    )
}

fn idle(facts: &Facts) -> Section {
    let resources = resources(&facts.capacity);
    let hour_of_day = |line: &CapacityLine| line.begins_ms.rem_euclid(DAY_MS) / HOUR_MS;
    let hours: IdleByHour = sheets::summed(&facts.capacity, |line| {
        (line.resource.clone(), hour_of_day(line))
    });
    let chart = charts::idle_by_hour(&resources, &hours);
    section(
        "idle",
        "Idle by hour of the day",
        "Which part of the capacity was idle in each hour of the day, over all days of the month.",
        "No node was there in this month.",
        vec![part(
            "Idle capacity",
            Some(chart),
            sheets::idle_by_hour(&resources, &hours),
        )],
    )
}

fn spenders(facts: &Facts) -> Section {
    let chart = charts::spenders(&facts.spenders, &facts.currency);
    let sheet = sheets::top(&facts.spenders, Spender::JobSet);
    section(
        "spenders",
        "Top spenders",
        "Use in the hours of the month, whenever it became known.",
        "No tenant used anything in this month.",
        vec![part(
            &format!("Amounts in {}", facts.currency),
            Some(chart),
            sheet,
        )],
    )
}

fn sizes(facts: &Facts) -> Section {
    let parts = [
        ("gpu", "Runs by their GPUs"),
        ("cpu", "Runs by their cores"),
    ];
    let parts = parts.map(|(resource, title)| {
        let lines = facts.sizes.iter();
        let lines: Vec<_> = lines.filter(|line| line.resource == resource).collect();
        let chart = charts::sizes(&lines, title);
        let lines: Vec<_> = lines.into_iter().cloned().collect();
        part(title, Some(chart), sheets::sizes(&lines))
    });
    section(
        "sizes",
        "Sizes of runs",
        "Runs that were under way in the month, and what they used in it.",
        "There was no run in this month.",
        parts.into(),
    )
}

fn waits(facts: &Facts) -> Section {
    let by_queue = part(
        "By queue",
        Some(charts::waits(&facts.waits)),
        sheets::waits(&facts.waits),
    );
    let longest = part("The longest waits", None, sheets::longest(&facts.longest));
    section(
        "waits",
        "Waiting",
        "From the request, or from when it was queued again, until it got a place in this month. Allocations that ended \
         without a place are only counted. Running and waiting allocations are counted when they have ended.",
        "Nothing that is over waited in this month.",
        vec![by_queue, longest],
    )
}

fn budgets(facts: &Facts) -> Section {
    let chart = charts::budgets(&facts.budgets);
    section(
        "budgets",
        "Budgets",
        "Each budget in the period that it is in now, whatever month the page is of.",
        "No budgets are set: nothing bounds what is used up.",
        vec![part(
            "What is left of the budgets",
            Some(chart),
            sheets::budgets(&facts.budgets),
        )],
    )
}

fn reconciliation(facts: &Facts) -> Section {
    let adds_up = facts.reconciled.iter().all(|line| line.variance == "0");
    let text = match adds_up {
        true => {
            "What the capacity cost is what was charged and what was not: every variance is 0, before any rounding."
        }
        false => {
            "What the capacity cost is not what was charged and what was not: a variance is not 0."
        }
    };
    section(
        "reconciliation",
        "Reconciliation",
        text,
        "No node was there in this month.",
        vec![part(
            &format!(
                "Amounts in {}; the variance in millionths times unit-milliseconds",
                facts.currency
            ),
            None,
            sheets::reconciled(&facts.reconciled),
        )],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use analytics::store::Closing;
    use vocab::Month;

    fn facts() -> Facts {
        let mark = Mark {
            through_ms: 0,
            after_lsn: 0,
            lsn: 9,
        };
        Facts {
            month: Month(202_611),
            marks: (mark, mark),
            closing: None,
            currency: "EUR".to_owned(),
            bill: vec![],
            capacity: vec![],
            costs: vec![],
            ends: vec![],
            waits: vec![],
            longest: vec![],
            sizes: vec![],
            spenders: vec![],
            budgets: vec![],
            reconciled: vec![],
        }
    }

    #[test]
    fn nothing_is_said_in_a_sentence() {
        for section in page(&facts()).sections {
            assert!(section.parts.is_empty(), "{}", section.id);
            assert!(section.text.ends_with('.'), "{}", section.id);
        }
    }

    #[test]
    fn the_head_says_whether_the_month_may_change() {
        let state = |facts: &Facts| head(facts)[1].1.clone();
        assert_eq!(state(&facts()), "open: its figures may still change");
        let closing = Closing {
            closed_ms: 0,
            lsn: 7,
        };
        let closed = Facts {
            closing: Some(closing),
            ..facts()
        };
        assert_eq!(
            state(&closed),
            "closed at 1970-01-01T00:00:00Z, at position 7 of the ledger: its bill is final"
        );
        let (mark, later) = (facts().marks.0, 1000);
        let moving = Facts {
            marks: (
                mark,
                Mark {
                    through_ms: later,
                    ..mark
                },
            ),
            ..facts()
        };
        assert_eq!(
            head(&moving)[2].1,
            "1970-01-01T00:00:00Z to 1970-01-01T00:00:01Z, table by table"
        );
    }
}
