//! An array: many submits that differ by an index alone, asked for in one request. From here on each is by itself.

use super::SubmitRequest;
use smol_str::{SmolStr, format_smolstr};
use std::collections::BTreeSet;
use vocab::{Refusal, Rule, Token};
use wire::{Message as _, Out, Value};

/// An array as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "SubmitArray")]
pub struct ArrayRequest {
    #[wire(1)]
    pub submit: SubmitRequest,
    #[wire(2)]
    pub indexes: Vec<IndexRange>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, wire::Wire)]
pub struct IndexRange {
    #[wire(1)]
    pub first: u32,
    #[wire(2)]
    pub last: u32,
    #[wire(3)]
    pub step: u32,
}

impl ArrayRequest {
    /// As many as a message may hold of other operations, and as are decided in one frame (`Draft::WORK_MAX`).
    pub const ELEMENTS_MAX: u64 = 1000;
    /// Of all elements as requests of their own. A frame holds an array as a whole, beside what was in it before, and has to
    /// be readable in messages, too.
    pub const BYTES_MAX: u64 = 4 << 20;
    /// A quarter of what the columns of a frame may hold: another half may be there before.
    pub const VALUES_MAX: u64 = 1 << 18;

    /// Each element with its operation id, as it would have been asked for by itself; or what is wrong with the array.
    pub fn elements(&self, id: &Token) -> Result<Vec<(Token, SubmitRequest)>, Refusal> {
        if self.submit.array_index.is_some() {
            let field = "submit.array_index";
            return Err(Refusal::new(Rule::SettingInvalid, field));
        }
        let count = self.count()?;
        let bytes = self.submit.encode_to_vec().len() as u64;
        let mut values = Values(0);
        self.submit.write_body(&mut values);
        for (rule, subject, limit, each) in [
            (Rule::PayloadTooLarge, "elements", Self::BYTES_MAX, bytes),
            (Rule::TooManyElements, "values", Self::VALUES_MAX, values.0),
        ] {
            let actual = count.saturating_mul(each);
            if actual > limit {
                return Err(Refusal::over(rule, subject, limit, actual));
            }
        }
        let mut seen = BTreeSet::new();
        let all = self.indexes.iter().flat_map(|range| range.all());
        all.map(|index| match seen.insert(index) {
            true => self.element(id, index),
            false => Err(Refusal::new(Rule::NameRepeated, "indexes")),
        })
        .collect()
    }

    /// How many there are, from the ranges alone.
    fn count(&self) -> Result<u64, Refusal> {
        let count = self.indexes.iter().try_fold(0, |sum: u64, range| {
            let IndexRange { first, last, step } = *range;
            if step == 0 {
                return Err(Refusal::new(Rule::QuantityZero, "indexes.step"));
            }
            let span = last.checked_sub(first);
            let span = span.ok_or_else(|| Refusal::new(Rule::IntervalInvalid, "indexes.last"))?;
            Ok(sum + u64::from(span / step) + 1)
        })?;
        match count {
            0 => Err(Refusal::new(Rule::QuantityZero, "indexes")),
            1..=Self::ELEMENTS_MAX => Ok(count),
            _ => {
                let (limit, rule) = (Self::ELEMENTS_MAX, Rule::TooManyElements);
                Err(Refusal::over(rule, "indexes", limit, count))
            }
        }
    }

    fn element(&self, id: &Token, index: u32) -> Result<(Token, SubmitRequest), Refusal> {
        let token = |text: SmolStr, rule, field| {
            Token::try_from(text).map_err(|_| Refusal::new(rule, field))
        };
        let id = format_smolstr!("{}-{index}", id.as_str());
        let id = token(id, Rule::OperationIdInvalid, "operation_id")?;
        let mut submit = SubmitRequest {
            array_index: Some(index),
            ..self.submit.clone()
        };
        if !submit.name.is_empty() {
            let name = format_smolstr!("{}-{index}", submit.name);
            submit.name = token(name, Rule::NameInvalid, "name")?.into();
        }
        Ok((id, submit))
    }
}

impl IndexRange {
    fn all(self) -> impl Iterator<Item = u32> {
        // Not 0: the ranges have been counted.
        (self.first..=self.last).step_by(self.step.max(1) as usize)
    }
}

/// How many values are written, those of messages inside included.
struct Values(u64);

impl Out for Values {
    fn varint(&mut self, _number: u32, _value: u64) {
        self.0 += 1;
    }

    fn text(&mut self, _number: u32, _text: &[u8]) {
        self.0 += 1;
    }

    fn bytes(&mut self, _number: u32, _bytes: &[u8]) {
        self.0 += 1;
    }

    fn message(&mut self, _number: u32, body: impl FnOnce(&mut Self)) {
        self.0 += 1;
        body(self);
    }

    fn each<T>(&mut self, values: &[T], mut write: impl FnMut(&mut Self, &T)) {
        values.iter().for_each(|value| write(self, value));
    }

