//! Keeps the newest bytes of a log.

use super::segment_path;
use crate::run_dir::private;
use std::{
    collections::VecDeque,
    fs::{self, File},
    io::Write,
    path::PathBuf,
};

/// A log is dropped in quarters, but not in files that are smaller than a block of the disk.
const SEGMENT_BYTES_MIN: u64 = 4096;

#[derive(Debug)]
pub(crate) struct LogWriter {
    dir: PathBuf,
    bytes_max: u64,
    segment_bytes_max: u64,
    /// Of the next byte.
    offset: u64,
    /// First offset and length of each file that is there.
    kept: VecDeque<(u64, u64)>,
    /// The last of them, unless nothing more fits or it could not be written.
    file: Option<File>,
}

impl LogWriter {
    pub fn new(dir: PathBuf, bytes_max: u64) -> LogWriter {
        LogWriter {
            dir,
            bytes_max,
            segment_bytes_max: (bytes_max / 4).max(bytes_max.min(SEGMENT_BYTES_MIN)),
            offset: 0,
            kept: VecDeque::new(),
            file: None,
        }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// A disk that is full is no reason to stop a run: what cannot be written counts as dropped.
    pub fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(written) = self.write_some(bytes) else {
                self.file = None;
                self.offset += bytes.len() as u64;
                return;
            };
            bytes = &bytes[written..];
        }
    }

    /// Makes room on the disk.
    pub fn drop_all(&mut self) {
        self.file = None;
        for (start, _) in self.kept.drain(..) {
            let _ = fs::remove_file(segment_path(&self.dir, start));
        }
    }

    /// As much as fits into one file.
    fn write_some(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.bytes_max == 0 {
            return None;
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.next_file()?,
        };
        let (_, length) = self.kept.back_mut()?;
        let room = usize::try_from(self.segment_bytes_max - *length).unwrap_or(usize::MAX);
        let written = file.write(&bytes[..bytes.len().min(room)]).ok()?;
        *length += written as u64;
        self.offset += written as u64;
        if *length < self.segment_bytes_max {
            self.file = Some(file);
        }
        (written > 0).then_some(written)
    }

    /// Drops old files first, so that there are never more bytes than there may be.
    fn next_file(&mut self) -> Option<File> {
        let mut bytes: u64 = self.kept.iter().map(|(_, length)| length).sum();
        while bytes + self.segment_bytes_max > self.bytes_max {
            let Some((start, length)) = self.kept.pop_front() else {
                break;
            };
            // What cannot be removed would be held against nobody; the next file is not begun then.
            if fs::remove_file(segment_path(&self.dir, start)).is_err() {
                self.kept.push_front((start, length));
                return None;
            }
            bytes -= length;
        }
        let path = segment_path(&self.dir, self.offset);
        let file = private().truncate(true).open(path).ok()?;
        // One that was begun and never written to has the same name.
        if self.kept.back() != Some(&(self.offset, 0)) {
            self.kept.push_back((self.offset, 0));
        }
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::segments;

    fn kept_bytes(dir: &std::path::Path) -> u64 {
        let files = segments(dir).expect("listed");
        files.iter().map(|(_, length)| length).sum()
    }

    #[test]
    fn no_more_is_kept_than_may_be_and_it_is_the_newest() {
        for bytes_max in [1, 2, 3, 5, 64, 4095, 4096, 4097, 10_000, 16_384, 20_000] {
            for piece in [1_usize, 7, 1000, 70_000] {
                let folder = tempfile::tempdir().expect("a folder");
                let mut log = LogWriter::new(folder.path().to_owned(), bytes_max);
                let mut total = 0;
                // One byte at a time rotates often enough with a small bound only.
                for _ in 0..(100_000 / piece).min(500) {
                    log.append(&vec![b'x'; piece]);
                    total += piece as u64;
                    assert!(kept_bytes(folder.path()) <= bytes_max);
                }
                assert_eq!(log.offset(), total);
                let files = segments(folder.path()).expect("listed");
                let (start, length) = *files.last().expect("something is kept");
                assert_eq!(start + length, total, "the newest byte is kept");
                let joined = files.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0);
                assert!(joined, "{files:?}");
                if bytes_max >= 4 * SEGMENT_BYTES_MIN {
                    assert!(kept_bytes(folder.path()) >= (bytes_max / 2).min(total));
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_written_is_a_gap() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("later");
        let mut log = LogWriter::new(dir.clone(), 100);
        log.append(b"lost");
        fs::create_dir(&dir).expect("made");
        log.append(b"kept");
        assert_eq!(log.offset(), 8);
        assert_eq!(segments(&dir).expect("listed"), [(4, 4)]);
    }

    #[test]
    fn a_log_of_nothing_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = LogWriter::new(folder.path().to_owned(), 0);
        log.append(b"away");
        assert_eq!(log.offset(), 4);
        assert!(segments(folder.path()).expect("listed").is_empty());
    }
}
