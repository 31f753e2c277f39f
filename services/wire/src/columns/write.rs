//! Messages put into columns.

use super::list;
use super::texts::{Fields, Packed};
use super::words::{TextNo, Words};
use super::{ELEMENTS_MAX, ROWS_MAX, of_column, of_columns};
use crate::encoding::varint_len;
use crate::{Oneof, Out, Row, Value};

/// The columns of some messages, which are all of one oneof. What was allocated for some is used for others.
#[derive(Debug)]
pub struct Columns {
    /// A tree; the first one is the oneof, whose messages are the rows.
    nodes: Vec<Node>,
    /// Of the message that is being put in.
    at: usize,
    words: Words,
    dictionary: Packed,
    size: usize,
    elements: u32,
}

/// A field, of all messages that have it.
#[derive(Debug, Default)]
struct Node {
    number: u32,
    /// Of the messages around it: alternately how many have it not and how many have it.
    runs: Vec<u32>,
    /// Behind the last one that has it.
    end: u32,
    /// Of those that have it: how many of it. Empty: one each.
    counts: Vec<u32>,
    /// All together.
    elements: u32,
    content: Content,
    /// Numbers, or places of texts; of texts that are written, the numbers of words.
    values: Vec<u64>,
    /// Those that are no words, or all bytes.
    texts: Packed,
    bytes: Vec<u8>,
    /// Number and node of each, in the order of their numbers.
    fields: Vec<(u32, usize)>,
    /// Which of them was put in last: the one before it is the likely next.
    hint: usize,
}

#[derive(Debug, Default, Clone, Copy)]
enum Content {
    #[default]
    Message,
    Numbers,
    Texts,
    Bytes,
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            at: 0,
            words: Words::default(),
            dictionary: Packed::default(),
            size: 0,
            elements: 0,
        }
    }
}

impl Node {
    /// One more, of the row `row` of the message around it.
    fn mark(&mut self, row: u32) {
        self.elements += 1;
        if row + 1 == self.end {
            // One more of the same row.
            if self.counts.is_empty() {
                let rows: u32 = self.runs.iter().skip(1).step_by(2).sum();
                self.counts.resize(rows as usize, 1);
            }
            if let Some(count) = self.counts.last_mut() {
                *count += 1;
            }
            return;
        }
        if !self.counts.is_empty() {
            self.counts.push(1);
        }
        match self.runs.last_mut() {
            Some(run) if row == self.end => *run += 1,
            _ => self.runs.extend([row - self.end, 1]),
        }
        self.end = row + 1;
    }

    /// Takes words by their numbers, and the other texts as they are.
    fn name_words(&mut self, words: &Words) {
        if let Content::Texts = self.content {
            for value in &mut self.values {
                let no = *value as TextNo;
                let word = words.word(no);
                if word == 0 {
                    self.texts.push(words.bytes(), words.range(no));
                }
                *value = word.into();
            }
        }
    }

    fn write_texts(&self, all: &[u8], row: &mut Row) {
        let fields = Fields {
            lengths: of_column::LENGTHS,
            shared: of_column::SHARED,
            texts: of_column::TEXTS,
            digits: Some(of_column::DIGITS),
        };
        self.texts.write(all, fields, false, row);
        let words = self.values.iter().copied();
        if words.clone().any(|word| word != 0) {
            list::write(of_column::WORDS, words, row);
        }
    }

    fn clear(&mut self) {
        self.runs.clear();
        self.end = 0;
        self.counts.clear();
        self.elements = 0;
        self.values.clear();
        self.texts.clear();
        self.bytes.clear();
    }
}

impl Columns {
    /// Of no messages.
    pub fn clear(&mut self) {
        self.nodes.iter_mut().for_each(Node::clear);
        self.words.clear();
        self.dictionary.clear();
        (self.size, self.elements) = (0, 0);
    }

    /// Puts one more in.
    pub fn push<T: Oneof>(&mut self, message: &T) {
        self.at = 0;
        self.begin();
        self.nodes[0].elements += 1;
        message.write_field(self);
    }

    /// Whether they may be written at all: there may be no more of them than a reader believes.
    pub fn fit(&self) -> bool {
        self.nodes[0].elements <= ROWS_MAX && self.elements <= ELEMENTS_MAX
    }

