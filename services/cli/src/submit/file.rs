//! Allocations of a file: each document has the flags of `submit` as its fields.

use super::{Task, again::Said, many::Asked};
use crate::manifest::{Fault, Fields, Place, Wrong, text_of, unknown, written};
use clap::{
    Arg, ArgAction, Args, Command, FromArgMatches,
    error::{ContextKind, ContextValue},
};
use schemas::v1;
use serde_json::{Map, Value};
use std::error::Error;

/// The field of what stands behind `--` on a command line.
const COMMAND: &str = "command";

/// What the file asks for, or what is wrong with it.
pub fn read(file: &str, text: &str) -> Result<Vec<Asked>, Vec<String>> {
    let flags = flags();
    let names: Vec<String> = flags.get_arguments().filter_map(field_of).collect();
    let told = |faults: Vec<Fault>| faults.iter().map(Fault::to_string).collect::<Vec<_>>();
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for (fields, place) in written(file, text).map_err(told)? {
        let unknown = unknown(&fields, &names);
        if !unknown.is_empty() {
            faults.extend(unknown.iter().map(|wrong| place.fault(None, wrong)));
            continue;
        }
        match task(&flags, &fields).and_then(Task::request) {
            Ok(submit) => all.push(asked(place, submit)),
            Err(wrong) => faults.push(place.fault(None, &wrong)),
        }
    }
    match faults.is_empty() {
        true => Ok(all),
        false => Err(told(faults)),
    }
}

fn asked(place: Place, submit: v1::Submit) -> Asked {
    Asked {
        title: match submit.name.as_str() {
            "" => place.title(),
            name => name.to_owned(),
        },
        number: place.number,
        place: Some(place),
        submit,
    }
}

/// A field has the name of its flag.
fn field_of(flag: &Arg) -> Option<String> {
    match (flag.get_long(), flag.get_id().as_str()) {
        (Some(long), _) => Some(long.replace('-', "_")),
        (None, COMMAND) => Some(COMMAND.to_owned()),
        (None, _) => None,
    }
}

pub fn flags() -> Command {
    Task::augment_args(Command::new("submit").no_binary_name(true))
}

/// Returns the request of a document in which options of a command line replace fields.
pub fn changed(document: Value, said: &Said) -> Result<Task, Wrong> {
    let Value::Object(mut document) = document else {
        return Err(Wrong::new("", "it is no document".to_owned()));
    };
    let flags = flags();
    for (one, other) in EITHER {
        if said.values(one).is_some() {
            document.remove(other);
        }
    }
    parsed(&flags, &document, Some(said))
}

/// Options that take the place of a field of another name. With their IDs they are named as fields are.
const EITHER: [(&str, &str); 8] = [
    ("best_effort", "cpu"),
    ("best_effort", "memory"),
    ("cpu", "best_effort"),
    ("memory", "best_effort"),
    ("priority", "priority_class"),
    ("priority_class", "priority"),
    ("payload", "payload_base64"),
    ("gpus", "gpu_milli"),
];

fn task(flags: &Command, fields: &Fields) -> Result<Task, Wrong> {
    parsed(flags, fields, None)
}

