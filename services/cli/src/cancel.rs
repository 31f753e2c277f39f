//! Cancelling allocations and changing their priority.

use crate::{
    Failure, amount,
    context::{Context, Whose},
    names::{Named, Several},
    print::{Fields, Output, Page, Sheet, allocation, column, note, number, plain},
    sending::Sending,
};
use clap::Args;
use client::{Client, Failed, Of};
use futures::{StreamExt, stream};
use vocab::human::count;

#[derive(Args)]
#[command(
    override_usage = "apportion cancel [OPTIONS] <ALLOCATION>...\n       apportion cancel [OPTIONS] --job-set <JOB_SET>"
)]
pub struct Cancel {
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    sending: Sending,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
#[command(
    override_usage = "apportion priority [OPTIONS] <PRIORITY> <ALLOCATION>...\n       apportion priority [OPTIONS] <PRIORITY> --job-set <JOB_SET>"
)]
pub struct Priority {
    #[command(flatten)]
    whose: Whose,
    /// Higher goes first.
    #[arg(value_parser = amount::priority)]
    priority: i32,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    sending: Sending,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Which {
    #[command(flatten)]
    several: Several,
    /// All of this job set that has not ended.
    #[arg(long, conflicts_with_all = ["allocations", "all"])]
    job_set: Option<String>,
}

/// Operations of one command that are under way at a time.
const AT_ONCE: usize = 16;

impl Which {
    /// Sends a change of each allocation, or of the job set. Nothing is sent if a name is unclear.
    async fn send(
        self,
        client: &Client,
        sending: &Sending,
        verb: &str,
        change: impl AsyncFn(Of, String) -> Result<u64, Failed>,
        output: Output,
    ) -> Result<(), Failure> {
        let Some(name) = self.job_set else {
            let all = self.several.to_change(client).await?;
            return of_each(client, all, sending, verb, change, output).await;
        };
        let changed = change(Of::JobSet(name.clone()), sending.id()).await?;
        Sending::seen(client).await;
        if changed == 0 {
            note!("nothing of the job set {name} was left to change");
        }
        let text = format!("{} {verb}", count(changed.into(), "allocation"));
        let fields = Fields::default()
            .add("job_set", "job set", plain(&name))
            .add("allocations", "allocations", number(changed));
        Page::said(text, fields).print(output)
    }
}

/// Changes each of these and reports what came of it.
async fn of_each(
    client: &Client,
    all: Vec<Named>,
    sending: &Sending,
    verb: &str,
    change: impl AsyncFn(Of, String) -> Result<u64, Failed>,
    output: Output,
) -> Result<(), Failure> {
    let operations = sending.ids(all.iter().map(|one| (&*one.title, &*one.id)));
    let changes = all.iter().zip(operations).map(async |(one, operation)| {
        let done = change(Of::Allocation(one.id.clone()), operation.clone()).await;
        (one, operation, done)
    });
    let done: Vec<_> = stream::iter(changes).buffered(AT_ONCE).collect().await;
    Sending::seen(client).await;
    let (mut rows, mut failed) = (Vec::new(), None);
    for (one, operation, done) in done {
        match done {
            Ok(_) => rows.push(vec![
                allocation(&one.id),
                plain(&one.title),
                plain(operation),
                plain(verb),
            ]),
            Err(error) => {
                if all.len() > 1 {
                    note!("{}: {error}", one.title);
                }
                failed = Some(error);
            }
        }
    }
    let columns = vec![
        column("allocation_id", "allocation"),
        column("name", "name"),
        column("operation_id", "operation"),
        column("result", "result"),
    ];
    let lines: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}", row[0].text, row[3].text))
        .collect();
    let changed = rows.len();
    if changed > 0 || failed.is_none() {
        let sheet = Sheet::new(columns, 4, rows);
        Page::list(sheet.records(), client.decided_lsn())
            .lines(lines)
            .rows(sheet)
            .print(output)?;
    }
    let Some(failed) = failed else { return Ok(()) };
    let failure = Failure::from(failed);
    let of_several = format!("{} of {} were not changed", all.len() - changed, all.len());
    Err(match (changed, all.len()) {
        (_, 1) => failure,
        (0, _) => failure.and(Some(of_several)),
        _ => failure.and(Some(of_several)).afterwards(),
    })
}

impl Cancel {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = self
            .sending
            .tenant(context, self.whose.tenant.as_deref())
            .await?;
        let change = async |of: Of, operation: String| match of {
            Of::Allocation(id) => client.cancel(id, operation).await.map(|_| 1),
            Of::JobSet(name) => {
                let cancelled = client.cancel_job_set(name, operation).await?;
                Ok(cancelled.allocations)
            }
        };
        self.which
            .send(&client, &self.sending, "cancelled", change, self.output)
            .await
    }
}

impl Priority {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = self
            .sending
            .tenant(context, self.whose.tenant.as_deref())
            .await?;
        let change = async |of: Of, operation: String| {
            let set = client.set_priority(of, self.priority, operation).await?;
            Ok(set.allocations)
        };
        let verb = format!("set to priority {}", self.priority);
        self.which
            .send(&client, &self.sending, &verb, change, self.output)
            .await
    }
}
