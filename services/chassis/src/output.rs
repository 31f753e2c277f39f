//! Standard output and standard error of a program. Either may be a pipe whose reader has ended, or a file on a full disk, on
//! which `println!` and `eprintln!` panic.

use std::fmt;
use std::io::{self, ErrorKind, Write};

/// Prints a line about the progress of a program to standard output, with the formatting of `println!`. See [`text`](output::text).
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => {
        $crate::output::line(::std::format_args!($($text)*))
    };
}

/// Prints a line to standard error, with the formatting of `eprintln!`. The program continues if it cannot be written.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => {
        $crate::output::remark(::std::format_args!($($text)*))
    };
}

/// Writes the result of a program to standard output. A closed pipe is no error: its reader has read as much as it wanted.
pub fn result(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let done = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    done.or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

/// Prints text about the progress of a program to standard output. The program continues if it cannot be written.
pub fn text(text: &str) {
    if let Err(error) = result(text) {
        remark(format_args!("standard output: {error}"));
    }
}

/// The function of [`out!`](crate::out).
pub fn line(line: fmt::Arguments<'_>) {
    text(&format!("{line}\n"));
}

/// The function of [`note!`](crate::note).
pub fn remark(text: fmt::Arguments<'_>) {
    // There is no other place to report that standard error cannot be written.
    let _ = writeln!(io::stderr().lock(), "{text}");
}
