//! The document as Markdown: the same contract makes the same bytes.

use crate::bus_doc::{
    contract::{Contract, Item, comment, file_comment, name},
    example,
    subjects::{self, Party, Subject},
};
use protox::prost_reflect::{
    EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor,
};
use std::fmt::Write;
use vocab::Rule;

const SECTIONS: [(Party, &str, &str); 3] = [
    (
        Party::Tenant,
        "Messages of tenants and operators",
        "What is published by tenants and operators and what comes back, and everything inside of these messages.",
    ),
    (
        Party::Agent,
        "Messages of node agents",
        "What agents and node-heartbeat say to each other, as far as it was not among the tenants' messages.",
    ),
    (
        Party::Service,
        "The ledger",
        "For services only; nobody else may publish or read it. It stands here so that the list is complete.",
    ),
];

/// Sentences in a rule's comment that have a column of their own.
const RETRYABLE: &str = "Retryable.";
const NOT_REMEMBERED: &str = "Not remembered.";
const NOT_RECORDED: &str = "Nothing of it was recorded.";

pub fn render(contract: &Contract, introduction: &str) -> String {
    let mut page = fill(introduction, &markers(contract));
    for (party, title, about) in SECTIONS {
        write!(page, "\n## {title}\n\n{about}\n").unwrap();
        for file in contract.files() {
            let items = contract.items(&file, party);
            if items.is_empty() {
                continue;
            }
            let short = file.name().rsplit('/').next().unwrap_or_default();
            write!(page, "\nIn `{short}`. {}\n", prose(&file_comment(&file))).unwrap();
            for item in items {
                render_item(&mut page, &file, &item);
            }
        }
    }
    page
}

fn markers(contract: &Contract) -> Vec<(String, String)> {
    let mut all = subjects::markers();
    all.push(("subjects".to_owned(), subject_table()));
    all.push(("streams".to_owned(), stream_table()));
    all.extend(example::markers(contract));
    all
}

/// Every marker must stand for something.
fn fill(text: &str, markers: &[(String, String)]) -> String {
    let mut filled = text.to_owned();
    for (marker, with) in markers {
        filled = filled.replace(&format!("{{{{{marker}}}}}"), with);
    }
    if let Some((_, rest)) = filled.split_once("{{") {
        let marker = rest.split("}}").next().unwrap_or_default();
        panic!("nothing is known of the marker {marker}");
    }
    filled
}

/// To the heading of a message, by the name that GitHub gives it.
fn link(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase().replace('.', ""))
}

fn subject_table() -> String {
    let mut table = "| subject | who publishes | who hears | how | message | headers |\n|---|---|---|---|---|---|\n".to_owned();
    for row in subjects::subjects() {
        let Subject {
            subject,
            publishes,
            hears,
            transport,
            payload,
            headers,
            ..
        } = row;
        let payload = payload.iter().map(|name| link(name)).collect::<Vec<_>>();
        let headers = headers
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>();
        let (payload, headers) = (payload.join(", answered by "), headers.join(", "));
        writeln!(
            table,
            "| `{subject}` | {publishes} | {hears} | {transport} | {payload} | {headers} |"
        )
        .unwrap();
    }
    table.trim_end().to_owned()
}

fn stream_table() -> String {
    let mut table = "| stream | holds |\n|---|---|\n".to_owned();
    for row in subjects::streams() {
        writeln!(table, "| `{}` | {} |", row.name, row.holds).unwrap();
    }
    table.trim_end().to_owned()
}

fn render_item(page: &mut String, file: &FileDescriptor, item: &Item) {
    for above in item.heading_comments() {
        write!(page, "\n{}\n", prose(&above)).unwrap();
    }
    write!(page, "\n### {}\n", item.name()).unwrap();
    let about = prose(&item.comment());
    if !about.is_empty() {
        write!(page, "\n{about}\n").unwrap();
    }
    match item {
        Item::Message(message) => render_message(page, file, message),
        Item::Enum(of) if of.name() == "Rule" => render_rules(page, file, of),
        Item::Enum(of) => render_enum(page, file, of),
    }
}

fn render_message(page: &mut String, file: &FileDescriptor, message: &MessageDescriptor) {
    if message.fields().len() == 0 {
        page.push_str("\nIt has no fields.\n");
        return;
    }
    page.push_str("\n| number | field | type | label | meaning |\n|---|---|---|---|---|\n");
    let mut fields: Vec<FieldDescriptor> = message.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    for field in fields {
        writeln!(
            page,
            "| {} | `{}` | {} | {} | {} |",
            field.number(),
            field.name(),
            type_name(&field.kind()),
            label(&field),
            cell(&comment(file, field.path()))
        )
        .unwrap();
    }
}

fn type_name(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => link(name(message.full_name())),
        Kind::Enum(of) => link(name(of.full_name())),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn label(field: &FieldDescriptor) -> String {
    match field.containing_oneof() {
        Some(group) if group.is_synthetic() => "optional".to_owned(),
        Some(group) => format!("one of `{}`", group.name()),
        None if field.is_list() => "repeated".to_owned(),
        None => String::new(),
    }
}

fn render_enum(page: &mut String, file: &FileDescriptor, of: &EnumDescriptor) {
    page.push_str("\n| number | value | meaning |\n|---|---|---|\n");
    for value in of.values() {
        let about = cell(&comment(file, value.path()));
        writeln!(
            page,
            "| {} | `{}` | {about} |",
            value.number(),
            value.name()
        )
        .unwrap();
    }
}

/// A test of admission compares these rows with the rules that it has.
fn render_rules(page: &mut String, file: &FileDescriptor, of: &EnumDescriptor) {
    page.push_str(
        "\n| number | value | retryable | remembered | meaning | what lets it pass |\n|---|---|---|---|---|---|\n",
    );
    let yes = |it: bool| if it { "yes" } else { "no" };
    for value in of.values().filter(|value| value.number() != 0) {
        let about = cell(&comment(file, value.path()));
        let retryable = about.contains(RETRYABLE);
        let remembered = !about.contains(NOT_REMEMBERED) && !about.contains(NOT_RECORDED);
        let about = about.replace(RETRYABLE, "").replace(NOT_REMEMBERED, "");
        writeln!(
            page,
            "| {} | `{}` | {} | {} | {} | {} |",
            value.number(),
            value.name(),
            yes(retryable),
            yes(remembered),
            about.split_whitespace().collect::<Vec<_>>().join(" "),
            passes(value.number())
        )
        .unwrap();
    }
}

/// What refusals of a rule end with.
fn passes(number: i32) -> String {
    let rule = Rule::from_number(number);
    let rule = rule.unwrap_or_else(|| panic!("vocab has no rule {number}"));
    plain(rule.teaching().passes)
}

/// A comment between paragraphs of Markdown.
fn prose(comment: &str) -> String {
    let lines: Vec<&str> = comment.lines().map(str::trim).collect();
    let paragraphs = lines.split(|line| line.is_empty());
    let joined = paragraphs.map(|lines| plain(&lines.join(" ")));
    joined.collect::<Vec<_>>().join("\n\n")
}

/// A comment inside of a table.
fn cell(comment: &str) -> String {
    plain(&comment.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Comments are text: what Markdown would take for markup is escaped, except for code.
fn plain(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(i, part)| {
        let part = part.replace('|', "\\|");
        if i % 2 == 0 {
            part.replace('<', "&lt;").replace('*', "\\*")
        } else {
            part
        }
    });
    parts.collect::<Vec<_>>().join("`")
}
