//! What may take its time, done beside what may not.

use futures::future::BoxFuture;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

/// At most one at a time.
pub(crate) type Chore = Option<BoxFuture<'static, ()>>;

/// Until it is done; meanwhile, what was begun beside it goes on. Each is polled once per poll, so that a crash can fall
/// between any two steps of either.
pub(crate) async fn beside<V>(chore: &mut Chore, work: impl Future<Output = V>) -> V {
    let mut work = pin!(work);
    poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        if let Some(running) = chore
            && running.as_mut().poll(context).is_ready()
        {
            *chore = None;
        }
        Poll::Pending
    })
    .await
}
