//! `schemas/generated`: the messages and descriptors that protox and prost-build make of the .proto files. They are
//! committed, so that a build waits for neither; `APPORTION_WRITE=1 cargo test -p schemas --test it generated` writes them.

use protox::prost::Message;
use std::{
    env, fs,
    path::{Path, PathBuf},
};

const WRITE: &str = "APPORTION_WRITE";

#[test]
fn the_generated_files_are_what_the_proto_files_say() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("generated");
    fs::create_dir_all(&made).unwrap();
    let proto = manifest.join("proto");
    let mut files: Vec<PathBuf> = fs::read_dir(proto.join("apportion/v1"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let descriptors = protox::compile(&files, [&proto]).unwrap();
    fs::write(made.join("descriptors.bin"), descriptors.encode_to_vec()).unwrap();
    prost_build::Config::new()
        .out_dir(&made)
        // Every outcome would be as large as this one, which is rare.
        .boxed(".apportion.v1.Passes.spec")
        .compile_fds(descriptors)
        .unwrap();
    for file in ["apportion.v1.rs", "descriptors.bin"] {
        let (made, committed) = (made.join(file), manifest.join("generated").join(file));
        let made = fs::read(made).unwrap();
        if env::var_os(WRITE).is_some_and(|value| value == "1") {
            fs::write(&committed, &made).unwrap();
        }
        assert!(
            made == fs::read(&committed).unwrap_or_default(),
            "schemas/generated/{file} is not what the .proto files say: \
             `{WRITE}=1 cargo test -p schemas --test it generated` writes it again"
        );
    }
}
