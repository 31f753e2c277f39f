//! What came of it: each peer beside Apportion, and what falls short.

use super::{
    jetstream,
    own::{Own, Rows},
    rows,
    task_tables::{self, Case},
};
use replay::command::Size;
use serde::Serialize;
use std::fmt;

/// Apportion against the task tables, at least.
pub const AIM_TASK_TABLES: f64 = 10.0;

#[derive(Debug, Serialize)]
pub struct Figures {
    /// The mean of the two runs.
    tasks_per_s: f64,
    /// The better of the two divided by the other, less one, in per cent.
    spread_percent: f64,
    /// Before the peers and after them.
    own: [Own; 2],
    rows: Rows,
    /// The design as it is: one task per call.
    ratio_vs_task_tables: f64,
    /// With batches, which that design does not have.
    ratio_vs_task_tables_batched: f64,
    /// One message in flight.
    ratio_vs_jetstream: f64,
    ratio_vs_copy: f64,
    ratio_vs_clickhouse: f64,
    peers: Vec<Peer>,
    task_tables: task_tables::Figures,
    jetstream: jetstream::Figures,
    raw_rows: rows::Figures,
    /// Missed aims.
    #[serde(skip)]
    shortfalls: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Peer {
    name: String,
    tasks_per_s: f64,
    ratio: f64,
}

impl Figures {
    pub fn of(
        own: [Own; 2],
        rows: Rows,
        task_tables: task_tables::Figures,
        jetstream: jetstream::Figures,
        raw_rows: rows::Figures,
    ) -> Self {
        let [before, after] = &own;
        let (a, b) = (before.tasks_per_s, after.tasks_per_s);
        let tasks_per_s = f64::midpoint(a, b);
        let peer = |name: String, peers_tasks_per_s: f64| Peer {
            name,
            tasks_per_s: peers_tasks_per_s,
            ratio: tasks_per_s / peers_tasks_per_s,
        };
        let mut peers = vec![
            peer(
                "task tables, one task per call".to_owned(),
                task_tables::Figures::best(&task_tables.single),
            ),
            peer(
                "task tables, many per call".to_owned(),
                task_tables::Figures::best(&task_tables.batched),
            ),
            peer(
                "COPY into Postgres".to_owned(),
                raw_rows.copy_tasks_per_s(rows),
            ),
            peer(
                "insert into ClickHouse".to_owned(),
                raw_rows.clickhouse_tasks_per_s(rows),
            ),
        ];
        for case in &jetstream.ledger {
            let name = format!("JetStream, {} in flight", case.in_flight);
            peers.push(peer(name, jetstream.tasks_per_s(case, before)));
        }
        Self {
            tasks_per_s,
            spread_percent: (a.max(b) / a.min(b) - 1.0) * 100.0,
            rows,
            ratio_vs_task_tables: peers[0].ratio,
            ratio_vs_task_tables_batched: peers[1].ratio,
            ratio_vs_copy: peers[2].ratio,
            ratio_vs_clickhouse: peers[3].ratio,
            // The first of its cases has one in flight.
            ratio_vs_jetstream: peers[4].ratio,
            peers,
            task_tables,
            jetstream,
            raw_rows,
            own,
            shortfalls: Vec::new(),
        }
    }

