//! The named resources: a record of one cache line each, found by name with one look into a dense index.

use super::index::{Index, ResourceNo};
use serde::Deserialize;
use vocab::{LeaseNo, Token};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    name: Name,
    /// Counts the transitions of its state since it was created.
    pub version: u64,
    /// The one live lease that it is in.
    pub holder: Option<LeaseNo>,
}

/// Resources are only ever added.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "Vec<(Token, u64)>")]
pub struct Resources {
    records: Vec<Resource>,
    index: Index,
}

impl PartialEq for Resources {
    fn eq(&self, other: &Self) -> bool {
        self.records == other.records
    }
}

impl Eq for Resources {}

impl Resources {
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn find(&self, name: &Token) -> Option<ResourceNo> {
        let is_it = |no: ResourceNo| self.get(no).is_some_and(|found| found.name.is(name));
        self.index.find(name, is_it)
    }

    pub fn get(&self, no: ResourceNo) -> Option<&Resource> {
        self.records.get(no as usize)
    }

    pub fn get_mut(&mut self, no: ResourceNo) -> Option<&mut Resource> {
        self.records.get_mut(no as usize)
    }

    pub fn name(&self, no: ResourceNo) -> Option<Token> {
        self.get(no).map(|resource| resource.name.token())
    }

    /// A new resource that nobody holds. The name must not be there yet.
    pub fn add(&mut self, name: &Token, version: u64) -> Option<ResourceNo> {
        let no = ResourceNo::try_from(self.records.len()).ok()?;
        if no == Index::NOBODY || self.find(name).is_some() {
            return None;
        }
        self.records.push(Resource {
            name: Name::of(name),
            version,
            holder: None,
        });
        self.index.insert(name, no);
        Some(no)
    }

    /// Names and versions in the order of creation.
    pub fn content(&self) -> impl ExactSizeIterator<Item = (Token, u64)> {
        let records = self.records.iter();
        records.map(|resource| (resource.name.token(), resource.version))
    }
}

/// Most names are short, and lie beside the state that they name: one miss of the cache instead of three.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Short {
        length: u8,
        bytes: [u8; Self::SHORT],
    },
    Long(Token),
}

impl Name {
    /// As many as make a record 64 bytes.
    const SHORT: usize = 38;

    fn of(name: &Token) -> Self {
        let text = name.as_str().as_bytes();
        let mut bytes = [0; Self::SHORT];
        match bytes.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text);
                // A length up to SHORT fits.
                let length = text.len() as u8;
                Self::Short { length, bytes }
            }
            None => Self::Long(name.clone()),
        }
    }

    fn is(&self, name: &Token) -> bool {
        match self {
            Self::Short { length, bytes } => {
                bytes[..usize::from(*length)] == *name.as_str().as_bytes()
            }
            Self::Long(long) => long == name,
        }
    }

    fn token(&self) -> Token {
        match self {
            Self::Short { length, bytes } => {
                let text = std::str::from_utf8(&bytes[..usize::from(*length)]);
                let token = text.ok().and_then(|text| Token::new(text).ok());
                // The bytes are those of a token.
                token.expect("a token's bytes make a token")
            }
            Self::Long(token) => token.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_cache_line() {
        assert_eq!(size_of::<Resource>(), 64);
    }

    #[test]
    fn names_of_all_lengths_are_found_again() {
        let mut resources = Resources::default();
        let name = |length: usize, end: &str| {
            Token::new(&format!("{}{end}", "x".repeat(length - 1))).unwrap()
        };
        let mut names: Vec<_> = (1..=64)
            .flat_map(|length| ["a", "b"].map(|end| name(length, end)))
            .collect();
        // Enough that the index grows a few times.
        names.extend((0..5000).map(|no| name(2, &no.to_string())));
        for (no, name) in (0..).zip(&names) {
            assert_eq!(resources.find(name), None);
            assert_eq!(resources.add(name, 0), Some(no));
            assert_eq!(resources.add(name, 0), None, "{name} is there");
        }
        for (no, name) in (0..).zip(&names) {
            assert_eq!(resources.find(name), Some(no));
            assert_eq!(resources.name(no).as_ref(), Some(name));
        }
        assert_eq!(resources.len(), names.len());
    }
}