    /// About how many bytes they will be; seldom less.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Puts them behind `bytes` as a field of this number, and is of no messages then.
    pub fn append_field(&mut self, number: u32, bytes: &mut Vec<u8>) {
        self.words.number();
        for word in self.words.numbered() {
            self.dictionary
                .push(self.words.bytes(), self.words.range(word));
        }
        for node in &mut self.nodes {
            node.name_words(&self.words);
        }
        Row::behind(bytes, |row| {
            row.message(number, |row| {
                self.write_fields(0, of_columns::COLUMNS, row);
                let fields = Fields {
                    lengths: of_columns::LENGTHS,
                    shared: of_columns::SHARED,
                    texts: of_columns::WORDS,
                    digits: None,
                };
                self.dictionary.write(self.words.bytes(), fields, true, row);
                row.varint(of_columns::ROWS, self.nodes[0].elements.into());
            });
        });
        self.clear();
    }

    /// A message begins.
    fn begin(&mut self) {
        let node = &mut self.nodes[self.at];
        node.hint = node.fields.len();
    }

    /// A value is put into a field of the message that is being put in: the field's node.
    fn field(&mut self, number: u32, content: Content) -> usize {
        let row = self.nodes[self.at].elements - 1;
        let field = self.find(number);
        self.elements = self.elements.saturating_add(1);
        let node = &mut self.nodes[field];
        node.content = content;
        node.mark(row);
        field
    }

    fn find(&mut self, number: u32) -> usize {
        let Node { fields, hint, .. } = &self.nodes[self.at];
        // Fields come from the last to the first, and those of a list one behind the other.
        for at in [hint.wrapping_sub(1), *hint] {
            if let Some(&(found, field)) = fields.get(at)
                && found == number
            {
                self.nodes[self.at].hint = at;
                return field;
            }
        }
        let found = fields.binary_search_by_key(&number, |(number, _)| *number);
        let (at, field) = match found {
            Ok(at) => (at, fields[at].1),
            Err(at) => {
                let field = self.nodes.len();
                self.nodes.push(Node {
                    number,
                    ..Node::default()
                });
                self.nodes[self.at].fields.insert(at, (number, field));
                (at, field)
            }
        };
        self.nodes[self.at].hint = at;
        field
    }

    /// The columns of the fields of a message.
    fn write_fields(&self, at: usize, number: u32, row: &mut Row) {
        let Node {
            fields, elements, ..
        } = &self.nodes[at];
        for (_, field) in fields.iter().rev() {
            if self.nodes[*field].elements > 0 {
                row.message(number, |row| self.write(*field, *elements, row));
            }
        }
    }

    fn write(&self, at: usize, rows: u32, row: &mut Row) {
        let node = &self.nodes[at];
        match node.content {
            Content::Message => self.write_fields(at, of_column::COLUMNS, row),
            Content::Numbers => {
                let fields = [of_column::VALUES, of_column::DIFFERENCES];
                list::write_shorter(fields, &node.values, row);
            }
            Content::Texts => node.write_texts(self.words.bytes(), row),
            Content::Bytes => node.write_texts(&node.bytes, row),
        }
        let counts = node.counts.iter().map(|count| u64::from(*count));
        list::write(of_column::COUNTS, counts, row);
        if node.runs != [0, rows] {
            let runs = node.runs.iter().rev();
            row.numbers(of_column::ROWS, runs.map(|run| u64::from(*run)));
        }
        row.varint(of_column::FIELD, node.number.into());
    }
}

impl Out for Columns {
    fn varint(&mut self, number: u32, value: u64) {
        self.size += varint_len(value);
        let field = self.field(number, Content::Numbers);
        self.nodes[field].values.push(value);
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.size += bytes.len();
        let field = self.field(number, Content::Bytes);
        let node = &mut self.nodes[field];
        let start = node.bytes.len();
        node.bytes.extend_from_slice(bytes);
        node.texts.push_alone(start..node.bytes.len());
    }

    fn text(&mut self, number: u32, text: &[u8]) {
        let field = self.field(number, Content::Texts);
        let values = &mut self.nodes[field].values;
        let last = values.last().map(|no| *no as TextNo);
        // Most often it is the same as the one before.
        let no = match last.filter(|no| self.words.text(*no) == text) {
            Some(no) => {
                self.words.again(no);
                no
            }
            None => {
                let (no, new) = self.words.add(text);
                self.size += usize::from(new) * text.len();
                no
            }
        };
        self.size += 2;
        values.push(no.into());
    }

    fn message(&mut self, number: u32, body: impl FnOnce(&mut Self)) {
        self.size += 1;
        let field = self.field(number, Content::Message);
        let around = std::mem::replace(&mut self.at, field);
        self.begin();
        body(self);
        self.at = around;
    }

    fn each<T>(&mut self, values: &[T], mut write: impl FnMut(&mut Self, &T)) {
        values.iter().for_each(|value| write(self, value));
    }

    fn packed<T: Value>(&mut self, number: u32, values: &[T]) {
        values.iter().for_each(|value| value.write(number, self));
    }
}
