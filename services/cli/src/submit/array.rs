//! Many of the same, told apart by an index.

use super::many::Asked;
use schemas::v1;
use std::str::FromStr;

/// What the command of each element finds its index in.
const VARIABLE: &str = "APPORTION_ARRAY_INDEX";
/// Each is an operation, and an allocation, of its own.
const ELEMENTS_MAX: u64 = 10_000;

/// The indexes of an array, each once, as they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indexes(Vec<u64>);

impl FromStr for Indexes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('%') {
            return Err(format!(
                "{text}: how many of them run at once cannot be bound here; a limit of the queue does that"
            ));
        }
        let wrong = || format!("{text}: write FIRST-LAST, FIRST-LAST:STEP or a list as 1,3,5-7");
        let mut indexes: Vec<u64> = Vec::new();
        for part in text.split(',') {
            let (range, step) = part.split_once(':').unwrap_or((part, "1"));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse::<u32>().map(u64::from).map_err(|_| wrong());
            let (first, last, step) = (number(first)?, number(last)?, number(step)?);
            if first > last || step == 0 {
                return Err(wrong());
            }
            let elements = indexes.len() as u64 + (last - first) / step + 1;
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

impl Indexes {
    /// One for each index, which its name ends with and its command finds in its environment.
    pub fn of(&self, submit: &v1::Submit) -> Vec<Asked> {
        let one = |(index, number): (&u64, usize)| {
            let mut submit = submit.clone();
            if !submit.name.is_empty() {
                submit.name = format!("{}-{index}", submit.name);
            }
            if let Some(work) = &mut submit.work {
                work.env.push(v1::EnvVar {
                    name: VARIABLE.to_owned(),
                    value: index.to_string(),
                });
            }
            Asked {
                title: match submit.name.as_str() {
                    "" => index.to_string(),
                    name => name.to_owned(),
                },
                number,
                place: None,
                submit,
            }
        };
        self.0.iter().zip(1..).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_ranges_with_steps_and_lists() {
        let check = |text: &str, expected: Result<&[u64], &str>| {
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
    fn an_element_knows_its_index() {
        let submit = v1::Submit {
            name: "sweep".into(),
            work: Some(v1::Work::default()),
            ..v1::Submit::default()
        };
        let all = "3-4".parse::<Indexes>().unwrap().of(&submit);
        assert_eq!(all[1].submit.name, "sweep-4");
        let env = &all[1].submit.work.as_ref().unwrap().env;
        assert_eq!(
            (env[0].name.as_str(), env[0].value.as_str()),
            (VARIABLE, "4")
        );
    }
}
