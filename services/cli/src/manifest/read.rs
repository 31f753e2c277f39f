//! Files of settings: documents of YAML, each of them one setting or a list of some.

use super::{
    fields::{self, Fields, Wrong},
    kind::Kind,
};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use serde_saphyr::Spanned;
use std::{collections::BTreeMap, fmt};

/// One setting of a file. What it does not say stays as it is.
#[derive(Debug, Clone)]
pub struct Document {
    pub kind: Kind,
    pub fields: Fields,
    /// Fields that there are not, which are not among the others.
    pub unknown: Vec<Wrong>,
    place: Place,
}

/// What is wrong, and where. They go by their places.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    file: String,
    line: u64,
    text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, text } = self;
        write!(f, "{file}:{line}: {text}")
    }
}

/// The settings of files.
#[derive(Debug, Default)]
pub struct Documents {
    pub all: Vec<Document>,
    /// Of what is no document.
    lost: Vec<Fault>,
    /// Whether it is known what they set, so that it can be said what they do not set.
    pub is_whole: bool,
}

impl Documents {
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.all.iter().map(|document| document.kind)
    }

    /// What is wrong whatever stands in the cell. If there is any, nothing may be changed.
    pub fn faults(&self) -> Vec<Fault> {
        let unknown = self.all.iter().flat_map(|document| {
            let unknown = document.unknown.iter();
            unknown.map(|wrong| document.fault(wrong))
        });
        let mut faults: Vec<_> = self.lost.iter().cloned().chain(unknown).collect();
        faults.sort();
        faults
    }
}

/// Where something stands.
#[derive(Debug, Clone)]
pub struct Place {
    file: String,
    /// Its number in the file, from 1 on.
    pub number: usize,
    line: u64,
    lines: BTreeMap<String, u64>,
}

impl Document {
    /// What is wrong with it, and where.
    pub fn fault(&self, wrong: &Wrong) -> Fault {
        self.place.fault(Some(self.kind), wrong)
    }

    /// For people.
    pub fn title(&self) -> String {
        self.place.title()
    }
}

impl Place {
    /// For people.
    pub fn title(&self) -> String {
        format!("document {} of {}", self.number, self.file)
    }

    pub fn fault(&self, kind: Option<Kind>, wrong: &Wrong) -> Fault {
        let name = wrong.field.split(['.', '[']).next().unwrap_or_default();
        let (file, number) = (self.file.clone(), self.number);
        let kind = kind.map_or(String::new(), |kind| format!(", {}", kind.name()));
        Fault {
            file,
            line: *self.lines.get(name).unwrap_or(&self.line),
            text: format!("document {number}{kind}: {wrong}"),
        }
    }
}

/// All settings of some files, each with its text, and what is wrong with them.
pub fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Documents {
    let mut read = Documents::default();
    for (file, text) in files {
        let found = written(file, text).unwrap_or_else(|faults| {
            read.lost.extend(faults);
            Vec::new()
        });
        for (fields, place) in found {
            match Document::of(fields, place) {
                Ok(document) => read.all.push(document),
                Err(fault) => read.lost.push(fault),
            }
        }
    }
    read.is_whole = read.lost.is_empty();
    read
}

/// All of them, or all faults.
fn gathered<T>(all: impl Iterator<Item = Result<T, Fault>>) -> Result<Vec<T>, Vec<Fault>> {
    let (mut good, mut faults) = (Vec::new(), Vec::new());
    for one in all {
        match one {
            Ok(one) => good.push(one),
            Err(fault) => faults.push(fault),
        }
    }
    match faults.is_empty() {
        true => Ok(good),
        false => Err(faults),
    }
}

/// The fields of each document of a file, and where they stand, or what is wrong with it. A file whose lines are all objects of JSON
/// has a document in each.
pub fn written(file: &str, text: &str) -> Result<Vec<(Fields, Place)>, Vec<Fault>> {
    let is_object = |line: &str| line.starts_with('{') && line.ends_with('}');
    let lines = || text.lines().map(str::trim);
    let filled = || lines().filter(|line| !line.is_empty());
    let documents = match filled().next().is_some() && filled().all(is_object) {
        true => {
            let numbered = lines().zip(0..).filter(|(line, _)| !line.is_empty());
            let read = numbered.map(|(line, before)| mappings(file, line, before));
            let all: Vec<_> = gathered(read)?;
            all.into_iter().flatten().collect()
        }
        false => mappings(file, text, 0).map_err(|fault| vec![fault])?,
    };
    let placed = documents.into_iter().zip(1..);
    let placed = placed.map(|((line, Written { fields, lines }), number)| {
        let file = file.to_owned();
        let place = Place {
            file,
            number,
            line,
            lines,
        };
        (fields, place)
    });
    Ok(placed.collect())
}

