//! What is recorded, and as lines.

use super::{
    super::{Answer, BadLine, Recorder, Sent, read_lines, write_lines},
    BOUNDS,
    generate::history,
    handmade::{ask, entry},
    token, verdict,
};

#[test]
fn the_recorder_keeps_what_many_tasks_saw_and_answers_that_come_twice() {
    let recorder = Recorder::default();
    let sent = |id: &str| Sent {
        client: token("c"),
        tenant: token("t"),
        operation_id: token(id),
        ask: ask(&["create", "a"]),
    };
    let task = recorder.clone();
    let call = std::thread::spawn(move || task.invoked(sent("x"), 1)).join();
    let call = call.expect("the task ends well");
    recorder.answered(call, 2, 1, Answer::Created);
    recorder.answered(call, 3, 1, Answer::Created);
    recorder.invoked(sent("y"), 4);
    let ledger = vec![entry(&["1", "0", "x", "create", "a"], "created")];
    let good = recorder.history(BOUNDS, ledger.clone());
    assert_eq!((good.calls.len(), verdict(&good)), (3, "holds"));
    recorder.answered(call, 5, 1, Answer::Confirmed);
    assert_eq!(verdict(&recorder.history(BOUNDS, ledger)), "two_outcomes");
}

#[test]
fn lines_that_cannot_be_read_are_named() {
    let empty = Recorder::default().history(BOUNDS, Vec::new());
    let bounds: Vec<String> = write_lines(&empty)
        .map(|line| line.expect("plain"))
        .collect();
    let line = bounds[0].as_str();
    let unknown = line.replace("history_slots", "surprise");
    let long = format!("{line} ");
    assert!(read_lines([line, "", " "]).is_ok());
    assert!(matches!(read_lines([]), Err(BadLine::NoBounds)));
    assert!(matches!(
        read_lines([line, &long]),
        Err(BadLine::BoundsTwice { number: 2 })
    ));
    for bad in [r#"{"call":{"client":"a.b"}}"#, "{", &unknown, "null"] {
        assert!(
            matches!(
                read_lines([line, bad]),
                Err(BadLine::Unreadable { number: 2, .. })
            ),
            "{bad}"
        );
    }
}

#[test]
fn a_history_reads_as_it_was_written() {
    let history = history(1, 500);
    let lines: Vec<String> = write_lines(&history)
        .map(|line| line.expect("plain"))
        .collect();
    let read = read_lines(lines.iter().map(String::as_str)).expect("what was written");
    assert_eq!(read, history);
}
