//! A ledger without deciders, for measures and tests of who reads one: facts of any writer, as frames that continue each
//! other.

use crate::{
    bus::Record,
    content::Events,
    frame::{self, Encoded, Head},
    inbox::Handled,
};
use std::collections::BTreeMap;
use vocab::{Event, EventNo, Lsn, Millis, Writer};
use wire::Columns;

/// Writes all of a ledger, from its beginning.
#[derive(Debug, Default)]
pub struct Scribe {
    heads: BTreeMap<Writer, Head>,
    last: Lsn,
}

impl Scribe {
    /// Which number the writer's next event has; an allocation has the number of admission's event.
    pub fn next_event(&self, writer: Writer) -> EventNo {
        let head = self.heads.get(&writer);
        head.map_or(Head::default().next_event, |head| head.next_event)
    }

    /// The frame that comes next on the ledger, written at `now`, which never goes back. It says that its writer has read all
    /// before it.
    pub fn frame(
        &mut self,
        writer: Writer,
        now: Millis,
        events: impl IntoIterator<Item = Event>,
    ) -> Record {
        let mut encoded = Encoded::Columns(Box::<Columns>::default());
        let mut written = Events::default();
        for event in events {
            encoded.push(&event);
            written.push(event);
        }
        let head = self.heads.entry(writer).or_default();
        let read = (self.last, Handled::default());
        let (content, next) =
            frame::write(head, &[1; 16], 1, now, read, (written, &mut encoded), false);
        self.last = Lsn(self.last.0 + 1);
        *head = Head {
            lsn: self.last,
            ..next
        };
        Record::new(self.last, writer, content.bytes)
    }
}
