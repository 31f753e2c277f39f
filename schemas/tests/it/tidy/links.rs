//! What a document points at is there.

use super::{root, sources};
use std::path::Path;

/// The targets of the links of a text in Markdown.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let behind = text.split("](").skip(1);
    behind.filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

/// Of a file or a folder of the project, without the place in it.
fn local(target: &str) -> Option<&str> {
    let (path, _) = target.split_once('#').unwrap_or((target, ""));
    let elsewhere = path.contains("://") || path.starts_with("mailto:") || path.contains(' ');
    (!path.is_empty() && !elsewhere).then_some(path)
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let (mut read, mut dead) = (0, Vec::new());
    // What `docs/bus.md` begins with is read there.
    let documents = sources(".", ".md").into_iter();
    for (path, text) in documents.filter(|(path, _)| !path.contains("/schemas/bus/")) {
        let folder = Path::new(&path).parent().unwrap_or(Path::new("."));
        for target in links(&text).filter_map(local) {
            read += 1;
            if !folder.join(target).exists() {
                dead.push(format!("{path}: {target}"));
            }
        }
    }
    assert!(read > 100, "the documents have {read} links");
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn a_link_is_what_stands_between_the_brackets() {
    let text = "See [a](docs/a.md#part), [b](https://example.org) and [c](#here).";
    let found: Vec<_> = links(text).filter_map(local).collect();
    assert_eq!(found, ["docs/a.md"]);
    assert!(root().join("README.md").exists());
}
