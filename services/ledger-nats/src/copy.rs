//! A copy of the ledger in files, for a disk that does not fail together with the bus's.
//!
//! Segments hold the records in their order, each with its position and a digest, and are synced before they count. The chain is
//! checked for every record on its way in and whenever a copy is opened, so a copy is either a beginning of some ledger or
//! refused.

use ledger::{
    Bus, BusError, Chain, ChainError, Digest, Frame, Record, Tail, Witness, bus::bears_out,
};
use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};
use vocab::{Kinds, Lsn, Writer};

/// The bytes that a segment begins with.
pub const MAGIC: &[u8] = b"apportion ledger copy 1\n";
/// Beyond this a new segment is begun.
const SEGMENT_BYTES: u64 = 64 << 20;
const SUFFIX: &str = "ledger";
/// Length, the same inverted, and the digest of what follows.
const HEAD_BYTES: usize = 4 + 4 + 32;

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("{path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: another process copies to it", path = .path.display())]
    Busy { path: PathBuf },
    #[error("{path}: at byte {at} it is no copy of a ledger, or damaged", path = .path.display())]
    Damaged { path: PathBuf, at: usize },
    #[error("the copy does not hold together: {0}")]
    Chain(#[from] ChainError),
    #[error("the copy ends at {} and the next record is {}", .end.0, .next.0)]
    Gap { end: Lsn, next: Lsn },
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// An open copy, checked from its beginning to its end.
#[derive(Debug)]
pub struct Copy {
    dir: PathBuf,
    chain: Chain,
    digests: Vec<Digest>,
    /// The last segment and its length.
    last: Option<(PathBuf, u64)>,
    /// Held by who writes.
    lock: Option<File>,
    open: Option<File>,
}

/// The records of one file of a copy.
#[derive(Debug, Default)]
pub struct Segment {
    pub records: Vec<Record>,
    /// Bytes of whole records; what is behind was never finished.
    pub whole: usize,
}

impl Copy {
    /// To look at; what was not finished at its end is left out.
    pub fn read(dir: &Path) -> Result<Self, CopyError> {
        let mut copy = Self {
            dir: dir.to_owned(),
            chain: Chain::default(),
            digests: Vec::new(),
            last: None,
            lock: None,
            open: None,
        };
        let segments = copy.segments()?;
        for (index, path) in segments.iter().enumerate() {
            let segment = read_segment(path, index + 1 == segments.len())?;
            for record in &segment.records {
                copy.take(record)?;
            }
            if segment.whole > 0 {
                copy.last = Some((path.clone(), segment.whole as u64));
            }
        }
        Ok(copy)
    }

    /// To go on with; what was not finished at its end is cut off.
    pub fn open(dir: &Path) -> Result<Self, CopyError> {
        let at = |source| io_at(dir, source);
        fs::create_dir_all(dir).map_err(at)?;
        let lock = File::create(dir.join("lock")).map_err(at)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => CopyError::Busy {
                path: dir.to_owned(),
            },
            TryLockError::Error(source) => at(source),
        })?;
        let mut copy = Self::read(dir)?;
        copy.lock = Some(lock);
        if let Some((path, whole)) = &copy.last {
            let at = |source| io_at(path, source);
            let file = File::options().append(true).open(path).map_err(at)?;
            file.set_len(*whole).map_err(at)?;
            file.sync_all().map_err(at)?;
            copy.open = Some(file);
        }
        Ok(copy)
    }

    pub fn end(&self) -> Lsn {
        self.chain.last()
    }

    /// Of each record, by its position from 1 on.
    pub fn digests(&self) -> &[Digest] {
        &self.digests
    }

    pub fn witness(&self) -> Witness {
        self.chain
            .witness(format!("the copy in {}", self.dir.display()))
    }

    fn segments(&self) -> Result<Vec<PathBuf>, CopyError> {
        let at = |source| io_at(&self.dir, source);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(at)? {
            let path = entry.map_err(at)?.path();
            if path.extension().is_some_and(|suffix| suffix == SUFFIX) {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }

    fn take(&mut self, record: &Record) -> Result<Frame, CopyError> {
        let (end, next) = (self.end(), record.lsn);
        // A copy appends nothing of its own, so every record is new to its chain.
        let frame = self.chain.accept(record, Kinds::ALL)?;
        self.digests.push(Digest::of(&record.frame));
        frame.ok_or(CopyError::Gap { end, next })
    }

    /// Hands over each record from `from` on, with what it says.
    pub fn each(&self, from: Lsn, mut see: impl FnMut(&Record, &Frame)) -> Result<(), CopyError> {
        let mut chain = Chain::default();
        let segments = self.segments()?;
        for (index, path) in segments.iter().enumerate() {
            for record in read_segment(path, index + 1 == segments.len())?.records {
                let frame = chain.accept(&record, Kinds::ALL)?;
                if let Some(frame) = frame.filter(|frame| frame.lsn >= from) {
                    see(&record, &frame);
                }
            }
        }
        Ok(())
    }

    /// The record counts once the copy is synced.
    pub fn append(&mut self, record: &Record) -> Result<(), CopyError> {
        self.take(record)?;
        let mut bytes = Vec::new();
        Segment::write(record, &mut bytes).map_err(|source| io_at(&self.dir, source))?;
        if self
            .last
            .as_ref()
            .is_none_or(|(_, bytes)| *bytes >= SEGMENT_BYTES)
        {
            self.begin_segment(record.lsn)?;
        }
        if let (Some((path, length)), Some(file)) = (&mut self.last, &mut self.open) {
            file.write_all(&bytes)
                .map_err(|source| io_at(path, source))?;
            *length += bytes.len() as u64;
        }
        Ok(())
    }

    fn begin_segment(&mut self, first: Lsn) -> Result<(), CopyError> {
        self.sync()?;
        let path = self.dir.join(format!("{:020}.{SUFFIX}", first.0));
        let at = |source| io_at(&path, source);
        let mut file = File::create(&path).map_err(at)?;
        file.write_all(MAGIC).map_err(at)?;
        file.sync_all().map_err(at)?;
        let dir = File::open(&self.dir).map_err(at)?;
        dir.sync_all().map_err(at)?;
        self.last = Some((path, MAGIC.len() as u64));
        self.open = Some(file);
        Ok(())
    }

    pub fn sync(&self) -> Result<(), CopyError> {
        match (&self.last, &self.open) {
            (Some((path, _)), Some(file)) => file.sync_data().map_err(|e| io_at(path, e)),
            _ => Ok(()),
        }
    }

    /// Copies what the ledger has behind the copy, up to where it ends now; or, if `follow`, until the bus is away.
    ///
    /// # Errors
    /// [`BusError::Shortened`] if the ledger lacks what the copy has, or has something else there.
    pub async fn catch_up<B: Bus>(&mut self, bus: &B, follow: bool) -> Result<(), CopyError> {
        let next = Lsn(self.end().0 + 1);
        let mut records = bus.follow(next).await?;
        bears_out(bus, &self.witness()).await?;
        let end = bus.end().await?;
        while follow || self.end() < end {
            self.append(&records.recv().await?)?;
            while let Some(record) = records.try_recv() {
                self.append(&record?)?;
            }
            self.sync()?;
        }
        Ok(())
    }
}

fn io_at(path: &Path, source: io::Error) -> CopyError {
    CopyError::Io {
        path: path.to_owned(),
        source,
    }
}

fn read_segment(path: &Path, is_last: bool) -> Result<Segment, CopyError> {
    let bytes = fs::read(path).map_err(|source| io_at(path, source))?;
    Segment::parse(&bytes, is_last).map_err(|at| CopyError::Damaged {
        path: path.to_owned(),
        at,
    })
}

impl Segment {
    /// Reads the bytes of a file; the error is the position of the damage. Only the last segment may be unfinished.
    pub fn parse(bytes: &[u8], is_last: bool) -> Result<Self, usize> {
        // It ended as it began this segment.
        if is_last && bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) {
            return Ok(Self::default());
        }
        if !bytes.starts_with(MAGIC) {
            return Err(0);
        }
        let (mut at, mut records) = (MAGIC.len(), Vec::new());
        while at < bytes.len() {
            match read_record(&bytes[at..]) {
                Read::Record(record, length) => {
                    records.push(record);
                    at += length;
                }
                // The process, or the machine, ended in the middle of it.
                Read::Unfinished if is_last => break,
                Read::Unfinished | Read::Damaged => return Err(at),
            }
        }
        Ok(Self { records, whole: at })
    }

    /// Appends a record to the bytes of a segment.
    pub fn write(record: &Record, bytes: &mut Vec<u8>) -> io::Result<()> {
        let content = (record.lsn, record.writer, &record.frame[..]);
        let content = postcard::to_stdvec(&content).map_err(io::Error::other)?;
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        bytes.reserve(HEAD_BYTES + content.len());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&(!length).to_le_bytes());
        bytes.extend_from_slice(&Digest::of(&content).0);
        bytes.extend_from_slice(&content);
        Ok(())
    }
}

