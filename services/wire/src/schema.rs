//! Whether the derived types are what the .proto files say.

use crate::{
    EnumDescriptor, FieldDescriptor, Kind, Label, Message, MessageDescriptor, Result, Wire,
};

// What is needed of google/protobuf/descriptor.proto. Its numbers are none of them negative, so that `u32` reads them.

#[derive(Wire)]
struct FileDescriptorSet {
    #[wire(1)]
    file: Vec<FileDescriptorProto>,
}

#[derive(Wire)]
struct FileDescriptorProto {
    #[wire(4)]
    message_type: Vec<DescriptorProto>,
    #[wire(5)]
    enum_type: Vec<EnumDescriptorProto>,
}

#[derive(Wire)]
struct DescriptorProto {
    #[wire(1)]
    name: String,
    #[wire(2)]
    field: Vec<FieldDescriptorProto>,
    #[wire(3)]
    nested_type: Vec<DescriptorProto>,
    #[wire(4)]
    enum_type: Vec<EnumDescriptorProto>,
    #[wire(8)]
    oneof_decl: Vec<OneofDescriptorProto>,
}

#[derive(Wire)]
struct FieldDescriptorProto {
    #[wire(1)]
    name: String,
    #[wire(3)]
    number: u32,
    #[wire(4)]
    label: u32,
    #[wire(5, name = "type")]
    kind: u32,
    #[wire(6)]
    type_name: String,
    #[wire(9, optional)]
    oneof_index: Option<u32>,
    #[wire(17)]
    proto3_optional: bool,
}

#[derive(Wire)]
struct OneofDescriptorProto {
    #[wire(1)]
    name: String,
}

#[derive(Wire)]
struct EnumDescriptorProto {
    #[wire(1)]
    name: String,
    #[wire(2)]
    value: Vec<EnumValueDescriptorProto>,
}

#[derive(Wire)]
struct EnumValueDescriptorProto {
    #[wire(1)]
    name: String,
    #[wire(2)]
    number: u32,
}

/// Of one message, or of one enum, what there is to compare; a line for each field or value.
fn line(field: &FieldDescriptorProto, oneofs: &[OneofDescriptorProto]) -> String {
    let label = match (field.label, field.proto3_optional) {
        (3, _) => "repeated ",
        (_, true) => "optional ",
        _ => "",
    };
    let kind = match field.kind {
        3 => "int64",
        4 => "uint64",
        8 => "bool",
        9 => "string",
        12 => "bytes",
        13 => "uint32",
        17 => "sint32",
        11 | 14 => field.type_name.rsplit('.').next().unwrap_or_default(),
        _ => "of another kind",
    };
    let oneof = (field.oneof_index.filter(|_| !field.proto3_optional))
        .and_then(|at| oneofs.get(at as usize))
        .map_or(String::new(), |oneof| format!(" in {}", oneof.name));
    format!("{label}{kind} {} = {}{oneof}", field.name, field.number)
}

fn our_line(field: &FieldDescriptor, oneof: Option<&str>) -> String {
    let label = match field.shape.label {
        Label::Implicit => "",
        Label::Optional => "optional ",
        Label::Repeated => "repeated ",
    };
    let last = |name: &'static str| name.rsplit('.').next().unwrap_or_default();
    let kind = match field.shape.kind {
        Kind::Int64 => "int64",
        Kind::Uint64 => "uint64",
        Kind::Bool => "bool",
        Kind::String => "string",
        Kind::Bytes(_) => "bytes",
        Kind::Uint32 => "uint32",
        Kind::Sint32 => "sint32",
        Kind::Enum(descriptor) => last(descriptor.name),
        Kind::Message(descriptor) => last(descriptor().name),
    };
    let oneof = oneof.map_or(String::new(), |name| format!(" in {name}"));
    format!("{label}{kind} {} = {}{oneof}", field.name, field.number)
}

