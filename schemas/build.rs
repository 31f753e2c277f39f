//! Compiles the .proto files with protox, so that no protoc is needed.

use protox::prost::Message;
use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut files: Vec<PathBuf> = fs::read_dir("proto/apportion/v1")?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let descriptors = protox::compile(&files, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    prost_build::Config::new()
        .out_dir(out)
        // Every outcome would be as large as this one, which is rare.
        .boxed(".apportion.v1.Passes.spec")
        .compile_fds(descriptors)?;
    Ok(())
}
