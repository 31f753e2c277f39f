//! Answers of which nothing is recorded: refusals, and what becomes of trials. Best effort: whoever hears nothing asks again.

use super::{Replies, ReplyTo, jetstream::send_replies};
use crate::feed::unrecorded;
use admission_rules::Turned;
use async_nats::Client;
use chassis::{Failure, Shutdown};
use tokio::sync::mpsc;
use vocab::{CellNo, subjects::Subjects};

/// Answers that are taken from the queue before some are sent.
const AT_ONCE_MAX: usize = 4096;

/// Sends them until shutdown, those that wait for one subscription together.
pub async fn refuse(
    client: Client,
    subjects: Subjects,
    cell: CellNo,
    mut turned: mpsc::UnboundedReceiver<Turned>,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let mut waiting = Vec::new();
    loop {
        let taken = tokio::select! {
            taken = turned.recv_many(&mut waiting, AT_ONCE_MAX) => taken,
            () = shutdown.requested() => return Ok(()),
        };
        if taken == 0 {
            // The leader is gone, and with it the process.
            return Ok(());
        }
        let mut replies = Replies::new(cell);
        for Turned {
            tenant,
            operation_id,
            reply_to,
            answer,
        } in waiting.drain(..)
        {
            let to = ReplyTo {
                tenant,
                token: reply_to,
            };
            replies.push(to, &unrecorded(operation_id, answer));
        }
        if let Err(error) = send_replies(&client, &subjects, replies.packed()).await {
            tracing::warn!(%error, "answers not sent");
        }
    }
}
