//! `docs/configuration.md`: every key of every configuration file and every environment variable of the programs.
//! `APPORTION_WRITE=1 cargo test -p cli configuration` writes it anew.
//!
//! Keys, types and meanings are read from the structs that the files are read into, as rustfmt writes them; defaults are
//! those of the running code. That there is no other key is asked of the code that refuses unknown ones.

use chassis::{Config, HttpConfig, LogConfig, Service};
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::{Debug, Write},
    fs,
    path::{Path, PathBuf},
};
use testkit::check_made;

const INTRODUCTION: &str = "\
# Configuration

This page is made by `services/cli/src/manual/configuration.rs` of the structs that the files are read into.

Each service and the node agent read one TOML file, named by `--config`. A key that nothing reads is refused, and so is a value out
of its range, before anything starts; `--check` says what is wrong and starts nothing. Paths start at the file's directory.
`services/*/config.example.toml` are whole files. The last part of a key's name is its unit. `required` stands where there is no
default, and `-` where leaving the key out means that there is no such thing.
";

/// Where the tables are that all services have.
const COMMON: [&str; 3] = [
    "services/chassis/src/config/raw.rs",
    "services/chassis/src/config.rs",
    "services/chassis/src/warm.rs",
];

/// Read by the programs, and not by tests alone.
const VARIABLES: [(&str, &str, &str); 21] = [
    (
        "APPORTION_CONTEXT",
        "`apportion`",
        "The context to take, as `--context`",
    ),
    (
        "APPORTION_NATS_URL",
        "`apportion`",
        "The bus, instead of the context's",
    ),
    (
        "APPORTION_CELL",
        "`apportion`",
        "The cell's name, instead of the context's. A run's command has it, too",
    ),
    (
        "APPORTION_TENANT",
        "`apportion`",
        "The tenant, instead of the context's. A run's command has it, too: its own",
    ),
    (
        "APPORTION_CREDS",
        "`apportion`",
        "A file of creds, instead of the context's",
    ),
    (
        "APPORTION_USER",
        "`apportion`",
        "The user of a password, instead of the context's",
    ),
    (
        "APPORTION_PASSWORD_FILE",
        "`apportion`",
        "A file with the password, instead of the context's",
    ),
    (
        "APPORTION_TOKEN_FILE",
        "`apportion`",
        "A file with the token, instead of the context's",
    ),
    (
        "APPORTION_CA_FILE",
        "`apportion`",
        "Whose certificate the bus has, instead of the context's",
    ),
    (
        "NO_COLOR",
        "`apportion`",
        "Not empty: no colours and no bars, also at a terminal",
    ),
    (
        "CLICOLOR",
        "`apportion`",
        "`0`: no colours, also at a terminal",
    ),
    (
        "CLICOLOR_FORCE",
        "`apportion`",
        "Neither empty nor `0`: colours, also without a terminal",
    ),
    (
        "APPORTION_COMPLETE",
        "`apportion`",
        "Set by the script of `apportion completions` when a shell completes a line",
    ),
    (
        "APPORTION_ALLOCATION_ID",
        "a run's command",
        "Set by the agent: the allocation's id",
    ),
    (
        "APPORTION_ARRAY_INDEX",
        "a run's command",
        "Set by `submit --array`: the index of this one",
    ),
    (
        "APPORTION_GANG",
        "a run's command",
        "Set by the agent: the name of its gang",
    ),
    (
        "APPORTION_JOB_SET",
        "a run's command",
        "Set by the agent: its job set",
    ),
    (
        "APPORTION_NAME",
        "a run's command",
        "Set by the agent: the tenant's name for it",
    ),
    (
        "APPORTION_NODE",
        "a run's command",
        "Set by the agent: the node",
    ),
    (
        "APPORTION_OPERATION_ID",
        "a run's command",
        "Set by the agent: the operation that asked for it",
    ),
    (
        "APPORTION_RUN_DIR",
        "a run's command",
        "Set by the agent: the directory of the run",
    ),
];

