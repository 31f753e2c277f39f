//! How much was there at once: every stretch between two changes is looked at by itself.

use crate::questions::{
    answer::when,
    plan::Run,
    truth::{cut, full_hours, quantile},
};

pub struct Hour {
    pub hour: i64,
    pub ms: i64,
    /// The level times the milliseconds.
    pub quantity: i128,
    /// Each level with its milliseconds.
    levels: Vec<(i128, i128)>,
}

impl Hour {
    /// The least level that the tenant did not exceed in so many hundredths of the time.
    pub fn quantile(&self, hundredths: i128) -> i128 {
        quantile(hundredths, &self.levels)
    }
}

type Amount = fn(&Run) -> u64;

fn of_model(run: &Run, model: &str) -> u64 {
    if run.place().model == model {
        run.of.gpu
    } else {
        0
    }
}

/// In the order of their names; gpu is all GPUs.
pub const RESOURCES: [(&str, Amount); 5] = [
    ("cpu", |run| run.of.cpu),
    ("gpu", |run| run.of.gpu),
    ("gpu:H100", |run| of_model(run, "H100")),
    ("gpu:L4", |run| of_model(run, "L4")),
    ("memory", |run| run.of.memory),
];

pub fn hourly<'t>(
    runs: impl Iterator<Item = &'t Run>,
    from: i64,
    until: i64,
    amount: Amount,
) -> Vec<Hour> {
    let used = runs.filter_map(|run| Some((run.used()?, i128::from(amount(run)))));
    let used: Vec<((i64, i64), i128)> = used.collect();
    let moments = used.iter().flat_map(|((start, end), _)| [*start, *end]);
    let mut hours: Vec<Hour> = Vec::new();
    for (from, until) in cut(from, until, moments.chain(full_hours(from, until))) {
        let there = used
            .iter()
            .filter(|((start, end), _)| (*start..*end).contains(&from));
        let level: i128 = there.map(|(_, amount)| amount).sum();
        let (hour, ms) = (when::hour(from), until - from);
        if hours.last().is_none_or(|last| last.hour != hour) {
            hours.push(Hour {
                hour,
                ms: 0,
                quantity: 0,
                levels: Vec::new(),
            });
        }
        if let Some(last) = hours.last_mut() {
            last.ms += ms;
            last.quantity += level * i128::from(ms);
            last.levels.push((level, ms.into()));
        }
    }
    hours
}

mod defined {
    use crate::questions::{
        answer::when::NOVEMBER,
        ask,
        common::{Database, Journal, Outcome},
    };
    use vocab::{HOUR_MS, Millis};

    const MINUTE: i64 = 60_000;

    /// When a tenant has a GPU, in milliseconds of the hour, and what is said of the hour: its milliseconds, average,
    /// lowest, highest, and the quantiles. What ends behind the known time still runs.
    type Case = (&'static [(i64, i64)], &'static str);

    const KNOWN: i64 = HOUR_MS + 50 * MINUTE;

    const CASES: [Case; 7] = [
        // Half of the time is half of it, and a millisecond more is more.
        (&[(0, 30 * MINUTE)], "3600000 500 0 1000 0 1000 1000"),
        (&[(0, 30 * MINUTE + 1)], "3600000 500 0 1000 1000 1000 1000"),
        (&[(57 * MINUTE, 2 * HOUR_MS)], "3600000 50 0 1000 0 0 1000"),
        (
            &[(57 * MINUTE - 1, 2 * HOUR_MS)],
            "3600000 50 0 1000 0 1000 1000",
        ),
        // One ends when the other begins: never are there two.
        (
            &[(0, 20 * MINUTE), (20 * MINUTE, 60 * MINUTE)],
            "3600000 1000 1000 1000 1000 1000 1000",
        ),
        (
            &[(0, 20 * MINUTE), (20 * MINUTE - 1, 60 * MINUTE)],
            "3600000 1000 1000 2000 1000 1000 1000",
        ),
        // Nothing in this hour.
        (&[(70 * MINUTE, 80 * MINUTE)], "3600000 0 0 0 0 0 0"),
    ];

    #[tokio::test]
    async fn a_level_is_weighed_by_its_milliseconds() -> Outcome {
        let (database, store) = Database::store().await?;
        let mut journal = Journal::default();
        let mut moments = Vec::new();
        for (no, (runs, _)) in CASES.iter().enumerate() {
            for (from, until) in *runs {
                let allocation = moments.len() as u64 + 1;
                moments.push((NOVEMBER + from, true, no, allocation));
                moments.push((NOVEMBER + until, false, no, allocation));
            }
        }
        // Ends before starts, which are not of the same runs.
        moments.sort_unstable();
        journal.node(NOVEMBER - 1, "n1", Some("V100"));
        for (at, starts, no, allocation) in moments {
            match starts {
                _ if at > NOVEMBER + KNOWN => {}
                true => journal.start(allocation, &format!("t{no}"), "n1", (1, 1, 1000), at),
                false => journal.end(allocation, at),
            }
        }
        store.apply(&journal.batch()).await?;
        store.says(Millis(NOVEMBER + KNOWN), "EUR").await?;
        let sql = "SELECT hour, ms, average, lowest, highest, p50, p95, p99
                   FROM usage_levels(tenant = {tenant:String}, from = '2026-11-01 00:00:00', until = '2026-11-01 02:00:00')
                   WHERE scope = 'tenant' AND resource = 'gpu:V100' ORDER BY hour";
        for (no, (runs, expected)) in CASES.iter().enumerate() {
            let tenant = format!("t{no}");
            let found = ask(&database, sql, &[("tenant", &tenant)]).await?;
            let hours: Vec<String> = found.iter().map(|row| row[1..].join(" ")).collect();
            assert_eq!(hours[0], *expected, "{runs:?}");
            // The other hour is not over.
            assert_eq!(
                (hours.len(), found[1][1].as_str()),
                (2, "3000000"),
                "{runs:?}"
            );
        }
        database.drop().await
    }
}
