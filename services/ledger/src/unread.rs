//! The order in which a writer's leader saw the ledger: the others' frames count when a frame of its own says that they
//! were read.

use crate::frame::Frame;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vocab::Lsn;

/// Frames of the other writers that a writer has not said to have read, each with what its reader keeps beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unread<K = ()>(VecDeque<(Frame, K)>);

impl<K> Default for Unread<K> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K> Unread<K> {
    /// Behind those before it on the ledger.
    pub fn push(&mut self, frame: Frame, beside: K) {
        self.0.push_back((frame, beside));
    }

    /// Takes out the next one that a writer has read who has read all up to `through`.
    pub fn next(&mut self, through: Lsn) -> Option<(Frame, K)> {
        self.0.pop_front_if(|(frame, _)| frame.lsn <= through)
    }

    /// The position up to which nothing is unread, of all that there is up to `through`.
    pub fn reached(&self, through: Lsn) -> Lsn {
        let first = self.0.front();
        first.map_or(through, |(frame, _)| Lsn(frame.lsn.0.saturating_sub(1)))
    }

    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.0.iter().map(|(frame, _)| frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        content::{Content, Events, RawFrame},
        frame::Digest,
    };
    use bytes::Bytes;
    use std::sync::Arc;
    use vocab::{Kinds, Writer};

    fn frame(lsn: u64) -> Frame {
        let (head, digest) = (RawFrame::default(), Digest([0; 32]));
        let content = Content::written(head, digest, Bytes::new(), Events::default());
        Frame::of(Lsn(lsn), Writer::Admission, Arc::new(content), Kinds::ALL)
    }

    #[test]
    fn a_reader_has_reached_the_position_before_its_first_unread_frame() {
        let mut unread = Unread::default();
        assert_eq!(unread.reached(Lsn(7)), Lsn(7));
        for lsn in [8, 11] {
            unread.push(frame(lsn), ());
        }
        assert_eq!(unread.reached(Lsn(12)), Lsn(7));
        assert!(unread.next(Lsn(9)).is_some());
        assert_eq!(unread.reached(Lsn(12)), Lsn(10));
        assert!(unread.next(Lsn(12)).is_some());
        assert_eq!(unread.reached(Lsn(12)), Lsn(12));
    }
}
