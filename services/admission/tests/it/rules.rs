//! What docs/bus.md says of retries is what admission does.

use admission_rules::is_kept;
use schemas::v1;
use vocab::Rule;

const DOCUMENT: &str = include_str!("../../../../docs/bus.md");

/// The document takes it from the words "Not remembered." or "Nothing of it was recorded." in the .proto file's comment.
#[test]
fn the_document_says_which_refusals_are_remembered() {
    let wrong: Vec<String> = Rule::ALL
        .iter()
        .filter_map(|rule| {
            let proto = v1::Rule::try_from(rule.number()).ok()?.as_str_name();
            let remembered = if is_kept(*rule) { "yes" } else { "no" };
            let begins = format!("| {} | `{proto}` | ", rule.number());
            let row = DOCUMENT.lines().find_map(|line| line.strip_prefix(&begins));
            let said = row.and_then(|row| row.split(" | ").nth(1));
            (said != Some(remembered)).then(|| format!("{proto}: {remembered}, not {said:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "docs/bus.md: {}", wrong.join("\n"));
}
