//! The tables of the commands on a terminal of 80 columns.

use super::{
    Cell, Look, Sheet, absent, allocation, moment, number, plain, quantity, sheet::titles, valued,
};
use crate::{
    bill, job_sets, list, nodes, operation, queues, refusals, reservations, tenants, top, wait,
};
use proptest::{collection::vec, prelude::*};
use unicode_width::UnicodeWidthStr;
use vocab::{Millis, ResourceKind};

/// A cell as a busy cell would have it, with names of this length.
fn cell(key: &str, is_number: bool, length: usize) -> Cell {
    let name = "n".repeat(length);
    match key {
        "allocation_id" | "by" => allocation("00000000-0000-0001-0000-00000000a035"),
        "state" if length > 20 => plain("waits: quota exceeded"),
        "state" => plain("started"),
        key if key.ends_with("age_ms") => valued("12d5h".to_owned(), 1),
        key if key.ends_with("_ms") => moment(1_800_000_000_000),
        key if key.ends_with("cpu_milli") => quantity(ResourceKind::Cpu, 128_000),
        key if key.ends_with("memory_bytes") => quantity(ResourceKind::Memory, 512 << 30),
        key if key.ends_with("gpu_milli") => quantity(ResourceKind::Gpu, 8000),
        key if key.ends_with("ppm") => valued("12.34 %".to_owned(), 1),
        _ if is_number => number(12_345),
        _ => plain(name),
    }
}

fn filled(mut sheet: Sheet, length: usize) -> Sheet {
    let cells = sheet.columns.iter().enumerate();
    let row = cells.map(|(no, column)| cell(column.key, no >= sheet.numbers, length));
    let nothing = sheet.columns.iter().map(|_| absent("-"));
    sheet.rows = vec![row.collect(), nothing.collect()];
    sheet
}

fn lines(sheet: &Sheet, width: usize) -> Vec<String> {
    let look = Look {
        width: Some(width),
        ..Look::default()
    };
    let (text, _) = sheet.for_people(look);
    text.split('\n').map(str::to_owned).collect()
}

fn tables() -> Vec<(&'static str, Sheet)> {
    let usage = bill::usage::Found {
        lines: Vec::new(),
        through: Millis(0),
        currency: "EUR".to_owned(),
        lsn: 0,
    };
    vec![
        ("list", list::sheet(&[], 0)),
        ("wait", wait::sheet(&[])),
        ("queues", queues::sheet(&[], 0)),
        ("preemptions", queues::preempted(&[])),
        ("nodes", nodes::sheet(&[])),
        ("job-sets", job_sets::sheet(&[], None, false, 0)),
        ("tenants", tenants::sheet(&[], [1; 3])),
        ("top", top::sheet("node", &[])),
        ("refusals", refusals::sheet(&[])),
        ("reservations", reservations::sheet(&[])),
        ("operation", operation::sheet(Vec::new())),
        ("budgets", bill::budgets_sheet(&[], true, "EUR")),
        ("usage", bill::usage::sheet(&usage, &[], true)),
    ]
}

#[test]
fn tables_fit_into_eighty_columns_with_what_matters_most() {
    let mut found = Vec::new();
    for (name, sheet) in tables() {
        for (what, length) in [("short", 6), ("long", 64)] {
            let sheet = filled(sheet.clone(), length);
            let lines = lines(&sheet, 80);
            assert!(
                lines.iter().all(|line| line.width() <= 80),
                "{name}: {lines:#?}"
            );
            let look = Look {
                width: Some(80),
                ..Look::default()
            };
            found.push(format!(
                "{name}, {what} names: {}",
                titles(&sheet, look).join(", ")
            ));
        }
    }
    let expected = include_str!("tables.txt");
    assert_eq!(found.join("\n"), expected.trim_end());
}

/// A text or a number.
fn any_cell() -> impl Strategy<Value = Cell> {
    prop_oneof![
        "[a-zäöü漢 ]{0,70}".prop_map(plain),
        any::<u64>().prop_map(number),
        Just(allocation("00000000-0000-0001-0000-00000000a035")),
    ]
}

proptest! {
    /// No line of a table is longer than its terminal, its first column is always there, and without a terminal it is whole.
    #[test]
    fn a_table_fits_into_its_terminal(
        rows in vec(vec(any_cell(), 7), 0..4),
        ranks in vec(0..4u8, 7),
        numbers in 0..=7usize,
        width in 20..200usize,
    ) {
        const KEYS: [&str; 7] = ["a", "b b", "c-c-c-c-c", "d", "eeeeeeeeeeeeee", "f", "g"];
        let columns = KEYS.iter().zip(&ranks);
        let columns = columns.map(|(key, rank)| super::column(key, key).rank(*rank)).collect();
        let sheet = Sheet::new(columns, numbers, rows.clone());
        let lines = lines(&sheet, width);
        prop_assert_eq!(lines.len(), rows.len() + 1);
        for line in &lines {
            prop_assert!(line.width() <= width, "{} {}", width, line);
        }
        prop_assert!(lines[0].contains('a'));
        let (whole, hidden) = sheet.for_people(Look::default());
        prop_assert!(hidden.is_empty());
        for cell in rows.iter().flatten() {
            prop_assert!(whole.contains(cell.text.trim()), "{}", whole);
        }
    }
}