const OF_VARIABLES: &str = "\
No service is configured by any. The agent hands `PATH`, `HOME` and `LANG` on to the commands of runs; what a request sets in its
work stands before them, and what the agent sets before all.";

/// Has the names of all of them.
const THIS: &str = "manual/configuration.rs";

/// Of these nobody who runs the programs knows.
const OF_TESTS: [&str; 4] = [
    "APPORTION_CLOCK_OFFSET",
    "APPORTION_TEST_STACK",
    "APPORTION_WRITE",
    "APPORTION_X",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn source(paths: &[&str]) -> String {
    let read = |path: &&str| {
        let text = fs::read_to_string(root().join(path));
        text.unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    paths.iter().map(read).collect::<Vec<_>>().join("\n")
}

/// A member of a struct or an enum, with what stands above it.
#[derive(Debug, Clone)]
struct Member {
    name: String,
    /// Empty: a variant.
    ty: String,
    docs: String,
    serde: String,
}

/// The attributes above a struct or an enum, and its members; none: there is no such one.
fn members(source: &str, kind: &str, name: &str) -> Option<(String, Vec<Member>)> {
    let begins = [format!("{kind} {name} {{"), format!("{kind} {name}<T> {{")];
    let begins = begins.iter().find_map(|it| source.find(it.as_str()))?;
    let above = source[..begins].rsplit("\n\n").next()?.to_owned();
    let (first, body) = source[begins..].split_once('\n')?;
    let body = match first.ends_with('}') {
        true => "",
        false => body.split_once("\n}").map_or("", |(body, _)| body),
    };
    let (mut found, mut docs, mut serde) = (Vec::new(), String::new(), String::new());
    for line in body.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            docs = format!("{docs} {}", doc.trim()).trim().to_owned();
        } else if line.starts_with("#[") {
            serde += line;
        } else if !line.is_empty() && !line.starts_with("//") {
            let line = line.trim_end_matches(',');
            let (name, ty) = line.split_once(": ").unwrap_or((line, ""));
            let name = ["pub ", "pub(super) "]
                .iter()
                .fold(name, |name, it| name.strip_prefix(it).unwrap_or(name));
            found.push(Member {
                name: name.to_owned(),
                ty: ty.to_owned(),
                docs: std::mem::take(&mut docs),
                serde: std::mem::take(&mut serde),
            });
        }
    }
    Some((above, found))
}

/// The value of a field in what `{:?}` makes of a struct.
fn shown(debug: &str, field: &str) -> Option<String> {
    let begins = [format!("{{ {field}: "), format!(", {field}: ")];
    let found = begins
        .iter()
        .find_map(|it| Some(debug.find(it.as_str())? + it.len()))?;
    let (mut depth, mut in_text) = (0, false);
    let end = debug[found..].char_indices().find(|(_, c)| {
        match c {
            '"' => in_text = !in_text,
            '{' | '(' | '[' if !in_text => depth += 1,
            '}' | ')' | ']' if !in_text => depth -= 1,
            _ => {}
        }
        depth < 0 || (depth == 0 && *c == ',' && !in_text)
    });
    let end = end.map_or(debug.len(), |(at, _)| found + at);
    Some(debug[found..end].trim().to_owned())
}

/// A table of keys.
struct Keys {
    path: String,
    docs: String,
    is_optional: bool,
    rows: Vec<Row>,
}

impl Keys {
    fn none(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            docs: String::new(),
            is_optional: true,
            rows: Vec::new(),
        }
    }

    /// The path of a key in it.
    fn inner(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }
}

struct Row {
    key: String,
    ty: String,
    default: String,
    meaning: String,
}

/// What a page is made of: where the structs are, and the defaults by the name of their type.
struct Of {
    source: String,
    defaults: BTreeMap<String, String>,
}

