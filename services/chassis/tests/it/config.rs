//! The configuration: what is taken, and how each refusal names its place.

use std::fs;
use std::path::PathBuf;

use chassis::{Config, ConfigError, LogFormat, Secret, check_sample};
use serde::Deserialize;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    batch_max: u32,
    rules: Rules,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Rules {
    grace_ms: u64,
}

const SAMPLE: &str = r#"
[cell]
name = "local"
number = 1
[nats]
url = "nats://127.0.0.1:4222"
creds = "tiny.creds"
monitor_url = "http://127.0.0.1:8222"
[clock]
origin_ms = -5
started_ms = 1700000000000
rate = 1000
[http]
listen = "127.0.0.1:9101"
[log]
format = "pretty"
filter = "info,quota=debug"
[telemetry]
otlp_endpoint = "http://127.0.0.1:4317"
[postgres]
url = "postgres://quota:hunter2@127.0.0.1:5432/apportion"
schema = "quota"
[clickhouse]
url = "http://127.0.0.1:8123"
user = "analytics"
password = "hunter2"
database = "apportion"
[service]
batch_max = 500
[service.rules]
grace_ms = 9
"#;

fn load(text: &str) -> Result<Config<Settings>, ConfigError> {
    let creds = crate::common::creds();
    Config::from_toml(&text.replace("tiny.creds", &creds.display().to_string()))
}

#[test]
fn each_value_of_the_sample_arrives() {
    let config = load(SAMPLE).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(
        (config.cell.name.as_str(), config.cell.number),
        ("local", 1)
    );
    assert_eq!(config.nats.url, "nats://127.0.0.1:4222");
    assert_eq!(config.nats.creds, crate::common::creds());
    assert_eq!(config.nats.signing_key, None);
    assert_eq!(
        config.nats.monitor_url.as_deref(),
        Some("http://127.0.0.1:8222")
    );
    let clock = config.clock.expect("the sample has a clock");
    assert_eq!(
        (clock.origin_ms, clock.started_ms, clock.rate.get()),
        (-5, 1_700_000_000_000, 1000)
    );
    assert_eq!(config.http.listen.port(), 9101);
    assert_eq!(
        (config.log.format, config.log.filter.as_str()),
        (LogFormat::Pretty, "info,quota=debug")
    );
    let otlp = config
        .telemetry
        .as_ref()
        .map(|telemetry| telemetry.otlp_endpoint.as_str());
    assert_eq!(otlp, Some("http://127.0.0.1:4317"));
    let postgres = config.postgres.as_ref().expect("the sample has Postgres");
    assert_eq!(
        postgres.url.reveal(),
        "postgres://quota:hunter2@127.0.0.1:5432/apportion"
    );
    assert_eq!(
        (postgres.schema.as_str(), &postgres.password),
        ("quota", &None)
    );
    let clickhouse = config
        .clickhouse
        .as_ref()
        .expect("the sample has ClickHouse");
    assert_eq!(
        (clickhouse.url.as_str(), clickhouse.user.as_str()),
        ("http://127.0.0.1:8123", "analytics")
    );
    assert_eq!(
        (clickhouse.password.reveal(), clickhouse.database.as_str()),
        ("hunter2", "apportion")
    );
    assert_eq!(
        config.service,
        Settings {
            batch_max: 500,
            rules: Rules { grace_ms: 9 }
        }
    );
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    assert_eq!(check_sample::<Settings>(SAMPLE), config.service);
}

#[test]
fn the_smallest_configuration_has_defaults() {
    let text = "cell = {name = 'a', number = 1}\nnats = {url = 'nats://h:1', creds = 'tiny.creds'}\n\
                http = {listen = '[::1]:0'}";
    let config = load(text).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(
        (config.log.format, config.log.filter.as_str()),
        (LogFormat::Json, "info")
    );
    assert_eq!(config.service, Settings::default());
    assert!(
        config.clock.is_none() && config.telemetry.is_none() && config.nats.monitor_url.is_none()
    );
    assert!(config.postgres.is_none() && config.clickhouse.is_none());
}

