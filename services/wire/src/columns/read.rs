//! Messages taken out of columns. What fits together is looked at first, so that no few bytes make much of nothing.

use super::list::{List, Numbers, Runs};
use super::texts::Texts;
use super::{ELEMENTS_MAX, ROWS_MAX, of_column, of_columns};
use crate::encoding::{take_delimited, take_key, take_varint};
use crate::{Depth, Fault, Input, Oneof, Result, Source, WireType};
use std::ops::Range;

/// Messages of one oneof, in columns.
#[derive(Debug)]
pub struct Rows<'b> {
    count: u32,
    words: Words,
    /// Number and body of the column of each field of the oneof.
    fields: Vec<(u32, &'b [u8])>,
}

/// The values of a field, of all messages that have it, and how far they are read.
#[derive(Debug)]
pub struct Column<'b> {
    number: u32,
    /// Each message has one of it; otherwise `rows` and `counts` say it.
    one_each: bool,
    rows: Runs<'b>,
    counts: List<'b>,
    content: Content<'b>,
}

/// Texts that columns name by their numbers.
#[derive(Debug, Default)]
struct Words {
    texts: Vec<u8>,
    /// Where each one lies.
    ranges: Vec<Range<usize>>,
}

#[derive(Debug)]
enum Content<'b> {
    Numbers(Numbers<'b>),
    Texts(Named<'b>),
    Message(Vec<Column<'b>>),
}

#[derive(Debug)]
struct Named<'b> {
    /// 0: the next of `texts`; otherwise a word, from 1. None: they are all of `texts`.
    numbers: Option<List<'b>>,
    words: &'b Words,
    texts: Texts<'b>,
}

/// A field of a message of the schema.
enum Part<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

impl<'b> Part<'b> {
    fn number(self) -> Result<u32> {
        match self {
            Self::Number(number) => Ok(u32::try_from(number).map_err(|_| Fault::Columns)?),
            Self::Bytes(_) => Err(Fault::Columns.into()),
        }
    }

    fn bytes(self) -> Result<&'b [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(Fault::Columns.into()),
        }
    }
}

/// The fields of a message of the schema; none that is not known may be left out, as it says how to read the others.
fn each_part<'b>(
    mut body: &'b [u8],
    mut take: impl FnMut(u32, Part<'b>) -> Result<()>,
) -> Result<()> {
    let buf = &mut body;
    while !buf.is_empty() {
        let (number, wire) = take_key(buf)?;
        let part = match wire {
            WireType::Varint => Part::Number(take_varint(buf)?),
            WireType::LengthDelimited => Part::Bytes(take_delimited(buf)?),
            _ => return Err(Fault::Columns.into()),
        };
        take(number, part)?;
    }
    Ok(())
}

/// Reads it, unless it was read before.
fn once<T>(slot: &mut Option<T>, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Fault::Repeated.into()),
    }
}

fn list<'b>(slot: &mut Option<List<'b>>, part: Part<'b>) -> Result<()> {
    once(slot, List::of(part.bytes()?))
}

/// A column of each field, in the order of their numbers.
fn ascending<T>(columns: &[T], number: impl Fn(&T) -> u32) -> Result<()> {
    match columns.is_sorted_by(|a, b| number(a) < number(b)) {
        true => Ok(()),
        false => Err(Fault::Columns.into()),
    }
}

impl<'b> Rows<'b> {
    pub fn parse(bytes: &'b [u8]) -> Result<Self> {
        let (mut count, mut fields) = (None, Vec::new());
        let (mut lengths, mut shared, mut texts) = (None, None, None);
        each_part(bytes, |number, part| match number {
            of_columns::ROWS => once(&mut count, part.number()?),
            of_columns::LENGTHS => list(&mut lengths, part),
            of_columns::SHARED => list(&mut shared, part),
            of_columns::WORDS => once(&mut texts, part.bytes()?),
            of_columns::COLUMNS => {
                let body = part.bytes()?;
                fields.push((field(body)?, body));
                Ok(())
            }
            _ => Err(Fault::Columns.into()),
        })?;
        ascending(&fields, |(number, _)| *number)?;
        let count = count.filter(|count| *count <= ROWS_MAX);
        let (lengths, texts) = (lengths.unwrap_or_default(), texts.unwrap_or_default());
        Ok(Self {
            count: count.ok_or(Fault::Columns)?,
            words: Words::read(lengths, shared, texts)?,
            fields,
        })
    }

