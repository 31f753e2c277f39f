//! Reads a log while it is written.

use super::{segment_path, segments};
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

/// A piece of what a run wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// Of the first byte; greater than what was asked for where bytes are gone.
    pub offset: u64,
    /// Empty: nothing more is there yet, or ever if `offset` is `end`.
    pub bytes: Vec<u8>,
    /// All bytes before this one are gone.
    pub truncated_before: u64,
    /// The length of the whole log, once the run is over.
    pub end: Option<u64>,
}

/// At most `bytes_max` bytes from `from` on, or from the first one behind it that is there. `end` is passed through: it has to
/// be read before, or the last bytes could come after it.
pub(crate) fn read(
    dir: &Path,
    from: u64,
    bytes_max: usize,
    end: Option<u64>,
) -> io::Result<LogPart> {
    loop {
        let files = segments(dir)?;
        let newest = files.last().map(|(start, length)| start + length);
        // Without any file all is gone that there ever was.
        let gone = end.filter(|_| files.is_empty()).unwrap_or(0);
        let mut part = LogPart {
            offset: from.max(gone),
            bytes: Vec::new(),
            truncated_before: files.first().map_or(gone, |(start, _)| *start),
            end,
        };
        // The writer gave up at the end, as on a full disk.
        if let (Some(end), Some(newest)) = (end, newest)
            && from >= newest
        {
            part.offset = from.max(end);
        }
        match fill(&mut part, dir, &files, bytes_max) {
            // The writer was faster and has dropped it: what is there now?
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(part),
        }
    }
}

fn fill(part: &mut LogPart, dir: &Path, files: &[(u64, u64)], bytes_max: usize) -> io::Result<()> {
    let mut next = part.offset;
    for (start, length) in files.iter().copied() {
        if start + length <= next {
            continue;
        }
        if part.bytes.is_empty() {
            part.offset = next.max(start);
            next = part.offset;
        } else if start != next {
            // A gap ends a piece.
            break;
        }
        let mut file = File::open(segment_path(dir, start))?;
        file.seek(SeekFrom::Start(next - start))?;
        let room = bytes_max - part.bytes.len();
        let read = file.take(room as u64).read_to_end(&mut part.bytes)?;
        next += read as u64;
        if read == room {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn check(files: &[(u64, &str)], asked: (u64, usize), expected: (u64, &str, u64)) {
        let folder = tempfile::tempdir().expect("a folder");
        for (start, text) in files {
            fs::write(segment_path(folder.path(), *start), text).expect("written");
        }
        fs::write(folder.path().join("log.no-number"), "no part of it").expect("written");
        let part = read(folder.path(), asked.0, asked.1, None).expect("read");
        let text = String::from_utf8(part.bytes).expect("text");
        let found = (part.offset, text.as_str(), part.truncated_before);
        assert_eq!(found, expected, "{files:?} {asked:?}");
    }

    #[test]
    fn a_piece_begins_where_it_was_asked_for_or_behind_what_is_gone() {
        let whole = [(0, "abcd"), (4, "efgh"), (8, "ij")];
        check(&whole, (0, 100), (0, "abcdefghij", 0));
        check(&whole, (2, 4), (2, "cdef", 0));
        check(&whole, (4, 4), (4, "efgh", 0));
        check(&whole, (9, 100), (9, "j", 0));
        check(&whole, (10, 100), (10, "", 0));
        check(&whole, (11, 100), (11, "", 0));
        check(&whole, (0, 0), (0, "", 0));
        check(&whole[1..], (0, 3), (4, "efg", 4));
        check(&whole[1..], (7, 100), (7, "hij", 4));
        check(&[(0, "ab"), (4, "ef")], (1, 100), (1, "b", 0));
        check(&[(0, "ab"), (4, "ef")], (2, 100), (4, "ef", 0));
        check(&[], (5, 100), (5, "", 0));
    }

    #[test]
    fn a_reader_comes_to_the_end_also_of_what_was_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let nothing = read(folder.path(), 0, 100, Some(7)).expect("read");
        assert_eq!((nothing.offset, nothing.truncated_before), (7, 7));
        fs::write(segment_path(folder.path(), 0), "ab").expect("written");
        let dropped = read(folder.path(), 2, 100, Some(7)).expect("read");
        assert_eq!((dropped.offset, dropped.truncated_before), (7, 0));
        let kept = read(folder.path(), 0, 100, Some(7)).expect("read");
        assert_eq!((kept.offset, kept.bytes), (0, b"ab".to_vec()));
    }
}