    fn packed<T: Value>(&mut self, _number: u32, values: &[T]) {
        self.0 += values.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::DependencyRequest;
    use std::sync::Arc;
    use vocab::Work;

    fn range(first: u32, last: u32, step: u32) -> IndexRange {
        IndexRange { first, last, step }
    }

    fn array(indexes: &[IndexRange]) -> ArrayRequest {
        ArrayRequest {
            submit: SubmitRequest {
                name: "sweep".into(),
                ..SubmitRequest::default()
            },
            indexes: indexes.to_vec(),
        }
    }

    fn check(array: &ArrayRequest, id: &str, expected: Result<&[u32], &str>) {
        let id = Token::new(id).expect("a token");
        match (array.elements(&id), expected) {
            (Ok(elements), Ok(indexes)) => {
                let one = |index: &u32| {
                    let submit = SubmitRequest {
                        name: format_smolstr!("sweep-{index}"),
                        array_index: Some(*index),
                        ..array.submit.clone()
                    };
                    let id = Token::new(&format!("{}-{index}", id.as_str()));
                    (id.expect("a token"), submit)
                };
                let expected: Vec<_> = indexes.iter().map(one).collect();
                assert_eq!(elements, expected);
            }
            (Err(refusal), Err(expected)) => {
                let Refusal { rule, subject, .. } = refusal;
                assert_eq!(format!("{} {subject}", rule.name()), expected);
            }
            (found, expected) => panic!("{found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn an_array_is_its_elements() {
        check(&array(&[range(0, 3, 1)]), "a", Ok(&[0, 1, 2, 3]));
        check(&array(&[range(1, 10, 4)]), "a", Ok(&[1, 5, 9]));
        let listed = [range(7, 7, 1), range(1, 1, 9), range(3, 4, 1)];
        check(&array(&listed), "a", Ok(&[7, 1, 3, 4]));
        let last = range(u32::MAX - 1, u32::MAX, 1);
        check(&array(&[last]), "a", Ok(&[u32::MAX - 1, u32::MAX]));
        let all: Vec<u32> = (0..1000).collect();
        check(&array(&[range(0, 999, 1)]), "a", Ok(&all));
        let id = "a".repeat(62);
        check(&array(&[range(0, 9, 9)]), &id, Ok(&[0, 9]));
    }

    #[test]
    fn what_is_no_array_is_refused_as_a_whole() {
        let refused = |indexes: &[IndexRange], rule| check(&array(indexes), "a", Err(rule));
        refused(&[], "quantity_zero indexes");
        refused(&[range(0, 3, 0)], "quantity_zero indexes.step");
        refused(&[range(3, 2, 1)], "interval_invalid indexes.last");
        refused(&[range(0, 1000, 1)], "too_many_elements indexes");
        let full = range(0, u32::MAX, 1);
        refused(&[full; 9], "too_many_elements indexes");
        refused(&[range(1, 3, 1), range(2, 2, 1)], "name_repeated indexes");
        let ten = array(&[range(0, 10, 5)]);
        check(
            &ten,
            &"a".repeat(62),
            Err("operation_id_invalid operation_id"),
        );
        let named = |name: String| {
            let mut named = ten.clone();
            named.submit.name = name.into();
            named
        };
        check(&named("n".repeat(62)), "a", Err("name_invalid name"));
        check(&named("a b".into()), "a", Err("name_invalid name"));
        let mut element = ten.clone();
        element.submit.array_index = Some(0);
        let field = "setting_invalid submit.array_index";
        check(&element, "a", Err(field));
    }

    #[test]
    fn a_frame_has_room_for_all_of_it() {
        let of = |count: u32, args: usize, length: usize| {
            let mut array = array(&[range(1, count, 1)]);
            array.submit.work = Some(Arc::new(Work {
                command: "c".into(),
                args: vec!["a".repeat(length); args],
                ..Work::default()
            }));
            array
        };
        let all: Vec<u32> = (1..=1000).collect();
        check(&of(1000, 1, 4000), "a", Ok(&all));
        let large = of(1000, 1, 5000);
        check(&large, "a", Err("payload_too_large elements"));
        check(&of(1000, 250, 0), "a", Ok(&all));
        let many = of(1000, 270, 0);
        check(&many, "a", Err("too_many_elements values"));
        check(&of(80, 1, 48 << 10), "a", Ok(&all[..80]));
        // A dependency has three values: itself, an id, and whether it has to succeed.
        let after = |count: usize| {
            let mut array = array(&[range(1, 1000, 1)]);
            let dependency = DependencyRequest {
                allocation_id: "1".into(),
                success: true,
                ..DependencyRequest::default()
            };
            array.submit.depends_on = vec![dependency; count];
            array
        };
        check(&after(87), "a", Ok(&all));
        check(&after(88), "a", Err("too_many_elements values"));
    }
}