/// Replaces one piece of the sample and expects a refusal that says exactly this.
fn refused(from: &str, to: &str, expected: &str) {
    assert_eq!(SAMPLE.matches(from).count(), 1, "{from} must be one place");
    match load(&SAMPLE.replace(from, to)) {
        Ok(_) => panic!("{to:?} was taken"),
        Err(refusal) => {
            let text = refusal.to_string();
            assert!(
                text.starts_with(&format!("(inline): {expected}")),
                "{to:?}: {text}"
            );
            assert!(
                !format!("{text} {refusal:?}").contains("hunter2"),
                "{to:?}: {text}"
            );
        }
    }
}

#[test]
fn an_unknown_key_is_refused_at_each_level() {
    for table in [
        "cell",
        "nats",
        "clock",
        "http",
        "log",
        "telemetry",
        "postgres",
        "clickhouse",
        "service",
    ] {
        let header = format!("[{table}]\n");
        refused(
            &header,
            &format!("{header}speling = 1\n"),
            &format!("unknown key `{table}.speling`, expected"),
        );
    }
    refused("[cell]", "[celle]\n[cell]", "unknown key `celle`, expected");
    refused(
        "grace_ms",
        "grace",
        "unknown key `service.rules.grace`, expected `grace_ms`",
    );
}

#[test]
fn a_missing_key_is_named() {
    refused("number = 1\n", "", "missing key `cell.number`");
    refused(
        "listen = \"127.0.0.1:9101\"\n",
        "",
        "missing key `http.listen`",
    );
    refused("schema = \"quota\"\n", "", "missing key `postgres.schema`");
    refused("creds = \"tiny.creds\"\n", "", "missing key `nats.creds`");
    refused(
        "password = \"hunter2\"\ndatabase",
        "database",
        "`clickhouse.password`: must be given",
    );
}

#[test]
fn a_bad_value_is_refused_with_its_rule() {
    let token = "must be 1 to 32 characters of A-Z a-z 0-9 _ -";
    for name in ["", "a.b", "a b", "*", ">", "caf\u{e9}", &"a".repeat(33)] {
        refused(
            "\"local\"",
            &format!("{name:?}"),
            &format!("`cell.name`: {token}"),
        );
    }
    for (number, rule) in [
        ("0", "must be a nonzero u64"),
        ("-1", "must be a nonzero u64"),
        ("\"1\"", "must be a nonzero u64"),
    ] {
        refused(
            "number = 1",
            &format!("number = {number}"),
            &format!("`cell.number`: {rule}"),
        );
    }
    for rate in ["0", "-1", "0.5", "4294967296"] {
        refused(
            "rate = 1000",
            &format!("rate = {rate}"),
            "`clock.rate`: must be a nonzero u32",
        );
    }
    for url in ["127.0.0.1:4222", "http://127.0.0.1", "nats://", ""] {
        refused(
            "\"nats://127.0.0.1:4222\"",
            &format!("{url:?}"),
            "`nats.url`: must",
        );
    }
    let credentials = "must not carry credentials, they have keys of their own";
    for (from, key) in [
        ("nats://127.0.0.1:4222", "nats.url"),
        ("http://127.0.0.1:8123", "clickhouse.url"),
    ] {
        let (scheme, rest) = from.split_once("://").expect("a URL of the sample");
        for user in [":hunter2", "u:hunter2", "hunter2"] {
            refused(
                from,
                &format!("{scheme}://{user}@{rest}"),
                &format!("`{key}`: {credentials}"),
            );
        }
    }
    refused(
        "http://127.0.0.1:8222",
        "localhost",
        "`nats.monitor_url`: must be http:// or https://host:port",
    );
    refused(
        "http://127.0.0.1:8123",
        "ftp://h",
        "`clickhouse.url`: must be http:// or https://host:port",
    );
    refused(
        "http://127.0.0.1:4317",
        "grpc://h:4317",
        "`telemetry.otlp_endpoint`: must be http:// or https://host:port",
    );
    refused("127.0.0.1:9101", "127.0.0.1", "`http.listen`: ");
    refused(
        "\"pretty\"",
        "\"xml\"",
        "`log.format`: unknown variant `xml`",
    );
    refused(
        "info,quota=debug",
        "info,quota=loud",
        "`log.filter`: must be a level or a list of target=level",
    );
    refused(
        "schema = \"quota\"",
        "schema = \"Quota;\"",
        "`postgres.schema`: must be a lower-case SQL name",
    );
    refused(
        "postgres://quota:hunter2@127.0.0.1:5432/",
        "hunter2",
        "`postgres.url`: must be postgres://",
    );
    refused(
        "batch_max = 500",
        "batch_max = -1",
        "`service.batch_max`: must be u32",
    );
    refused(
        "grace_ms = 9",
        "grace_ms = \"x\"",
        "`service.rules.grace_ms`: must be u64",
    );
}

