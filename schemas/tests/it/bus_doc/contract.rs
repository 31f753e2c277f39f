//! The .proto files as their descriptors have them, comments included, and who needs which message.

use crate::bus_doc::subjects::{self, Party};
use protox::prost_reflect::{
    DescriptorPool, EnumDescriptor, FileDescriptor, Kind, MessageDescriptor,
    prost_types::source_code_info::Location,
};
use std::collections::BTreeMap;

const PACKAGE: &str = "apportion.v1";
/// The tag of `package` in a file's descriptor. The comment at the top of a file stands before it.
const PACKAGE_PATH: &[i32] = &[2];

pub struct Contract {
    pool: DescriptorPool,
    /// By full name: the first party, in their order, that meets it on a subject of its own.
    parties: BTreeMap<String, Party>,
}

/// A message or an enumeration.
#[derive(Clone)]
pub enum Item {
    Message(MessageDescriptor),
    Enum(EnumDescriptor),
}

impl Item {
    pub fn name(&self) -> &str {
        name(self.full_name())
    }

    fn full_name(&self) -> &str {
        match self {
            Self::Message(message) => message.full_name(),
            Self::Enum(of) => of.full_name(),
        }
    }

    fn path(&self) -> &[i32] {
        match self {
            Self::Message(message) => message.path(),
            Self::Enum(of) => of.path(),
        }
    }

    fn file(&self) -> FileDescriptor {
        match self {
            Self::Message(message) => message.parent_file(),
            Self::Enum(of) => of.parent_file(),
        }
    }

    pub fn comment(&self) -> String {
        comment(&self.file(), self.path())
    }

    /// What is written above the comment, with an empty line between: it is about this and what comes after it.
    pub fn heading_comments(&self) -> Vec<String> {
        let file = self.file();
        let found = location(&file, self.path());
        found.map_or_else(Vec::new, |found| found.leading_detached_comments.clone())
    }
}

/// A full name without the package that all of them are in.
pub fn name(full_name: &str) -> &str {
    let inside = full_name.strip_prefix(PACKAGE);
    inside.map_or(full_name, |name| name.trim_start_matches('.'))
}

fn location<'f>(file: &'f FileDescriptor, path: &[i32]) -> Option<&'f Location> {
    let info = file.file_descriptor_proto().source_code_info.as_ref()?;
    info.location.iter().find(|one| one.path == path)
}

/// What is written above or behind a place of a file; empty when nothing is.
pub fn comment(file: &FileDescriptor, path: &[i32]) -> String {
    let Some(found) = location(file, path) else {
        return String::new();
    };
    let parts = [found.leading_comments(), found.trailing_comments()];
    parts.map(str::trim).join("\n").trim().to_owned()
}

impl Contract {
    /// The descriptors that other languages get, too: `protox` puts the comments into them.
    pub fn load() -> Self {
        let pool = DescriptorPool::decode(schemas::FILE_DESCRIPTOR_SET).unwrap();
        let mut contract = Self {
            pool,
            parties: BTreeMap::new(),
        };
        let mut rows = subjects::subjects();
        rows.sort_by_key(|row| row.party);
        for row in rows {
            for name in row.payload {
                let message = contract.message(name);
                contract.reach(Item::Message(message), row.party);
            }
        }
        contract
    }

    pub fn message(&self, name: &str) -> MessageDescriptor {
        self.pool
            .get_message_by_name(&format!("{PACKAGE}.{name}"))
            .unwrap_or_else(|| panic!("there is no message {name}"))
    }

    fn reach(&mut self, item: Item, party: Party) {
        if self.parties.contains_key(item.full_name()) {
            return;
        }
        self.parties.insert(item.full_name().to_owned(), party);
        let Item::Message(message) = item else {
            return;
        };
        for field in message.fields() {
            match field.kind() {
                Kind::Message(inner) => self.reach(Item::Message(inner), party),
                Kind::Enum(inner) => self.reach(Item::Enum(inner), party),
                _ => {}
            }
        }
    }

    /// What is on no subject of tenants or agents is the services' own.
    fn party(&self, item: &Item) -> Party {
        let party = self.parties.get(item.full_name());
        party.copied().unwrap_or(Party::Service)
    }

    /// The parties' own files first, then what they share, by name; the ledger last.
    pub fn files(&self) -> Vec<FileDescriptor> {
        let rank = |name: &str| match name.rsplit('/').next() {
            Some("tenant.proto") => 0,
            Some("node.proto") => 1,
            Some("ledger.proto") => 3,
            _ => 2,
        };
        let mut files: Vec<_> = self.pool.files().collect();
        files.retain(|file| file.package_name() == PACKAGE);
        files.sort_by_key(|file| (rank(file.name()), file.name().to_owned()));
        files
    }

    /// What of a file is a party's, in the order in which it is written there.
    pub fn items(&self, file: &FileDescriptor, party: Party) -> Vec<Item> {
        let mut items: Vec<Item> = items(file);
        items.retain(|item| self.party(item) == party);
        items
    }

    /// Fields and values that a tenant or an agent would have to guess.
    pub fn without_comment(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for file in self.files() {
            for item in items(&file) {
                if self.party(&item) != Party::Service {
                    missing.extend(nameless(&file, &item));
                }
            }
        }
        missing
    }

    /// What stands in a party's own file and is on none of its subjects.
    pub fn off_the_bus(&self) -> Vec<String> {
        let own = ["/tenant.proto", "/node.proto"];
        let files = self.files().into_iter();
        files
            .filter(|file| own.iter().any(|name| file.name().ends_with(name)))
            .flat_map(|file| self.items(&file, Party::Service))
            .map(|item| item.name().to_owned())
            .collect()
    }
}

/// Everything that a file declares, also inside of messages, in the order in which it stands there.
fn items(file: &FileDescriptor) -> Vec<Item> {
    let mut items: Vec<Item> = file.enums().map(Item::Enum).collect();
    let mut messages: Vec<MessageDescriptor> = file.messages().collect();
    while let Some(message) = messages.pop() {
        assert!(!message.is_map_entry(), "the document shows no maps");
        messages.extend(message.child_messages());
        items.extend(message.child_enums().map(Item::Enum));
        items.push(Item::Message(message));
    }
    items.sort_by_key(|item| line(file, item.path()));
    items
}

fn line(file: &FileDescriptor, path: &[i32]) -> i32 {
    location(file, path).map_or(0, |found| found.span[0])
}

/// The comment at the top of a file.
pub fn file_comment(file: &FileDescriptor) -> String {
    comment(file, PACKAGE_PATH)
}

fn nameless(file: &FileDescriptor, item: &Item) -> Vec<String> {
    let without = |path: &[i32]| comment(file, path).is_empty();
    let of_item = |part: &str| format!("  {}: {}.{part}", file.name(), item.name());
    match item {
        Item::Message(message) => message
            .fields()
            .filter(|field| without(field.path()))
            .map(|field| of_item(field.name()))
            .collect(),
        Item::Enum(of) => of
            .values()
            .filter(|value| value.number() != 0 && without(value.path()))
            .map(|value| of_item(value.name()))
            .collect(),
    }
}
