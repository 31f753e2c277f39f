//! Many of the same, told apart by an index.

use super::{
    many::{self, Titled},
    sent::Sent,
};
use crate::{Failure, print::Output, sending::Sending};
use client::Client;
use schemas::v1;
use std::str::FromStr;

/// Each is an operation, and an allocation, of its own.
const ELEMENTS_MAX: u64 = 10_000;

/// The indexes of an array, each once, as they were written; there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indexes(Vec<u32>);

impl FromStr for Indexes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('%') {
            return Err(format!(
                "{text}: how many of them run at once cannot be bound here; a limit of the queue does that"
            ));
        }
        let wrong = || format!("{text}: write FIRST-LAST, FIRST-LAST:STEP or a list as 1,3,5-7");
        let mut indexes: Vec<u32> = Vec::new();
        for part in text.split(',') {
            let (range, step) = part.split_once(':').unwrap_or((part, "1"));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
            let (first, last, step) = (number(first)?, number(last)?, number(step)?);
            if first > last || step == 0 {
                return Err(wrong());
            }
            let elements = indexes.len() as u64 + u64::from((last - first) / step) + 1;
            if elements > ELEMENTS_MAX {
                return Err(format!(
                    "{text}: {elements} elements or more; an array has {ELEMENTS_MAX} at the most"
                ));
            }
            indexes.extend((first..=last).step_by(step as usize));
        }
        let mut sorted = indexes.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("{text}: {} stands there twice", pair[0])),
            None => Ok(Self(indexes)),
        }
    }
}

/// One of them that has no outcome yet.
struct Element {
    title: String,
    operation_id: String,
    index: u32,
}

impl Titled for Element {
    fn title(&self) -> &str {
        &self.title
    }

    fn operation_id(&self) -> &str {
        &self.operation_id
    }
}

impl Indexes {
    /// As the cell will name them.
    fn elements(&self, submit: &v1::Submit, id: &str) -> Vec<Element> {
        let element = |&index: &u32| Element {
            title: match submit.name.as_str() {
                "" => index.to_string(),
                name => format!("{name}-{index}"),
            },
            operation_id: format!("{id}-{index}"),
            index,
        };
        self.0.iter().map(element).collect()
    }

    /// What became of each is asked for by these ids, if that of the array is this one.
    pub fn operations(&self, id: &str) -> Vec<(String, String)> {
        let one = |index: &u32| (index.to_string(), format!("{id}-{index}"));
        self.0.iter().map(one).collect()
    }

    /// The first of them as a request of its own with what it is called, and how many there are.
    pub fn first(&self, submit: &v1::Submit) -> ((String, v1::Submit), usize) {
        let index = self.0.first().copied();
        let title = self.elements(submit, "").swap_remove(0).title;
        let name = match submit.name.as_str() {
            "" => String::new(),
            _ => title.clone(),
        };
        let one = v1::Submit {
            name,
            array_index: index,
            ..submit.clone()
        };
        ((title, one), self.0.len())
    }

    /// Tells the operation, asks for all of them, and tells what came of it.
    pub async fn send(
        &self,
        client: &Client,
        submit: &v1::Submit,
        sending: &Sending,
        output: Output,
    ) -> Result<Sent, Failure> {
        let id = sending.id();
        let ask = async |open: &[Element]| {
            let indexes: Vec<u32> = open.iter().map(|one| one.index).collect();
            client.submit_array(submit, &indexes, &id).await
        };
        many::outcomes(self.elements(submit, &id), ask, sending, output).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_ranges_with_steps_and_lists() {
        let check = |text: &str, expected: Result<&[u32], &str>| {
            let found = text.parse::<Indexes>().map(|indexes| indexes.0);
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                (Err(found), Err(part)) => assert!(found.contains(part), "{found}"),
                (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
            }
        };
        check("0-3", Ok(&[0, 1, 2, 3]));
        check("1-10:4", Ok(&[1, 5, 9]));
        check("7,1,3-4", Ok(&[7, 1, 3, 4]));
        check("0-9%2", Err("how many of them run at once"));
        check("1-3,2", Err("2 stands there twice"));
        for bad in ["", "a", "3-1", "1-2:0", "-1", "1-", "1,,2", "0-4294967296"] {
            check(bad, Err("write FIRST-LAST"));
        }
        check("0-9999", Ok(&(0..10_000).collect::<Vec<_>>()));
        check("0-10000", Err("10001 elements"));
        check("0-4294967295", Err("4294967296 elements"));
    }

    #[test]
    fn elements_are_called_as_the_cell_calls_them() {
        let check = |name: &str, expected: [&str; 2]| {
            let submit = v1::Submit {
                name: name.into(),
                ..v1::Submit::default()
            };
            let all = "3-4".parse::<Indexes>().unwrap().elements(&submit, "o");
            let titles = all.iter().map(Titled::title);
            assert_eq!(titles.collect::<Vec<_>>(), expected);
        };
        check("sweep", ["sweep-3", "sweep-4"]);
        check("", ["3", "4"]);
        let ((title, first), of) = "3-4".parse::<Indexes>().unwrap().first(&v1::Submit {
            name: "sweep".into(),
            ..v1::Submit::default()
        });
        assert_eq!(
            (title.as_str(), &*first.name, of),
            ("sweep-3", "sweep-3", 2)
        );
        assert_eq!(first.array_index, Some(3));
    }
}
