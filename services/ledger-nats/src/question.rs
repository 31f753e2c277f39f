//! Questions about a decider's state that no read model can answer, such as what it would decide on a request. The leader
//! answers them between two of its frames, one at a time; a standby does it while it folds along.

use std::fmt;
use tokio::sync::{mpsc, oneshot};
use vocab::{Lsn, Millis};

/// Where the state stands that a question is answered from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// All of the other writers up to here is in the state, and all that its own writer has recorded.
    pub lsn: Lsn,
    pub now: Millis,
}

type Ask<D> = Box<dyn FnOnce(&mut D, &View) + Send>;

/// One question, with the way of its answer.
pub struct Question<D>(Ask<D>);

impl<D> Question<D> {
    pub(crate) fn answer(self, state: &mut D, view: &View) {
        (self.0)(state, view);
    }
}

impl<D> fmt::Debug for Question<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Question")
    }
}

/// Where questions are asked. Clones ask the same leader.
pub struct Questions<D>(mpsc::Sender<Question<D>>);

impl<D> Clone for Questions<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Questions that wait for the leader, at the most; whoever asks more waits.
const WAITING_MAX: usize = 16;

impl<D: 'static> Questions<D> {
    /// And where the leader hears them.
    pub fn new() -> (Self, mpsc::Receiver<Question<D>>) {
        let (asks, hears) = mpsc::channel(WAITING_MAX);
        (Self(asks), hears)
    }

    /// The answer; none: there is no leader any more. The state is lent to `ask`, which has to leave it as it was: what it
    /// serialises to, and what is decided from it. An asker that waits no longer is not answered.
    pub async fn ask<A: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut D, &View) -> A + Send + 'static,
    ) -> Option<A> {
        let (says, said) = oneshot::channel();
        let question = Question(Box::new(move |state: &mut D, view: &View| {
            if !says.is_closed() {
                drop(says.send(ask(state, view)));
            }
        }));
        self.0.send(question).await.ok()?;
        said.await.ok()
    }
}

/// The next question; never, where nobody asks any.
pub(crate) async fn next<D>(hears: &mut Option<mpsc::Receiver<Question<D>>>) -> Question<D> {
    let question = match hears {
        Some(hears) => hears.recv().await,
        None => None,
    };
    match question {
        Some(question) => question,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const VIEW: View = View {
        lsn: Lsn(7),
        now: Millis(1),
    };

    #[test]
    fn who_still_waits_is_answered_from_the_state() {
        let (questions, mut hears) = Questions::<u32>::new();
        let mut asked = Box::pin(questions.ask(|state, view| (*state, view.lsn)));
        assert_eq!(asked.as_mut().now_or_never(), None);
        hears.try_recv().unwrap().answer(&mut 3, &VIEW);
        assert_eq!(asked.now_or_never(), Some(Some((3, Lsn(7)))));
    }

    #[test]
    fn who_waits_no_longer_costs_nothing() {
        let (questions, mut hears) = Questions::<u32>::new();
        let asked = questions.ask(|_, _| unreachable!("nobody waits for it"));
        let mut asked: futures::future::BoxFuture<'_, Option<()>> = Box::pin(asked);
        assert_eq!(asked.as_mut().now_or_never(), None);
        drop(asked);
        hears.try_recv().unwrap().answer(&mut 3, &VIEW);
    }

    #[test]
    fn without_a_leader_there_is_no_answer() {
        let (questions, hears) = Questions::<u32>::new();
        drop(hears);
        assert_eq!(questions.ask(|_, _| ()).now_or_never(), Some(None));
    }
}