/// The schema's messages and enums by their names, without the package.
#[derive(Default)]
struct Schema<'a> {
    messages: Vec<(String, &'a DescriptorProto)>,
    enums: Vec<(String, &'a EnumDescriptorProto)>,
}

impl<'a> Schema<'a> {
    fn add(&mut self, above: &str, message: &'a DescriptorProto) {
        let name = format!("{above}{}", message.name);
        let within = format!("{name}.");
        let enums = message.enum_type.iter();
        self.enums
            .extend(enums.map(|it| (format!("{within}{}", it.name), it)));
        for nested in &message.nested_type {
            self.add(&within, nested);
        }
        self.messages.push((name, message));
    }
}

struct Comparison<'a> {
    schema: Schema<'a>,
    /// The messages that lie around the one that is compared.
    around: Vec<&'static str>,
    found: Vec<String>,
}

impl Comparison<'_> {
    fn lists(&mut self, name: &str, ours: &[String], theirs: &[String]) {
        let only = |these: &[String], those: &[String], where_: &str| -> Vec<String> {
            let lone = these.iter().filter(|line| !those.contains(line));
            lone.map(|line| format!("{name}: `{line}` only in {where_}"))
                .collect()
        };
        self.found.extend(only(ours, theirs, "the derived type"));
        self.found.extend(only(theirs, ours, "the schema"));
    }

    fn message(&mut self, message: &'static MessageDescriptor) {
        let oneofs = message.oneofs.iter().flat_map(|oneof| {
            let fields = oneof.fields.iter();
            fields.map(|field| (field, Some(oneof.name)))
        });
        let fields = message.fields.iter().map(|field| (field, None));
        let fields: Vec<_> = fields.chain(oneofs).collect();
        let ours: Vec<_> = fields
            .iter()
            .map(|(field, oneof)| our_line(field, *oneof))
            .collect();
        match self
            .schema
            .messages
            .iter()
            .find(|(name, _)| name == message.name)
        {
            None => self
                .found
                .push(format!("{} is not in the schema", message.name)),
            Some((_, known)) => {
                let theirs = known
                    .field
                    .iter()
                    .map(|field| line(field, &known.oneof_decl));
                let theirs: Vec<_> = theirs.collect();
                self.lists(message.name, &ours, &theirs);
            }
        }
        // Each time that it is met: variants of oneofs may be the same message, and say its fields each by itself.
        self.around.push(message.name);
        for (field, _) in fields {
            match field.shape.kind {
                Kind::Message(inner) if self.around.contains(&inner().name) => {}
                Kind::Message(inner) => self.message(inner()),
                Kind::Enum(inner) => self.enumeration(inner),
                _ => {}
            }
        }
        self.around.pop();
    }

    fn enumeration(&mut self, ours: &'static EnumDescriptor) {
        let Some((_, known)) = self.schema.enums.iter().find(|(name, _)| name == ours.name) else {
            return self
                .found
                .push(format!("{} is not in the schema", ours.name));
        };
        let has_zero = ours.values.iter().any(|value| value.number == 0);
        let theirs = known
            .value
            .iter()
            .filter(|value| has_zero || value.number != 0);
        let theirs: Vec<_> = theirs
            .map(|it| format!("{} = {}", it.name, it.number))
            .collect();
        let values = ours.values.iter();
        let values: Vec<_> = values
            .map(|it| format!("{} = {}", it.name, it.number))
            .collect();
        self.lists(ours.name, &values, &theirs);
    }
}

/// In what the message, and all that is in it, differs from an encoded `google.protobuf.FileDescriptorSet`: numbers, names,
/// types, labels and oneofs of the fields, numbers and names of enums. Names are compared without their package.
pub fn differences(
    message: &'static MessageDescriptor,
    file_descriptor_set: &[u8],
) -> Result<Vec<String>> {
    let set = FileDescriptorSet::decode(file_descriptor_set)?;
    let mut schema = Schema::default();
    for file in &set.file {
        schema
            .enums
            .extend(file.enum_type.iter().map(|it| (it.name.clone(), it)));
        for message in &file.message_type {
            schema.add("", message);
        }
    }
    let mut comparison = Comparison {
        schema,
        around: Vec::new(),
        found: Vec::new(),
    };
    comparison.message(message);
    comparison.found.sort();
    comparison.found.dedup();
    Ok(comparison.found)
}