    /// Of which field of the oneof they are: number, and how many one behind the other.
    pub fn runs(&self) -> Result<Vec<(u32, u32)>> {
        let mut found = Vec::new();
        for (number, body) in &self.fields {
            let mut rows = None;
            each_part(body, |number, part| match number {
                of_column::ROWS => list(&mut rows, part),
                _ => Ok(()),
            })?;
            let rows = rows.map_or(Runs::ALL, Runs::of);
            rows.each(self.count, |from, to| found.push((from, to, *number)))?;
        }
        found.sort_unstable();
        let mut runs = Vec::with_capacity(found.len());
        let mut end = 0;
        for (from, to, number) in found {
            if from != end {
                return Err(Fault::Columns.into());
            }
            runs.push((number, to - from));
            end = to;
        }
        match end == self.count {
            true => Ok(runs),
            false => Err(Fault::Columns.into()),
        }
    }

    /// Puts those of one field of the oneof into the list.
    pub fn read<T: Oneof>(&self, number: u32, into: &mut Vec<T>) -> Result<()> {
        let Ok(at) = self
            .fields
            .binary_search_by_key(&number, |(number, _)| *number)
        else {
            return Ok(());
        };
        let mut left = ELEMENTS_MAX;
        let (_, body) = self.fields[at];
        let (mut column, elements) =
            Column::parse(body, self.count, &self.words, &mut left, Depth::MAX)?;
        for _ in 0..elements {
            let mut slot = None;
            let depth = Depth::MAX;
            let source = column.next()?;
            T::merge_field(&mut slot, number, Input { source, depth })?;
            into.push(slot.ok_or(Fault::Missing)?);
        }
        Ok(())
    }
}

/// Which field a column is of.
fn field(body: &[u8]) -> Result<u32> {
    let mut field = None;
    each_part(body, |number, part| match number {
        of_column::FIELD => once(&mut field, part.number()?),
        _ => Ok(()),
    })?;
    Ok(field.ok_or(Fault::Columns)?)
}

impl Words {
    /// Each has a length of its own, and so there are no more of them than bytes.
    fn read(lengths: List, shared: Option<List>, rest: &[u8]) -> Result<Self> {
        let count = lengths.said().count();
        let count = u32::try_from(count).map_err(|_| Fault::Columns)?;
        let mut texts = Texts::new(lengths, shared, rest);
        texts.check(count)?;
        let mut words = Self::default();
        for _ in 0..count {
            let start = words.texts.len();
            words.texts.extend_from_slice(texts.next()?);
            words.ranges.push(start..words.texts.len());
        }
        Ok(words)
    }

    fn get(&self, word: usize) -> Option<&[u8]> {
        let range = self.ranges.get(word)?;
        Some(&self.texts[range.clone()])
    }
}

