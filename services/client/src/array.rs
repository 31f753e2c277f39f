//! Arrays: many submits that differ by an index alone, in as few messages as they fit into.

use crate::{Client, Failed, Operation, verbs::submitted};
use prost::Message;
use schemas::v1::{IndexRange, Submit, SubmitArray, Submitted, request::Verb};

/// Elements of one message, at the most: the inbox's bound.
const ELEMENTS_MAX: usize = 1000;
/// Of all of them, as requests of their own: the inbox's bound.
const BYTES_MAX: usize = 4 << 20;
/// Values in those requests: the inbox's bound.
const VALUES_MAX: usize = 1 << 18;
/// Of what is to be run, without lists.
const VALUES_OF_WORK: usize = 5;

impl Client {
    /// Asks for one allocation for each index, in as few messages as they fit into; the outcomes come in the same order. The one
    /// of index 7 is the operation `<operation_id>-7`. Some of them may be asked for again, with the same content.
    pub async fn submit_array(
        &self,
        submit: &Submit,
        indexes: &[u32],
        operation_id: &str,
    ) -> Vec<Result<Submitted, Failed>> {
        let mut outcomes = Vec::with_capacity(indexes.len());
        for indexes in indexes.chunks(fitting(submit)) {
            let array = SubmitArray {
                submit: Some(submit.clone()),
                indexes: ranges(indexes),
            };
            let array = Operation::new(operation_id, Verb::SubmitArray(array));
            let ids = indexes
                .iter()
                .map(|index| format!("{operation_id}-{index}"));
            let ids: Vec<String> = ids.collect();
            let done = self.call_array(&array, &ids).await;
            let done = ids.iter().zip(done);
            outcomes.extend(done.map(|(id, outcome)| submitted(id, outcome)));
        }
        outcomes
    }
}

/// How many elements fit into a message.
fn fitting(submit: &Submit) -> usize {
    let bytes = submit.encoded_len();
    let (values, without_work) = submit.work.as_ref().map_or((0, bytes), |work| {
        let values = VALUES_OF_WORK + work.args.len() + 3 * work.env.len();
        (values, bytes.saturating_sub(work.encoded_len()))
    });
    // No value takes less than two bytes.
    let values = values + without_work / 2;
    let (by_values, by_bytes) = (VALUES_MAX / values.max(1), BYTES_MAX / bytes.max(1));
    ELEMENTS_MAX.min(by_values).min(by_bytes).max(1)
}

/// The same indexes in the same order.
fn ranges(indexes: &[u32]) -> Vec<IndexRange> {
    let mut ranges: Vec<IndexRange> = Vec::new();
    for &index in indexes {
        match ranges.last_mut() {
            // One by itself may go on in any step.
            Some(range) if range.first == range.last && index > range.last => {
                (range.step, range.last) = (index - range.last, index);
            }
            Some(range) if range.last.checked_add(range.step) == Some(index) => range.last = index,
            _ => ranges.push(IndexRange {
                first: index,
                last: index,
                step: 1,
            }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::v1::Work;

    #[test]
    fn ranges_are_the_indexes() {
        let check = |indexes: &[u32], expected: &[(u32, u32, u32)]| {
            let ranges = ranges(indexes);
            let written = ranges.iter().map(|it| (it.first, it.last, it.step));
            assert_eq!(written.collect::<Vec<_>>(), expected);
            let read = ranges
                .iter()
                .flat_map(|it| (it.first..=it.last).step_by(it.step as usize));
            assert_eq!(read.collect::<Vec<_>>(), indexes);
        };
        check(&[], &[]);
        check(&[5], &[(5, 5, 1)]);
        check(&[0, 1, 2, 3], &[(0, 3, 1)]);
        check(&[1, 5, 9, 10], &[(1, 9, 4), (10, 10, 1)]);
        check(&[7, 1, 3, 4, 5], &[(7, 7, 1), (1, 3, 2), (4, 5, 1)]);
        check(&[2, 2], &[(2, 2, 1), (2, 2, 1)]);
        let last = u32::MAX;
        check(&[last - 1, last, 0], &[(last - 1, last, 1), (0, 0, 1)]);
    }

    #[test]
    fn a_message_has_as_many_as_the_inbox_takes() {
        let check = |args: usize, length: usize, expected| {
            let submit = Submit {
                work: Some(Work {
                    args: vec!["a".repeat(length); args],
                    ..Work::default()
                }),
                ..Submit::default()
            };
            assert_eq!(fitting(&submit), expected);
        };
        check(0, 0, 1000);
        check(2, 2000, 1000);
        check(1, 40_000, 104);
        check(1000, 0, 260);
    }
}
