use crate::node::{Node, bounds, key, next, run, shell};
use node_agent::Bounds;
use std::{fmt::Write, fs};

#[tokio::test]
async fn both_streams_are_one_in_the_order_in_which_they_were_written() {
    let script = "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i + 1)); done";
    let (_, log) = run(&shell(script), &bounds()).await;
    let mut expected = String::new();
    for i in 0..200 {
        let _ = writeln!(expected, "out {i}\nerr {i}");
    }
    assert_eq!(log, expected);
}

#[tokio::test]
async fn the_newest_bytes_are_kept_and_offsets_count_all() {
    let node = Node::new();
    let runs = node.runs();
    let bounds = Bounds {
        log_bytes_max: 20_000,
        ..bounds()
    };
    // 100,000 lines of seven digits.
    let work = shell("seq -w 1000000 1099999");
    runs.start(key(1), &work, &bounds, &[]).expect("started");
    let ended = next(&runs).await;
    assert_eq!(ended.end.usage.log_bytes, 800_000);

    let first = runs.log(key(1), 0, 100).expect("a log");
    assert!(
        first.truncated_before >= 780_000,
        "{}",
        first.truncated_before
    );
    assert_eq!(
        (first.offset, first.bytes.len()),
        (first.truncated_before, 100)
    );
    let rest = runs
        .log(key(1), first.offset + 100, usize::MAX)
        .expect("a log");
    assert_eq!(rest.end, Some(800_000));
    let bytes = [first.bytes, rest.bytes].concat();
    assert_eq!(first.offset + bytes.len() as u64, 800_000);
    let whole: String = (1_000_000..1_100_000).fold(String::new(), |mut text, i| {
        let _ = writeln!(text, "{i}");
        text
    });
    let from = usize::try_from(first.offset).expect("an offset");
    assert!(
        bytes == whole.as_bytes()[from..],
        "other bytes than were written there"
    );

    let mut on_disk = 0;
    for entry in fs::read_dir(node.run_file(key(1), "")).expect("listed") {
        let entry = entry.expect("an entry");
        if entry.file_name().to_string_lossy().starts_with("log.") {
            on_disk += entry.metadata().expect("a length").len();
        }
    }
    assert_eq!(on_disk, bytes.len() as u64);
    assert!((15_000 - 5000..=20_000).contains(&on_disk), "{on_disk}");

    let end = runs.log(key(1), 800_000, usize::MAX).expect("a log");
    assert_eq!(
        (end.offset, end.bytes.len(), end.end),
        (800_000, 0, Some(800_000))
    );
}

#[tokio::test]
async fn a_run_that_closes_its_output_goes_on() {
    let (ended, log) = run(
        &shell("echo before; exec >&- 2>&-; sleep 0; exit 6"),
        &bounds(),
    )
    .await;
    assert_eq!((ended.end.exit.code, log.as_str()), (6, "before\n"));
}