#[test]
fn a_broken_secret_is_not_repeated() {
    let password = "password = \"hunter2\"\ndatabase";
    refused(
        password,
        "password = ['hunter2']\ndatabase",
        "`clickhouse.password`: must be a string",
    );
    refused(
        password,
        "password = {hunter2 = 1}\ndatabase",
        "`clickhouse.password`: must be a string",
    );
    refused(
        password,
        "password = ''\ndatabase",
        "`clickhouse.password`: must not be empty",
    );
    refused(
        "\"postgres://quota:hunter2@127.0.0.1:5432/apportion\"",
        "['hunter2']",
        "`postgres.url`: must be a string",
    );
    refused("[http]", "[http.x]\ny = 'hunter2'\n[http]", "");
    let refusal = load("[nats]\n\npassword = hunter2").expect_err("a bare word is not TOML");
    let text = format!("{refusal} {refusal:?}");
    assert!(
        refusal.to_string().starts_with("(inline):3: not TOML: ") && !text.contains("hunter2"),
        "{text}"
    );
    let refusal = load(
        "nats = 'nats://u:hunter2@h'\ncell = {name = 'a', number = 1}\nhttp = {listen = '[::1]:0'}",
    )
    .expect_err("a table is no string");
    let text = format!("{refusal} {refusal:?}");
    assert!(
        refusal.to_string().starts_with("(inline): `nats`: must be") && !text.contains("hunter2"),
        "{text}"
    );
}

/// A directory of this test alone, under the target directory.
fn directory(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).expect("the target directory is writable");
    directory
}

#[test]
fn a_password_may_live_in_a_file_beside_the_configuration() {
    let directory = directory("password-file");
    let path = directory.join("quota.toml");
    let text = SAMPLE
        .replace(
            "creds = \"tiny.creds\"",
            "creds = \"tiny.creds\"\nsigning_key_file = \"nats.secret\"",
        )
        .replace("quota:hunter2@", "quota@")
        .replace(
            "schema = \"quota\"",
            "schema = \"quota\"\npassword_file = \"postgres.secret\"",
        );
    fs::write(&path, &text).expect("the directory is writable");
    fs::write(directory.join("nats.secret"), "swordfish\n").expect("the directory is writable");
    fs::copy(crate::common::creds(), directory.join("tiny.creds"))
        .expect("the directory is writable");
    fs::remove_file(directory.join("postgres.secret")).ok();

    let refusal = Config::<Settings>::load(&path).expect_err("one secret is not there");
    assert!(
        matches!(
            refusal,
            ConfigError::UnreadableSecret {
                key: "postgres.password_file",
                ..
            }
        ),
        "{refusal}"
    );
    assert!(
        refusal.to_string().starts_with(&path.display().to_string()),
        "{refusal}"
    );

    fs::write(directory.join("postgres.secret"), " two words \r\n")
        .expect("the directory is writable");
    let config = Config::<Settings>::load(&path).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(config.nats.creds, directory.join("tiny.creds"));
    assert_eq!(config.nats.signing_key, Some(Secret::new("swordfish")));
    assert_eq!(
        config.postgres.and_then(|postgres| postgres.password),
        Some(Secret::new(" two words "))
    );
    check_sample::<Settings>(&text);
}

#[test]
fn creds_are_looked_at_before_anything_starts() {
    let file = directory("creds").join("empty.creds");
    fs::write(&file, "x\n").expect("the directory is writable");
    let check = |path: &str, rule| refused("tiny.creds", path, rule);
    check("/no/such/file", "`nats.creds`: cannot read /no/such/file");
    let file = file.display().to_string();
    check(
        &file,
        "`nats.creds`: must name a file of creds, and there is no section",
    );
}

