//! The fields of a setting: what they are called, what is wrong with one, and one set laid over another.

use serde::{
    de::{self, DeserializeOwned, Deserializer, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use std::{collections::BTreeMap, fmt};

pub type Fields = Map<String, Value>;

const MISSING: &str = "it is missing";

/// What is wrong with a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Empty: all of it.
    pub field: String,
    pub why: String,
}

impl Wrong {
    pub fn new(field: &str, why: impl Into<String>) -> Self {
        let (field, why) = (field.to_owned(), why.into());
        Self { field, why }
    }

    pub fn missing(field: &str) -> Self {
        Self::new(field, MISSING)
    }

    pub fn is_missing(&self) -> bool {
        self.why == MISSING
    }

    pub fn at(field: &'static str) -> impl FnOnce(String) -> Self {
        move |why| Self::new(field, why)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.why),
            field => write!(f, "{field}: {}", self.why),
        }
    }
}

/// One field by itself; none: it is absent, or cleared.
pub fn one<T: DeserializeOwned>(fields: &Fields, name: &str) -> Result<Option<T>, Wrong> {
    let value = fields.get(name).filter(|value| !value.is_null());
    let read = |value: &Value| {
        serde_json::from_value(value.clone()).map_err(|error| Wrong::new(name, said(&error, value)))
    };
    value.map(read).transpose()
}

/// One field that has to be there.
pub fn needed<T: DeserializeOwned>(fields: &Fields, name: &str) -> Result<T, Wrong> {
    one(fields, name)?.ok_or_else(|| Wrong::missing(name))
}

pub fn typed<T: DeserializeOwned>(fields: &Fields) -> Result<T, Wrong> {
    let all = Value::Object(fields.clone());
    serde_path_to_error::deserialize(&all).map_err(|error| {
        let (path, error) = (error.path().clone(), error.into_inner());
        let found = path.iter().try_fold(&all, |value, segment| match segment {
            Segment::Map { key } => value.get(key),
            Segment::Seq { index } => value.get(*index),
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        let missing = error.to_string();
        let missing = missing
            .strip_prefix("missing field `")
            .and_then(|rest| rest.split_once('`'));
        match (missing, found) {
            (Some((name, _)), _) => Wrong::missing(name),
            (None, Some(found)) => Wrong::new(&path.to_string(), said(&error, found)),
            (None, None) => Wrong::new(&path.to_string(), error.to_string()),
        }
    })
}

/// What was there, and what is taken.
fn said(error: &serde_json::Error, found: &Value) -> String {
    let (why, found_text) = (error.to_string(), text(found));
    let is_text = why.ends_with("expected a string");
    match found {
        Value::Number(_) | Value::Bool(_) if is_text => format!("{found_text}: write it in quotes"),
        _ if why.starts_with(&found_text) => why,
        _ => format!("{found_text}: {why}"),
    }
}

/// A value for people.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) if all.is_empty() => "none".to_owned(),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Object(all) if all.is_empty() => "none".to_owned(),
        Value::Object(all) => {
            let pairs = all
                .iter()
                .map(|(name, value)| format!("{name} {}", text(value)));
            pairs.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// The fields, and those below them by their paths.
pub fn flat(fields: &Fields) -> BTreeMap<String, Value> {
    let pairs = fields.iter().flat_map(|(name, value)| match value {
        Value::Object(below) => {
            let below = flat(below).into_iter();
            below
                .map(|(path, value)| (format!("{name}.{path}"), value))
                .collect()
        }
        value => vec![(name.clone(), value.clone())],
    });
    pairs.collect()
}

/// Lays a patch over a value, as RFC 7386 has it: what is absent stays, null takes away.
pub fn merge(fields: &mut Fields, patch: &Fields) {
    for (name, value) in patch {
        match value {
            Value::Null => {
                fields.remove(name);
            }
            Value::Object(patch) => {
                let below = fields.entry(name.clone()).or_insert(Value::Null);
                if !below.is_object() {
                    *below = Value::Object(Fields::new());
                }
                if let Value::Object(below) = below {
                    merge(below, patch);
                }
            }
            other => {
                fields.insert(name.clone(), other.clone());
            }
        }
    }
}

/// Of the names that there are, the one that was probably meant.
pub fn meant<'a>(said: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this, two words have nothing in common.
    const ALIKE: f64 = 0.75;
    let plain = |name: &str| name.to_lowercase().replace(['-', '_'], "");
    let said = plain(said);
    let alike = known.into_iter().map(|name| {
        let name_plain = plain(name);
        // One slip of the pen in a short word leaves little that is alike.
        let is_a_slip = said.len() > 1 && strsim::osa_distance(&said, &name_plain) == 1;
        let alike = strsim::jaro_winkler(&said, &name_plain);
        (if is_a_slip { alike.max(0.9) } else { alike }, name)
    });
    let best = alike.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(alike, _)| *alike > ALIKE)
        .map(|(_, name)| name)
}

/// The same as the end of a sentence; empty: none was probably meant.
pub fn did_you_mean<'a>(said: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    meant(said, known).map_or_else(String::new, |meant| format!("; did you mean {meant}?"))
}

/// The fields that have none of these names.
pub fn unknown<S: AsRef<str>>(fields: &Fields, names: &[S]) -> Vec<Wrong> {
    let names = || names.iter().map(AsRef::as_ref);
    let unknown = fields
        .keys()
        .filter(|name| !names().any(|known| known == *name));
    let wrong = unknown.map(|name| {
        let why = match meant(name, names()) {
            Some(meant) => format!("there is no such field; did you mean {meant}?"),
            None => {
                let names: Vec<&str> = names().collect();
                format!("there is no such field; fields are {}", names.join(", "))
            }
        };
        Wrong::new(name, why)
    });
    wrong.collect()
}

/// The fields of a struct, as its `Deserialize` names them.
pub fn names<T: DeserializeOwned>() -> &'static [&'static str] {
    match T::deserialize(Names) {
        Err(Named(names)) => names,
        Ok(_) => &[],
    }
}

/// Asks for the names and gives nothing.
struct Names;

#[derive(Debug)]
struct Named(&'static [&'static str]);

impl<'de> Deserializer<'de> for Names {
    type Error = Named;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Named> {
        Err(Named(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Named> {
        Err(Named(fields))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for Named {}

impl de::Error for Named {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(value: Value) -> Fields {
        match value {
            Value::Object(fields) => fields,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_patch_leaves_what_it_does_not_name() {
        let mut all = fields(json!({"a": 1, "b": [1, 2], "c": {"d": 1, "e": 2}, "f": 3}));
        merge(
            &mut all,
            &fields(json!({"b": [3], "c": {"d": null, "g": 4}, "f": null, "h": {"i": null}})),
        );
        assert_eq!(
            all,
            fields(json!({"a": 1, "b": [3], "c": {"e": 2, "g": 4}, "h": {}}))
        );
    }

    #[test]
    fn a_slip_is_seen() {
        assert_eq!(
            meant("brst_for", ["burst", "burst_for", "hard"]),
            Some("burst_for")
        );
        assert_eq!(
            meant("priority-class", ["Queue", "PriorityClass"]),
            Some("PriorityClass")
        );
        assert_eq!(meant("zebra", ["burst", "hard"]), None);
        assert_eq!(meant("lm", ["web", "ml"]), Some("ml"));
        assert_eq!(meant("wbe", ["ml", "web"]), Some("web"));
        assert_eq!(meant("a", ["b"]), None);
    }
}
