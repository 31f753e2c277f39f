//! The charts of a page, made of what the store says. Their numbers are whole: values times `per`.

use super::{
    super::{kind, micro_hours, unit_hours},
    sheets::{self, Charge, IdleByHour, OneBudget, STATES, States},
};
use crate::amount;
use analytics::store::{CapacityLine, CostLine, SizeLine, SpentLine, WaitLine};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use vocab::Millis;

/// So many bars can be told apart; the table has the rest.
const BARS_MAX: usize = 12;
const MILLIONTHS: i64 = 1_000_000;
/// Of the style sheet, for models of GPUs.
const GPU_COLOURS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Chart {
    pub title: String,
    pub form: Form,
    /// What the values are counted in.
    pub unit: String,
    /// What the labels are.
    pub category: &'static str,
    pub labels: Vec<String>,
    /// A value of 1 is so many.
    pub per: i64,
    pub series: Vec<Series>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Stacked, from left to right, with names beside them.
    NamedBars,
    /// Stacked, upwards.
    Stacked,
    /// Beside each other.
    Beside,
    Lines,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Series {
    pub name: String,
    /// Of the style sheet.
    pub colour: String,
    /// None: there is nothing to be told.
    pub values: Vec<Option<i64>>,
}

/// What a chart cannot show is at its edge.
fn whole(value: i128) -> Option<i64> {
    let edge = if value < 0 { i64::MIN } else { i64::MAX };
    Some(i64::try_from(value).unwrap_or(edge))
}

/// Models of GPUs take turns.
fn colour(resource: &str, resources: &BTreeSet<String>) -> String {
    let gpus = resources.iter().filter(|name| name.starts_with("gpu"));
    match gpus.clone().position(|name| name == resource) {
        Some(no) => format!("gpu-{}", no % GPU_COLOURS),
        None => resource.to_owned(),
    }
}

pub fn charges(charges: &[((String, String), Charge)], currency: &str) -> Chart {
    let shown = &charges[..charges.len().min(BARS_MAX)];
    let of_charge =
        |(_, charge): &(_, Charge)| charge.by_resource.keys().cloned().collect::<Vec<_>>();
    let resources: BTreeSet<String> = shown.iter().flat_map(of_charge).collect();
    let series = resources.iter().map(|resource| Series {
        name: resource.clone(),
        colour: colour(resource, &resources),
        values: shown
            .iter()
            .map(|(_, charge)| {
                whole(
                    charge
                        .by_resource
                        .get(resource)
                        .copied()
                        .unwrap_or_default(),
                )
            })
            .collect(),
    });
    let label = |((tenant, team), _): &((String, String), Charge)| match team.as_str() {
        "" => tenant.clone(),
        team => format!("{tenant} / {team}"),
    };
    Chart {
        title: first("Amount by tenant and team", shown.len(), charges.len()),
        form: Form::NamedBars,
        unit: currency.to_owned(),
        category: "tenant / team",
        labels: shown.iter().map(label).collect(),
        per: MILLIONTHS,
        series: series.collect(),
    }
}

fn first(title: &str, shown: usize, all: usize) -> String {
    match shown < all {
        true => format!("{title}, the first {shown} of {all}"),
        false => title.to_owned(),
    }
}

/// Which part of each resource's capacity was what.
pub fn utilization(lines: &[CapacityLine]) -> Chart {
    let sums = sheets::summed(lines, |line| line.resource.clone());
    let series = STATES.into_iter().enumerate().map(|(no, state)| Series {
        name: state.to_owned(),
        colour: state.to_owned(),
        values: sums
            .values()
            .map(|states| whole(sheets::basis_points(states[no], states.iter().sum())))
            .collect(),
    });
    Chart {
        title: "What the capacity of the month was".to_owned(),
        form: Form::NamedBars,
        unit: "% of capacity".to_owned(),
        category: "resource",
        labels: sums.keys().cloned().collect(),
        per: 100,
        series: series.collect(),
    }
}

/// One resource by hour or day.
pub fn over_time(
    resource: &str,
    buckets: &BTreeMap<i64, States>,
    step: &'static str,
) -> Option<Chart> {
    let kind = kind(resource)?;
    let series = STATES.into_iter().enumerate().map(|(no, state)| Series {
        name: state.to_owned(),
        colour: state.to_owned(),
        values: buckets
            .values()
            .map(|states| whole(micro_hours(kind, states[no])))
            .collect(),
    });
    // `2026-11-03T10:00:00Z` begins with the day and the hour.
    let label = |begins: &i64| {
        let moment = amount::moment(Millis(*begins));
        match step {
            "day" => moment.chars().take(10).collect(),
            _ => moment
                .chars()
                .skip(5)
                .take(11)
                .collect::<String>()
                .replace('T', " "),
        }
    };
    Some(Chart {
        title: format!("{resource}: what the capacity of each {step} was"),
        form: Form::Stacked,
        unit: format!("{} per {step}", unit_hours(kind)),
        category: if step == "day" {
            "day, UTC"
        } else {
            "hour, UTC"
        },
        labels: buckets.keys().map(label).collect(),
        per: MILLIONTHS,
        series: series.collect(),
    })
}

pub fn costs(lines: &[CostLine], currency: &str) -> Chart {
    let resources: BTreeSet<&str> = lines.iter().map(|line| line.resource.as_str()).collect();
    let amount = |resource: &str, state: &str| {
        let found = lines
            .iter()
            .find(|line| line.resource == resource && line.state == state);
        whole(found.map_or(0, |line| line.amount_micro))
    };
    let not_charged = STATES.into_iter().filter(|state| *state != "allocated");
    let series = not_charged.map(|state| Series {
        name: state.to_owned(),
        colour: state.to_owned(),
        values: resources
            .iter()
            .map(|resource| amount(resource, state))
            .collect(),
    });
    Chart {
        title: "Cost of what no tenant was charged for".to_owned(),
        form: Form::NamedBars,
        unit: currency.to_owned(),
        category: "resource",
        labels: resources.iter().map(ToString::to_string).collect(),
        per: MILLIONTHS,
        series: series.collect(),
    }
}

pub fn idle_by_hour(resources: &BTreeSet<String>, hours_of_day: &IdleByHour) -> Chart {
    let part = |resource: &String, hour: i64| {
        let states = hours_of_day.get(&(resource.clone(), hour))?;
        whole(sheets::basis_points(states[2], states.iter().sum()))
    };
    let series = resources.iter().map(|resource| Series {
        name: resource.clone(),
        colour: colour(resource, resources),
        values: (0..24).map(|hour| part(resource, hour)).collect(),
    });
    Chart {
        title: "Idle capacity by hour of the day".to_owned(),
        form: Form::Lines,
        unit: "% of capacity".to_owned(),
        category: "hour of the day, UTC",
        labels: (0..24).map(|hour| format!("{hour:02}")).collect(),
        per: 100,
        series: series.collect(),
    }
}

pub fn waits(lines: &[WaitLine]) -> Chart {
    let mut shown: Vec<&WaitLine> = lines.iter().filter(|line| line.placed > 0).collect();
    let all = shown.len();
    shown.sort_by_key(|line| std::cmp::Reverse((line.p99_ms, line.placed)));
    shown.truncate(BARS_MAX);
    let longest = shown.first().and_then(|line| line.p99_ms).unwrap_or(0);
    let (unit, per) = match longest {
        ..600_000 => ("seconds", 1000),
        600_000..36_000_000 => ("minutes", 60_000),
        _ => ("hours", 3_600_000),
    };
    let values = |name: &str, of: fn(&WaitLine) -> Option<i64>| Series {
        name: format!("{name} waited up to"),
        colour: format!("part-{}", name.trim_end_matches(" %")),
        values: shown.iter().map(|line| of(line)).collect(),
    };
    Chart {
        title: first("Wait for a place by queue", shown.len(), all),
        form: Form::Beside,
        unit: unit.to_owned(),
        category: "queue",
        labels: shown.iter().map(|line| line.queue.clone()).collect(),
        per,
        series: vec![
            values("50 %", |line| line.p50_ms),
            values("90 %", |line| line.p90_ms),
            values("99 %", |line| line.p99_ms),
        ],
    }
}

pub fn spenders(lines: &[SpentLine], currency: &str) -> Chart {
    Chart {
        title: format!("The {} job sets that cost most", lines.len()),
        form: Form::NamedBars,
        unit: currency.to_owned(),
        category: "tenant / team / job set",
        labels: lines.iter().map(sheets::spender_name).collect(),
        per: MILLIONTHS,
        series: vec![Series {
            name: "amount".to_owned(),
            colour: "one".to_owned(),
            values: lines.iter().map(|line| whole(line.amount_micro)).collect(),
        }],
    }
}

pub fn sizes(lines: &[&SizeLine], title: &str) -> Chart {
    Chart {
        title: title.to_owned(),
        form: Form::Beside,
        unit: "runs".to_owned(),
        category: "size of a run",
        labels: lines.iter().map(|line| sheets::size(line)).collect(),
        per: 1,
        series: vec![Series {
            name: "runs".to_owned(),
            colour: "one".to_owned(),
            values: lines.iter().map(|line| whole(line.runs.into())).collect(),
        }],
    }
}

pub fn budgets(budgets: &[OneBudget]) -> Chart {
    let mut shown: Vec<&OneBudget> = budgets.iter().collect();
    shown.sort_by_key(|(.., state)| std::cmp::Reverse(sheets::spent_part(state)));
    shown.truncate(BARS_MAX);
    let label = |(account, of, state): &&OneBudget| {
        format!(
            "{account}: {} per {}",
            of.name(),
            state.budget.period.name()
        )
    };
    Chart {
        title: first("Spent of each budget", shown.len(), budgets.len()),
        form: Form::NamedBars,
        unit: "% of budget".to_owned(),
        category: "account: budget",
        labels: shown.iter().map(label).collect(),
        per: 100,
        series: vec![Series {
            name: "spent".to_owned(),
            colour: "one".to_owned(),
            values: shown
                .iter()
                .map(|(.., state)| whole(sheets::spent_part(state)))
                .collect(),
        }],
    }
}
