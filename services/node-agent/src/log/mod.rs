//! What a run writes, in files that begin one another: each is named after the offset of its first byte.
//!
//! Offsets count from the first byte that the run wrote. So a reader knows what was dropped, and a writer that could not
//! write for a while leaves a gap and no lie.

mod reader;
mod writer;

pub use reader::LogPart;
pub(crate) use reader::read;
pub(crate) use writer::LogWriter;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

const PREFIX: &str = "log.";

fn segment_path(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{start:020}"))
}

/// Where the newest byte ends that is there.
pub(crate) fn length(dir: &Path) -> io::Result<u64> {
    let newest = segments(dir)?.last().copied();
    Ok(newest.map_or(0, |(start, length)| start + length))
}

/// The first offset and the length of each file, in order.
fn segments(dir: &Path) -> io::Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let start = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let Some(start) = start.and_then(|start| start.parse::<u64>().ok()) else {
            continue;
        };
        match entry.metadata() {
            // A length beyond all numbers is nobody's log.
            Ok(metadata) if metadata.len().checked_add(start).is_none() => {}
            Ok(metadata) => found.push((start, metadata.len())),
            // The writer has dropped it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    found.sort_unstable();
    Ok(found)
}
