//! The page as data, and the file that holds it.

use super::charts::Chart;
use crate::print::Sheet;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Empty in a program that was built without it.
pub const LIBRARY: &str = include_str!(concat!(env!("OUT_DIR"), "/chart_library.js"));
const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

#[derive(Debug, Clone, Serialize)]
pub struct Page {
    pub title: String,
    /// What it is of, by name.
    pub facts: Vec<(&'static str, String)>,
    pub sections: Vec<Section>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Section {
    pub id: &'static str,
    pub title: &'static str,
    /// What it says, or that there is nothing to say.
    pub text: String,
    pub parts: Vec<Part>,
}

/// A table, and the chart of it.
#[derive(Debug, Clone, Serialize)]
pub struct Part {
    pub caption: String,
    pub chart: Option<Chart>,
    pub sheet: Sheet,
    pub folded: bool,
}

impl Page {
    /// One file that asks for nothing: its policy forbids all that does not stand in it.
    pub fn html(&self, library: &str) -> Result<String, serde_json::Error> {
        let digest = |text: &str| {
            let digest = data_encoding::BASE64.encode(&Sha256::digest(text));
            format!("'sha256-{digest}'")
        };
        let policy = format!(
            "default-src 'none'; base-uri 'none'; form-action 'none'; style-src {}; script-src {} {}",
            digest(STYLE),
            digest(library),
            digest(SCRIPT)
        );
        // In JSON, `<` may be written otherwise; in a page it may end the script that it stands in.
        let data = serde_json::to_string(self)?.replace('<', "\\u003c");
        let (mut page, mut rest) = (String::new(), TEMPLATE);
        for (place, text) in [
            ("{policy}", policy.as_str()),
            ("{style}", STYLE),
            ("{data}", &data),
            ("{library}", library),
            ("{script}", SCRIPT),
        ] {
            // What was filled in is not looked at again.
            let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
            page.push_str(before);
            page.push_str(text);
            rest = after;
        }
        page.push_str(rest);
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::{column, plain};

    const TROUBLE: &str = "</script><script>alert(1)</script><!--";

    fn page(name: &str) -> Page {
        let sheet = Sheet::new(vec![column("team", "team")], 1, vec![vec![plain(name)]]);
        let part = Part {
            caption: name.to_owned(),
            chart: None,
            sheet,
            folded: false,
        };
        let section = Section {
            id: "bill",
            title: "Bill",
            text: String::new(),
            parts: vec![part],
        };
        Page {
            title: name.to_owned(),
            facts: vec![],
            sections: vec![section],
        }
    }

    #[test]
    fn the_template_has_each_place_once() {
        for place in ["{policy}", "{style}", "{data}", "{library}", "{script}"] {
            assert_eq!(TEMPLATE.matches(place).count(), 1, "{place}");
        }
        assert!(!STYLE.contains("</style") && !SCRIPT.contains("</script"));
    }

    #[test]
    fn what_tenants_write_ends_no_script() {
        let calm = page("calm").html("/* {script} */").unwrap();
        let page = page(TROUBLE).html("/* {script} */").unwrap();
        let scripts = |page: &str| page.to_lowercase().matches("<script").count();
        assert_eq!(scripts(&page), scripts(&calm));
        assert!(!page.contains("<!--") && !page.contains("alert(1)</script>"));
        assert!(page.contains("\\u003c/script>"), "it is there");
        assert!(
            page.contains("/* {script} */"),
            "what is filled in stays as it is"
        );
    }
}
