//! Named pipes: by one, a shim's death is heard; by the other, the shim hears the agent.

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, mknodat},
    io::Errno,
};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
};

pub(crate) fn make(path: &Path) -> io::Result<()> {
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(mknodat(CWD, path, FileType::Fifo, mode, 0)?)
}

pub(crate) fn nonblock() -> i32 {
    // The flags of all Linux machines are small numbers.
    OFlags::NONBLOCK.bits().cast_signed()
}

/// Its reading end. Does not wait for a writer.
pub(crate) fn reader(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(nonblock()).open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "no named pipe"))
    }
}

/// Whether somebody has its writing end. Nothing is ever written to it.
pub(crate) fn has_writer(mut reader: &File) -> io::Result<bool> {
    match reader.read(&mut [0]) {
        Ok(0) => Ok(false),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Wakes whoever reads it; without a reader, nobody is to be woken.
pub(crate) fn poke(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(nonblock())
        .open(path);
    let poked = file.and_then(|mut file| file.write_all(b"!"));
    match poked {
        // Nobody reads yet or any more; or so much is unread that they will wake in any case.
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        poked => poked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_noticed_and_its_end_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("alive");
        make(&path).expect("made");
        poke(&path).expect("nobody is woken");
        let reader = reader(&path).expect("opened");
        assert!(!has_writer(&reader).expect("read"));
        let writer = OpenOptions::new().write(true).open(&path).expect("opened");
        assert!(has_writer(&reader).expect("read"));
        drop(writer);
        assert!(!has_writer(&reader).expect("read"));
        assert!(make(&path).is_err());
    }
}
