//! The traces of a directory: batch logs by their ending, gang traces by their header; in it and one level below.

use super::philly::COLUMNS;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trace {
    Batch(PathBuf),
    Gang(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("{path}: {source}", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} and the directories in it have neither *.swf nor gang traces", path = .path.display())]
    Nothing { path: PathBuf },
}

/// By path.
pub fn find(directory: &Path) -> Result<Vec<Trace>, FindError> {
    let mut traces = Vec::new();
    for path in entries(directory)? {
        if path.is_dir() {
            let below = entries(&path)?;
            traces.extend(below.into_iter().filter_map(trace));
        } else {
            traces.extend(trace(path));
        }
    }
    traces.sort_unstable();
    if traces.is_empty() {
        return Err(FindError::Nothing {
            path: directory.to_owned(),
        });
    }
    Ok(traces)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, FindError> {
    let read = || -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(directory)?;
        entries.map(|entry| Ok(entry?.path())).collect()
    };
    read().map_err(|source| FindError::Read {
        path: directory.to_owned(),
        source,
    })
}

fn trace(path: PathBuf) -> Option<Trace> {
    match path.extension()?.to_str()? {
        "swf" => Some(Trace::Batch(path)),
        "csv" if is_gang(&path) => Some(Trace::Gang(path)),
        _ => None,
    }
}

/// A file that cannot be read is none of ours.
fn is_gang(path: &Path) -> bool {
    let header = csv::Reader::from_path(path).and_then(|mut reader| reader.headers().cloned());
    header.is_ok_and(|header| {
        let has = |name: &&str| header.iter().any(|column| column == *name);
        COLUMNS.iter().all(has)
    })
}