/// The mappings of some YAML that stands behind so many lines of the file, and the lines where they begin.
fn mappings(file: &str, text: &str, before: u64) -> Result<Vec<(u64, Written)>, Fault> {
    // A node may be called n, which is no.
    let options = serde_saphyr::options! { strict_booleans: true };
    let parts: Vec<Spanned<Part>> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| Fault {
            file: file.to_owned(),
            line: error.location().map_or(0, |location| location.line()) + before,
            text: text_of_error(error.without_snippet()),
        })?;
    let mut all = Vec::new();
    for part in parts {
        match part.value {
            Part::One(mapping) => all.push((part.referenced.line(), mapping)),
            Part::Many(many) => {
                all.extend(
                    many.into_iter()
                        .map(|one| (one.referenced.line(), one.value)),
                );
            }
        }
    }
    let written = all.into_iter().map(|(line, mapping)| {
        let lines = mapping.0.iter();
        let lines = lines.map(|(name, node)| (name.clone(), node.referenced.line() + before));
        let lines = lines.collect();
        let fields = mapping.fields(text);
        (line + before, Written { fields, lines })
    });
    Ok(written.collect())
}

/// The library's text; for a repeated key that names an option of the library, our own.
fn text_of_error(error: &serde_saphyr::Error) -> String {
    match error {
        serde_saphyr::Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("a key");
            format!("{key}: it is there twice: remove one of them")
        }
        error => error.to_string(),
    }
}

impl Document {
    fn of(mut fields: Fields, place: Place) -> Result<Self, Fault> {
        let fault =
            |kind, field: &str, why: String| Err(place.fault(kind, &Wrong::new(field, why)));
        let kind = match fields.remove("kind") {
            Some(Value::String(text)) => match Kind::parse(&text) {
                Ok(kind) => kind,
                Err(why) => return fault(None, "kind", why),
            },
            Some(other) => {
                return fault(
                    None,
                    "kind",
                    format!("{other}: write the name of a kind, such as Quota"),
                );
            }
            None => {
                return fault(
                    None,
                    "kind",
                    "it is missing: say what is set, such as kind: Quota".to_owned(),
                );
            }
        };
        let unknown = fields::unknown(&fields, kind.field_names());
        fields.retain(|name, _| kind.field_names().contains(&name.as_str()));
        Ok(Self {
            kind,
            fields,
            unknown,
            place,
        })
    }
}

enum Part {
    One(Mapping),
    Many(Vec<Spanned<Mapping>>),
}

/// The fields of a document, with the line of each.
struct Written {
    fields: Fields,
    lines: BTreeMap<String, u64>,
}

/// A value and where it is defined. `Value` alone would keep of a number what it is worth, and not how it is written.
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    Mapping(Mapping),
}

struct Mapping(Vec<(String, Spanned<Node>)>);

impl Mapping {
    fn of<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut fields: Vec<(String, _)> = Vec::new();
        while let Some((name, node)) = map.next_entry()? {
            if fields.iter().any(|(other, _)| *other == name) {
                return Err(de::Error::custom(format!("{name} stands there twice")));
            }
            fields.push((name, node));
        }
        Ok(Self(fields))
    }

    fn fields(self, text: &str) -> Fields {
        let fields = self.0.into_iter();
        fields
            .map(|(name, node)| (name, value(node, text)))
            .collect()
    }
}

/// The value of a node of this text. A number that is not written as JSON would write it, such as 0022, 1.10 or 1e3, is the
/// text that is written: a field of text takes it as it is, and one of numbers reads it by its own rules.
fn value(node: Spanned<Node>, text: &str) -> Value {
    match node.value {
        Node::Scalar(Value::Number(number)) => {
            let span = node.defined.span();
            let range = span.byte_offset().zip(span.byte_len());
            let written =
                range.and_then(|(from, length)| text.get(from as usize..(from + length) as usize));
            match written {
                Some(written) if written != number.to_string() => written.into(),
                _ => number.into(),
            }
        }
        Node::Scalar(other) => other,
        Node::List(all) => all.into_iter().map(|one| value(one, text)).collect(),
        Node::Mapping(mapping) => mapping.fields(text).into(),
    }
}

