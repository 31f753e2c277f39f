//! Asks for one allocation, ends it as soon as it has started, and waits for the end.
//!
//! `cargo run -p client --example submit -- nats://127.0.0.1:4222 local team-a CREDS`

use client::{Client, ConnectOptions, Failed, Operation, Position, Submit};
use schemas::v1::tenant_event::Kind;
use std::{env, error::Error};
use vocab::Token;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [url, cell, tenant, creds] = args.as_slice() else {
        return Err("usage: submit URL CELL TENANT CREDS".into());
    };
    let tenant = Token::new(tenant)?;
    let options = ConnectOptions::tenant(url, cell, tenant).creds(creds);
    let client = Client::connect(options).await?;

    // Written down before it is sent: whoever repeats it repeats the same operation.
    let operation_id = Operation::fresh_id();
    let request = Submit {
        job_set: "examples".into(),
        name: "from-rust".into(),
        cpu_milli: 4_000,
        memory_bytes: 8 << 30,
        gpu_count: 1,
        gpu_milli: 500,
        ..Submit::default()
    };
    let submitted = match client.submit(request, &operation_id).await {
        Ok(submitted) => submitted,
        Err(Failed::Refused(refused)) => {
            println!("refused: {}", refused.explanation);
            return Ok(());
        }
        Err(other) => return Err(format!("{other}; repeat it as operation {operation_id}").into()),
    };
    println!("{} {:?}", submitted.allocation_id, submitted.state);

    // Its events: cancelled once it runs.
    let job_set = Some("examples".to_owned());
    let mut feed = client.follow(Position::default(), job_set).await?;
    loop {
        for event in feed.next_page().await? {
            if event.allocation_id != submitted.allocation_id {
                continue;
            }
            println!("{}.{} {:?}", event.lsn, event.index, event.kind);
            match event.kind {
                Some(Kind::Started(_)) => {
                    let id = submitted.allocation_id.as_str();
                    client.cancel(id, Operation::fresh_id()).await?;
                }
                Some(Kind::Ended(_)) => return Ok(()),
                _ => {}
            }
        }
    }
}