enum Read {
    Record(Record, usize),
    Unfinished,
    Damaged,
}

fn read_record(bytes: &[u8]) -> Read {
    if bytes.iter().all(|byte| *byte == 0) {
        return Read::Unfinished;
    }
    let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) else {
        return Read::Unfinished;
    };
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if number(0) != !number(4) {
        return Read::Damaged;
    }
    let length = number(0) as usize;
    let Some(content) = rest.get(..length) else {
        return Read::Unfinished;
    };
    if Digest::of(content).0[..] != head[8..] {
        return Read::Damaged;
    }
    match postcard::from_bytes::<(Lsn, Writer, Vec<u8>)>(content) {
        Ok((lsn, writer, frame)) => {
            let record = Record::new(lsn, writer, frame.into());
            Read::Record(record, HEAD_BYTES + length)
        }
        Err(_) => Read::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{
        Scribe,
        memory::{Faults, MemoryBus},
    };
    use vocab::Millis;

    /// Its own, and gone with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let name = format!("copy-{}", uuid::Uuid::new_v4().simple());
            Self(std::env::temp_dir().join(name))
        }

        fn segment(&self) -> PathBuf {
            self.0.join(format!("{:020}.{SUFFIX}", 1))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            // It may never have been made.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A ledger of as many frames, by one writer.
    async fn ledger(frames: u64) -> MemoryBus {
        let bus = MemoryBus::new(1, Faults::default());
        let mut scribe = Scribe::default();
        let mut last = Lsn(0);
        for lsn in 1..=frames {
            let record = scribe.frame(Writer::Quota, Millis(lsn as i64), []);
            let landed = bus
                .append(Writer::Quota, last, Lsn(0), record.frame.into())
                .await;
            assert_eq!(landed, Ok(record.lsn));
            last = record.lsn;
        }
        bus
    }

    async fn copied(dir: &Path, bus: &MemoryBus) -> Result<Lsn, CopyError> {
        let mut copy = Copy::open(dir)?;
        copy.catch_up(bus, false).await?;
        Ok(copy.end())
    }

    #[tokio::test]
    async fn a_copy_goes_on_where_it_stopped() {
        let (scratch, five) = (Scratch::new(), ledger(5).await);
        let three = MemoryBus::new(1, Faults::default());
        three.loses_its_end(0, five.records()[..3].to_vec());
        assert_eq!(copied(&scratch.0, &three).await.unwrap(), Lsn(3));
        assert_eq!(copied(&scratch.0, &five).await.unwrap(), Lsn(5));
        let copy = Copy::read(&scratch.0).unwrap();
        let mut found = Vec::new();
        copy.each(Lsn(2), |record, _| found.push(record.frame.clone()))
            .unwrap();
        let frames: Vec<_> = five.records()[1..]
            .iter()
            .map(|r| r.frame.clone())
            .collect();
        assert_eq!(found, frames);
        assert_eq!(copy.digests()[4], Digest::of(&five.records()[4].frame));
    }

    #[tokio::test]
    async fn a_ledger_that_lacks_what_the_copy_has_is_not_copied() {
        let (scratch, bus) = (Scratch::new(), ledger(4).await);
        copied(&scratch.0, &bus).await.unwrap();
        let records = bus.records();
        for others in [Vec::new(), vec![records[0].clone(); 3]] {
            bus.loses_its_end(3, others);
            let error = copied(&scratch.0, &bus).await.unwrap_err();
            assert!(
                matches!(error, CopyError::Bus(BusError::Shortened { .. })),
                "{error}"
            );
        }
        assert_eq!(Copy::read(&scratch.0).unwrap().end(), Lsn(4));
    }

    #[tokio::test]
    async fn what_was_not_finished_is_cut_off_and_copied_again() {
        let (scratch, bus) = (Scratch::new(), ledger(3).await);
        copied(&scratch.0, &bus).await.unwrap();
        let whole = fs::read(scratch.segment()).unwrap();
        for length in 0..whole.len() {
            fs::write(scratch.segment(), &whole[..length]).unwrap();
            let before = Copy::read(&scratch.0).unwrap().end();
            assert!(before < Lsn(3), "{length}");
            assert_eq!(copied(&scratch.0, &bus).await.unwrap(), Lsn(3), "{length}");
            assert_eq!(fs::read(scratch.segment()).unwrap(), whole, "{length}");
        }
    }

    #[tokio::test]
    async fn a_damaged_copy_is_refused() {
        let scratch = Scratch::new();
        copied(&scratch.0, &ledger(3).await).await.unwrap();
        let whole = fs::read(scratch.segment()).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            fs::write(scratch.segment(), damaged).unwrap();
            let error = Copy::read(&scratch.0).unwrap_err();
            assert!(matches!(error, CopyError::Damaged { .. }), "{at}: {error}");
        }
    }

    #[tokio::test]
    async fn two_do_not_copy_to_one_place() {
        let scratch = Scratch::new();
        let one = Copy::open(&scratch.0).unwrap();
        assert!(matches!(
            Copy::open(&scratch.0),
            Err(CopyError::Busy { .. })
        ));
        drop(one);
        assert!(Copy::open(&scratch.0).is_ok());
    }
}
