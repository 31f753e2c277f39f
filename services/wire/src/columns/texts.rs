//! Texts one behind the other, each without what it begins with as the one before it does.

use super::SHARED_MAX;
use super::list::{self, Cut, List};
use crate::{Fault, Result, Row};
use std::ops::Range;

/// Texts that are written, which lie somewhere.
#[derive(Debug, Default)]
pub struct Packed {
    starts: Vec<usize>,
    lengths: Vec<u64>,
    shared: Vec<u64>,
    total: usize,
    total_shared: usize,
    /// Some of them are not of hexadecimal digits in pairs.
    other: bool,
}

/// The numbers of their fields.
#[derive(Debug, Clone, Copy)]
pub struct Fields {
    pub lengths: u32,
    pub shared: u32,
    pub texts: u32,
    /// None: digits are texts like others.
    pub digits: Option<u32>,
}

/// The value of a digit as programs write random ids; other texts stay as they are.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// The byte that two digits are.
fn byte(pair: &[u8; 2]) -> Option<u8> {
    Some(digit(pair[0])? << 4 | digit(pair[1])?)
}

impl Packed {
    pub fn clear(&mut self) {
        self.starts.clear();
        self.lengths.clear();
        self.shared.clear();
        (self.total, self.total_shared, self.other) = (0, 0, false);
    }

    /// One that lies in `all` of them.
    pub fn push(&mut self, all: &[u8], text: Range<usize>) {
        let last = self
            .lengths
            .len()
            .checked_sub(1)
            .map(|at| self.text(at, all));
        let before = last.unwrap_or_default().iter().zip(&all[text.clone()]);
        let same = before.take(SHARED_MAX as usize).take_while(|(a, b)| a == b);
        let shared = same.count();
        let (pairs, odd) = all[text.clone()].as_chunks();
        self.other |= !odd.is_empty() || pairs.iter().any(|pair| byte(pair).is_none());
        self.lie_at(text);
        self.shared.push(shared as u64);
        self.total_shared += shared;
    }

    /// One that has nothing in common with others.
    pub fn push_alone(&mut self, text: Range<usize>) {
        self.other = true;
        self.lie_at(text);
    }

    fn lie_at(&mut self, text: Range<usize>) {
        self.starts.push(text.start);
        self.lengths.push(text.len() as u64);
        self.total += text.len();
    }

    fn text<'t>(&self, at: usize, all: &'t [u8]) -> &'t [u8] {
        let start = self.starts[at];
        &all[start..start + self.lengths[at] as usize]
    }

    /// As digits, without what they share, or as they are, whichever is shorter. `each` length is said, also of those
    /// that go on as they end.
    pub fn write(&self, all: &[u8], fields: Fields, each: bool, row: &mut Row<'_>) {
        let shared = self.shared.iter().copied();
        let cut = Cut::of(shared.clone());
        let sharing = cut.bytes() < self.total_shared;
        let rest = match sharing {
            true => self.total - self.total_shared + cut.bytes(),
            false => self.total,
        };
        let from_the_end = (0..self.lengths.len()).rev();
        let digits = fields
            .digits
            .filter(|_| !self.other && self.total / 2 < rest);
        match digits {
            Some(digits) => row.delimited(digits, |row| {
                for at in from_the_end {
                    let (pairs, _) = self.text(at, all).as_chunks();
                    for byte in pairs.iter().rev().filter_map(byte) {
                        row.put(&[byte]);
                    }
                }
            }),
            None if self.total > 0 => row.delimited(fields.texts, |row| {
                for at in from_the_end {
                    let shared = if sharing { self.shared[at] } else { 0 };
                    row.put(&self.text(at, all)[shared as usize..]);
                }
            }),
            None => {}
        }
        if sharing && digits.is_none() {
            cut.write(fields.shared, shared, row);
        }
        let lengths = self.lengths.iter().copied();
        match each {
            true if lengths.len() == 0 => {}
            true => row.numbers(fields.lengths, lengths.rev()),
            false => list::write(fields.lengths, lengths, row),
        }
    }
}

/// Texts that are read.
#[derive(Debug, Default)]
pub struct Texts<'b> {
    lengths: List<'b>,
    /// None: they share nothing.
    shared: Option<List<'b>>,
    rest: &'b [u8],
    /// Two of them are a byte.
    digits: bool,
    /// The one before, if some of it may be shared; or the digits.
    last: Vec<u8>,
}

impl<'b> Texts<'b> {
    pub fn new(lengths: List<'b>, shared: Option<List<'b>>, rest: &'b [u8]) -> Self {
        Self {
            lengths,
            shared,
            rest,
            digits: false,
            last: Vec::new(),
        }
    }

    pub fn of_digits(lengths: List<'b>, bytes: &'b [u8]) -> Self {
        Self {
            digits: true,
            ..Self::new(lengths, None, bytes)
        }
    }

    /// That there are so many of them, and nothing else.
    pub fn check(&self, count: u32) -> Result<()> {
        let bytes = self.rest.len() as u64;
        if self.digits {
            let total = self.lengths.total(count, |length| {
                fits(length % 2 == 0)?;
                Ok(length)
            })?;
            return fits(total / 2 == bytes);
        }
        let Some(mut shared) = self.shared else {
            return fits(self.lengths.total(count, Ok)? == bytes);
        };
        self.lengths.check(count)?;
        shared.check(count)?;
        let (mut lengths, mut total, mut last) = (self.lengths, 0_u64, 0);
        for _ in 0..count {
            let (length, shared) = (lengths.next()?, shared.next()?);
            fits(shared <= length.min(last).min(SHARED_MAX))?;
            total = total.checked_add(length - shared).ok_or(Fault::Columns)?;
            last = length;
        }
        fits(total == bytes)
    }

    /// The next one; there is one, by `check`.
    #[inline]
    pub fn next(&mut self) -> Result<&[u8]> {
        let length = usize::try_from(self.lengths.next()?).map_err(|_| Fault::Columns)?;
        let shared = match &mut self.shared {
            None => 0,
            Some(shared) => shared.next()? as usize,
        };
        let own = match self.digits {
            true => length / 2,
            false => length.checked_sub(shared).ok_or(Fault::Columns)?,
        };
        let (own, rest) = self.rest.split_at_checked(own).ok_or(Fault::Columns)?;
        self.rest = rest;
        if self.digits {
            let digits = own.iter().flat_map(|byte| [byte >> 4, byte & 15]);
            self.last.clear();
            self.last
                .extend(digits.map(|digit| DIGITS[usize::from(digit)]));
        } else if self.shared.is_some() {
            self.last.truncate(shared);
            self.last.extend_from_slice(own);
        } else {
            return Ok(own);
        }
        Ok(&self.last)
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn fits(holds: bool) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(Fault::Columns.into()),
    }
}
