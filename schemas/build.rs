//! Compiles the .proto files with protox, so that no protoc is needed.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut files: Vec<PathBuf> = fs::read_dir("proto/apportion/v1")?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let descriptors = protox::compile(&files, ["proto"])?;
    prost_build::Config::new()
        .out_dir(PathBuf::from(env::var("OUT_DIR")?))
        .compile_fds(descriptors)?;
    Ok(())
}
