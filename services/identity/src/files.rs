//! Files of secrets: for their owner only, and written in one step.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct FileError {
    pub path: PathBuf,
    pub source: io::Error,
}

type Result<T> = std::result::Result<T, FileError>;

fn at(path: &Path) -> impl FnOnce(io::Error) -> FileError + '_ {
    |source| FileError {
        path: path.to_owned(),
        source,
    }
}

pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(at(path))
}

pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(at(path))
}

/// In one step, for its owner only, or for whom the file was before.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let part = path.with_extension("part");
    let before = fs::metadata(path).map(|metadata| metadata.permissions());
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(&part).and_then(|mut file| {
        file.write_all(content.as_ref())?;
        if let Ok(permissions) = before {
            file.set_permissions(permissions)?;
        }
        file.sync_all()
    });
    written
        .and_then(|()| fs::rename(&part, path))
        .map_err(at(path))
}

pub fn write_changed(path: &Path, text: &str) -> Result<Option<PathBuf>> {
    if path.exists() && read(path)? == text {
        return Ok(None);
    }
    write(path, text)?;
    Ok(Some(path.to_owned()))
}

/// One that is not there is as good.
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
        _ => Ok(()),
    }
}

pub fn make_dir(path: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(path);
    made.map_err(at(path))
}

/// A directory is for one process at a time; the lock goes with the file.
pub fn lock(root: &Path) -> Result<File> {
    let path = root.join("lock");
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    file.and_then(|file| file.lock().map(|()| file))
        .map_err(at(&path))
}
