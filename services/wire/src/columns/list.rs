//! Lists of numbers. What a list does not say is its last number again: a number that is always the same is said once,
//! and one that always grows by the same is a first number and a difference.

use crate::encoding::{take_varint, varint_len};
use crate::{Fault, Result, Row};

/// What of a list is written.
#[derive(Default)]
pub struct Cut {
    /// So many numbers from its beginning.
    kept: usize,
    all: usize,
    bytes: usize,
}

impl Cut {
    pub fn of(numbers: impl Iterator<Item = u64>) -> Self {
        let (mut cut, mut bytes, mut last) = (Self::default(), 0, None);
        for number in numbers {
            bytes += varint_len(number);
            cut.all += 1;
            if last != Some(number) {
                (cut.kept, cut.bytes, last) = (cut.all, bytes, Some(number));
            }
        }
        cut
    }

    /// Of what is written.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn write(
        &self,
        field: u32,
        numbers: impl DoubleEndedIterator<Item = u64>,
        row: &mut Row<'_>,
    ) {
        row.numbers(field, numbers.rev().skip(self.all - self.kept));
    }
}

/// A list as a field; nothing where it is empty.
pub fn write<I>(field: u32, numbers: I, row: &mut Row<'_>)
where
    I: DoubleEndedIterator<Item = u64> + Clone,
{
    let cut = Cut::of(numbers.clone());
    if cut.all > 0 {
        cut.write(field, numbers, row);
    }
}

/// Numbers, or their differences if that is shorter.
pub fn write_shorter([values, differences]: [u32; 2], numbers: &[u64], row: &mut Row<'_>) {
    let plain = numbers.iter().copied();
    let difference = |at: usize| {
        let before = at.checked_sub(1).map_or(0, |at| numbers[at]);
        let difference = numbers[at].wrapping_sub(before) as i64;
        ((difference << 1) ^ (difference >> 63)) as u64
    };
    let between = (0..numbers.len()).map(difference);
    let (cut, cut_between) = (Cut::of(plain.clone()), Cut::of(between.clone()));
    match cut_between.bytes < cut.bytes {
        true => cut_between.write(differences, between, row),
        false => cut.write(values, plain, row),
    }
}

/// A list that is read.
#[derive(Debug, Clone, Copy, Default)]
pub struct List<'b> {
    rest: &'b [u8],
    last: u64,
}

impl<'b> List<'b> {
    pub fn of(rest: &'b [u8]) -> Self {
        Self { rest, last: 0 }
    }

    /// Of one number for ever.
    pub fn always(last: u64) -> Self {
        Self { rest: &[], last }
    }

    #[inline]
    pub fn next(&mut self) -> Result<u64> {
        if !self.rest.is_empty() {
            self.last = take_varint(&mut self.rest)?;
        }
        Ok(self.last)
    }

    /// What is said of it.
    pub fn said(mut self) -> impl Iterator<Item = Result<u64>> {
        std::iter::from_fn(move || (!self.rest.is_empty()).then(|| self.next()))
    }

    /// That it says no more than so many numbers, and one at least if there are any.
    pub fn check(self, count: u32) -> Result<()> {
        let said = self.rest.iter().filter(|byte| **byte < 0x80).count();
        match said <= count as usize && (said > 0 || count == 0) {
            true => Ok(()),
            false => Err(Fault::Columns.into()),
        }
    }

    /// Goes through the first `count` numbers of it, none of which may be missing, and to its end.
    pub fn total(self, count: u32, mut each: impl FnMut(u64) -> Result<u64>) -> Result<u64> {
        let (mut total, mut left, mut last) = (0_u64, count, None);
        let add = |total: u64, more| total.checked_add(more).ok_or(Fault::Columns);
        for number in self.said() {
            left = left.checked_sub(1).ok_or(Fault::Columns)?;
            let number = each(number?)?;
            (total, last) = (add(total, number)?, Some(number));
        }
        let more = match last {
            Some(last) => last.checked_mul(left.into()).ok_or(Fault::Columns)?,
            None if count > 0 => return Err(Fault::Columns.into()),
            None => 0,
        };
        Ok(add(total, more)?)
    }
}

/// Numbers, or what they differ by from the one before.
#[derive(Debug, Clone, Copy)]
pub struct Numbers<'b> {
    list: List<'b>,
    differences: bool,
    last: u64,
}

impl<'b> Numbers<'b> {
    pub fn new(list: List<'b>, differences: bool) -> Self {
        Self {
            list,
            differences,
            last: 0,
        }
    }

    #[inline]
    pub fn next(&mut self) -> Result<u64> {
        let number = self.list.next()?;
        if !self.differences {
            return Ok(number);
        }
        let difference = (number >> 1) ^ 0_u64.wrapping_sub(number & 1);
        self.last = self.last.wrapping_add(difference);
        Ok(self.last)
    }
}

/// Which rows have a field: alternately how many have not and how many have. Whoever is not counted has not.
#[derive(Debug, Clone, Copy)]
pub struct Runs<'b> {
    list: List<'b>,
    has: bool,
    left: u64,
}

impl<'b> Runs<'b> {
    pub const ALL: Self = Self {
        list: List { rest: &[], last: 0 },
        has: true,
        left: u64::MAX,
    };

    pub fn of(list: List<'b>) -> Self {
        Self {
            list,
            has: true,
            left: 0,
        }
    }

    #[inline]
    pub fn next(&mut self) -> Result<bool> {
        while self.left == 0 {
            if self.list.rest.is_empty() {
                return Ok(false);
            }
            (self.left, self.has) = (self.list.next()?, !self.has);
        }
        self.left -= 1;
        Ok(self.has)
    }

    /// Those of so many rows that have it, from where to where.
    pub fn each(mut self, rows: u32, mut take: impl FnMut(u32, u32)) -> Result<()> {
        let mut from = 0_u64;
        if self.left > 0 {
            self.left = rows.into();
        }
        loop {
            let to = from.checked_add(self.left).ok_or(Fault::Columns)?;
            if to > rows.into() {
                return Err(Fault::Columns.into());
            }
            if self.has && from < to {
                // Both are at most the number of rows.
                take(from as u32, to as u32);
            }
            if self.list.rest.is_empty() {
                return Ok(());
            }
            from = to;
            (self.left, self.has) = (self.list.next()?, !self.has);
        }
    }
}
