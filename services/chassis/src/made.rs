//! Files of the repository that a program makes.

use std::{env, fs, path::Path};

/// For the test of a file that is made: panics unless it is as it is `made` now. With `APPORTION_WRITE=1` it is written anew.
/// `path` starts at the checkout; `test` is what cargo runs the test by, as `-p cli reference`.
pub fn check_made(path: &str, made: &str, test: &str) {
    let whole = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    if env::var_os("APPORTION_WRITE").is_some_and(|value| value == "1") {
        fs::write(&whole, made).expect("the checkout can be written");
    }
    let found = fs::read_to_string(&whole).unwrap_or_default();
    assert!(
        made == found,
        "{path} is out of date: `APPORTION_WRITE=1 cargo test {test}` writes it anew"
    );
}
