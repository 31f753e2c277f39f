//! Submits every pod at its recorded time, and cancels those that waited past their recorded end.

use super::{
    desk::Verb as Sent,
    faults::{Fault, FaultDone, FaultError},
    scene::Scene,
};
use crate::workload::Pod;
use chassis::stack::Stack;
use chassis::{Attribute, SpanKind, Stamp, Stopwatch};
use client::{Operation, Outcome};
use schemas::v1::{Cancel, Submit, outcome::Result as Decided, request::Verb, submitted::State};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    future::pending,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

/// Operations without an outcome yet; a replay that gets ahead of the cell waits here, and the wait counts as latency.
const OUTSTANDING_MAX: usize = 4_096;
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// An operation that has no outcome after this long is lost.
const GIVE_UP: Duration = Duration::from_secs(120);

/// An allocation that waits, and until when its tenant would have it wait.
type Waiter = Reverse<(i64, usize, String)>;

/// How the replay went.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Real time from the first submit to the last outcome of a submit.
    pub took: Duration,
    pub faults: Vec<FaultDone>,
    pub failed_faults: Vec<FaultError>,
}

/// Returns when every submit has its outcome or is given up. Cancels go on by themselves, in the task that is added
/// to `background`.
pub async fn replay(
    scene: &Arc<Scene>,
    stack: &Arc<Stack>,
    mut faults: Vec<Fault>,
    background: &mut JoinSet<()>,
) -> Replayed {
    let began_ms = scene.clock.now_ms();
    let since = Stopwatch::start();
    let (waiting, waiters) = mpsc::unbounded_channel();
    background.spawn(cancel_overdue(scene.clone(), waiters));
    let outstanding = Arc::new(Semaphore::new(OUTSTANDING_MAX));
    let mut submits = JoinSet::new();
    let mut happening = JoinSet::new();
    faults.sort_by(|a, b| b.at.total_cmp(&a.at));
    let all = scene.workload.pods.len();
    for (index, pod) in scene.workload.pods.iter().enumerate() {
        scene.clock.sleep_until(pod.created_ms).await;
        // Without this a replay that is late would starve everything else on its thread.
        tokio::task::yield_now().await;
        while faults
            .last()
            .is_some_and(|fault| index as f64 >= fault.at * all as f64)
        {
            let Some(fault) = faults.pop() else { break };
            let stack = stack.clone();
            happening.spawn(async move { fault.execute(&stack, since).await });
        }
        let permit = outstanding.clone().acquire_owned().await;
        let (scene_, waiting) = (scene.clone(), waiting.clone());
        // A driver that starts late is not the cell's fault, so nothing is due before it started.
        let due_ms = pod.created_ms.max(began_ms);
        submits.spawn(async move {
            submit(&scene_, index, due_ms, &waiting).await;
            drop(permit);
        });
        scene.submitted.fetch_add(1, Ordering::Relaxed);
        while submits.try_join_next().is_some() {}
    }
    drop(waiting);
    while submits.join_next().await.is_some() {}
    let took = since.elapsed();
    let mut replayed = Replayed {
        took,
        ..Replayed::default()
    };
    // A fault at the very end of the replay has not come yet.
    for fault in faults.drain(..) {
        let stack = stack.clone();
        happening.spawn(async move { fault.execute(&stack, since).await });
    }
    while let Some(done) = happening.join_next().await {
        match done {
            Ok(Ok(done)) => replayed.faults.push(done),
            Ok(Err(error)) => replayed.failed_faults.push(error),
            Err(error) => tracing::warn!(%error, "a fault's task ended"),
        }
    }
    replayed
}

async fn submit(scene: &Scene, index: usize, due_ms: i64, waiting: &mpsc::UnboundedSender<Waiter>) {
    let pod = &scene.workload.pods[index];
    let decided = operate(scene, Sent::Submit, index, request(pod), due_ms).await;
    if let Some(Decided::Submitted(submitted)) = decided
        && matches!(submitted.state, Some(State::Waiting(_)))
    {
        // Nobody listens only when the drive is over.
        let _ = waiting.send(Reverse((pod.deleted_ms(), index, submitted.allocation_id)));
    }
}

/// What a pod asks for. Quantities go as they are recorded, also those that the cell refuses.
fn request(pod: &Pod) -> Verb {
    // A quantity that does not fit is one that the cell refuses as too large.
    let signed = |quantity: u64| i64::try_from(quantity).unwrap_or(i64::MAX);
    Verb::Submit(Submit {
        job_set: pod.job_set().to_owned(),
        name: pod.name.to_string(),
        priority_class: pod.qos.class().to_owned(),
        cpu_milli: signed(pod.cpu_milli),
        memory_bytes: signed(pod.memory_bytes),
        gpu_count: signed(pod.gpus),
        gpu_milli: signed(pod.gpu_milli),
        gpu_models: pod.gpu_models.clone(),
        ..Submit::default()
    })
}

