//! The projector under load that never pauses.

use ledger::{
    Batch, Bus, Digest, IllegalEvent, LedgerId, Projection, Resume, Sink, SinkError, Time,
    memory::{Faults, MemoryBus},
};
use ledger_nats::{NoObserver, Projector};
use prost::Message;
use schemas::v1;
use serde::{Deserialize, Serialize};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use vocab::{AllocationNo, At, Event, Lsn, Millis, Writer, fact::AllocationStarted, inputs};

inputs! {
    pub enum Input { AllocationStarted }
}

/// A change for each event.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Each;

impl Projection for Each {
    type Change = ();
    type Input<'a> = Input<'a>;

    const NAME: &'static str = "each";
    const STATE_VERSION: u32 = 1;

    fn project(
        &mut self,
        _at: &At,
        _input: Input<'_>,
        out: &mut Vec<()>,
    ) -> Result<(), IllegalEvent> {
        out.push(());
        Ok(())
    }
}

/// Takes longer for a batch than it takes a writer to append the next frame.
struct Slow {
    through: Lsn,
    looks: Arc<AtomicUsize>,
}

impl Sink for Slow {
    type Change = ();

    async fn resume(&mut self, _ledger: LedgerId) -> Result<Resume, SinkError> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        Ok(Resume {
            through: self.through,
            digest: None,
            begun: None,
        })
    }

    async fn apply(&mut self, batch: &Batch<()>) -> Result<(), SinkError> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(
            batch.after, self.through,
            "each batch begins where the last one ended"
        );
        self.through = batch.to;
        Ok(())
    }
}

/// The time of a paused runtime, which goes on when nobody has anything to do.
#[derive(Debug, Clone, Copy)]
struct Paused;

impl Time for Paused {
    fn now(&self) -> Millis {
        Millis(0)
    }

    async fn sleep_until(&self, _at: Millis) {}

    async fn pause(&self, real_ms: u64) {
        tokio::time::sleep(Duration::from_millis(real_ms)).await;
    }
}

/// A frame each millisecond.
async fn write(bus: MemoryBus) {
    let (mut lsn, mut digest) = (Lsn(0), None::<Digest>);
    for no in 1.. {
        let started = Event::AllocationStarted(AllocationStarted {
            allocation: AllocationNo(no),
            at: Millis(0),
        });
        let event = v1::Event::decode(&wire::Message::encode_to_vec(&started)[..]);
        let frame = v1::Frame {
            epoch: 1,
            frame_no: no,
            first_event_no: no,
            prev_lsn: lsn.0,
            prev_digest: digest.map_or(Vec::new(), |digest| digest.0.to_vec()),
            events: vec![event.expect("a message of the contract")],
            leader: vec![0; 16],
            ..v1::Frame::default()
        };
        let bytes = frame.encode_to_vec();
        digest = Some(Digest::of(&bytes));
        let append = bus.append(Writer::Scheduler, lsn, Lsn(0), bytes.into());
        lsn = append.await.expect("nobody else appends");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_sink_is_looked_at_however_much_there_is_to_read() {
    let bus = MemoryBus::new(1, Faults::default());
    let looks = Arc::new(AtomicUsize::new(0));
    let sink = Slow {
        through: Lsn(0),
        looks: looks.clone(),
    };
    let projector: Projector<Each, _, _, _> =
        Projector::new(bus.clone(), Paused, sink, Box::new(NoObserver));
    tokio::select! {
        () = write(bus) => {}
        ended = projector.run() => panic!("{ended:?}"),
        () = tokio::time::sleep(Duration::from_secs(21)) => {}
    }
    // Once at the beginning, and every five seconds.
    let looks = looks.load(Ordering::Relaxed);
    assert!((4..=6).contains(&looks), "{looks}");
}
