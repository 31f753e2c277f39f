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
    place: Place,
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
    pub fn fault(&self, wrong: &Wrong) -> String {
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

    pub fn fault(&self, kind: Option<Kind>, wrong: &Wrong) -> String {
        let name = wrong.field.split(['.', '[']).next().unwrap_or_default();
        let line = self.lines.get(name).unwrap_or(&self.line);
        let (file, number) = (&self.file, self.number);
        let kind = kind.map_or(String::new(), |kind| format!(", {}", kind.name()));
        let field = match wrong.field.as_str() {
            "" => String::new(),
            field => format!("{field}: "),
        };
        format!(
            "{file}:{line}: document {number}{kind}: {field}{}",
            wrong.why
        )
    }
}

/// All settings of a file, or what is wrong with it.
pub fn read(file: &str, text: &str) -> Result<Vec<Document>, Vec<String>> {
    let all = written(file, text)?.into_iter();
    gathered(all.map(|(fields, place)| Document::of(fields, place)))
}

/// All of them, or all faults.
pub fn gathered<T>(all: impl Iterator<Item = Result<T, String>>) -> Result<Vec<T>, Vec<String>> {
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
pub fn written(file: &str, text: &str) -> Result<Vec<(Fields, Place)>, Vec<String>> {
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
fn mappings(file: &str, text: &str, before: u64) -> Result<Vec<(u64, Written)>, String> {
    // A node may be called n, which is no.
    let options = serde_saphyr::options! { strict_booleans: true };
    let parts: Vec<Spanned<Part>> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| {
            let line = error.location().map_or(0, |location| location.line()) + before;
            let error = error.without_snippet().to_string();
            format!("{file}:{line}: {error}")
        })?;
    let mut all = Vec::new();
    for part in parts {
        match part.value {
            Part::One(written) => all.push((part.referenced.line(), written)),
            Part::Many(many) => {
                all.extend(
                    many.into_iter()
                        .map(|one| (one.referenced.line(), one.value)),
                );
            }
        }
    }
    for (line, written) in &mut all {
        *line += before;
        for line in written.lines.values_mut() {
            *line += before;
        }
    }
    Ok(all)
}

impl Document {
    fn of(mut fields: Fields, place: Place) -> Result<Self, String> {
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
        if let Err(wrong) = fields::known(&fields, kind.field_names()) {
            return Err(place.fault(Some(kind), &wrong));
        }
        Ok(Self {
            kind,
            fields,
            place,
        })
    }
}

enum Part {
    One(Written),
    Many(Vec<Spanned<Written>>),
}

/// A mapping, with the line of each of its fields.
struct Written {
    fields: Fields,
    lines: BTreeMap<String, u64>,
}

impl Written {
    fn of<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let (mut fields, mut lines) = (Fields::new(), BTreeMap::new());
        while let Some((name, value)) = map.next_entry::<String, Spanned<Value>>()? {
            lines.insert(name.clone(), value.referenced.line());
            if fields.insert(name.clone(), value.value).is_some() {
                return Err(de::Error::custom(format!("{name} stands there twice")));
            }
        }
        Ok(Self { fields, lines })
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Mapping;
        impl<'de> Visitor<'de> for Mapping {
            type Value = Written;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("fields and their values")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Written, A::Error> {
                Written::of(map)
            }
        }
        deserializer.deserialize_map(Mapping)
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
                Written::of(map).map(Part::One)
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
        read("f", text).err().unwrap_or_default()
    }

    #[test]
    fn documents_are_one_by_one_or_lists() {
        let text = "# comment\n---\nkind: Tenant\ntenant: a\n---\n- kind: Queue\n  queue: q\n- {kind: Cordon, node: n}\n---\n";
        let found = read("f", text).unwrap();
        let kinds: Vec<_> = found
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
        assert!(read("f", "").unwrap().is_empty());
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
    fn all_faults_are_told() {
        assert_eq!(faults("kind: A\n---\nkind: B\n").len(), 2);
    }
}
