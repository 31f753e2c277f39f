//! Embeds the chart library of `apportion report --html`, if `make setup` has installed it. Without it the program is
//! complete but for that command, which says so.

use std::{env, error::Error, fs, path::Path};

const PACKAGE: &str = "../../.local/page/node_modules/chart.js";

fn main() -> Result<(), Box<dyn Error>> {
    let read = |file: &str| {
        let path = format!("{PACKAGE}/{file}");
        // While it is not there, each build looks again.
        println!("cargo:rerun-if-changed={path}");
        fs::read_to_string(path)
    };
    let library = match (read("LICENSE.md"), read("dist/chart.umd.min.js")) {
        (Ok(licence), Ok(script)) => embeddable(&licence, &script)?,
        _ => String::new(),
    };
    let out = env::var("OUT_DIR")?;
    fs::write(Path::new(&out).join("chart_library.js"), library)?;
    Ok(())
}

/// With its licence, which goes where it goes, and without the line that sends debuggers after another file.
fn embeddable(licence: &str, script: &str) -> Result<String, String> {
    let own = |line: &&str| !line.starts_with("//# sourceMappingURL=");
    let script: Vec<&str> = script.lines().filter(own).collect();
    let library = format!("/*\n{}\n*/\n{}\n", licence.trim(), script.join("\n"));
    let lower = library.to_lowercase();
    match lower.contains("</script") || lower.contains("<!--") || licence.contains("*/") {
        true => Err("the chart library cannot stand in a page as it is".to_owned()),
        false => Ok(library),
    }
}
