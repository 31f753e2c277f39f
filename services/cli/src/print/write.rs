//! The standard output and the standard error. Either may be a pipe whose reader has gone, which ends a command and is no
//! fault of it.

use crate::Failure;
use std::{
    env, fmt,
    io::{self, IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
};

/// A line on the standard output, with the formatting of `println!`.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::print::line(format_args!($($text)*))?
    };
}

pub(crate) use {chassis::note, say};

/// Of a terminal: nothing is on it, and the next character stands at its beginning.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Whether what is on the terminal goes when the next is written.
static IS_OLD: AtomicBool = AtomicBool::new(false);

/// What is written next takes the place of what is on the terminal, if it is one.
pub fn begin_anew() {
    IS_OLD.store(io::stdout().is_terminal(), Ordering::Relaxed);
}

fn out() -> io::Result<io::StdoutLock<'static>> {
    let mut out = io::stdout().lock();
    if IS_OLD.swap(false, Ordering::Relaxed) {
        out.write_all(CLEAR.as_bytes())?;
    }
    Ok(out)
}

pub fn line(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    Ok(writeln!(out()?, "{text}")?)
}

/// As they are, at once.
pub fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = out()?;
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Whether bars may be drawn: for a person at a terminal who has not asked for plain text.
pub fn draws() -> bool {
    let plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !plain && io::stdout().is_terminal()
}
