//! Events encoded in columns.

use vocab::Event;
use wire::{Columns, Oneof, Rows};

/// Field number of a frame's columns in the contract. The key of the field takes one byte.
const FIELD: u32 = 13;

/// Decodes columns as a frame contains them, without the key and the length of their field.
pub fn rows(input: &[u8]) -> bool {
    let Some(events) = read(input) else {
        return false;
    };
    let written = write(&events);
    let again = read(&written).expect("written columns are readable");
    assert!(again == events, "{events:?}\n{again:?}");
    assert_eq!(write(&again), written, "equal events have equal encodings");
    true
}

/// Returns the events in order; `None` if the columns are inconsistent.
fn read(bytes: &[u8]) -> Option<Vec<Event>> {
    let rows = Rows::parse(bytes).ok()?;
    let runs = rows.runs().ok()?;
    let mut of_numbers = std::collections::BTreeMap::new();
    for (number, count) in &runs {
        *of_numbers.entry(*number).or_insert(0_usize) += *count as usize;
    }
    let mut of_kinds = std::collections::BTreeMap::new();
    for (number, count) in of_numbers {
        let mut events: Vec<Event> = Vec::new();
        rows.read(number, &mut events).ok()?;
        (events.len() == count).then_some(())?;
        of_kinds.insert(number, events.into_iter());
    }
    let mut events = Vec::new();
    for (number, count) in runs {
        events.extend(of_kinds.get_mut(&number)?.by_ref().take(count as usize));
    }
    Some(events)
}

fn write<T: Oneof>(events: &[T]) -> Vec<u8> {
    let mut columns = Columns::default();
    events.iter().for_each(|event| columns.push(event));
    assert!(
        columns.fit(),
        "events that were read exceed the limits of columns"
    );
    let mut field = Vec::new();
    columns.append_field(FIELD, &mut field);
    let mut body = &field[1..];
    let length = prost::encoding::decode_varint(&mut body).expect("a field has a length");
    assert_eq!(length, body.len() as u64);
    body.to_vec()
}
