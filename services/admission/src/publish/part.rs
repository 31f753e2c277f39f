//! Where a message of the feed stands: in the headers, so that nobody has to read its payload to know.

use async_nats::HeaderMap;
use ledger::{Digest, LedgerId};
use std::str::FromStr;
use vocab::{
    Lsn,
    subjects::{HEADER_DIGEST, HEADER_LEDGER, HEADER_PART, HEADER_POSITION},
};

/// One of the messages that a batch of the projection was made into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The batch is of the positions behind this one,
    pub after: Lsn,
    /// up to and with this one.
    pub to: Lsn,
    /// 1..=count.
    pub number: u32,
    pub count: u32,
    /// Of what stands on the ledger at `to`; an earlier version has not said it.
    pub digest: Option<Digest>,
}

impl Part {
    /// What a feed begins with that was made anew: nothing is told yet.
    pub const BEGINNING: Self = Self {
        after: Lsn(0),
        to: Lsn(0),
        number: 1,
        count: 1,
        digest: None,
    };

    /// All of its batch is there.
    pub fn is_last(self) -> bool {
        self.number == self.count
    }

    /// Nothing of the feed is before it.
    pub fn is_beginning(self) -> bool {
        self.after == Lsn(0) && self.number == 1
    }

    /// Everything up to here can be read when this is the stream's last message.
    pub fn readable(self) -> Lsn {
        if self.is_last() { self.to } else { self.after }
    }

    pub fn headers(self, ledger: LedgerId) -> HeaderMap {
        let Self {
            after,
            to,
            number,
            count,
            digest,
        } = self;
        let mut headers = HeaderMap::new();
        headers.insert(HEADER_LEDGER, ledger.0.to_string().as_str());
        headers.insert(
            HEADER_POSITION,
            format!("{}-{}", after.0 + 1, to.0).as_str(),
        );
        headers.insert(HEADER_PART, format!("{number}/{count}").as_str());
        if let Some(digest) = digest {
            headers.insert(HEADER_DIGEST, digest.to_string().as_str());
        }
        headers
    }

    /// None when the message is not one that this version has written.
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        let (first, last) = pair::<u64>(headers, HEADER_POSITION, '-')?;
        let (number, count) = pair::<u32>(headers, HEADER_PART, '/')?;
        Some(Self {
            after: Lsn(first.checked_sub(1)?),
            to: Lsn(last),
            number,
            count,
            digest: headers
                .get(HEADER_DIGEST)
                .and_then(|text| text.as_str().parse().ok()),
        })
    }
}

/// The ledger that a message of the feed was made from.
pub fn ledger_of(headers: &HeaderMap) -> Option<LedgerId> {
    let text = headers.get(HEADER_LEDGER)?.as_str();
    text.parse().ok().map(LedgerId)
}

fn pair<T: FromStr>(headers: &HeaderMap, name: &str, between: char) -> Option<(T, T)> {
    let (first, second) = headers.get(name)?.as_str().split_once(between)?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_where_a_message_stands() {
        let part = Part {
            after: Lsn(4),
            to: Lsn(9),
            number: 1,
            count: 2,
            digest: Some(Digest([7; 32])),
        };
        let headers = part.headers(LedgerId(-7));
        assert_eq!(headers.get(HEADER_POSITION).unwrap().as_str(), "5-9");
        assert_eq!(headers.get(HEADER_PART).unwrap().as_str(), "1/2");
        assert_eq!(Part::read(&headers), Some(part));
        assert_eq!(ledger_of(&headers), Some(LedgerId(-7)));
        assert_eq!(part.readable(), Lsn(4));
        assert_eq!(Part { number: 2, ..part }.readable(), Lsn(9));
        let mut old = HeaderMap::new();
        old.insert(HEADER_POSITION, "5.9");
        assert_eq!(Part::read(&old), None);
    }
}
