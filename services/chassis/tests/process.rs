//! A whole process: this binary runs itself as a service, so that signals, exit codes and last words are real.

#[path = "it/common/mod.rs"]
mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use self::common::Tiny;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--config") {
        return chassis::main::<Tiny>();
    }
    check_only();
    stops_cleanly("TERM", &[]);
    stops_cleanly("INT", &["--worker-threads", "2"]);
    the_second_signal_is_the_last();
    last_words();
    the_log_may_have_no_reader();
    println!("process: 6 checks passed");
    ExitCode::SUCCESS
}

/// Writes a configuration and gives its path.
fn config(name: &str, more: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("process-{name}.toml"));
    let text = format!(
        "cell = {{name = 'test', number = 1}}\nnats = {{url = 'nats://127.0.0.1:1', creds = {:?}}}\n\
         http = {{listen = '127.0.0.1:0'}}\n",
        common::creds()
    );
    fs::write(&path, format!("{text}{more}")).expect("the target directory is writable");
    path
}

fn service(config: &PathBuf, more: &[&str]) -> Child {
    let this = std::env::current_exe().expect("a test knows its own path");
    let mut command = Command::new(this);
    command
        .arg("--config")
        .arg(config)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("this binary can be run")
}

/// Exit code, standard output and standard error of a service that ends by itself.
fn outcome(config: &PathBuf, more: &[&str]) -> (Option<i32>, String, String) {
    let output = service(config, more)
        .wait_with_output()
        .expect("the service ends");
    let text = |bytes| String::from_utf8(bytes).expect("the service writes UTF-8");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn check_only() {
    let silent = (Some(0), String::new(), String::new());
    assert_eq!(outcome(&config("good", ""), &["--check"]), silent);
    let path = config("bad", "clok = 1\n");
    let (code, _, words) = outcome(&path, &["--check"]);
    assert_eq!(code, Some(1));
    assert!(
        words.starts_with(&format!(
            "tiny-service: {}: unknown key `clok`, expected",
            path.display()
        )),
        "{words}"
    );
    assert_eq!(words.lines().count(), 1, "{words}");
    assert_eq!(outcome(&path, &["--chek"]).0, Some(2));
}

/// Reads a log up to the line with this message.
fn read_to(log: &mut impl BufRead, message: &str) {
    let mut line = String::new();
    while !line.contains(&format!("\"message\":\"{message}\"")) {
        line.clear();
        assert!(
            log.read_line(&mut line).expect("the log is UTF-8") > 0,
            "no {message} in the log"
        );
    }
}

fn send(signal: &str, child: &Child) {
    let killed = Command::new("kill")
        .arg(format!("-{signal}"))
        .arg(child.id().to_string())
        .status();
    assert!(killed.expect("there is a kill command").success());
}

fn the_second_signal_is_the_last() {
    let mut child = service(&config("stubborn", "service = {stubborn = true}\n"), &[]);
    let mut log = BufReader::new(child.stdout.take().expect("standard output is piped"));
    read_to(&mut log, "listening");
    send("TERM", &child);
    read_to(&mut log, "stopping");
    send("TERM", &child);
    read_to(&mut log, "stopping at once");
    assert_eq!(
        child.wait().expect("the service ends").code(),
        Some(128 + 15)
    );
}

fn stops_cleanly(signal: &str, more: &[&str]) {
    let mut child = service(&config(signal, ""), more);
    let mut log = BufReader::new(child.stdout.take().expect("standard output is piped"));
    read_to(&mut log, "listening");
    send(signal, &child);
    let mut rest = String::new();
    log.read_to_string(&mut rest).expect("the log is UTF-8");
    assert!(
        rest.contains(&format!("\"signal\":\"SIG{signal}\"")),
        "{rest}"
    );
    let output = child.wait_with_output().expect("the service ends");
    assert_eq!(
        (output.status.code(), output.stderr),
        (Some(0), Vec::new()),
        "{rest}"
    );
}

fn the_log_may_have_no_reader() {
    let mut child = service(&config("unread", ""), &[]);
    let mut log = BufReader::new(child.stdout.take().expect("standard output is piped"));
    read_to(&mut log, "listening");
    drop((log, child.stderr.take()));
    // It logs that it stops.
    send("TERM", &child);
    assert_eq!(child.wait().expect("the service ends").code(), Some(0));
}

fn last_words() {
    let path = config("fails", "service = {fail = \"two\\nlines\"}\n");
    let (code, _, words) = outcome(&path, &[]);
    assert_eq!(
        (code, words.as_str()),
        (Some(1), "tiny-service: tiny-service failed: two lines\n")
    );

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = taken.local_addr().expect("a bound listener has an address");
    let path = config("taken", "");
    let text = fs::read_to_string(&path)
        .expect("just written")
        .replace("127.0.0.1:0", &address.to_string());
    fs::write(&path, text).expect("the target directory is writable");
    let (code, _, words) = outcome(&path, &[]);
    assert_eq!(code, Some(1));
    assert!(
        words.starts_with(&format!("tiny-service: cannot listen on {address}: ")),
        "{words}"
    );
    assert_eq!(words.lines().count(), 1, "{words}");
}
