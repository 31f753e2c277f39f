//! What the server is to say of the views and their columns: the text above a view's statement, and a list of columns.

/// By hand; a test asks for every column.
const COLUMNS: &str = include_str!("../../../../schemas/clickhouse/view_columns.txt");

/// The comment right above a view's statement, as one line; an indented line stays one of its own.
pub fn of_view(statement: &str) -> String {
    let lines = statement.lines();
    let above: Vec<&str> = lines
        .take_while(|line| !line.starts_with("CREATE "))
        .collect();
    let block = above.rsplit(|line| line.trim().is_empty()).next();
    let mut text = String::new();
    for line in block.unwrap_or_default() {
        let line = line.trim_start_matches("--");
        let line = line.strip_prefix(' ').unwrap_or(line);
        if !text.is_empty() {
            text.push(if line.starts_with(' ') { '\n' } else { ' ' });
        }
        text.push_str(line);
    }
    text
}

/// The view's own entry, or that of all columns of the name.
pub fn of_column(view: &str, column: &str) -> Option<&'static str> {
    let find = |name: &str| {
        let mut entries = COLUMNS.lines().filter_map(|line| line.split_once(": "));
        entries.find_map(|(key, text)| (key == name).then_some(text))
    };
    find(&format!("{view}.{column}")).or_else(|| find(column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_above_a_view_is_its_comment() {
        let check = |statement: &str, expected: &str| assert_eq!(of_view(statement), expected);
        check(
            "-- A file.\n\n-- One\n-- two.\nCREATE VIEW b AS\n-- c\nSELECT c",
            "One two.",
        );
        check(
            "\n-- Kinds:\n--   one    two\n--   three  four\nCREATE VIEW b",
            "Kinds:\n  one    two\n  three  four",
        );
        check("CREATE VIEW b AS\n-- c\nSELECT c", "");
    }

    #[test]
    fn a_views_own_word_goes_first() {
        assert_eq!(of_column("waits", "tenant"), Some("Whose it was."));
        assert_eq!(of_column("run_costs", "tenant"), Some("Who pays."));
        assert_eq!(of_column("run_costs", "nothing"), None);
    }
}