impl Of {
    /// The keys of a struct, and of the tables in it.
    fn keys(&self, (path, docs, is_optional): (&str, &str, bool), ty: &str, out: &mut Vec<Keys>) {
        let (above, fields) = members(&self.source, "struct", ty)
            .unwrap_or_else(|| panic!("`{path}`: no struct {ty} in what is read"));
        let of_table = self.defaults.get(ty).filter(|_| above.contains("default"));
        let mut table = Keys {
            docs: docs.to_owned(),
            is_optional,
            ..Keys::none(path)
        };
        let mut tables = Vec::new();
        for field in &fields {
            if field.serde.contains("skip") || field.ty == "T" {
                continue;
            }
            let key = table.inner(&field.name);
            assert!(!field.docs.is_empty(), "`{key}` is not described in {ty}");
            let inner = field.ty.strip_prefix("Option<");
            let inner = inner.and_then(|ty| ty.strip_suffix('>'));
            let ty = inner.unwrap_or(&field.ty);
            let ty = ty.rsplit("::").next().unwrap_or(ty);
            let default = match of_table.and_then(|debug| shown(debug, &field.name)) {
                Some(value) => value,
                None if inner.is_some() => "None".to_owned(),
                None if field.serde.contains("default") => {
                    let default = self.defaults.get(ty).cloned();
                    default.unwrap_or_else(|| panic!("`{key}`: what is its default?"))
                }
                None => String::new(),
            };
            if members(&self.source, "struct", ty).is_some() {
                let is_optional = inner.is_some() || !default.is_empty();
                tables.push((key, field.docs.clone(), is_optional, ty.to_owned()));
                continue;
            }
            let row = self.row(&field.name, ty, &default, &field.docs);
            table.rows.push(row);
        }
        out.push(table);
        for (path, docs, is_optional, ty) in tables {
            self.keys((&path, &docs, is_optional), &ty, out);
        }
    }

    fn row(&self, key: &str, ty: &str, default: &str, docs: &str) -> Row {
        let mut meaning = docs.to_owned();
        let text = match members(&self.source, "enum", ty) {
            Some((_, variants)) => {
                for one in &variants {
                    assert!(
                        !one.docs.is_empty(),
                        "`{key}`: {} is not described",
                        one.name
                    );
                    // A string takes every write.
                    let _ = write!(meaning, " `\"{}\"`: {}", snake(&one.name), one.docs);
                }
                let names = variants
                    .iter()
                    .map(|one| format!("`\"{}\"`", snake(&one.name)));
                names.collect::<Vec<_>>().join(" or ")
            }
            None => match ty {
                "String" | "Currency" | "Secret" => "text".to_owned(),
                "PathBuf" => "path".to_owned(),
                "bool" => "`true` or `false`".to_owned(),
                "u8" | "u16" | "u32" | "u64" | "usize" => "whole number".to_owned(),
                "NonZeroU32" => "whole number from 1 on".to_owned(),
                "i64" => "whole number, may be negative".to_owned(),
                "SocketAddr" => "address and port".to_owned(),
                "BTreeMap<String, String>" => "table of texts".to_owned(),
                "RunUsers" => {
                    "table with the numbers `first` and `count` and the list `groups`".to_owned()
                }
                other => panic!("`{key}`: what is a {other}?"),
            },
        };
        let default = match default {
            "" => "required".to_owned(),
            "None" | "{}" => "-".to_owned(),
            value if text.starts_with("`\"") => format!("`\"{}\"`", snake(value)),
            // A type of its own around a value.
            value => match value
                .split_once('(')
                .and_then(|(_, it)| it.strip_suffix(')'))
            {
                Some(value) => format!("`{value}`"),
                None => format!("`{value}`"),
            },
        };
        Row {
            key: key.to_owned(),
            ty: text,
            default,
            meaning,
        }
    }
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(c.to_lowercase());
    }
    text
}