/// One operation of a pod's tenant, sent until its outcome is definite.
async fn operate(
    scene: &Scene,
    kind: Sent,
    index: usize,
    verb: Verb,
    due_ms: i64,
) -> Option<Decided> {
    let pod = &scene.workload.pods[index];
    // Every tenant of the workload has a client: the drive connected them all.
    let client = scene.clients.get(&pod.tenant)?;
    let (id, name) = match kind {
        Sent::Submit => (format!("submit-{}", pod.name), "submit"),
        Sent::Cancel => (format!("cancel-{}", pod.name), "cancel"),
    };
    let late = scene.real(scene.clock.now_ms() - due_ms);
    let watch = Stopwatch::start();
    let traced = kind == Sent::Submit && index.is_multiple_of(scene.trace_one_in);
    let open = || {
        scene
            .journey
            .open_root(name, SpanKind::Client, Stamp::now())
    };
    let span = traced.then(open).flatten();
    let traceparent = span.as_ref().map(|span| span.position().to_string());
    let operation = Operation::new(&id, verb).traced(traceparent);
    scene.desk().sent(&id, kind, index);
    let outcome = loop {
        match client.call(&operation).await {
            Ok(outcome) => break Some(outcome),
            Err(error) if error.retryable() && watch.elapsed() < GIVE_UP => {
                tracing::debug!(operation = id, %error, "sending again");
                scene.desk().retries += 1;
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => {
                scene.desk().given_up.push(format!("{id}: {error}"));
                break None;
            }
        }
    };
    if let Some(span) = span {
        let attributes = [
            ("apportion.tenant", Attribute::Text(pod.tenant.as_str())),
            ("apportion.operation_id", Attribute::Text(&id)),
        ];
        span.end(Stamp::now(), &attributes);
    }
    let outcome: Outcome = outcome?;
    let mut desk = scene.desk();
    desk.answered(&outcome);
    desk.took(late + watch.elapsed());
    outcome.result
}

/// A tenant takes back what still waits when it would have been over by the record.
async fn cancel_overdue(scene: Arc<Scene>, mut waiters: mpsc::UnboundedReceiver<Waiter>) {
    let mut waiting: BinaryHeap<Waiter> = BinaryHeap::new();
    let mut cancels: JoinSet<()> = JoinSet::new();
    let mut more = true;
    while more || !waiting.is_empty() || !cancels.is_empty() {
        let next_ms = waiting.peek().map(|Reverse((deleted_ms, ..))| *deleted_ms);
        tokio::select! {
            waiter = waiters.recv(), if more => match waiter {
                Some(waiter) => waiting.push(waiter),
                None => more = false,
            },
            () = async { match next_ms {
                Some(deleted_ms) => scene.clock.sleep_until(deleted_ms).await,
                None => pending().await,
            }} => if let Some(Reverse((_, index, allocation_id))) = waiting.pop() {
                let waits = scene.witness().waits(&allocation_id);
                if waits {
                    let scene = scene.clone();
                    cancels.spawn(async move {
                        let verb = Verb::Cancel(Cancel { allocation_id });
                        let now_ms = scene.clock.now_ms();
                        operate(&scene, Sent::Cancel, index, verb, now_ms).await;
                    });
                }
            },
            Some(_) = cancels.join_next(), if !cancels.is_empty() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Selection, openb};

    #[test]
    fn what_a_pod_asks_for_is_what_was_recorded() {
        let workload = openb(Selection::plain());
        let Verb::Submit(submit) = request(&workload.pods[0]) else {
            panic!("a pod is submitted");
        };
        assert_eq!(
            (submit.name.as_str(), submit.job_set.as_str()),
            ("openb-pod-0000", "gpu")
        );
        assert_eq!(
            (submit.cpu_milli, submit.memory_bytes),
            (12_000, 16_384 << 20)
        );
        assert_eq!(
            (
                submit.gpu_count,
                submit.gpu_milli,
                submit.priority_class.as_str()
            ),
            (1, 1000, "latency-sensitive")
        );
        let cpu_only = workload.pods.iter().find(|pod| pod.gpus == 0).map(request);
        let Some(Verb::Submit(submit)) = cpu_only else {
            panic!("openb has pods without a GPU");
        };
        assert_eq!(
            (submit.gpu_count, submit.gpu_milli, submit.job_set.as_str()),
            (0, 0, "cpu")
        );
    }
}