#[test]
fn a_secret_has_one_source() {
    refused(
        "schema",
        "password_file = 'x'\nschema",
        "`postgres.password_file`: must not be given together",
    );
    refused(
        "database",
        "password_file = 'x'\ndatabase",
        "`clickhouse.password_file`: must not be given together",
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let path = directory("no-file").join("absent.toml");
    let refusal = Config::<Settings>::load(&path).expect_err("the file does not exist");
    assert_eq!(
        refusal.to_string(),
        format!("{}: cannot be read", path.display())
    );
}

#[test]
#[should_panic(expected = "unknown key `service.speling`")]
fn a_sample_with_a_mistake_fails_its_test() {
    check_sample::<Settings>(&SAMPLE.replace("batch_max", "speling"));
}

/// The authority of a test's servers, in a file of its own.
fn authority(name: &str) -> PathBuf {
    let path = directory("tls").join(format!("{name}.pem"));
    let key = rcgen::KeyPair::generate().expect("randomness");
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let signed = params.self_signed(&key).expect("a sound request");
    fs::write(&path, signed.pem()).expect("the directory is writable");
    path
}

const SERVERS: [(&str, &str, &str); 4] = [
    ("nats", "nats://127.0.0.1:4222", "tls://127.0.0.1:4222"),
    (
        "telemetry",
        "http://127.0.0.1:4317",
        "https://127.0.0.1:4317",
    ),
    (
        "clickhouse",
        "http://127.0.0.1:8123",
        "https://127.0.0.1:8123",
    ),
    ("postgres", "schema = \"quota\"", "schema = \"quota\""),
];

#[test]
fn each_server_may_be_known_by_an_authority() {
    let path = authority("each");
    let mut text = SAMPLE.to_owned();
    for (table, plain, secure) in SERVERS {
        let header = format!("[{table}]\n");
        text = text
            .replace(plain, secure)
            .replace(&header, &format!("{header}ca_file = {path:?}\n"));
    }
    let config = load(&text).unwrap_or_else(|refusal| panic!("{refusal}"));
    let found = [
        config.nats.ca_file,
        config.telemetry.and_then(|table| table.ca_file),
        config.clickhouse.and_then(|table| table.ca_file),
        config.postgres.and_then(|table| table.ca_file),
    ];
    assert_eq!(found, [(); 4].map(|()| Some(path.clone())));
    check_sample::<Settings>(&text);
}

#[test]
fn an_authority_and_an_address_of_tls_belong_together() {
    let path = authority("together");
    for (table, plain, secure) in SERVERS {
        let key = match table {
            "telemetry" => "telemetry.otlp_endpoint".to_owned(),
            _ => format!("{table}.url"),
        };
        let header = format!("[{table}]\n");
        let given = format!("{header}ca_file = {path:?}\n");
        let scheme = secure.split("://").next().unwrap_or_default();
        if table != "postgres" {
            let rule = format!("must not be given where {key} is not {scheme}://");
            refused(&header, &given, &format!("`{table}.ca_file`: {rule}"));
            let rule = format!("must be given where {key} is {scheme}://");
            refused(plain, secure, &format!("`{table}.ca_file`: {rule}"));
        }
    }
    for setting in ["sslmode=disable", "a=b&sslrootcert=/x"] {
        let url = "postgres://quota:hunter2@127.0.0.1:5432/apportion\"\n";
        let to = url.replace(
            "apportion\"\n",
            &format!("apportion?{setting}\"\nca_file = {path:?}\n"),
        );
        let rule = "must not be given together with ssl settings in postgres.url";
        refused(url, &to, &format!("`postgres.ca_file`: {rule}"));
    }
}

#[test]
fn a_file_that_is_no_authority_is_refused_by_its_setting() {
    let directory = directory("tls");
    for (name, text, rule) in [
        ("missing", None, "cannot read FILE: "),
        ("empty", Some(""), "FILE is no PEM file of certificates"),
        (
            "other",
            Some("-----BEGIN CERTIFICATE-----\naGk=\n-----END CERTIFICATE-----\n"),
            "FILE has a certificate that is no authority's: ",
        ),
    ] {
        let path = directory.join(name);
        if let Some(text) = text {
            fs::write(&path, text).expect("the directory is writable");
        }
        let rule = rule.replace("FILE", &path.display().to_string());
        for (table, plain, secure) in SERVERS {
            // Postgres' URL stays as it is.
            let quote = if table == "postgres" { "" } else { "\"" };
            let from = format!("{plain}{quote}");
            let to = format!("{secure}{quote}\nca_file = {path:?}");
            refused(&from, &to, &format!("`{table}.ca_file`: {rule}"));
        }
    }
}
