//! Advance reservations, and what became of them.

use crate::{
    Failure,
    context::{Context, Whose},
    print::{Output, Page, Sheet, column, moment, moment_or_never, named, number, plain, wide},
};
use clap::Args;
use client::ReservationView;

#[derive(Args)]
pub struct Reservations {
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    output: Output,
}

impl Reservations {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.asker(self.whose.tenant.as_deref()).await?;
        let found = client.reservations(0).await?;
        Page::of(sheet(&found.reservations), found.lsn, "no reservations").print(self.output)
    }
}

pub fn sheet(found: &[ReservationView]) -> Sheet {
    let row = |one: &ReservationView| {
        let wanted = one.wanted.clone().unwrap_or_default();
        vec![
            plain(&one.reservation),
            plain(&wanted.queue),
            plain(&one.state),
            number(wanted.nodes),
            moment_or_never(wanted.from_ms),
            moment(wanted.until_ms),
            named(&one.nodes.join(" ")),
            number(one.version),
            moment(one.changed_at_ms),
        ]
    };
    let columns = vec![
        column("reservation", "reservation"),
        column("queue", "queue"),
        column("state", "state"),
        column("nodes_wanted", "nodes"),
        column("from_ms", "from"),
        column("until_ms", "until"),
        column("nodes", "granted").rank(9),
        wide("version", "version"),
        wide("changed_at_ms", "changed"),
    ];
    Sheet::new(columns, 3, found.iter().map(row).collect())
}