fn parsed(
    flags: &Command,
    fields: &Map<String, Value>,
    said: Option<&Said>,
) -> Result<Task, Wrong> {
    let (mut line, mut behind) = (Vec::new(), Vec::new());
    for flag in flags.get_arguments() {
        let Some(name) = field_of(flag) else {
            continue;
        };
        let value = fields.get(&name).filter(|value| !value.is_null());
        let values = said.and_then(|said| said.values(flag.get_id().as_str()));
        let wrong = |why| Wrong::new(&name, why);
        if name == COMMAND {
            behind = match (values, value) {
                (Some(said), _) => said.to_vec(),
                (None, Some(value)) => command(value).map_err(wrong)?,
                (None, None) => Vec::new(),
            };
            continue;
        }
        if let Some(said) = values {
            let own = said.iter().filter_map(|it| Some(it.split_once('=')?.0));
            let own: Vec<&str> = own.collect();
            // A mapping has its other names on.
            let value = value.and_then(|value| match value {
                Value::Object(all) => Some(Value::Object(
                    (all.iter().filter(|(name, _)| !own.contains(&&***name)))
                        .map(|(name, value)| (name.clone(), value.clone()))
                        .collect(),
                )),
                _ => None,
            });
            let rest = value.map_or(Ok(Vec::new()), |value| words(flag, &value));
            line.extend(rest.map_err(wrong)?);
            let long = flag.get_long().unwrap_or_default();
            line.extend(match flag.get_action() {
                ArgAction::SetTrue => vec![format!("--{long}")],
                _ => said.iter().map(|it| format!("--{long}={it}")).collect(),
            });
        } else if let Some(value) = value {
            line.extend(words(flag, value).map_err(wrong)?);
        }
    }
    if !behind.is_empty() {
        line.push("--".to_owned());
        line.append(&mut behind);
    }
    let matches = flags.clone().try_get_matches_from(line);
    let task = matches.and_then(|matches| Task::from_arg_matches(&matches));
    task.map_err(|error| fault(&error))
}

fn command(value: &Value) -> Result<Vec<String>, String> {
    let Value::Array(words) = value else {
        return Err(format!(
            "{value}: write its words as a list: [sh, -c, \"echo a\"]"
        ));
    };
    words.iter().map(text_of).collect()
}

/// A field as it would stand on the command line.
fn words(flag: &Arg, value: &Value) -> Result<Vec<String>, String> {
    let long = flag.get_long().unwrap_or_default();
    if matches!(flag.get_action(), ArgAction::SetTrue) {
        return match value {
            Value::Bool(true) => Ok(vec![format!("--{long}")]),
            Value::Bool(false) | Value::Null => Ok(Vec::new()),
            other => Err(format!("{other}: write true or false")),
        };
    }
    let many = matches!(flag.get_action(), ArgAction::Append);
    let values = match value {
        Value::Null => Vec::new(),
        Value::Array(all) if many => all.iter().map(text_of).collect::<Result<_, _>>()?,
        Value::Object(all) if many => {
            let pair = |(name, value): (&String, &Value)| Ok(format!("{name}={}", text_of(value)?));
            all.iter().map(pair).collect::<Result<_, String>>()?
        }
        Value::Array(_) | Value::Object(_) => return Err(format!("{value}: write one value")),
        one => vec![text_of(one)?],
    };
    let word = |value: String| format!("--{long}={value}");
    Ok(values.into_iter().map(word).collect())
}

