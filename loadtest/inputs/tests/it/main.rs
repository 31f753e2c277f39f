//! Runs each input of the corpus through its target.

use inputs::TARGETS;
use std::{
    collections::BTreeSet,
    fs, panic,
    path::{Path, PathBuf},
};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect()
}

/// Minimum number of accepted inputs per target: a corpus that is refused entirely tests little of the code after the decoder.
const ACCEPTED_MIN: usize = 3;
/// Minimum number of refused inputs per target.
const REFUSED_MIN: usize = 1;

#[test]
fn every_input_of_the_corpus_is_decoded_or_refused() {
    let (mut failed, mut poor) = (Vec::new(), Vec::new());
    for (name, target) in TARGETS {
        let dir = corpus().join(name);
        let (mut accepted, mut refused) = (0, 0);
        for file in names(&dir) {
            let path = dir.join(&file);
            let input = fs::read(&path).expect("a file of the corpus");
            match panic::catch_unwind(|| target(&input)) {
                Ok(true) => accepted += 1,
                Ok(false) => refused += 1,
                Err(_) => failed.push(path),
            }
        }
        println!("{name}: {accepted} accepted, {refused} refused");
        if accepted < ACCEPTED_MIN || refused < REFUSED_MIN {
            poor.push(*name);
        }
    }
    assert!(
        failed.is_empty(),
        "these inputs break a guarantee: {failed:#?}"
    );
    assert!(
        poor.is_empty(),
        "too few inputs are accepted or refused: {poor:?}"
    );
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len(), "two targets have one name");
    assert_eq!(names(&corpus()), targets);
}
