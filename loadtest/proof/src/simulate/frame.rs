//! Frames read a second time, from the contract and not by the ledger's code.

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use schemas::v1::{Column, Columns, Event, Frame};

/// A frame with its events as messages, also where they are in columns. None: it cannot be read.
pub fn read(bytes: &[u8]) -> Option<Frame> {
    let mut frame = Frame::decode(bytes).ok()?;
    if let Some(columns) = &frame.columns {
        if !frame.events.is_empty() {
            return None;
        }
        frame.events = events(columns)?;
    }
    Some(frame)
}

/// Each event's fields are put together from the columns, as a message has them.
fn events(columns: &Columns) -> Option<Vec<Event>> {
    let lengths = list(&columns.lengths, columns.lengths.len())?;
    let words = texts(&lengths, &columns.shared, &columns.words)?;
    let rows = columns.rows as usize;
    if rows > 1 << 16 {
        return None;
    }
    let mut events = vec![Vec::new(); rows];
    fields(&columns.columns, &words, &mut events)?;
    let kinds = columns.columns.iter().map(|kind| has(kind, rows));
    let kinds: Vec<Vec<usize>> = kinds.collect::<Option<_>>()?;
    if kinds.concat().len() != rows {
        return None;
    }
    let events = events.into_iter();
    events.map(|event| Event::decode(&event[..]).ok()).collect()
}

/// Puts the fields of these columns into the messages.
fn fields(columns: &[Column], words: &[Vec<u8>], messages: &mut [Vec<u8>]) -> Option<()> {
    for column in columns {
        let rows = has(column, messages.len())?;
        let counts = match &column.counts[..] {
            [] => vec![1; rows.len()],
            counts => list(counts, rows.len())?,
        };
        let all = counts
            .iter()
            .fold(0_u64, |all, count| all.saturating_add(*count));
        if all > 1 << 20 {
            return None;
        }
        let mut values = values(column, all as usize, words)?.into_iter();
        for (row, count) in rows.into_iter().zip(counts) {
            for value in values.by_ref().take(count as usize) {
                value.put(column.field, &mut messages[row]);
            }
        }
    }
    Some(())
}

enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Value {
    fn put(self, field: u32, message: &mut Vec<u8>) {
        match self {
            Self::Number(number) => {
                encode_key(field, WireType::Varint, message);
                encode_varint(number, message);
            }
            Self::Bytes(bytes) => {
                encode_key(field, WireType::LengthDelimited, message);
                encode_varint(bytes.len() as u64, message);
                message.extend(bytes);
            }
        }
    }
}

fn values(column: &Column, count: usize, words: &[Vec<u8>]) -> Option<Vec<Value>> {
    if !column.values.is_empty() {
        let values = list(&column.values, count)?.into_iter();
        return Some(values.map(Value::Number).collect());
    }
    if !column.differences.is_empty() {
        let mut last = 0_u64;
        let differences = list(&column.differences, count)?.into_iter();
        let values = differences.map(|difference| {
            last = last.wrapping_add(difference);
            Value::Number(last)
        });
        return Some(values.collect());
    }
    if column.words.is_empty() && column.lengths.is_empty() {
        let mut messages = vec![Vec::new(); count];
        fields(&column.columns, words, &mut messages)?;
        return Some(messages.into_iter().map(Value::Bytes).collect());
    }
    let numbers = match &column.words[..] {
        [] => vec![0; count],
        numbers => list(numbers, count)?,
    };
    let inline = numbers.iter().filter(|number| **number == 0).count();
    let lengths = list(&column.lengths, inline)?;
    let digits = column.digits.iter().map(|byte| format!("{byte:02x}"));
    let own = [digits.collect::<String>().as_bytes(), &column.texts].concat();
    let mut own = texts(&lengths, &column.shared, &own)?.into_iter();
    let text = |number: u64| match (number as usize).checked_sub(1) {
        Some(word) => words.get(word).cloned(),
        None => own.next(),
    };
    let values = numbers.into_iter().map(text);
    values.map(|text| text.map(Value::Bytes)).collect()
}

/// Texts, of which each begins as the one before it does.
fn texts(lengths: &[u64], shared: &[u32], mut rest: &[u8]) -> Option<Vec<Vec<u8>>> {
    let shared = match shared {
        [] => vec![0; lengths.len()],
        shared => list(shared, lengths.len())?,
    };
    let mut texts: Vec<Vec<u8>> = Vec::new();
    for (length, shared) in lengths.iter().zip(shared) {
        let own = usize::try_from(length.checked_sub(shared)?).ok()?;
        let last = texts.last().map_or(&[][..], |last| last);
        let mut text = last.get(..shared as usize)?.to_vec();
        let (own, behind) = rest.split_at_checked(own)?;
        text.extend_from_slice(own);
        texts.push(text);
        rest = behind;
    }
    rest.is_empty().then_some(texts)
}

/// Which of so many messages have the column's field.
fn has(column: &Column, messages: usize) -> Option<Vec<usize>> {
    if column.rows.is_empty() {
        return Some((0..messages).collect());
    }
    let (mut rows, mut from) = (Vec::new(), 0);
    for (at, run) in column.rows.iter().enumerate() {
        let to = from + *run as usize;
        if to > messages {
            return None;
        }
        if at % 2 == 1 {
            rows.extend(from..to);
        }
        from = to;
    }
    Some(rows)
}

/// So many numbers of a list, which goes on as it ends.
fn list<T: Copy + TryInto<i128>>(said: &[T], count: usize) -> Option<Vec<u64>> {
    let numbers = said.iter().map(|number| (*number).try_into().ok());
    let mut numbers: Vec<u64> = numbers
        .map(|number| number.map(|it: i128| it as u64))
        .collect::<Option<_>>()?;
    if numbers.len() > count || (numbers.is_empty() && count > 0) {
        return None;
    }
    let last = numbers.last().copied().unwrap_or(0);
    numbers.resize(count, last);
    Some(numbers)
}