    /// Compares with the aim; not at the smallest size.
    pub fn judged(self, size: Size) -> Self {
        let ratio = self.ratio_vs_task_tables;
        let short = !size.smoke && ratio < AIM_TASK_TABLES;
        let short = short
            .then(|| format!("{ratio:.1} times the task tables; the aim is {AIM_TASK_TABLES}"));
        Self {
            shortfalls: Vec::from_iter(short),
            ..self
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nApportion: {:.0} tasks/s ({:.0} before the peers, {:.0} after, {:.0} % apart)\n",
            self.tasks_per_s, self.own[0].tasks_per_s, self.own[1].tasks_per_s, self.spread_percent
        )?;
        writeln!(f, "{:<34} {:>12} {:>12}", "peer", "tasks/s", "Apportion ÷")?;
        for peer in &self.peers {
            let Peer {
                name,
                tasks_per_s,
                ratio,
            } = peer;
            writeln!(f, "{name:<34} {tasks_per_s:>12.0} {ratio:>12.2}")?;
        }
        writeln!(
            f,
            "\n{:<34} {:>12} {:>12} {:>14} {:>12}",
            "task tables: connections", "generated/s", "consumed/s", "µs Postgres", "µs client"
        )?;
        for case in self
            .task_tables
            .single
            .iter()
            .chain(&self.task_tables.batched)
        {
            line(f, case)?;
        }
        for short in &self.shortfalls {
            writeln!(f, "\nfalls short: {short}")?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, case: &Case) -> fmt::Result {
    let name = format!(
        "{} add {} each, {} take",
        case.generators, case.tasks_per_call, case.consumers
    );
    writeln!(
        f,
        "{name:<34} {:>12.0} {:>12.0} {:>14.1} {:>12.1}",
        case.generated_per_s,
        case.consumed_per_s,
        case.postgres_cpu_us_per_task,
        case.client_cpu_us_per_task
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(tasks_per_call: usize, generated: f64, consumed: f64) -> Case {
        Case {
            generators: 24,
            consumers: 8,
            tasks_per_call,
            generated_per_s: generated,
            consumed_per_s: consumed,
            postgres_cpu_us_per_task: 60.0,
            client_cpu_us_per_task: 20.0,
        }
    }

    fn messages(in_flight: usize, bytes_per_s: f64) -> jetstream::Case {
        jetstream::Case {
            in_flight,
            messages_per_s: bytes_per_s / 1000.0,
            bytes_per_s,
        }
    }

    fn report(tasks_per_s: [f64; 2]) -> Figures {
        let own = tasks_per_s.map(|tasks_per_s| Own {
            tasks_per_s,
            tasks: 1000,
            ledger_bytes_per_task: 300.0,
            inbox_bytes_per_task: 100.0,
            frame_bytes: 20_000.0,
        });
        Figures::of(
            own,
            Rows {
                warm_per_task: 8.0,
                facts_per_task: 4.0,
            },
            task_tables::Figures {
                single: vec![case(1, 5000.0, 6000.0), case(1, 9000.0, 4000.0)],
                batched: vec![case(100, 80_000.0, 50_000.0)],
                postgres: "PostgreSQL 18".to_owned(),
            },
            jetstream::Figures {
                ledger: vec![messages(1, 30e6), messages(4, 60e6)],
                inbox: messages(64, 10e6),
                frame_bytes: 20_000.0,
            },
            rows::Figures {
                copy_rows_per_s: 80_000.0,
                clickhouse_rows_per_s: 400_000.0,
            },
        )
    }

    #[test]
    fn each_peer_is_compared_by_what_goes_all_the_way() {
        let report = report([36_000.0, 44_000.0]);
        // The lesser of generated and consumed, of the best division.
        assert_eq!(report.ratio_vs_task_tables, 40_000.0 / 5000.0);
        assert_eq!(report.ratio_vs_task_tables_batched, 40_000.0 / 50_000.0);
        // 10 µs for the ledger's bytes and 10 µs for the inbox's.
        assert!((report.ratio_vs_jetstream - 0.8).abs() < 1e-9);
        assert_eq!(report.ratio_vs_copy, 4.0);
        assert_eq!(report.ratio_vs_clickhouse, 0.4);
        assert_eq!(report.spread_percent.round(), 22.0);
    }

    #[test]
    fn what_misses_its_aim_is_said() {
        let check = |tasks_per_s: f64, smoke, shortfalls| {
            let report = report([tasks_per_s; 2]).judged(Size { smoke });
            assert_eq!(report.shortfalls.len(), shortfalls, "{tasks_per_s} {smoke}");
        };
        check(40_000.0, false, 1);
        check(50_000.0, false, 0);
        check(40_000.0, true, 0);
    }
}
