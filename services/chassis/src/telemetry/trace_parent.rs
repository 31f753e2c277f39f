//! The position in a trace that travels with a message.

use std::fmt;
use vocab::TraceContext;

/// The bytes that a [`TraceParent`] takes in a ledger.
const BYTES: usize = 25;

/// A W3C trace context: which trace, which span in it, and whether anyone records it. Ids are never all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    sampled: bool,
}

impl TraceParent {
    /// The length of [`TraceParent::to_bytes`].
    pub const BYTES: usize = BYTES;

    /// Ids of zeros mean "no trace", so they make no position.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], sampled: bool) -> Option<TraceParent> {
        let valid = trace_id != [0; 16] && span_id != [0; 8];
        valid.then_some(TraceParent {
            trace_id,
            span_id,
            sampled,
        })
    }

    /// Reads a `traceparent` header, as [`TraceContext::parse`] does.
    pub fn parse(header: &str) -> Option<TraceParent> {
        let context = TraceContext::parse(header)?;
        TraceParent::new(context.trace_id, context.span_id, context.sampled())
    }

    /// The compact form for a ledger: trace id, span id, one byte that is 1 when sampled.
    pub fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..16].copy_from_slice(&self.trace_id);
        bytes[16..24].copy_from_slice(&self.span_id);
        bytes[24] = u8::from(self.sampled);
        bytes
    }

    /// Reads the compact form; anything else is nothing.
    pub fn from_bytes(bytes: &[u8]) -> Option<TraceParent> {
        let (trace_id, rest) = bytes.split_first_chunk::<16>()?;
        let (span_id, flags) = rest.split_first_chunk::<8>()?;
        match flags {
            [sampled @ 0..=1] => TraceParent::new(*trace_id, *span_id, *sampled == 1),
            _ => None,
        }
    }

    /// The span of an event of the same journey, by its writer and its number there. Its id follows from these, so whoever reads
    /// the event can hang below the span of whoever wrote it, and the ledger need not say it.
    pub fn of_event(&self, writer: &str, no: u64) -> TraceParent {
        // FNV-1a, which mixes enough for ids that only have to differ inside of a trace.
        let parts = [&self.trace_id[..], writer.as_bytes(), &no.to_le_bytes()];
        let hash = parts
            .into_iter()
            .flatten()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
        TraceParent {
            span_id: hash.max(1).to_be_bytes(),
            ..*self
        }
    }

    /// The id that all spans of a journey share.
    pub fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The span that the next one hangs below.
    pub fn span_id(&self) -> [u8; 8] {
        self.span_id
    }

    /// Whether the journey is recorded.
    pub fn sampled(&self) -> bool {
        self.sampled
    }
}

impl fmt::Display for TraceParent {
    /// The `traceparent` header.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace_id = u128::from_be_bytes(self.trace_id);
        let span_id = u64::from_be_bytes(self.span_id);
        write!(
            f,
            "00-{trace_id:032x}-{span_id:016x}-{:02x}",
            u8::from(self.sampled)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn only_what_the_standard_allows_is_read() {
        let table = [
            (format!("00-{TRACE}-{SPAN}-01"), Some(true)),
            (format!("00-{TRACE}-{SPAN}-00"), Some(false)),
            (format!("00-{TRACE}-{SPAN}-03"), Some(true)),
            (format!("00-{TRACE}-{SPAN}-fe"), Some(false)),
            (format!("01-{TRACE}-{SPAN}-01"), Some(true)),
            (format!("cc-{TRACE}-{SPAN}-01-what-comes-later"), Some(true)),
            (format!("00-{TRACE}-{SPAN}-01-extra"), None),
            (format!("00-{TRACE}-{SPAN}-01-"), None),
            (format!("cc-{TRACE}-{SPAN}-01.later"), None),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-{TRACE}-{SPAN}"), None),
            (format!("00-{TRACE}-{SPAN}-1"), None),
            (format!("0-{TRACE}-{SPAN}-01"), None),
            (format!(" 00-{TRACE}-{SPAN}-01"), None),
            (format!("00-{TRACE}-{SPAN}-01\n"), None),
            (format!("00-{TRACE}0-{SPAN}-01"), None),
            (format!("00-{}g-{SPAN}-01", &TRACE[1..]), None),
            (format!("00-{}\u{e9}-{SPAN}-01", &TRACE[2..]), None),
            (format!("00-{TRACE}-{SPAN}-\u{661}\u{662}"), None),
            (format!("00_{TRACE}_{SPAN}_01"), None),
            ("----".to_owned(), None),
            ("\0".repeat(55), None),
            ("-".repeat(1 << 20), None),
            (String::new(), None),
        ];
        for (header, sampled) in table {
            let read = TraceParent::parse(&header);
            assert_eq!(read.map(|parent| parent.sampled()), sampled, "{header:?}");
            if let Some(parent) = read {
                assert_eq!(
                    parent.to_string(),
                    format!("00-{TRACE}-{SPAN}-0{}", u8::from(parent.sampled()))
                );
                assert_eq!(TraceParent::parse(&parent.to_string()), Some(parent));
                assert_eq!(TraceParent::from_bytes(&parent.to_bytes()), Some(parent));
            }
        }
    }

    #[test]
    fn bytes_of_another_shape_are_nothing() {
        let good = TraceParent::new([1; 16], [2; 8], true)
            .expect("ids are not zero")
            .to_bytes();
        let mut flagged = good;
        flagged[24] = 2;
        let mut anonymous = good;
        anonymous[..16].fill(0);
        let longer = [&good[..], &[0]].concat();
        for bytes in [&flagged[..], &anonymous, &longer, &good[..24], &[]] {
            assert_eq!(TraceParent::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