impl<'b> Column<'b> {
    /// Of so many messages. `left` are the elements that there may be yet. Returns how many there are of it.
    fn parse(
        body: &'b [u8],
        messages: u32,
        words: &'b Words,
        left: &mut u32,
        depth: Depth,
    ) -> Result<(Self, u32)> {
        let (mut field, mut rows, mut counts) = (None, None, None);
        let (mut values, mut differences, mut numbers) = (None, None, None);
        let (mut lengths, mut shared) = (None, None);
        let (mut texts, mut digits) = (None, None);
        let mut bodies = Vec::new();
        each_part(body, |number, part| match number {
            of_column::FIELD => once(&mut field, part.number()?),
            of_column::ROWS => list(&mut rows, part),
            of_column::COUNTS => list(&mut counts, part),
            of_column::VALUES => list(&mut values, part),
            of_column::DIFFERENCES => list(&mut differences, part),
            of_column::WORDS => list(&mut numbers, part),
            of_column::LENGTHS => list(&mut lengths, part),
            of_column::SHARED => list(&mut shared, part),
            of_column::TEXTS => once(&mut texts, part.bytes()?),
            of_column::DIGITS => once(&mut digits, part.bytes()?),
            of_column::COLUMNS => {
                bodies.push(part.bytes()?);
                Ok(())
            }
            _ => Err(Fault::Columns.into()),
        })?;
        let one_each = rows.is_none() && counts.is_none();
        let rows = rows.map_or(Runs::ALL, Runs::of);
        let mut have = 0;
        rows.each(messages, |from, to| have += to - from)?;
        let counts = counts.unwrap_or(List::always(1));
        let elements = match counts.said().next() {
            None => have.into(),
            Some(_) => counts.total(have, Ok)?,
        };
        let elements = u32::try_from(elements).map_err(|_| Fault::Columns)?;
        *left = left.checked_sub(elements).ok_or(Fault::Columns)?;
        let own = lengths.is_some() || shared.is_some() || texts.is_some() || digits.is_some();
        let is_text = numbers.is_some() || own;
        let content = match (values, differences, is_text, &bodies[..]) {
            (Some(list), None, false, []) | (None, Some(list), false, []) => {
                list.check(elements)?;
                Content::Numbers(Numbers::new(list, differences.is_some()))
            }
            (None, None, true, []) => {
                let lengths = lengths.unwrap_or_default();
                let texts = match (texts, digits, shared) {
                    (texts, None, shared) => Texts::new(lengths, shared, texts.unwrap_or_default()),
                    (None, Some(digits), None) => Texts::of_digits(lengths, digits),
                    _ => return Err(Fault::Columns.into()),
                };
                let texts = Named {
                    numbers,
                    words,
                    texts,
                };
                texts.check(elements)?;
                Content::Texts(texts)
            }
            (None, None, false, bodies) => {
                let depth = depth.inner()?;
                let columns = bodies
                    .iter()
                    .map(|body| Ok(Self::parse(body, elements, words, left, depth)?.0));
                let columns = columns.collect::<Result<Vec<_>>>()?;
                ascending(&columns, |column| column.number)?;
                Content::Message(columns)
            }
            _ => return Err(Fault::Columns.into()),
        };
        let column = Self {
            number: field.ok_or(Fault::Columns)?,
            one_each,
            rows,
            counts,
            content,
        };
        Ok((column, elements))
    }

    /// The next element.
    #[inline]
    fn next(&mut self) -> Result<Source<'_, 'b>> {
        if let Content::Message(_) = self.content {
            return Ok(Source::Message(self));
        }
        Ok(match &mut self.content {
            Content::Numbers(numbers) => Source::Number(numbers.next()?),
            Content::Texts(texts) => Source::Bytes(texts.next()?),
            Content::Message(_) => return Err(Fault::Columns.into()),
        })
    }

    /// Goes through the fields of the next message of it. A column that `take` does not know stays where it is.
    pub(crate) fn each_field(
        &mut self,
        depth: Depth,
        mut take: impl FnMut(u32, Input) -> Result<bool>,
    ) -> Result<()> {
        let Content::Message(columns) = &mut self.content else {
            return Err(Fault::Columns.into());
        };
        for column in columns {
            let number = column.number;
            let count = match column.one_each {
                true => 1,
                false if column.rows.next()? => column.counts.next()?,
                false => 0,
            };
            for _ in 0..count {
                let source = column.next()?;
                take(number, Input { source, depth })?;
            }
        }
        Ok(())
    }
}

impl Named<'_> {
    /// That there is a text for each element, and nothing else.
    fn check(&self, elements: u32) -> Result<()> {
        let Some(numbers) = self.numbers else {
            return self.texts.check(elements);
        };
        let known = self.words.ranges.len() as u64;
        let own = numbers.total(elements, |number| match number <= known {
            true => Ok(u64::from(number == 0)),
            false => Err(Fault::Columns.into()),
        })?;
        // Not more than the elements.
        self.texts.check(own as u32)
    }

    #[inline]
    fn next(&mut self) -> Result<&[u8]> {
        let number = match &mut self.numbers {
            None => 0,
            Some(numbers) => numbers.next()? as usize,
        };
        match number.checked_sub(1) {
            None => self.texts.next(),
            Some(word) => Ok(self.words.get(word).ok_or(Fault::Columns)?),
        }
    }
}