/// What is wrong, of the fields and not of the flags.
fn fault(error: &clap::Error) -> Wrong {
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(ContextValue::Strings(texts)) => texts.first().map(String::as_str),
        _ => None,
    };
    let name = |flag: &str| {
        let flag = flag.trim_start_matches("--");
        let end = flag.find([' ', '=', '<']).unwrap_or(flag.len());
        flag[..end].replace('-', "_")
    };
    let field = of(ContextKind::InvalidArg).map(name).unwrap_or_default();
    let value = of(ContextKind::InvalidValue).unwrap_or_default();
    let beside = of(ContextKind::PriorArg).map(name);
    let why = match (error.source(), beside) {
        (Some(why), _) if why.to_string().starts_with(value) => why.to_string(),
        (Some(why), _) => format!("{value}: {why}"),
        (None, Some(beside)) => format!("it does not go with {beside}"),
        (None, None) if error.kind() == clap::error::ErrorKind::MissingRequiredArgument => {
            "it is missing".to_owned()
        }
        (None, None) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").to_owned()
        }
    };
    Wrong::new(&field, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::{Submit, document};
    use clap::Parser;
    use proptest::prelude::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        submit: Submit,
    }

    fn requests(text: &str) -> Vec<v1::Submit> {
        let asked = read("f", text).unwrap();
        asked.into_iter().map(|one| one.submit).collect()
    }

    /// The document asks for the same as the flags.
    fn check(text: &str, flags: &[&str]) {
        let line = Line::try_parse_from(["submit"].iter().chain(flags)).unwrap();
        assert_eq!(
            requests(text),
            [line.submit.task.request().unwrap()],
            "{text}"
        );
    }

    #[test]
    fn a_field_is_a_flag() {
        check("cpu: 0.5", &["--cpu", "0.5"]);
        check(
            "{\"cpu\": \"500m\", \"memory\": \"16Gi\"}",
            &["--cpu=500m", "--memory=16Gi"],
        );
        check(
            "best_effort: true\nnever_requeue: false",
            &["--best-effort"],
        );
        check(
            "label: {grant: 7, model: bert}\nenv:\n  A: b=c\ncommand: [sh, -c, --x, 7]",
            &[
                "--label=grant=7",
                "--label=model=bert",
                "--env=A=b=c",
                "--",
                "sh",
                "-c",
                "--x",
                "7",
            ],
        );
        check(
            "node_label: [zone=a, \"!old\"]\ntolerate: any\nextended: {fpga: 2}\npriority: -3",
            &[
                "--node-label=zone=a",
                "--node-label=!old",
                "--tolerate=any",
                "--extended=fpga=2",
                "--priority=-3",
            ],
        );
        check(
            "gang: g\ngang_size: 4\nttl: 1h\ntime_limit: 90m\nrun_time:\n",
            &["--gang=g", "--gang-size=4", "--ttl=1h", "--time-limit=90m"],
        );
    }

    #[test]
    fn a_text_that_looks_like_a_number_is_kept_as_it_is_written() {
        check(
            "name: 1e3\nlabel: {0010: 0010}\nenv: {UMASK: 0022, VERSION: 1.10, SHA: 1e10, X: 0x1F, U: 1_000, P: +5}\n\
             command: [sh, -c, 0755, 1e-3, &x 1.50, *x, 100.0, 12345678901234567890.5]",
            &[
                "--name=1e3",
                "--label=0010=0010",
                "--env=P=+5",
                "--env=SHA=1e10",
                "--env=U=1_000",
                "--env=UMASK=0022",
                "--env=VERSION=1.10",
                "--env=X=0x1F",
                "--",
                "sh",
                "-c",
                "0755",
                "1e-3",
                "1.50",
                "1.50",
                "100.0",
                "12345678901234567890.5",
            ],
        );
        let line = "{\"env\": {\"A\": 1.10}, \"cpu\": 2.50}";
        check(line, &["--env=A=1.10", "--cpu=2.5"]);
    }

    proptest! {
        /// A word without quotes arrives as it is written, or is refused.
        #[test]
        fn words_are_kept_as_they_are_written(word in "[-+.]?[0-9a-fox][-+0-9_.:eExo]{0,6}") {
            for text in [
                format!("env: {{A: {word}}}\n"),
                format!("# ä\nenv:\n  A: {word} # {word}\n"),
                format!("env: {{A: &a {word}}}\n---\nenv:\n  A: {word}\n"),
            ] {
                let Ok(asked) = read("f", &text) else { continue };
                prop_assert!(!asked.is_empty());
                for one in asked {
                    let work = one.submit.work.expect("a variable");
                    prop_assert_eq!(&work.env[0].value, &word, "{}", text);
                }
            }
        }
    }

    #[test]
    fn options_take_the_place_of_what_was_asked_for() {
        let check = |asked: &str, options: &str, expected: &str| {
            let of = |line: &str| {
                let words = ["submit"].into_iter().chain(line.split_whitespace());
                Line::try_parse_from(words).unwrap().submit
            };
            let asked = document(&of(asked).task.request().unwrap(), "t");
            let said = of(&format!("--again x --tenant t --wait ended {options}")).said;
            let changed = changed(asked, &said).unwrap().request();
            let expected = of(expected).task.request();
            assert_eq!(changed.unwrap(), expected.unwrap(), "{options}");
        };
        let asked = "--cpu 2 --memory 1GiB --name a --queue q --env A=1 --env B=2 --label l=m --gpu-model T4 --gpus 1 -- sh -c x";
        check(
            asked,
            "--memory 4GiB --env B=3 --env C=4 --gpu-model A100",
            "--cpu 2 --memory 4GiB --name a --queue q --env A=1 --env B=3 --env C=4 --label l=m --gpu-model A100 --gpus 1 -- sh -c x",
        );
        check(
            asked,
            "--queue= --name b -- true",
            "--cpu 2 --memory 1GiB --name b --env A=1 --env B=2 --label l=m --gpu-model T4 --gpus 1 -- true",
        );
        check(
            "--best-effort --retries 3",
            "--cpu 1 --retries 0",
            "--cpu 1",
        );
        check("--cpu 1 --memory 1GiB", "--best-effort", "--best-effort");
        check("--priority-class c", "--priority 3", "--priority 3");
        check("--gpu-milli 500", "--gpus 2", "--gpus 2");
        check(
            "--account t/ml --never-requeue",
            "--account ml --time-limit 1h",
            "--account ml --never-requeue --time-limit 1h",
        );
        assert!(
            Line::try_parse_from(["submit", "--again", "x", "--deadline", "1m", "-o", "json"])
                .unwrap()
                .submit
                .said
                .is_empty()
        );
    }

    #[test]
    fn lines_of_json_are_documents() {
        let found = requests("{\"name\": \"a\"}\n\n{\"name\": \"b\", \"cpu\": 2}\n");
        let names: Vec<_> = found
            .iter()
            .map(|one| (one.name.as_str(), one.cpu_milli))
            .collect();
        assert_eq!(names, [("a", 0), ("b", 2000)]);
        let faults = read("f", "{\"cpu\": 1}\n{\"cpu\": \"x\"}\n{\"cpu\"\n").unwrap_err();
        assert_eq!(faults.len(), 1, "no lines of JSON: {faults:?}");
        let faults = read("f", "{\"cpu\": 1}\n{\"cpu\": \"x\"}\n{\"cpus\": 1}\n").unwrap_err();
        assert!(
            faults[0].starts_with("f:2: document 2: cpu: x"),
            "{faults:?}"
        );
        let meant = "f:3: document 3: cpus: there is no such field; did you mean cpu?";
        assert_eq!(faults[1], meant);
    }

    #[test]
    fn a_fault_says_where_it_is_and_what_to_write() {
        let check = |text: &str, expected: &str| {
            assert_eq!(read("f", text).unwrap_err(), [expected], "{text}");
        };
        check(
            "cpu: 1\nmemroy: 1Gi",
            "f:2: document 1: memroy: there is no such field; did you mean memory?",
        );
        check(
            "best_effort: 7",
            "f:1: document 1: best_effort: 7: write true or false",
        );
        check("cpu: [1]", "f:1: document 1: cpu: [1]: write one value");
        check(
            "command: sh",
            "f:1: document 1: command: \"sh\": write its words as a list: [sh, -c, \"echo a\"]",
        );
        for text in [
            "command: [\"\"]",
            "image: i\ncommand: [\"\"]",
            "command: [\"\", a]",
        ] {
            let faults = read("f", text).unwrap_err();
            assert!(
                faults[0].contains("document 1: command: its first word is empty"),
                "{faults:?}"
            );
        }
        check(
            "label: [a]",
            "f:1: document 1: label: a: write a label as NAME=VALUE",
        );
        check(
            "cpu: 1\nbest_effort: true",
            "f:1: document 1: cpu: it does not go with best_effort",
        );
        check("gang: g", "f:1: document 1: gang_size: it is missing");
        // How it is sent is nothing of a document.
        let faults = read("f", "deadline: 1h").unwrap_err();
        let unknown = "f:1: document 1: deadline: there is no such field";
        assert!(faults[0].starts_with(unknown), "{faults:?}");
    }
}