/// By the last part of its name, but for what bounds it.
fn unit(key: &str) -> &'static str {
    let parts: Vec<_> = key.split('_').collect();
    let has = |part| parts.contains(&part);
    match () {
        () if has("ms") => "milliseconds",
        () if has("bytes") => "bytes",
        () if has("milli") => "thousandths",
        () if has("percent") => "hundredths",
        () if has("slots") => "slots",
        () => "",
    }
}

/// The keys that there may be in a table, as who refuses another one says.
fn accepted<T: DeserializeOwned + Default + Debug>(path: &str) -> BTreeSet<String> {
    const NONE: &str = "no-such-key";
    let table = match path {
        "" => format!("{NONE} = 1"),
        path => format!("[{path}]\n{NONE} = 1"),
    };
    let refusal = Config::<T>::from_toml(&table).unwrap_err().to_string();
    let expected = refusal.rsplit_once("expected ").map_or("", |(_, it)| it);
    let quoted = expected.split('`').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

/// What is listed of each table is what is accepted in it.
fn check_keys<T: DeserializeOwned + Default + Debug>(tables: &[Keys]) {
    let paths: BTreeSet<_> = tables.iter().map(|table| table.path.as_str()).collect();
    for table in tables {
        let listed = table.rows.iter().map(|row| row.key.clone());
        let mut accepted = accepted::<T>(&table.path);
        accepted.retain(|key| !paths.contains(table.inner(key).as_str()));
        assert_eq!(
            listed.collect::<BTreeSet<_>>(),
            accepted,
            "[{}]",
            table.path
        );
    }
}

/// A service's own table, or all that services have in common.
struct Section {
    title: &'static str,
    note: String,
    tables: Vec<Keys>,
}

fn of_service<S: Service>(title: &'static str, ty: &str, paths: &[&str]) -> Section
where
    S::Settings: Debug,
{
    let mut defaults = BTreeMap::from([(ty.to_owned(), format!("{:?}", S::Settings::default()))]);
    let source = source(paths);
    // Those of the tables in it.
    let (_, fields) = members(&source, "struct", ty).unwrap_or_default();
    for field in fields {
        let default = shown(&defaults[ty], &field.name);
        defaults.extend(default.map(|default| (field.ty, default)));
    }
    let mut tables = Vec::new();
    Of { source, defaults }.keys(("service", "", true), ty, &mut tables);
    check_keys::<S::Settings>(&tables);
    tables.retain(|table| !table.rows.is_empty());
    let needs: Vec<_> = S::NEEDS
        .iter()
        .map(|needs| format!("`[{}]`", snake(&format!("{needs:?}"))))
        .collect();
    let mut note = match needs.is_empty() {
        true => String::new(),
        false => format!("It needs the table {}. ", needs.join(" and ")),
    };
    if tables.is_empty() {
        note += "It has no keys of its own.";
    }
    Section {
        title,
        note: note.trim_end().to_owned(),
        tables,
    }
}

fn common() -> Section {
    let debug = |name: &str, value: &dyn Debug| (name.to_owned(), format!("{value:?}"));
    let defaults = BTreeMap::from([
        debug("HttpConfig", &HttpConfig::default()),
        debug("LogConfig", &LogConfig::default()),
        debug("OnDrift", &chassis::warm::OnDrift::default()),
    ]);
    let of = Of {
        source: source(&COMMON),
        defaults,
    };
    let mut tables = Vec::new();
    of.keys(("", "", false), "Raw", &mut tables);
    // Of all tables one is the service's own.
    tables.push(Keys::none("service"));
    check_keys::<<quota::QuotaService as Service>::Settings>(&tables);
    tables.retain(|table| !table.rows.is_empty());
    Section {
        title: "Every service",
        note: "Also the node agent. A service's own keys are in `[service]`, below.".to_owned(),
        tables,
    }
}

fn sections() -> Vec<Section> {
    let leases = [
        "services/named-resources/src/config.rs",
        "services/named-resources/src/space/bounds.rs",
    ];
    let admission = [
        "services/admission-rules/src/config.rs",
        "services/admission-rules/src/room.rs",
    ];
    let nodes = [
        "services/node-heartbeat-rules/src/lib.rs",
        "services/node-heartbeat-rules/src/join.rs",
    ];
    let agent = ["services/node-agent/src/agent/settings.rs"];
    vec![
        common(),
        of_service::<admission::AdmissionService>("Admission", "Config", &admission),
        of_service::<quota::QuotaService>("Quota", "Config", &["services/quota-rules/src/lib.rs"]),
        of_service::<scheduler::SchedulerService>("Scheduler", "Config", &leases),
        of_service::<node_heartbeat::NodeHeartbeatService>("Node-heartbeat", "Config", &nodes),
        of_service::<analytics::AnalyticsService>(
            "Analytics",
            "Settings",
            &["services/analytics/src/lib.rs"],
        ),
        of_service::<node_agent::NodeAgent>("Node agent", "Settings", &agent),
    ]
}

fn rendered() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut put = |text: String| page.push_str(&text);
    for section in sections() {
        put(format!("\n## {}\n", section.title));
        if !section.note.is_empty() {
            put(format!("\n{}\n", section.note));
        }
        for table in section.tables {
            put(format!("\n### `[{}]`\n\n", table.path));
            let may = if table.is_optional {
                "May be left out. "
            } else {
                ""
            };
            if !(table.docs.is_empty() && may.is_empty()) {
                put(format!("{}\n\n", format!("{may}{}", table.docs).trim_end()));
            }
            put("| Key | Type | Unit | Default | Meaning |\n|---|---|---|---|---|\n".to_owned());
            for row in table.rows {
                let Row {
                    key,
                    ty,
                    default,
                    meaning,
                } = &row;
                assert!(!meaning.contains('|'), "`{key}` breaks the table");
                put(format!(
                    "| `{key}` | {ty} | {} | {default} | {meaning} |\n",
                    unit(key)
                ));
            }
        }
    }
    put(format!("\n## Environment variables\n\n{OF_VARIABLES}\n\n"));
    put("| Variable | Of | Meaning |\n|---|---|---|\n".to_owned());
    for (name, of, meaning) in VARIABLES {
        put(format!("| `{name}` | {of} | {meaning} |\n"));
    }
    page
}

#[test]
fn the_document_says_what_the_files_are_read_into() {
    check_made("docs/configuration.md", &rendered(), "-p cli configuration");
}

/// Every text in the sources of the programs that is the name of a variable, or would be if it were one of ours.
fn variables(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("a directory of the repository") {
        let path = entry.expect("an entry of it").path();
        if path.is_dir() {
            variables(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with(THIS) {
            let text = fs::read_to_string(&path).expect("a source");
            let quoted = text.split('"').filter(|it| {
                let ours = it.strip_prefix("APPORTION_").is_some_and(|rest| {
                    !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
                });
                ours || ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"].contains(it)
            });
            found.extend(quoted.map(str::to_owned));
        }
    }
}

#[test]
fn every_variable_is_described() {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root().join("services")).expect("the services") {
        let sources = entry.expect("an entry").path().join("src");
        if sources.is_dir() {
            variables(&sources, &mut found);
        }
    }
    let described = VARIABLES.iter().map(|(name, ..)| *name);
    let described: BTreeSet<_> = described.chain(OF_TESTS).map(str::to_owned).collect();
    assert_eq!(found, described);
}

#[test]
fn a_value_is_found_in_what_debug_makes() {
    let check = |debug: &str, field, expected: Option<&str>| {
        assert_eq!(shown(debug, field).as_deref(), expected, "{debug}");
    };
    let one = r#"Config { ms: 5, room: Shares { own: 1, all: 2 }, text: "a, b", of: Some(X(3)) }"#;
    check(one, "ms", Some("5"));
    check(one, "room", Some("Shares { own: 1, all: 2 }"));
    check(one, "text", Some(r#""a, b""#));
    check(one, "of", Some("Some(X(3))"));
    check(one, "other", None);
}