impl<'de> Deserialize<'de> for Mapping {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfFields;
        impl<'de> Visitor<'de> for OfFields {
            type Value = Mapping;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("fields and their values")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Mapping, A::Error> {
                Mapping::of(map)
            }
        }
        deserializer.deserialize_map(OfFields)
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        /// Scalars are what `Value` makes of them.
        macro_rules! scalars {
            ($($visit:ident($ty:ty))*) => {$(
                fn $visit<E: de::Error>(self, value: $ty) -> Result<Node, E> {
                    Ok(Node::Scalar(value.into()))
                }
            )*};
        }
        impl<'de> Visitor<'de> for Any {
            type Value = Node;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, a list or fields and their values")
            }
            scalars! {
                visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) visit_string(String)
            }
            fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
                Ok(Node::Scalar(Value::Null))
            }
            fn visit_none<E: de::Error>(self) -> Result<Node, E> {
                Ok(Node::Scalar(Value::Null))
            }
            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
                Node::deserialize(deserializer)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = seq.next_element()? {
                    all.push(one);
                }
                Ok(Node::List(all))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Node, A::Error> {
                Mapping::of(map).map(Node::Mapping)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Part;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("fields and their values, or a list of such")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Part, A::Error> {
                Mapping::of(map).map(Part::One)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Part, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = seq.next_element()? {
                    all.push(one);
                }
                Ok(Part::Many(all))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let faults = read([("f", text)]).faults();
        faults.iter().map(Fault::to_string).collect()
    }

    #[test]
    fn documents_are_one_by_one_or_lists() {
        let text = "# comment\n---\nkind: Tenant\ntenant: a\n---\n- kind: Queue\n  queue: q\n- {kind: Cordon, node: n}\n---\n";
        let found = read([("f", text)]);
        assert_eq!(found.faults(), []);
        let kinds: Vec<_> = found
            .all
            .iter()
            .map(|one| (one.kind, one.place.number, one.place.line))
            .collect();
        assert_eq!(
            kinds,
            [
                (Kind::Tenant, 1, 3),
                (Kind::Queue, 2, 6),
                (Kind::Cordon, 3, 8)
            ]
        );
        assert!(read([("f", "")]).all.is_empty());
    }

    #[test]
    fn a_fault_says_where_it_is_and_what_to_write() {
        let check = |text: &str, expected: &str| assert_eq!(faults(text), [expected], "{text}");
        check(
            "tenant: a",
            "f:1: document 1: kind: it is missing: say what is set, such as kind: Quota",
        );
        check(
            "kind: Tenants",
            "f:1: document 1: kind: Tenants: there is no such kind; did you mean Tenant?",
        );
        check(
            "kind: 7",
            "f:1: document 1: kind: 7: write the name of a kind, such as Quota",
        );
        check(
            "kind: Quota\naccount: a\nresource: cpu\nhrad: 4",
            "f:4: document 1, Quota: hrad: there is no such field; did you mean hard?",
        );
        let node = faults("kind: Node\nnode: n");
        assert!(node[0].contains("apportion node approve"), "{node:?}");
        let period = faults("kind: Period\nmonth: 202611");
        assert!(period[0].contains("apportion invoice close"), "{period:?}");
        for bad in [
            "just text",
            "kind: Tenant\ntenant: a\ntenant: b",
            "a: [",
            "- 1",
            "{kind: Tenant",
            "? [a]\n: b",
        ] {
            let found = faults(bad);
            assert!(
                found.len() == 1 && found[0].starts_with("f:"),
                "{bad}: {found:?}"
            );
        }
    }

    #[test]
    fn all_faults_are_told_in_the_order_of_the_file() {
        assert_eq!(faults("kind: A\n---\nkind: B\n").len(), 2);
        let several = "kind: Tenant\ntenant: a\nwieght: 2\nchort: c\n---\nkind: B\n";
        let found = faults(several);
        let lines = found.iter().map(|fault| fault.split(": ").next());
        let lines: Vec<_> = lines.flatten().collect();
        assert_eq!(lines, ["f:3", "f:4", "f:6"], "{found:?}");
    }
}
